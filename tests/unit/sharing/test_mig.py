"""MIG strategies: what is offered of a node's GPUs and MIG devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.mig import WHOLE_GPU
from device_plugin.sharing.offer import PreferencePolicy
from device_plugin.sharing.plan import kept_shape, plan

GPU = "nvidia.com/gpu"
SEVEN = ["1g.5gb"] * 7


@pytest.fixture
def half_split(make):
    """GPUs 0 and 1 split alike, 2 and 3 not in MIG mode."""
    return make.node(make.gpu(0, *SEVEN), make.gpu(1, *SEVEN), make.gpu(2), make.gpu(3))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("none", {GPU: 4}), ("single", {}), ("mixed", {GPU: 2, "nvidia.com/mig-1g.5gb": 14})],
)
def test_a_half_split_node_under_each_strategy(make, look, half_split, strategy, expected):
    """none counts GPUs, mixed offers both kinds, single does not fit."""
    assert expected == look.offered(half_split, make.config(mig=strategy))


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_without_mig_every_strategy_offers_whole_gpus(make, look, strategy):
    """A strategy says nothing about GPUs that are not split."""
    offer = plan(make.gpus(4), make.config(mig=strategy))
    assert look.counts(offer) == {GPU: 4}
    assert not offer.problems


def test_a_gpu_in_mig_mode_offered_whole_is_a_warning(make, look, half_split):
    """Under `none` it is counted, as by NVIDIA's plugin, but no CUDA program can use it as a whole: one warning names them."""
    problem = look.only(plan(half_split, make.config()), ProblemKind.MIG)
    assert (problem.severity, problem.origin.path) == (Severity.WARNING, "flags.migStrategy")
    assert problem.message.startswith("GPUs 0-1: in MIG mode but offered whole")


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_mig_mode_without_instances_is_explained_and_stops_nobody(make, look, strategy):
    """After a reboot MIG mode is still on and the layout gone: the node showed 0 without a word (NVIDIA/k8s-device-plugin#225)."""
    node = make.node(make.gpu(0, mig_enabled=True), make.gpu(1, *SEVEN))
    offer = plan(node, make.config(mig=strategy))
    assert {GPU if strategy == "single" else "nvidia.com/mig-1g.5gb": 7} == look.counts(offer)
    problem = look.only(offer, ProblemKind.MIG)
    assert Severity.WARNING is problem.severity
    assert "GPU 0" in problem.message
    assert "MIG enabled, no instances" in problem.message
    assert [item.reason for item in offer.withheld] == ["MIG enabled, no instances"]


def test_each_gpu_is_decided_for_itself(make, look):
    """A split card beside cards that cannot be split is a normal node (Project-HAMi/HAMi#1044)."""
    node = make.node(make.gpu(0, "3g.20gb", "1c.3g.20gb", "2g.10gb"), make.gpu(1, name="Tesla T4"))
    offer = plan(node, make.config(mig="mixed"))
    assert look.counts(offer) == {GPU: 1, "nvidia.com/mig-1c.3g.20gb": 1, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-3g.20gb": 1}
    assert not offer.problems


@pytest.mark.parametrize("strategy", ["single", "mixed"])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fault": "its memory may not be read: Insufficient Permissions"}, "Insufficient Permissions"),
        ({"uuid": ""}, "no UUID"),
        ({"uuid": "MIG-00000000-0000-0000-0000-000000000000"}, "also that of another device"),
        ({"uuid": "GPU-00000000-0000-0000-0000-000000000000"}, "also that of another device"),
        ({"uuid": "MIG::1"}, "cannot name a device"),
    ],
)
def test_one_broken_instance_takes_out_one_instance(make, look, strategy, fields, words):
    """An unreadable or ambiguous MIG device is withheld with its reason (NVIDIA/k8s-device-plugin#399); the rest is offered."""
    devices = [make.mig(0, index) for index in range(3)]
    devices[1] = replace(devices[1], **fields)
    offer = plan(make.node(make.gpu(0, mig_enabled=True, mig_devices=tuple(devices))), make.config(mig=strategy))
    (resource,) = offer.resources
    assert [device.index for device in resource.devices] == ["0:0", "0:2"]
    problem = look.only(offer, ProblemKind.MIG)
    assert Severity.ERROR is problem.severity
    assert "MIG device 0:1" in problem.message
    assert words in problem.message


def test_a_mig_device_carries_what_stands_behind_it(make, look):
    """Its device knows the parent, the instance ids, the NUMA node and the nodes to inject."""
    nodes = ("/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67")
    gpu = make.gpu(4, mig_enabled=True, mig_devices=(make.mig(4, 2, device_nodes=nodes),))
    (resource,) = plan(make.node(gpu), make.config(mig="mixed")).resources
    (device,) = resource.devices
    assert (make.mig_uuid(4, 2), make.uuid(4), "4:2") == (device.hardware_id, device.gpu_uuid, device.index)
    assert (9, 0, 1, nodes) == (device.gpu_instance_id, device.compute_instance_id, device.numa_node, device.device_nodes)
    assert device.is_mig
    assert resource.policy is PreferencePolicy.DISTRIBUTED


