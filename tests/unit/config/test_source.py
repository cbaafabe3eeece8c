"""Where the text comes from, however it is written."""

from __future__ import annotations

import os

import pytest

from device_plugin.config.load import text_hash
from device_plugin.config.source import MAX_BYTES, ConfigSource, SourceText, select_config
from device_plugin.errors import ConfigError


class KubeletVolume:
    """A ConfigMap volume, written as kubelet's atomic writer does: a dated directory and a swap of the link `..data`."""

    def __init__(self, directory):
        self.directory, self.revision = directory, 0

    def write(self, **files):
        self.revision += 1
        dated = self.directory / f"..2026_01_01_00_00_0{self.revision}"
        dated.mkdir()
        for key, text in files.items():
            (dated / key).write_text(text)
            link = self.directory / key
            if not link.is_symlink():
                link.symlink_to(f"..data/{key}")
        (self.directory / "..data_tmp").symlink_to(dated.name)
        (self.directory / "..data_tmp").rename(self.directory / "..data")


@pytest.fixture
def volume(tmp_path):
    return KubeletVolume(tmp_path)


def refusal(source):
    with pytest.raises(ConfigError) as caught:
        source.read()
    return str(caught.value)


def test_without_a_file_there_is_no_text():
    assert ConfigSource().read() == SourceText(None, "", "")
    assert ConfigSource().watched_directory == ""


