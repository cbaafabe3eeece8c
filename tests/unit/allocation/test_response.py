"""Allocate: what a container gets under each strategy."""

from __future__ import annotations

import re

import pytest

from device_plugin.allocation.model import Allocation, Mount
from device_plugin.allocation.response import allocate
from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy
from device_plugin.serving.served import ServedDevice
from device_plugin.sharing.offer import Device

ENVVAR, MOUNTS = DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS
ANNOTATIONS, CRI = DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI
DIRECTORY = "/var/run/nvidia-container-devices"
KIND = "k8s.device-plugin.nvidia.com"
EVERY_COMBINATION = [
    tuple(strategy for bit, strategy in enumerate(DeviceListStrategy) if number >> bit & 1)
    for number in range(1, 2 ** len(DeviceListStrategy))
]


def paths(allocation: Allocation) -> list[str]:
    return [node.container_path for node in allocation.devices]


@pytest.mark.parametrize("strategies", EVERY_COMBINATION, ids="+".join)
def test_every_combination_of_strategies(make_table, make_gpu, strategies):
    """Each active strategy adds its own part, and only that; the variable of the mounts wins over the list of IDs."""
    table = make_table([make_gpu(0), make_gpu(1)], strategies=strategies, imex_channels=(0,), cdi_classes=("gpu", "imex-channel"))
    answer = allocate(table, ["GPU-0", "GPU-1"])
    names = (f"{KIND}/gpu=GPU-0", f"{KIND}/gpu=GPU-1", f"{KIND}/imex-channel=0")

    envs = {}
    if ENVVAR in strategies:
        envs = {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1", "NVIDIA_IMEX_CHANNELS": "0"}
    if MOUNTS in strategies:
        envs["NVIDIA_VISIBLE_DEVICES"] = DIRECTORY
    assert answer.envs == envs
    mounts = [Mount(f"{DIRECTORY}/{name}", "/dev/null") for name in ("GPU-0", "GPU-1", "imex/0")]
    assert answer.mounts == (tuple(mounts) if MOUNTS in strategies else ())
    assert list(answer.annotations.values()) == ([",".join(names)] if ANNOTATIONS in strategies else [])
    assert answer.cdi_devices == (names if CRI in strategies else ())
    assert answer.devices == ()


@pytest.mark.parametrize("strategies", EVERY_COMBINATION, ids="+".join)
def test_one_replica_names_one_gpu(make_table, make_replicas, strategies):
    """A pod with one replica of one of two GPUs is never told of the other (NVIDIA/k8s-device-plugin#1299)."""
    table = make_table(
        [*make_replicas(0, 10), *make_replicas(1, 10)], strategies=strategies, pass_device_specs=True, cdi_classes=("gpu",)
    )
    text = repr(allocate(table, ["GPU-1::7"]))
    assert "GPU-1" in text or strategies == (MOUNTS,)
    assert not re.search(r"GPU-0|GPU-1::|nvidia0|all", text)


@pytest.mark.parametrize(
    ("ids", "visible"),
    [
        (["GPU-0"], "GPU-0"),
        (["GPU-0::1", "GPU-1::0", "GPU-0::0"], "GPU-0,GPU-1"),
        (["GPU-1::0", "GPU-0::0", "GPU-1::1"], "GPU-1,GPU-0"),
        (["GPU-0::1", "GPU-1::0", "GPU-0::1"], "GPU-0,GPU-1"),
    ],
)
def test_replicas_name_their_gpu_once(make_table, make_gpu, make_replicas, ids, visible):
    """Replica numbers mean nothing to a runtime: GPUs are named once, in the order of the request."""
    whole = "::" not in ids[0]
    table = make_table([make_gpu(0)] if whole else [*make_replicas(0, 2), *make_replicas(1, 2)])
    assert allocate(table, ids).envs == {"NVIDIA_VISIBLE_DEVICES": visible}


def test_prefixes_are_not_confused(make_table, make_replicas):
    """Replicas 1 and 10 of one GPU are both that GPU; IDs are looked up, not cut by their beginning."""
    table = make_table([*make_replicas(1, 11), *make_replicas(10, 2)], strategies=(CRI,), cdi_classes=("gpu",))
    assert allocate(table, ["GPU-1::10", "GPU-1::1", "GPU-10::1"]).cdi_devices == (f"{KIND}/gpu=GPU-1", f"{KIND}/gpu=GPU-10")


def test_indexes_are_sorted_as_numbers(make_table, make_gpu, make_mig):
    """Under the index strategy the order is that of the indexes; NVIDIA's plugin has a random one."""
    table = make_table(
        [make_gpu(index) for index in (0, 2, 10)],
        id_strategy=DeviceIdStrategy.INDEX,
        strategies=(ENVVAR, CRI),
        cdi_classes=("gpu",),
    )
    answer = allocate(table, ["GPU-10", "GPU-0", "GPU-2"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "0,2,10"
    assert answer.cdi_devices == (f"{KIND}/gpu=0", f"{KIND}/gpu=2", f"{KIND}/gpu=10")
    mig = make_table(make_mig(3, 11, replicas=2), id_strategy=DeviceIdStrategy.INDEX)
    assert allocate(mig, ["MIG-3-10::0", "MIG-3-2::1", "MIG-3-10::1"]).envs == {"NVIDIA_VISIBLE_DEVICES": "3:2,3:10"}


def test_extras_are_announced(make_table, make_gpu):
    """gdrcopy, gds and mofed have a variable each, whatever the strategy, and a CDI device if a specification defines one."""
    table = make_table(
        [make_gpu(0)],
        strategies=(CRI,),
        imex_channels=(0,),
        extras=("mofed", "gds", "gdrcopy"),
        cdi_classes=("gpu", "gds", "mofed", "imex-channel"),
    )
    answer = allocate(table, ["GPU-0"])
    assert answer.envs == {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"}
    assert answer.cdi_devices == tuple(f"{KIND}/{name}" for name in ("gpu=GPU-0", "imex-channel=0", "gds=all", "mofed=all"))


def test_a_replica_and_a_whole_gpu_are_two_gpus(make_table, make_gpu, make_replicas):
    """In a resource of both kinds none is taken for the other."""
    table = make_table([*make_replicas(0, 2), make_gpu(1)])
    assert allocate(table, ["GPU-0::1", "GPU-1"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}


def test_an_extra_that_is_off_is_not_named(make_table, make_gpu):
    """A specification left from before does not bring an extra back."""
    table = make_table([make_gpu(0)], strategies=(CRI,), extras=("gds",), cdi_classes=("gpu", "gds", "mofed"))
    assert allocate(table, ["GPU-0"]).cdi_devices == (f"{KIND}/gpu=GPU-0", f"{KIND}/gds=all")


def test_other_kinds_and_annotation_prefixes(make_table, make_gpu):
    """Both prefixes are taken literally."""
    table = make_table(
        [make_gpu(0)],
        strategies=(CRI, ANNOTATIONS),
        cdi_kind_prefix="vendor.example",
        cdi_annotation_prefix="custom.cdi.k8s.io/",
        cdi_classes=("gpu",),
    )
    answer = allocate(table, ["GPU-0"])
    assert answer.cdi_devices == ("vendor.example/gpu=GPU-0",)
    assert all(key.startswith("custom.cdi.k8s.io/nvidia-device-plugin_") for key in answer.annotations)


def test_annotation_keys(make_table, make_gpu):
    """The key is valid (63 characters at most after the slash), the same for the same devices, another for any other request."""
    injection = {"strategies": (ANNOTATIONS,), "cdi_classes": ("gpu",)}
    table = make_table([make_gpu(0), make_gpu(1)], **injection)
    other = make_table([make_gpu(0), make_gpu(1)], name="nvidia.com/gpu.shared", **injection)
    (key,) = allocate(table, ["GPU-0", "GPU-1"]).annotations
    assert re.fullmatch(r"cdi\.k8s\.io/nvidia-device-plugin_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key)
    assert len(key.partition("/")[2]) <= 63
    assert [*allocate(table, ["GPU-1", "GPU-0"]).annotations] == [key]
    assert [*allocate(table, ["GPU-0"]).annotations] != [key]
    assert [*allocate(other, ["GPU-0", "GPU-1"]).annotations] != [key]


def test_device_nodes(make_table, make_gpu):
    """Control nodes, then the devices', then IMEX channels; host paths stand under the device root; permissions without mknod."""
    table = make_table(
        [make_gpu(0), make_gpu(1)],
        pass_device_specs=True,
        dev_root="/run/nvidia/driver",
        control_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"),
        imex_channels=(0,),
    )
    answer = allocate(table, ["GPU-1", "GPU-0"])
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert paths(answer) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidia0", channel]
    assert {node.host_path for node in answer.devices} == {f"/run/nvidia/driver{path}" for path in paths(answer)}
    assert {node.permissions for node in answer.devices} == {"rw"}


@pytest.mark.parametrize("root", ["/", "/host", "/host/"])
def test_device_root(make_table, make_gpu, root):
    """A device root may end in a slash or be the root itself."""
    (node,) = allocate(make_table([make_gpu(0)], pass_device_specs=True, dev_root=root), ["GPU-0"]).devices
    assert node.host_path == root.rstrip("/") + "/dev/nvidia0"


def test_device_nodes_are_unique(make_table, make_mig):
    """MIG siblings share their GPU's node and replicas share all; a path given twice keeps some runtimes from starting."""
    table = make_table(make_mig(0, 2, replicas=2), pass_device_specs=True)
    caps = "/dev/nvidia-caps/nvidia-cap"
    nodes = paths(allocate(table, ["MIG-0-0::0", "MIG-0-1::0", "MIG-0-0::1"]))
    assert nodes == ["/dev/nvidia0", f"{caps}0", f"{caps}1", f"{caps}9", f"{caps}10"]


@pytest.mark.parametrize(("strategies", "count"), [((CRI,), 0), ((CRI, ANNOTATIONS), 0), ((CRI, ENVVAR), 1), ((MOUNTS,), 1)])
def test_cdi_alone_has_its_own_nodes(make_table, make_gpu, strategies, count):
    """Device nodes are passed beside a legacy strategy only: a CDI specification has them."""
    table = make_table([make_gpu(0)], strategies=strategies, pass_device_specs=True, cdi_classes=("gpu",))
    assert len(allocate(table, ["GPU-0"]).devices) == count


def test_wsl(make_table):
    """Under WSL the one device is `all` with /dev/dxg and no control nodes."""
    device = ServedDevice(Device("all", "all", "all", "all", device_nodes=("/dev/dxg",)))
    table = make_table([device], pass_device_specs=True, control_nodes=("/dev/nvidiactl",))
    answer = allocate(table, ["all"])
    assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": "all"}
    assert paths(answer) == ["/dev/dxg"]


@pytest.mark.parametrize("others", [(), (ENVVAR,), (CRI,)], ids="+".join)
def test_beside_mounts_the_variable_is_their_directory(make_table, make_gpu, others):
    """An image that states its own variable failed to start for an unprivileged pod under volume mounts
    (NVIDIA/k8s-device-plugin#203, NVIDIA/k8s-device-plugin#440): the answer states what the runtime then looks for, never an ID.
    """
    table = make_table([make_gpu(0)], strategies=(MOUNTS, *others), cdi_classes=("gpu",))
    answer = allocate(table, ["GPU-0"])
    assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": DIRECTORY}
    assert answer.mounts == (Mount(f"{DIRECTORY}/GPU-0", "/dev/null"),)


@pytest.mark.parametrize("strategies", EVERY_COMBINATION, ids="+".join)
def test_nothing_means_nothing(make_table, make_gpu, strategies):
    """A request for no device must not end in an environment that reads as all devices (bottlerocket-os/bottlerocket#3718)."""
    table = make_table(
        [make_gpu(0)],
        strategies=strategies,
        pass_device_specs=True,
        imex_channels=(0,),
        extras=("gds",),
        cdi_classes=("gpu", "gds"),
    )
    assert allocate(table, []) == Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "void"})


@pytest.mark.parametrize("strategies", EVERY_COMBINATION, ids="+".join)
def test_numa_is_no_part_of_an_answer(make_table, strategies):
    """People looked for the NUMA node in Allocate (NVIDIA/k8s-device-plugin#247); kubelet takes it from the list alone."""
    near, far = (
        make_table(
            [ServedDevice(Device("GPU-0", "GPU-0", "GPU-0", "0", numa_node=node, device_nodes=("/dev/nvidia0",)))],
            strategies=strategies,
            pass_device_specs=True,
            cdi_classes=("gpu",),
        )
        for node in (None, 1)
    )
    assert allocate(near, ["GPU-0"]) == allocate(far, ["GPU-0"])


def test_answers_repeat(make_table, make_gpu):
    """The same request has the same answer, also from a table built anew; no pod is guessed at (kubernetes/kubernetes#82625)."""
    settings = {"strategies": tuple(DeviceListStrategy), "cdi_classes": ("gpu",), "pass_device_specs": True}
    tables = [make_table([make_gpu(0), make_gpu(1)], **settings) for _ in range(2)]
    answers = [allocate(table, ["GPU-1"]) for table in tables for _ in range(2)]
    assert all(answer == answers[0] for answer in answers)


def test_a_legacy_strategy_stands_in_for_a_missing_specification(make_table, make_gpu):
    """A CDI name that nothing defines would keep the container from being created; beside a legacy strategy it is left out."""
    table = make_table([make_gpu(0)], strategies=(ENVVAR, CRI, ANNOTATIONS), extras=("gds",), cdi_classes=("gds",))
    answer = allocate(table, ["GPU-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
    assert (answer.cdi_devices, answer.annotations) == ((), {})
