"""What `plan` says of a config that a node cannot meet: the exact words and, marked by a triangle in the text, the exact place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.config.load import load
from device_plugin.hardware.model import ComputeMode, Platform
from device_plugin.problems import ProblemKind
from device_plugin.sharing.plan import kept_shape, plan

A100 = "NVIDIA A100-SXM4-40GB"
SLICING = "sharing: {timeSlicing: {resources: [%s]}}\n"
ENTRY = "sharing.timeSlicing.resources[0]"
MIXED = "flags: {migStrategy: mixed}\n"
SPECS = "flags: {plugin: {passDeviceSpecs: ▸true}}\n"
IMEX = "this node has no IMEX channel0 in /dev/nvidia-caps-imex-channels"


def uuid(index):
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def whole(make):
    """Two whole GPUs."""
    return make.gpus(2)


def split(make):
    """GPU 0 whole, GPU 1 with two MIG devices."""
    return make.node(make.gpu(0), make.gpu(1, "1g.5gb", "1g.5gb"))


def on(platform):
    return lambda make: replace(make.gpus(2), platform=platform)


NAMES = [
    (
        'resources: {gpus: [{pattern: ▸"*H100*", name: h100}]}\n',
        whole,
        f"warning: resources.gpus[0].pattern: the pattern '*H100*' names no GPU: this node has GPUs 0-1: {A100}",
    ),
    (
        'resources: {gpus: [{pattern: "NVIDIA *", name: a}, {pattern: ▸"*A100*", name: b}]}\n',
        whole,
        f"warning: resources.gpus[1].pattern: the pattern '*A100*' names no GPU: an earlier pattern takes {A100}",
    ),
    (
        'resources:\n  mig: ▸[{pattern: "1g.*", name: tiny}]\n',
        whole,
        "info: resources.mig names MIG devices, and the MIG strategy none offers no MIG devices",
    ),
    (
        MIXED + 'resources: {mig: [{pattern: ▸"7g.*", name: big}]}\n',
        split,
        "info: resources.mig[0].pattern: the pattern '7g.*' names no MIG device: this node has 1g.5gb",
    ),
    (
        MIXED + 'resources: {mig: [{pattern: ▸"7g.*", name: big}]}\n',
        whole,
        "info: resources.mig[0].pattern: the pattern '7g.*' names no MIG device: this node has none",
    ),
    (
        MIXED + 'resources: {mig: [{pattern: "*g.5gb", name: a}, {pattern: ▸"1g.*", name: b}]}\n',
        split,
        "info: resources.mig[1].pattern: the pattern '1g.*' names no MIG device: an earlier pattern takes 1g.5gb",
    ),
    (
        'resources: {gpus: [{pattern: "*", name: a100}]}\n' + SLICING % "{name: ▸gpu, replicas: 2}",
        whole,
        (
            f"warning: {ENTRY}.name: no device is called nvidia.com/gpu: this node has nvidia.com/a100, by the names under "
            "resources; name those"
        ),
    ),
    (
        SLICING % "{name: ▸pool, replicas: 2}, {name: gpu, replicas: 2, rename: pool}",
        whole,
        (
            f"warning: {ENTRY}.name: no device is called nvidia.com/pool before sharing; name the resource that it is made from: "
            "this node has nvidia.com/gpu"
        ),
    ),
    (
        SLICING % "{name: ▸mig-1g.5gb, replicas: 2}",
        split,
        f"info: {ENTRY}.name: no device is called nvidia.com/mig-1g.5gb: this node has nvidia.com/gpu and the MIG strategy is none",
    ),
    (
        MIXED + SLICING % "{name: ▸mig-1g.10gb, replicas: 2}",
        split,
        f"info: {ENTRY}.name: no device is called nvidia.com/mig-1g.10gb: this node has nvidia.com/gpu and nvidia.com/mig-1g.5gb",
    ),
    (
        SLICING % "{name: ▸gpus, replicas: 2}",
        whole,
        f"warning: {ENTRY}.name: no device is called nvidia.com/gpus; did you mean nvidia.com/gpu? this node has nvidia.com/gpu",
    ),
    (
        SLICING % "{name: ▸example.com/other, replicas: 2}",
        whole,
        f"info: {ENTRY}.name: no device is called example.com/other: this node has nvidia.com/gpu",
    ),
]
DEVICES = [
    (
        SLICING % "{name: gpu, replicas: 2, devices: [0, ▸9]}",
        whole,
        f"warning: {ENTRY}.devices[1]: nvidia.com/gpu has no device '9' on this node; it has 0 and 1",
    ),
    (
        MIXED + SLICING % '{name: gpu, replicas: 2, devices: [0, ▸"1:0"]}',
        split,
        f"warning: {ENTRY}.devices[1]: device '1:0' is not of nvidia.com/gpu but of another resource; it has 0",
    ),
    (
        MIXED + SLICING % "{name: mig-1g.5gb, replicas: 2, devices: [▸1]}",
        split,
        f"warning: {ENTRY}.devices[0]: GPU '1' is split into MIG devices; name those: it has 1:0 and 1:1",
    ),
    (
        "devices: {exclude: [1]}\n" + SLICING % "{name: gpu, replicas: 2, devices: [0, ▸1]}",
        whole,
        (
            f"warning: {ENTRY}.devices[1]: device '1' is not offered (hidden by devices.include or devices.exclude); "
            "nvidia.com/gpu has the rest"
        ),
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: ▸3}",
        whole,
        f"warning: {ENTRY}.devices: asks for 3 devices of nvidia.com/gpu, and 2 of 2 are left unclaimed",
    ),
    (
        SLICING % f"{{name: gpu, replicas: 2, devices: [0, ▸{uuid(0)}]}}",
        whole,
        f"warning: {ENTRY}.devices[1]: '{uuid(0)}' names device 0 ({uuid(0)}) a second time",
    ),
    (
        SLICING % "{name: gpu, replicas: 1, allocationPolicy: ▸packed}",
        whole,
        (
            f"warning: {ENTRY}.allocationPolicy: packed has no effect: nvidia.com/gpu has whole GPUs only, which are chosen by "
            "their links"
        ),
    ),
    (
        "devices:\n  include: [0, ▸7]\n",
        whole,
        f"warning: devices.include[1]: '7' chooses no GPU; this node has GPUs 0-1: {A100}",
    ),
    (
        "devices:\n  exclude:\n  - ▸'*H100*'\n",
        whole,
        f"warning: devices.exclude[0]: '*H100*' chooses no GPU; this node has GPUs 0-1: {A100}",
    ),
    (
        "devices: {exclude: ▸[0, 1]}\n",
        whole,
        f"warning: devices.include and devices.exclude leave no GPU; this node has GPUs 0-1: {A100}",
    ),
    (
        "devices: {include: ▸[0], exclude: ['*A100*']}\n",
        whole,
        f"warning: devices.include and devices.exclude leave no GPU; this node has GPUs 0-1: {A100}",
    ),
]
NODES = [
    (
        "flags: {migStrategy: ▸none}\n",
        split,
        (
            "warning: flags.migStrategy: GPU 1: in MIG mode but offered whole, since the MIG strategy is none; CUDA programs "
            "cannot use a GPU in MIG mode as a whole, so choose the MIG strategy single or mixed, or switch MIG mode off"
        ),
    ),
    (
        SPECS,
        lambda make: make.gpus(2, device_nodes=()),
        (
            "warning: flags.plugin.passDeviceSpecs: GPUs 0-1: the driver tells no minor number, so containers get the control "
            "nodes and no /dev/nvidia<minor>"
        ),
    ),
    (
        SPECS.replace("flags: {", "flags: {migStrategy: mixed, "),
        split,
        (
            "warning: flags.plugin.passDeviceSpecs: MIG devices 1:0 and 1:1: the minor number of the GPU or of the instances' "
            "capabilities is unknown, so containers get the control nodes and neither /dev/nvidia<minor> nor "
            "/dev/nvidia-caps/nvidia-cap<minor>"
        ),
    ),
    ("imex: {channelIDs: ▸[0]}\n", whole, f"warning: imex.channelIDs: {IMEX}; containers start without it"),
    (
        "imex: {channelIDs: [0], required: ▸true}\n",
        whole,
        f"error: imex.required: {IMEX}, and it is required; no container can be started with a GPU",
    ),
    (
        "flags: {deviceDiscoveryStrategy: ▸tegra}\n",
        whole,
        (
            "warning: flags.deviceDiscoveryStrategy: the discovery strategy tegra is forced, but this is no Tegra system (found: "
            f"platform nvml, GPUs 0-1: {A100}); what NVML shows is offered. Set it to auto"
        ),
    ),
    (
        "flags: {deviceDiscoveryStrategy: ▸nvml}\n",
        on(Platform.TEGRA),
        (
            "warning: flags.deviceDiscoveryStrategy: the discovery strategy nvml is forced on a Tegra system (found: GPUs 0-1: "
            f"{A100}); what NVML shows is offered, and containers may need device nodes that NVML does not know"
        ),
    ),
    (
        "flags: {deviceDiscoveryStrategy: ▸tegra}\n",
        on(Platform.TEGRA),
        (
            "error: flags.deviceDiscoveryStrategy: Tegra systems (Jetson, IGX with an integrated GPU) are not supported; found a "
            f"Tegra system and, through NVML, GPUs 0-1: {A100}. Nothing is offered"
        ),
    ),
    (
        "devices: ▸{exclude: [1]}\n",
        on(Platform.WSL),
        "warning: devices: WSL hands out all GPUs together: devices.include and exclude cannot hide some",
    ),
    (
        'resources:\n  gpus: ▸[{pattern: "*A100*", name: a100}]\n',
        lambda make: replace(make.node(make.gpu(0), make.gpu(1, name="Tesla T4")), platform=Platform.WSL),
        (
            "warning: resources.gpus: WSL hands out all GPUs together: they cannot be nvidia.com/a100 and nvidia.com/gpu at once "
            "and are all offered as nvidia.com/a100"
        ),
    ),
]


def place(marked):
    before, _, after = marked.partition("▸")
    return before + after, f"c.yaml:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


@pytest.mark.parametrize(("marked", "node", "said"), [*NAMES, *DEVICES, *NODES])
def test_what_a_node_cannot_meet_is_said_once_at_its_place(make, marked, node, said):
    text, where = place(marked)
    problems = plan(node(make), load(text, file="c.yaml").config).problems
    placed = [problem for problem in problems if problem.origin.line and problem.kind is not ProblemKind.DIFFERENCE]
    assert [str(problem) for problem in placed if "isolates no memory" not in problem.message] == [f"{where}: {said}"]


def test_what_sharing_does_not_do_is_said_where_it_is_asked_for(make):
    text, where = place("sharing:\n  timeSlicing: ▸{resources: [{name: gpu, replicas: 2}]}\n")
    assert [str(problem) for problem in plan(whole(make), load(text, file="c.yaml").config).problems] == [
        (
            f"{where}: info: sharing.timeSlicing: time-slicing isolates no memory and no faults: each replica can use all memory "
            "of its device, and one that takes it all stops the others"
        )
    ]


@pytest.mark.parametrize(
    ("entries", "outcome"),
    [
        ("{name: gpu, replicas: 2, devices: ▸[0]}", "ignores them and would offer nvidia.com/gpu: 4"),
        ("{name: gpu, replicas: 1, devices: ▸[0]}", "refuses a file with replicas: 1"),
    ],
)
def test_what_nvidias_plugin_makes_of_the_file_is_said_at_the_first_key_that_it_ignores(make, entries, outcome):
    text, where = place(SLICING % entries)
    problems = plan(whole(make), load(text, file="c.yaml").config).problems
    [found] = [problem for problem in problems if problem.kind is ProblemKind.DIFFERENCE]
    here = "nvidia.com/gpu: 3" if "replicas: 2" in entries else "nvidia.com/gpu: 2"
    assert str(found) == (
        f"{where}: info: here these take effect: {ENTRY}.devices; this node offers {here}. NVIDIA's plugin {outcome}"
    )


def test_a_layout_that_no_longer_fits_single_is_said_at_the_strategy(make):
    text, where = place("flags:\n  migStrategy: ▸single\n")
    config, before = load(text, file="c.yaml").config, make.gpus(2)
    offer = plan(split(make), config, keep_shape=kept_shape(before, plan(before, config)))
    assert [str(problem) for problem in offer.problems] == [
        (
            f"{where}: error: flags.migStrategy: the MIG strategy single needs all GPUs split alike, or none, but GPU 0: no MIG "
            "mode; GPU 1: 2 x 1g.5gb; only what has the shape served before stays (whole GPU). Split them alike, hide some with "
            "devices.exclude, or choose the MIG strategy mixed"
        )
    ]


HARDWARE = [
    (
        lambda make: make.node(make.gpu(0), make.gpu(1, uuid="")),
        f"error: GPU 1 ({A100}): the driver gives it no UUID; it is withheld",
    ),
    (
        lambda make: make.node(make.gpu(0), make.gpu(1, uuid="all")),
        f"error: GPU 1 ({A100}): its UUID 'all' cannot name a device; it is withheld",
    ),
    (
        lambda make: make.node(make.gpu(0), make.gpu(1, uuid=uuid(0))),
        f"error: GPU 1 ({A100}): its UUID {uuid(0)} is also that of GPU 0; it is withheld",
    ),
    (
        lambda make: make.gpus(2, compute_mode=ComputeMode.PROHIBITED),
        "warning: GPUs 0-1: the compute mode PROHIBITED lets no program in; set it back with nvidia-smi -c DEFAULT",
    ),
    (
        lambda make: make.gpus(2, compute_mode=ComputeMode.EXCLUSIVE_PROCESS),
        (
            "warning: GPUs 0-1: shared, but the compute mode EXCLUSIVE_PROCESS lets one program in at a time, so the second "
            "container fails; set it back with nvidia-smi -c DEFAULT, or do not share it"
        ),
    ),
    (
        lambda make: make.node(make.gpu(0), make.gpu(1, mig_enabled=True)),
        (
            f"warning: GPU 1 ({uuid(1)}): MIG enabled, no instances, so it offers nothing; a reboot keeps MIG mode and loses the "
            "instances: create them anew, or switch MIG mode off"
        ),
    ),
    (
        lambda make: make.node(make.gpu(1, mig_enabled=True, mig_devices=(make.mig(1, 0, uuid=uuid(1)),))),
        f"error: MIG device 1:0 ({uuid(1)}) is withheld, the others are not: its UUID {uuid(1)} is also that of another device",
    ),
    (
        lambda make: make.node(make.gpu(1, mig_enabled=True, mig_devices=(make.mig(1, 0, None, uuid="MIG-a"),))),
        (
            "error: MIG device 1:0 (MIG-a) is withheld, the others are not: neither the driver nor the attributes of MIG device "
            "1:0 tell its profile"
        ),
    ),
    (
        lambda make: make.node(make.gpu(1, mig_enabled=True, mig_devices=(make.mig(1, 0, "1g/5gb", uuid="MIG-a"),))),
        (
            "error: MIG device 1:0 (MIG-a) is withheld, the others are not: its profile '1g/5gb' gives no resource name: resource "
            "name 'nvidia.com/mig-1g/5gb' has more than one '/'; expected domain/name"
        ),
    ),
    (
        lambda make: replace(make.gpus(2), platform=Platform.TEGRA),
        (
            "error: Tegra systems (Jetson, IGX with an integrated GPU) are not supported; found a Tegra system and, through NVML, "
            f"GPUs 0-1: {A100}. Nothing is offered"
        ),
    ),
]


@pytest.mark.parametrize(("node", "said"), HARDWARE)
def test_what_is_wrong_with_the_node_is_no_fault_of_the_file(make, node, said):
    config = load(MIXED + SLICING % "{name: gpu, replicas: 2}", file="c.yaml").config
    assert [str(problem) for problem in plan(node(make), config).problems if not problem.origin.line] == [f"node: {said}"]


def test_a_device_of_unknown_shape_is_said(make):
    node = make.node(
        make.gpu(0, mig_enabled=True, mig_devices=(make.mig(0, 0), make.mig(0, 1, None, uuid="MIG-a", attributes=None)))
    )
    assert [str(problem) for problem in plan(node, load("flags: {migStrategy: single}").config).problems] == [
        (
            "node: error: MIG device 0:1 (MIG-a) is withheld, the others are not: the driver tells neither its attributes nor its "
            "profile, so its shape is not known"
        )
    ]
