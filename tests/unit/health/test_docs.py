"""docs/health.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from device_plugin.config.model import Health
from device_plugin.config.values import XidAction
from device_plugin.config.xids import XidPolicy as Preset
from device_plugin.health.catalogue import catalogue
from device_plugin.health.cause import CauseKind
from device_plugin.health.policy import DEFAULT_ACTIONS, policy_from

TEXT = (Path(__file__).parents[3] / "docs" / "health.md").read_text(encoding="utf-8")


def test_the_table_of_classes_is_the_one_in_force():
    """Every class with its action, and no other; the XIDs named beside it are of that class."""
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert {name: action for name, action, _ in rows} == {name.value: action.value for name, action in DEFAULT_ACTIONS.items()}
    for name, _, why in rows:
        for first, last in re.findall(r"\b(\d{2,3})(?: to (\d{2,3}))?\b", why):
            for xid in range(int(first), int(last or first) + 1):
                assert catalogue()[xid].xid_class == name


def test_every_kind_of_cause_is_explained():
    """In the table of causes, in any order."""
    assert set(re.findall(r"^\| `([a-z-]+)` \|", TEXT, re.MULTILINE)) == {kind.value for kind in CauseKind}


def test_every_policy_and_action_is_named():
    """By the word that goes into the config."""
    for word in (*Preset, *XidAction):
        assert f"`{word.value}`" in TEXT


def test_the_example_does_what_it_says():
    """It is a config that loads, and its overrides are in force."""
    example = yaml.safe_load(re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[1])
    policy = policy_from(Health.model_validate(example["health"], strict=False))
    assert [policy.verdict(xid).action.value for xid in (13, 79, 63, 48)] == ["untilReset", "untilReset", "ignore", "untilReset"]


def test_the_figures_are_the_defaults():
    """Times that the text names."""
    assert "`health.recoverAfter` (5 minutes)" in TEXT
    assert Health().recover_after == 300.0
    assert "`health.probeInterval` (30 s)" in TEXT
    assert Health().probe_interval == 30.0
