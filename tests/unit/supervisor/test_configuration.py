"""The last good config stays in force, whatever happens to its file."""

import pytest

from device_plugin.config.source import ConfigSource
from device_plugin.errors import ConfigError
from device_plugin.problems import ProblemKind
from device_plugin.supervisor.configuration import ConfigKeeper

GOOD, OTHER, BROKEN = "version: v1\n", "version: v1\nflags: {migStrategy: mixed}\n", "version: v1\nflgs: {}\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config.yaml"


@pytest.fixture
def keeper(path, log):
    return ConfigKeeper(ConfigSource(file=str(path)), environment={}, flags={}, logger=log.logger)


def allow(_loaded, _again):
    return ()


def strategy(keeper):
    return keeper.loaded.config.flags.mig_strategy.value


def test_a_missing_file_is_awaited_and_named_once(keeper, path, log):
    assert not keeper.look(allow)
    assert not keeper.look(allow)
    assert [entry["path"] for entry in log.of("config.awaited")] == [str(path)]
    path.write_text(GOOD)
    assert keeper.look(allow)


def test_a_broken_file_before_any_good_one_raises_with_every_problem(keeper, path):
    path.write_text("version: v1\nflgs: {}\nhelth: {}\n")
    with pytest.raises(ConfigError) as caught:
        keeper.look(allow)
    assert len(caught.value.problems) == 2


def test_a_broken_edit_is_refused_and_said_once(keeper, path, log):
    path.write_text(OTHER)
    keeper.look(allow)
    path.write_text(BROKEN)
    for _ in range(3):
        assert not keeper.look(allow, force=True)
    assert strategy(keeper) == "mixed"
    assert len(log.of("config.refused")) == 1
    assert [problem.origin.line for problem in keeper.problems] == [2]


def test_the_way_back_clears_what_was_wrong(keeper, path):
    path.write_text(OTHER)
    keeper.look(allow)
    path.write_text(BROKEN)
    keeper.look(allow)
    path.write_text(OTHER)
    assert not keeper.look(allow)
    assert keeper.problems == ()


def test_the_same_fault_after_a_good_text_is_said_again(keeper, path, log):
    for text in (GOOD, BROKEN, GOOD, BROKEN):
        path.write_text(text)
        keeper.look(allow)
    assert len(log.of("config.refused")) == 2


def test_what_the_node_forbids_waits_for_the_node(keeper, path, make):
    path.write_text(GOOD)
    keeper.look(allow)
    path.write_text(OTHER)
    assert not keeper.look(lambda _loaded, _again: [make.problem(ProblemKind.MIG_SINGLE)])
    assert keeper.awaits_node
    assert strategy(keeper) == "none"
    assert not keeper.look(allow), "the same text is not looked at again"
    assert keeper.look(allow, force=True), "unless somebody says that the node has changed"
    assert not keeper.awaits_node
    assert strategy(keeper) == "mixed"


def test_a_text_that_is_broken_in_itself_waits_for_nobody(keeper, path, make):
    path.write_text(GOOD)
    keeper.look(allow)
    path.write_text(OTHER)
    keeper.look(lambda _loaded, _again: [make.problem()])
    path.write_text(BROKEN)
    keeper.look(allow)
    assert not keeper.awaits_node


def test_a_file_that_vanishes_leaves_its_config_in_force(keeper, path, log):
    path.write_text(OTHER)
    keeper.look(allow)
    path.unlink()
    assert not keeper.look(allow)
    assert strategy(keeper) == "mixed"
    assert len(log.of("config.vanished")) == 1
    path.write_text(OTHER)
    assert not keeper.look(allow)
    path.write_text(GOOD)
    assert keeper.look(allow)


def test_a_file_that_cannot_be_read_leaves_its_config_in_force(keeper, path, log):
    path.write_text(OTHER)
    keeper.look(allow)
    path.unlink()
    path.mkdir()
    assert not keeper.look(allow)
    assert strategy(keeper) == "mixed"
    assert log.of("config.refused")


def test_another_text_of_the_same_meaning_is_no_change(keeper, path):
    path.write_text(GOOD)
    keeper.look(allow)
    path.write_text(GOOD + "# a comment\n")
    assert not keeper.look(allow)


