"""Whatever the text says, `load` answers with a Config or with problems that have places, each on a line of its own."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from device_plugin.config.load import load
from device_plugin.config.options import fields, options
from device_plugin.errors import ConfigError

KEYS = sorted({key for field in fields() for key in field.keys})
SCALARS = st.one_of(
    st.sampled_from(
        ["mixed", "all", "nvidia.com/gpu", "30s", "untilReset", "RESET_GPU", "envvar", "0:1", "yes", "/x", "*", "<<", ""]
    ),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def check_load(text, **given_):
    try:
        loaded = load(text, file="f", **given_)
    except ConfigError as error:
        problems = error.problems
    else:
        assert all(len(str(problem).splitlines()) == 1 for problem in loaded.problems)
        return
    assert problems
    assert all(len(str(problem).splitlines()) == 1 for problem in problems)
    for problem in problems:
        assert problem.origin.source
        assert problem.origin.source != "f" or problem.origin.line >= 1
    assert problems == tuple(sorted(problems, key=lambda p: (p.origin.source != "f", p.origin.line, p.origin.column)))


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text(text):
    check_load(text)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([*"ab:- \n\t[]{}&*!|>'\"#%@<~,?0.", "%0A", "\\n", "\u2028"]), max_size=40).map("".join))
def test_any_yaml_soup(text):
    check_load(text)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["flags", "resources", "sharing", "imex", "devices", "health", "reconcile", "version"]), DATA)
)
def test_any_data_in_the_shape_of_yaml(data):
    check_load(yaml.safe_dump(data, allow_unicode=True))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from([name for option in options() for name in option.variables]), st.text(max_size=8)),
    st.dictionaries(
        st.sampled_from([name for option in options() for name in option.flags]),
        st.text(max_size=8) | st.booleans() | st.lists(st.text(max_size=4), min_size=1, max_size=3),
    ),
)
def test_any_variables_and_flags(environment, flags):
    check_load(None, environment=environment, flags=flags)


NAMES = st.sampled_from(["gpu", "nvidia.com/gpu", "example.com/x", "nvidia.com/mig-1g.10gb", "a100"])
DURATIONS = st.sampled_from(["1s", "30s", "5m", "1h30m", "250ms"])
ENTRIES = st.lists(
    st.tuples(NAMES, st.integers(1, 100), st.none() | NAMES), unique_by=lambda entry: entry[0].removeprefix("nvidia.com/")
)
ACTIONS = st.sampled_from(["ignore", "untilReset", "untilReboot", "askDriver"])


@st.composite
def valid_configs(draw):
    data = {
        "flags": {
            "migStrategy": draw(st.sampled_from(["none", "single", "mixed"])),
            "failOnInitError": draw(st.booleans()),
            "plugin": {"deviceListStrategy": draw(st.lists(st.sampled_from(["envvar", "cdi-cri", "volume-mounts"]), min_size=1))},
        },
        "resources": {"gpus": [{"pattern": draw(st.text("ab* ", min_size=1)), "name": draw(NAMES)}]},
        "imex": {"channelIDs": draw(st.sampled_from([[], [0]]))},
        "devices": {"exclude": draw(st.lists(st.integers(0, 15) | st.just("0000:3b:00.0")))},
        "health": {
            "probeInterval": draw(DURATIONS),
            "xids": draw(st.dictionaries(st.integers(0, 200), ACTIONS, max_size=3)),
            "classes": draw(st.dictionaries(st.sampled_from(["RESET_GPU", "UNKNOWN"]), ACTIONS)),
            "enableXids": draw(st.just("all") | st.lists(st.integers(0, 200), max_size=3)),
        },
    }
    if entries := draw(ENTRIES):
        data["sharing"] = {
            "timeSlicing": {
                "renameByDefault": draw(st.booleans()),
                "resources": [
                    {"name": name, "replicas": replicas, "devices": draw(st.just("all") | st.integers(1, 9) | st.just([0, "1:2"]))}
                    | ({"rename": rename} if rename else {})
                    for name, replicas, rename in entries
                ],
            }
        }
    return data


@settings(max_examples=60, deadline=None)
@given(valid_configs())
def test_a_valid_config_loads_and_reads_back_from_its_own_dump(data):
    once = load(yaml.safe_dump(data), file="f").config
    again = load(once.model_dump_json(by_alias=True, exclude_none=True)).config
    assert again.model_dump() == once.model_dump()
    assert again.model_dump_json() == once.model_dump_json()