class TestOneFile:
    def test_text_hash_and_path(self, tmp_path):
        path = tmp_path / "config.yaml"
        path.write_text("version: v1\n")
        assert ConfigSource(file=str(path)).read() == SourceText("version: v1\n", text_hash("version: v1\n"), str(path))

    def test_the_directory_is_watched_and_never_the_file(self, tmp_path):
        assert ConfigSource(file=str(tmp_path / "c.yaml")).watched_directory == str(tmp_path)
        assert ConfigSource(file="c.yaml").watched_directory == "."

    def test_kubelets_swap_is_seen_each_time(self, volume):
        """Watches of the file died after the first swap (Kuadrant/limitador#95, open-feature/flagd#42)."""
        source = ConfigSource(file=str(volume.directory / "config"))
        seen = []
        for number in range(5):
            volume.write(config=f"# {number}\n")
            seen.append(source.read())
        assert [text.text for text in seen] == [f"# {number}\n" for number in range(5)]
        assert len({text.hash for text in seen}) == 5

    def test_the_same_text_in_a_new_revision_has_the_same_hash(self, volume):
        source = ConfigSource(file=str(volume.directory / "config"))
        volume.write(config="version: v1\n")
        before = source.read()
        volume.write(config="version: v1\n")
        assert source.read() == before

    def test_an_editors_rename_is_seen(self, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_text("# 1\n")
        (tmp_path / ".c.yaml.swp").write_text("# 2\n")
        (tmp_path / ".c.yaml.swp").rename(path)
        assert ConfigSource(file=str(path)).read().text == "# 2\n"

    def test_a_file_that_comes_late_goes_and_returns(self, tmp_path):
        """A missing ConfigMap made the pod wait with no message (NVIDIA/gpu-operator#412): the path awaited is named."""
        path = tmp_path / "later" / "c.yaml"
        source = ConfigSource(file=str(path))
        awaiting = SourceText(None, "", str(path), missing=str(path))
        assert source.read() == awaiting
        path.parent.mkdir()
        assert source.read() == awaiting
        path.write_text("version: v1\n")
        assert source.read().text == "version: v1\n"
        path.unlink()
        assert source.read() == awaiting

    def test_a_link_that_leads_nowhere_is_awaited(self, tmp_path):
        (tmp_path / "c.yaml").symlink_to("..data/c.yaml")
        assert ConfigSource(file=str(tmp_path / "c.yaml")).read().missing == str(tmp_path / "c.yaml")

    def test_a_link_to_dev_null_is_an_empty_config(self, tmp_path):
        (tmp_path / "c.yaml").symlink_to("/dev/null")
        assert ConfigSource(file=str(tmp_path / "c.yaml")).read().text == ""

    def test_links_in_a_circle(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        assert (
            refusal(ConfigSource(file=str(tmp_path / "a")))
            == f"{tmp_path}/a:1:1: error: cannot be read: its links lead round in circles"
        )

    def test_a_directory(self, tmp_path):
        assert refusal(ConfigSource(file=str(tmp_path))) == f"{tmp_path}:1:1: error: cannot be read: it is a directory"

    def test_a_path_through_a_file(self, tmp_path):
        (tmp_path / "f").write_text("")
        assert (
            refusal(ConfigSource(file=str(tmp_path / "f" / "c"))) == f"{tmp_path}/f/c:1:1: error: cannot be read: Not a directory"
        )

    def test_a_pipe_blocks_nobody(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        assert (
            refusal(ConfigSource(file=str(tmp_path / "pipe")))
            == f"{tmp_path}/pipe:1:1: error: cannot be read: it is no regular file"
        )

    def test_an_unreadable_file(self, tmp_path, monkeypatch):
        """Root reads everything, so the refusal is the kernel's by proxy."""

        def refuse(path, *_):
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr(os, "open", refuse)
        assert refusal(ConfigSource(file="/c.yaml")) == "/c.yaml:1:1: error: cannot be read: permission denied"

    def test_a_large_file(self, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_bytes(b"#" * MAX_BYTES)
        assert len(ConfigSource(file=str(path)).read().text) == MAX_BYTES
        path.write_bytes(b"#" * (MAX_BYTES + 1))
        assert refusal(ConfigSource(file=str(path))) == (
            f"{path}:1:1: error: cannot be read: it is larger than 1048576 bytes, the most a ConfigMap can hold"
        )

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "c.yaml").write_bytes(b"version: v1\n\xff")
        assert refusal(ConfigSource(file=str(tmp_path / "c.yaml"))) == f"{tmp_path}/c.yaml:2:1: error: byte 0xff is not UTF-8"


class TestDirectory:
    def test_the_config_asked_for_is_read(self, volume):
        volume.write(a="# a\n", b="# b\n", default="# default\n")
        directory = str(volume.directory)
        assert ConfigSource(directory=directory, name="b", default="a").read().text == "# b\n"
        assert ConfigSource(directory=directory, default="a").read().text == "# a\n"
        assert ConfigSource(directory=directory, fallbacks=("single", "named")).read().text == "# default\n"
        assert ConfigSource(directory=directory).watched_directory == directory

    def test_kubelets_own_entries_and_directories_are_no_configs(self, volume):
        volume.write(only="# only\n")
        (volume.directory / "sub").mkdir()
        assert ConfigSource(directory=str(volume.directory), fallbacks=("single",)).read().text == "# only\n"

    def test_a_key_that_comes_later_is_awaited(self, volume):
        """Switching to another key after an edit crashed on a link that was there (NVIDIA/k8s-device-plugin#364)."""
        volume.write(a="# a\n")
        source = ConfigSource(directory=str(volume.directory), name="b")
        assert source.read().missing == str(volume.directory / "b")
        volume.write(a="# a\n", b="# b\n")
        assert source.read().text == "# b\n"
        volume.write(a="# a\n", b="# b2\n")
        assert source.read().text == "# b2\n"

    def test_a_directory_that_comes_later_is_awaited(self, tmp_path):
        path = tmp_path / "configs"
        source = ConfigSource(directory=str(path), fallbacks=("single",))
        assert source.read().missing == str(path)
        path.mkdir()
        assert source.read().missing == str(path)
        (path / "a").write_text("# a\n")
        assert source.read().text == "# a\n"

    def test_the_empty_fallback_is_a_choice_and_nothing_is_awaited(self, tmp_path):
        """A node without the label hung, waiting for a change that never came (NVIDIA/k8s-device-plugin#1540)."""
        assert ConfigSource(directory=str(tmp_path), fallbacks=("named", "single", "empty")).read() == SourceText(None, "", "")

    @pytest.mark.parametrize("name", ["../secret", "..data", "a/b"])
    def test_a_name_that_no_key_can_have_is_refused(self, volume, name):
        volume.write(a="# a\n")
        assert refusal(ConfigSource(directory=str(volume.directory), name=name)) == (
            f"--config-name: error: the config '{name}' does not exist; there are a"
        )

    def test_a_file_in_the_directorys_place(self, tmp_path):
        (tmp_path / "f").write_text("")
        assert refusal(ConfigSource(directory=str(tmp_path / "f"))) == f"{tmp_path}/f: error: cannot be read: Not a directory"

    def test_a_circle_in_the_directory_hurts_only_who_asks_for_it(self, volume):
        volume.write(a="# a\n")
        (volume.directory / "loop").symlink_to("loop")
        assert ConfigSource(directory=str(volume.directory), name="a").read().text == "# a\n"
        assert "its links lead round in circles" in refusal(ConfigSource(directory=str(volume.directory), name="loop"))


class TestSelection:
    @pytest.mark.parametrize(
        ("names", "wanted", "default", "fallbacks", "chosen"),
        [
            (["a", "b"], "b", "a", (), "b"),
            (["a", "b"], "", "a", ("named",), "a"),
            (["a", "default"], "", "", ("named", "single"), "default"),
            (["a"], "", "", ("named", "single"), "a"),
            (["a", "b"], "", "", ("named", "single", "empty"), ""),
            ([], "", "", ("empty",), ""),
            (["a"], "", "", ("empty", "single"), ""),
        ],
    )
    def test_by_name_then_default_then_fallbacks(self, names, wanted, default, fallbacks, chosen):
        assert select_config(names, wanted, default, fallbacks) == chosen

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((["a", "b"], "x"), "--config-name: error: the config 'x' does not exist; there are a, b"),
            ((["a"], "", "x"), "--default-config: error: the config 'x' does not exist; there are a"),
            (([], "x"), "--config-name: error: the config 'x' does not exist; there are no configs"),
            (
                (["a", "b"],),
                (
                    "--config-dir: error: no config is chosen: no --config-name, no --default-config, and there is no "
                    "--fallback-strategies; there are a, b"
                ),
            ),
            (
                (["a", "b"], "", "", ("named", "single")),
                (
                    "--config-dir: error: no config is chosen: no --config-name, no --default-config, and no fallback of named, "
                    "single fits; there are a, b"
                ),
            ),
            (
                (["default"], "", "", ("named", "first")),
                "--fallback-strategies: error: unknown fallback strategy 'first'; expected named, single or empty",
            ),
        ],
    )
    def test_what_cannot_be_chosen(self, arguments, message):
        with pytest.raises(ConfigError) as caught:
            select_config(*arguments)
        assert str(caught.value) == message