def test_a_change_says_both_hashes(keeper, path, log):
    for text in (GOOD, OTHER):
        path.write_text(text)
        keeper.look(allow)
    first, second = log.of("config.loaded")
    assert first["previous_config_hash"] is None
    assert second["previous_config_hash"] == first["config_hash"]


def test_the_log_says_which_settings_are_not_the_default_and_where_they_come_from(path, log):
    """Three places can state a setting; whose word holds must not be guessed at."""
    path.write_text("flags: {migStrategy: single, gdsEnabled: true, plugin: {deviceListStrategy: [envvar, volume-mounts]}}\n")
    keeper = ConfigKeeper(
        ConfigSource(file=str(path)),
        environment={"GDS_ENABLED": "f", "DP_DISABLE_HEALTHCHECKS": "48,13"},
        flags={"mig-strategy": "mixed"},
        logger=log.logger,
    )
    keeper.look(allow)
    [loaded] = log.of("config.loaded")
    assert loaded["settings"] == {
        "flags.migStrategy": "mixed (--mig-strategy)",
        "flags.gdsEnabled": "false (GDS_ENABLED)",
        "flags.plugin.deviceListStrategy": f"envvar, volume-mounts ({path}:1:77)",
        "health.disableXids": "13, 48 (DP_DISABLE_HEALTHCHECKS)",
    }


def test_what_is_in_force_is_not_refused_when_the_node_has_changed_under_it(keeper, path, log, make):
    """A forced look reads the text that is in force; what does not fit any more is then said where the node is planned."""
    path.write_text(GOOD)
    keeper.look(allow)
    assert not keeper.look(lambda _loaded, _again: [make.problem(ProblemKind.TOO_LARGE)], force=True)
    assert not keeper.awaits_node
    assert (keeper.problems, log.of("config.refused")) == ((), [])


def test_what_was_let_in_unseen_gives_way_to_the_last_one_that_fits_better(keeper, path, make):
    """Edits while the node was not known, none of which can be used on it: the one that was there before them goes on."""
    for text in (GOOD, OTHER, OTHER + "devices: {exclude: [0]}\n"):
        path.write_text(text)
        keeper.look(allow)
    assert not keeper.withdraw([make.problem()], lambda _: False), "no one is better"
    assert strategy(keeper) == "mixed"
    assert keeper.withdraw([make.problem(ProblemKind.TOO_LARGE)], lambda loaded: loaded.config.flags.mig_strategy.value == "none")
    assert strategy(keeper) == "none"
    assert keeper.awaits_node
    assert [problem.kind for problem in keeper.problems] == [ProblemKind.TOO_LARGE]
    assert not keeper.withdraw([make.problem()], lambda _: True), "the first one has none before it"


def test_what_has_been_served_is_not_withdrawn(keeper, path, make):
    for text in (GOOD, OTHER):
        path.write_text(text)
        keeper.look(allow)
    keeper.note_served(keeper.loaded)
    assert not keeper.withdraw([make.problem()], lambda _: True)
    assert strategy(keeper) == "mixed"


def test_that_another_one_was_served_says_nothing_of_the_one_in_force(keeper, path, make):
    path.write_text(GOOD)
    keeper.look(allow)
    served = keeper.loaded
    path.write_text(OTHER)
    keeper.look(allow)
    keeper.note_served(served)
    assert keeper.withdraw([make.problem()], lambda _: True)


def test_whether_a_text_was_refused_before_is_told(keeper, path, make):
    told = []

    def forbid(_loaded, again):
        told.append(again)
        return [make.problem(ProblemKind.MIG_SINGLE)]

    path.write_text(GOOD)
    keeper.look(allow)
    for text in (OTHER, OTHER, OTHER + "# edited\n"):
        path.write_text(text)
        keeper.look(forbid, force=True)
    assert told == [False, True, False]


def test_a_value_that_moves_in_the_file_is_known_at_its_new_place(keeper, path):
    """What is said of it later must not send people to another line."""
    path.write_text(OTHER)
    keeper.look(allow)
    path.write_text("# one\n# two\n" + OTHER)
    assert not keeper.look(allow), "it means the same"
    assert keeper.loaded.config.origin("flags.migStrategy").line == 4
