"""devices.include and devices.exclude: which GPUs exist for the plan."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import UnreadableGpu
from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.plan import plan
from device_plugin.sharing.selection import parse_pci_address

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        (2, ["2"]),
        ("2", ["2"]),
        ("02", ["2"]),
        ("GPU-00000000-0000-0000-0000-000000000003", ["3"]),
        ("gpu-00000000-0000-0000-0000-000000000003", ["3"]),
        ("00000000:17:00.0", ["0"]),
        ("0000:17:00.0", ["0"]),
        ("17:00.0", ["0"]),
        ("1a:00.0", ["3"]),
        ("0000:1A:00.0", ["3"]),
        ("*A100*", ["0", "1", "2", "3"]),
        ("Tesla T4", ["4"]),
        ("*T4", ["4"]),
    ],
)
@pytest.mark.parametrize("key", ["include", "exclude"])
def test_a_selector_names_gpus_in_every_spelling(make, look, key, selector, chosen):
    """Index, UUID in either case, PCI address in any spelling and product pattern choose; include keeps, exclude hides."""
    node = make.node(*(make.gpu(index) for index in range(4)), make.gpu(4, name="Tesla T4"))
    offer = plan(node, make.config({"devices": {key: [selector]}}))
    expected = chosen if key == "include" else [index for index in "01234" if index not in chosen]
    assert expected == look.indexes(offer, GPU)
    assert not offer.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000000F:01:00.0", (15, 1, 0, 0)),
        ("000f:01:00.0", (15, 1, 0, 0)),
        ("f:1:0.0", (15, 1, 0, 0)),
        ("3b:1f.7", (0, 0x3B, 0x1F, 7)),
        ("0:1", None),
        ("NVIDIA T4", None),
        ("17:00.8", None),
    ],
)
def test_a_pci_address_is_compared_as_numbers(text, expected):
    """Domains of four and eight digits, either case and a missing domain are spellings of one address."""
    assert expected == parse_pci_address(text)


def test_exclude_wins(make, look):
    """A GPU that both name is hidden."""
    offer = plan(make.gpus(3), make.config({"devices": {"include": [0, 1], "exclude": ["1"]}}))
    assert look.indexes(offer, GPU) == ["0"]
    assert [item.index for item in offer.withheld] == ["1", "2"]


@pytest.mark.parametrize("selector", [9, "*H100*", "ff:00.0", "GPU-ffffffff-0000-0000-0000-000000000000", "9" * 5000])
@pytest.mark.parametrize("key", ["include", "exclude"])
def test_a_selector_that_chooses_nothing_is_a_warning_at_its_place(make, look, key, selector):
    """What the node lacks is named with what it has, and the rest is served."""
    other = [0] if key == "include" else []
    offer = plan(make.gpus(2), make.config({"devices": {key: [*other, selector]}}))
    assert {GPU: 1 if key == "include" else 2} == look.counts(offer)
    problem = look.only(offer, ProblemKind.UNMET)
    assert (Severity.WARNING, f"devices.{key}[{len(other)}]") == (problem.severity, problem.origin.path)
    assert "this node has GPUs 0-1: NVIDIA A100-SXM4-40GB" in problem.message


def test_nothing_left_is_said(make, look):
    """A selection that hides every GPU offers nothing, with a warning and a reason for each GPU."""
    offer = plan(make.gpus(2), make.config({"devices": {"exclude": ["*"]}}))
    assert look.counts(offer) == {}
    problem = look.only(offer, ProblemKind.UNMET)
    assert "leave no GPU" in problem.message
    assert problem.origin.path == "devices.exclude"
    assert [item.reason for item in offer.withheld] == ["hidden by devices.include or devices.exclude"] * 2


def test_nothing_left_is_said_of_unreadable_gpus_too(make, look):
    """They are hidden as the others are: the driver does show GPUs."""
    node = make.node(make.gpu(0), unreadable=(UnreadableGpu(1, "GPU is lost"),))
    offer = plan(node, make.config({"devices": {"include": [0, 1], "exclude": [0, 1]}}))
    [problem] = offer.problems
    assert "leave no GPU" in problem.message
    assert problem.origin.path == "devices.include"


def test_selection_comes_first(make, look):
    """A hidden GPU's faults, MIG layout and model trouble nobody, and its index stays its own."""
    node = make.node(
        make.gpu(0, "1g.5gb", "2g.10gb"),
        make.gpu(1, uuid=""),
        make.gpu(2, faults=("its PCI address is unknown",)),
        make.gpu(3),
        unreadable=(UnreadableGpu(4, "GPU is lost"),),
    )
    offer = plan(node, make.config({"devices": {"exclude": [0, 1, 2, 4]}}, mig="single"))
    assert look.indexes(offer, GPU) == ["3"]
    assert not offer.problems


@pytest.mark.parametrize(
    ("devices", "reported"),
    [
        ({"include": [0]}, False),
        ({"include": ["1"]}, True),
        ({"include": ["*A100*"]}, True),
        ({"exclude": [1]}, False),
        ({"exclude": ["GPU-00000000-0000-0000-0000-000000000001"]}, False),
        ({"exclude": ["*T4*"]}, True),
    ],
)
def test_an_unreadable_gpu_is_hidden_only_for_sure(make, look, devices, reported):
    """Nobody knows the model of a GPU that does not answer: it is reported unless index or UUID say that it is hidden."""
    lost = UnreadableGpu(1, "GPU is lost", uuid=make.uuid(1))
    offer = plan(make.node(make.gpu(0), unreadable=(lost,)), make.config({"devices": devices}))
    assert reported == bool(look.problems(offer, ProblemKind.HARDWARE))
    assert not look.problems(offer, ProblemKind.UNMET)