class TestSingle:
    """`single` offers one shape, or says why it cannot."""

    def test_alike_gpus_are_one_resource(self, make, look):
        """Every MIG device is one nvidia.com/gpu, in index order."""
        offer = plan(make.node(make.gpu(1, "1g.5gb", "1g.5gb"), make.gpu(0, "1g.5gb")), make.config(mig="single"))
        assert look.indexes(offer, GPU) == ["0:0", "1:0", "1:1"]
        assert not offer.problems

    def test_differing_instances_are_an_error_naming_the_gpus(self, make, look):
        """The misfit was a panic (NVIDIA/gpu-operator#460); it is an error with each GPU's layout, and nothing is offered."""
        node = make.node(make.gpu(0, "2g.12gb", "1g.6gb"), make.gpu(1, "2g.12gb", "1g.6gb"), make.gpu(2, "4g.24gb"))
        offer = plan(node, make.config(mig="single"))
        assert look.counts(offer) == {}
        (problem,) = offer.errors(ProblemKind.MIG_SINGLE)
        assert problem.origin.path == "flags.migStrategy"
        assert "GPUs 0-1: 1 x 1g.6gb and 1 x 2g.12gb; GPU 2: 1 x 4g.24gb; nothing is offered" in problem.message
        assert len(offer.withheld) == 5

    def test_the_same_profile_of_another_size_differs(self, make):
        """Full attributes count, not names: the sizes are said apart."""
        other = replace(make.attributes("1g.5gb"), memory_size_mib=9728)
        node = make.node(make.gpu(0, "1g.5gb"), make.gpu(1, mig_enabled=True, mig_devices=(make.mig(1, 0, attributes=other),)))
        (problem,) = plan(node, make.config(mig="single")).errors(ProblemKind.MIG_SINGLE)
        assert "GPU 0: 1 x 1g.5gb of 4864 MiB and 14 SMs; GPU 1: 1 x 1g.5gb of 9728 MiB and 14 SMs" in problem.message

    def test_hiding_what_does_not_fit_makes_it_fit(self, make, look, half_split):
        """The cure that the error names works."""
        offer = plan(half_split, make.config({"devices": {"exclude": [2, 3]}}, mig="single"))
        assert look.counts(offer) == {GPU: 14}
        assert not offer.problems

    def test_after_a_hardware_change_the_served_shape_stays(self, make, look):
        """Repartitioning one GPU keeps the others' devices and withholds the new shape (NVIDIA/gpu-operator#460, but live)."""
        before = make.node(make.gpu(0, *SEVEN), make.gpu(1, *SEVEN))
        served = plan(before, make.config(mig="single"))
        after = make.node(make.gpu(0, *SEVEN), make.gpu(1, "3g.20gb", "1g.5gb"))
        offer = plan(after, make.config(mig="single"), keep_shape=kept_shape(before, served))
        assert [*(f"0:{index}" for index in range(7)), "1:1"] == look.indexes(offer, GPU)
        assert [item.index for item in offer.withheld] == ["1:0"]
        (problem,) = offer.errors(ProblemKind.MIG_SINGLE)
        assert "GPU 1: 1 x 1g.5gb and 1 x 3g.20gb" in problem.message
        assert "only what has the shape served before stays (1g.5gb)" in problem.message

    def test_whole_gpus_stay_when_one_is_split(self, make, look, half_split):
        """Whole GPUs have a shape too: switching MIG on in some of them takes out these, not the node."""
        before = make.gpus(4)
        shape = kept_shape(before, plan(before, make.config(mig="single")))
        assert shape == WHOLE_GPU
        assert look.indexes(plan(half_split, make.config(mig="single"), keep_shape=shape), GPU) == ["2", "3"]

    def test_a_node_split_anew_alike_needs_no_kept_shape(self, make, look):
        """What fits is offered, whatever was served before."""
        node = make.node(make.gpu(0, "3g.20gb", "3g.20gb"))
        assert look.counts(plan(node, make.config(mig="single"), keep_shape=make.attributes("1g.5gb"))) == {GPU: 2}

    def test_a_shape_that_is_gone_keeps_nothing(self, make, look, half_split):
        """If nothing has the shape served, nothing is offered rather than something else."""
        offer = plan(half_split, make.config(mig="single"), keep_shape=make.attributes("3g.20gb"))
        assert look.counts(offer) == {}
        assert "nothing is offered" in offer.errors(ProblemKind.MIG_SINGLE)[0].message

    def test_profiles_stand_in_for_attributes(self, make, look):
        """A driver that tells no attributes of a device is no reason to stop: its profile is compared."""
        devices = (make.mig(0, 0), make.mig(0, 1, attributes=None))
        node = make.node(make.gpu(0, mig_enabled=True, mig_devices=devices))
        assert look.offered(node, make.config(mig="single")) == {GPU: 2}

    def test_a_device_of_unknown_shape_is_withheld(self, make, look):
        """Neither attributes nor profile: it cannot be promised to be like the others."""
        devices = (make.mig(0, 0), make.mig(0, 1, None, attributes=None))
        offer = plan(make.node(make.gpu(0, mig_enabled=True, mig_devices=devices)), make.config(mig="single"))
        assert look.indexes(offer, GPU) == ["0:0"]
        assert "shape is not known" in look.only(offer, ProblemKind.MIG).message

    def test_several_shapes_served_are_no_shape(self, make):
        """An Offer of two kinds of hardware has no shape to keep."""
        node = make.node(make.gpu(0), make.gpu(1, "1g.5gb"))
        assert kept_shape(node, plan(node, make.config(mig="mixed"))) is None
