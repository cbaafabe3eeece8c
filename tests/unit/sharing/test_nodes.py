"""Device nodes that `passDeviceSpecs` asks for and nobody can name."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import Platform
from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.plan import plan

CAPABILITY = "/dev/nvidia-caps/nvidia-cap3"
UNKNOWN = {"minor": None, "device_nodes": ()}


@pytest.fixture
def config(make):
    def make_config(*strategies, passes=True, **data):
        plugin = {"passDeviceSpecs": passes, "deviceListStrategy": list(strategies or ("envvar",))}
        return make.config({"flags": {"plugin": plugin}, **data}, mig="mixed")

    return make_config


def test_a_gpu_without_a_minor_number_is_named(make, look, config):
    """Fault: its containers were answered the control nodes alone, and nobody said so."""
    node = make.node(make.gpu(0), make.gpu(1, **UNKNOWN), make.gpu(2, **UNKNOWN))
    offer = plan(node, config(sharing={"timeSlicing": {"resources": [{"name": "gpu", "replicas": 9}]}}))
    assert look.counts(offer) == {"nvidia.com/gpu": 27}
    problem = look.only(offer, ProblemKind.UNMET)
    assert (problem.severity, problem.origin.path) == (Severity.WARNING, "flags.plugin.passDeviceSpecs")
    assert problem.message == (
        "GPUs 1-2: the driver tells no minor number, so containers get the control nodes and no /dev/nvidia<minor>"
    )


@pytest.mark.parametrize(("count", "named"), [(1, "MIG device 0:1"), (2, "MIG devices 0:1 and 0:2")])
def test_so_is_a_mig_device(make, look, config, count, named):
    """It has its node through the GPU's minor number, and those of its instances through the driver's list of capabilities."""
    known = make.mig(0, 0, device_nodes=("/dev/nvidia0", CAPABILITY))
    gpu = make.gpu(0, mig_enabled=True, mig_devices=(known, *(make.mig(0, 1 + number) for number in range(count))))
    assert look.only(plan(make.node(gpu), config()), ProblemKind.UNMET).message == (
        f"{named}: the minor number of the GPU or of the instances' capabilities is unknown, so containers get the control nodes "
        "and neither /dev/nvidia<minor> nor /dev/nvidia-caps/nvidia-cap<minor>"
    )


@pytest.mark.parametrize(
    ("strategies", "passes", "is_said"),
    [(["envvar"], False, False), (["cdi-cri"], True, False), (["cdi-cri", "volume-mounts"], True, True)],
)
def test_only_where_nodes_are_asked_for(make, look, config, strategies, passes, is_said):
    """Without the option the runtime brings the nodes, with CDI alone the specification."""
    offer = plan(make.gpus(1, **UNKNOWN), config(*strategies, passes=passes))
    assert bool(look.problems(offer, ProblemKind.UNMET)) is is_said


def test_not_of_what_is_hidden_nor_under_wsl(make, look, config):
    """One node, which is known, stands for all GPUs there."""
    hidden = plan(make.node(make.gpu(0), make.gpu(1, **UNKNOWN)), config(devices={"exclude": [1]}))
    wsl = plan(make.node(make.gpu(0, **UNKNOWN), platform=Platform.WSL), config())
    assert [look.problems(offer, ProblemKind.UNMET) for offer in (hidden, wsl)] == [[], []]
