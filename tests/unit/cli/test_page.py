"""docs/commands.md shows what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_plugin.cli.arguments import CDI_ACTIONS, COMMANDS
from device_plugin.cli.process_options import PROCESS_OPTIONS
from device_plugin.cli.reference import PAGE, documented, with_help, write
from device_plugin.config.options import options

ROOT = Path(__file__).parents[3]


@pytest.fixture
def page() -> str:
    return (ROOT / PAGE).read_text()


def test_the_page_shows_the_present_help(page, monkeypatch):
    """Whatever terminal the test runs in. To bring it up to date: python -m device_plugin.cli.reference."""
    monkeypatch.setenv("COLUMNS", "40")
    assert page == with_help(page)


def test_writing_the_page_again_repairs_it(page, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / PAGE).write_text(page.replace("  --mig-strategy NAME", "  --mig NAME"))
    write(tmp_path)
    assert (tmp_path / PAGE).read_text() == page


def test_every_command_has_its_block(page):
    commands = [name for name in COMMANDS if name != "cdi"] + [f"cdi {action}" for action in CDI_ACTIONS]
    assert sorted(documented(page)) == sorted(["", *commands])


def test_every_option_is_on_the_page_with_its_variables(page):
    for option in options():
        assert all(f"--{flag}" in page for flag in option.flags)
        assert f"[{', '.join(option.variables)}]" in " ".join(page.split())
    for option in PROCESS_OPTIONS:
        assert f"--{option.flag}" in page
        assert all(f"[{variable}]" in page for variable in option.variables)
