"""docs/simulation.md tells what the profile's models know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from device_plugin.simulation.profile import GpuEntry, NodeProfile
from device_plugin.simulation.profile_file import parse_profile, shipped_profiles
from device_plugin.simulation.script import Step

TEXT = (Path(__file__).parents[3] / "docs/simulation.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
IN_TABLES = {name for row in re.findall(r"^\| (`[^|]*)\|", TEXT, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)}


def test_the_example_profile_is_one():
    """The profile shown can be copied."""
    profile = parse_profile(BLOCKS[0], "docs")
    assert [len(gpu.mig) for gpu in profile.gpus] == [0, 3]


def test_the_example_script_is_one():
    """So can the script."""
    steps = parse_profile(f"name: x\n{BLOCKS[1]}", "docs").faults
    assert [step.do for step in steps] == ["xid", "lose", "restore"]


def test_every_shipped_profile_key_and_fault_is_explained():
    """Nothing that a profile can say is left out."""
    steps = {get_args(kind.model_fields["do"].annotation)[0] for kind in get_args(get_args(Step)[0])}
    keys = {field.alias for field in GpuEntry.model_fields.values()}
    assert set(shipped_profiles()) | keys | steps <= IN_TABLES
    assert all(field.alias in TEXT for field in NodeProfile.model_fields.values() if field.alias != "description")
