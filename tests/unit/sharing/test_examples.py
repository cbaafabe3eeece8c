"""The examples of docs/sharing.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from device_plugin.sharing.offer import PreferencePolicy
from device_plugin.sharing.plan import plan

PAGE = Path(__file__).parents[3] / "docs" / "sharing.md"
EXPECTED = [
    {"nvidia.com/gpu": 7},
    {"example.com/small": 1, "nvidia.com/a100": 7, "nvidia.com/mig-2g.10gb": 1},
    {"nvidia.com/gpu": 5, "nvidia.com/gpu.shared": 12, "nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1},
]


@pytest.mark.parametrize(("number", "expected"), list(enumerate(EXPECTED)))
def test_an_example_of_the_page(make, look, number, expected):
    """Each block of YAML is a config that plan follows, on eight A100 of which the last is split."""
    examples = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == len(EXPECTED)
    node = make.node(*(make.gpu(index) for index in range(7)), make.gpu(7, "1g.5gb", "2g.10gb"))
    config = make.config(yaml.safe_load(examples[number]), mig="none" if number == 0 else "mixed")
    offer = plan(node, config)
    assert look.counts(offer) == expected
    assert not offer.errors()
    if number == 2:
        assert offer.resource("nvidia.com/gpu.shared").policy is PreferencePolicy.DISTINCT
