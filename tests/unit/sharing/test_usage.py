"""What each GPU ends up as."""

from __future__ import annotations

from dataclasses import replace

from device_plugin.hardware.model import Platform, UnreadableGpu
from device_plugin.sharing.phrases import join_words, list_gpus
from device_plugin.sharing.plan import plan
from device_plugin.sharing.usage import GpuUse, Use, UseKind, describe_gpus

GPU = "nvidia.com/gpu"


def test_every_gpu_of_the_node_has_a_row(make):
    """Whole, shared, split, hidden, empty and unreadable GPUs are each said, in index order."""
    config = make.config(
        {
            "devices": {"exclude": [3]},
            "sharing": {
                "timeSlicing": {
                    "resources": [
                        {"name": "gpu", "replicas": 4, "devices": [1], "rename": "gpu.shared"},
                        {"name": "mig-1g.5gb", "replicas": 2},
                    ]
                }
            },
        },
        mig="mixed",
    )
    split = make.gpu(2, mig_enabled=True, mig_devices=(make.mig(2, 0), make.mig(2, 1, "2g.10gb"), make.mig(2, 2, fault="lost")))
    node = make.node(
        make.gpu(0), make.gpu(1), split, make.gpu(3), make.gpu(4, mig_enabled=True), unreadable=(UnreadableGpu(5, "GPU is lost"),)
    )
    name = make.gpu(0).name
    expected = (
        GpuUse(0, make.uuid(0), name, (Use(GPU, 1, UseKind.WHOLE),)),
        GpuUse(1, make.uuid(1), name, (Use("nvidia.com/gpu.shared", 4, UseKind.SHARED),)),
        GpuUse(
            2,
            make.uuid(2),
            name,
            (Use("nvidia.com/mig-1g.5gb", 2, UseKind.SHARED_MIG), Use("nvidia.com/mig-2g.10gb", 1, UseKind.MIG)),
            ("MIG device 2:2: lost",),
        ),
        GpuUse(3, make.uuid(3), name, (), ("hidden by devices.include or devices.exclude",)),
        GpuUse(4, make.uuid(4), name, (), ("MIG enabled, no instances",)),
        GpuUse(5, "", "", (), ("unreadable: GPU is lost",)),
    )
    assert expected == describe_gpus(node, plan(node, config))


def test_rows_are_in_index_order(make):
    """However the driver lists GPUs, unreadable ones among them."""
    node = make.node(make.gpu(10), make.gpu(2), unreadable=(UnreadableGpu(3, "GPU is lost"),))
    assert [row.index for row in describe_gpus(node, plan(node, make.config()))] == [2, 3, 10]


def test_a_gpu_with_anothers_uuid_has_no_use_of_its_own(make):
    """The use is that of the GPU that kept the UUID."""
    node = make.node(make.gpu(0), make.gpu(1, uuid=make.uuid(0)))
    first, second = describe_gpus(node, plan(node, make.config()))
    assert (Use(GPU, 1, UseKind.WHOLE),) == first.uses
    assert (second.uses, len(second.withheld)) == ((), 1)


def test_a_reason_is_said_once_for_all_that_it_keeps_back(make):
    """A node that does not fit the MIG strategy `single` has a row of one clause for each GPU."""
    node = make.node(make.gpu(0, "1g.5gb", "1g.5gb", "1g.5gb"), make.gpu(1, "2g.10gb"), make.gpu(2))
    reason = "does not fit the MIG strategy single"
    assert [row.withheld for row in describe_gpus(node, plan(node, make.config(mig="single")))] == [
        (f"MIG devices 0:0, 0:1 and 0:2: {reason}",),
        (f"MIG device 1:0: {reason}",),
        (reason,),
    ]


def test_under_wsl_every_gpu_stands_behind_the_one_device(make):
    """Each row shows the device `all`."""
    node = replace(make.gpus(2), platform=Platform.WSL)
    assert [(Use(GPU, 1, UseKind.WHOLE),)] * 2 == [row.uses for row in describe_gpus(node, plan(node, make.config()))]


def test_under_wsl_a_reason_is_every_gpus(make):
    """The one device withheld is withheld from each row."""
    name = "g" * 60
    config = make.config(
        {
            "resources": {"gpus": [{"pattern": "*", "name": name}]},
            "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [{"name": name, "replicas": 2}]}},
        }
    )
    node = replace(make.gpus(2), platform=Platform.WSL)
    assert [row.withheld for row in describe_gpus(node, plan(node, config))] == [("its resource has no valid name",)] * 2


def test_a_node_that_is_refused_says_why_for_each_gpu(make):
    """On Tegra no GPU is offered, and each row has the reason."""
    node = replace(make.gpus(1), unreadable=(UnreadableGpu(1, "GPU is lost"),), platform=Platform.TEGRA)
    assert [(row.uses, row.withheld) for row in describe_gpus(node, plan(node, make.config()))] == [
        ((), ("its platform is not supported",))
    ] * 2


def test_gpus_are_listed_shortly():
    """Runs of indexes are drawn together."""
    assert [list_gpus(indexes) for indexes in ([], [3], [1, 0], [7, 5, 3, 2, 1, 0, 0], [1, 3])] == [
        "",
        "GPU 3",
        "GPUs 0-1",
        "GPUs 0-3, 5 and 7",
        "GPUs 1 and 3",
    ]


def test_words_are_joined():
    """As one says it."""
    assert [join_words(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
