"""A container that cannot be given its device must not be promised one."""

import pytest

GPU = "nvidia.com/gpu"


def strategy(*names):
    return f"flags: {{plugin: {{deviceListStrategy: [{', '.join(names)}]}}}}\n"


async def test_specifications_are_there_before_kubelet_hears_of_the_devices(rig, fast):
    """Kubelet replays a stored answer at once after its start; its CDI names must resolve by then."""
    node = rig(config=fast(strategy("cdi-cri")))
    async with node.running():
        assert list((node.sockets / "cdi").glob("*.json"))
        pod = await node.admit("a", gpu=1)
        assert [device.name for device in node.kubelet.injected("a").cdi_devices]
        assert pod.devices("main", GPU)
        events = [entry["event"] for entry in node.log]
        assert "resource.registered" in events


async def test_with_no_way_left_the_devices_are_unhealthy_until_there_is_one(rig, fast):
    node = rig(config=fast(strategy("cdi-cri")))
    node.sockets.mkdir()
    (node.sockets / "cdi").write_text("in the way")
    async with node.running(ready=False):
        await node.wait(lambda: len(node.kubelet.listed(GPU)) == 8)
        assert not node.healthy()
        assert {entry["cause"] for entry in node.of("cause.added")} == {"injection"}
        (node.sockets / "cdi").unlink()
        await node.kubelet.wait_allocatable(GPU, 8)
        await node.admit("a", gpu=1)
        assert node.kubelet.injected("a").cdi_devices


@pytest.mark.parametrize("other", ["envvar", "volume-mounts"])
async def test_with_another_strategy_left_the_answers_go_without_cdi(rig, fast, other):
    node = rig(config=fast(strategy(other, "cdi-cri")))
    node.sockets.mkdir()
    (node.sockets / "cdi").write_text("in the way")
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 8)
        assert not node.of("cause.added")
        await node.admit("a", gpu=1)
        answer = node.kubelet.injected("a")
        assert not answer.cdi_devices
        assert answer.envs


async def test_a_lost_gpu_does_not_take_cdi_from_the_others(rig, fast):
    node = rig(config=fast(strategy("cdi-cri")))
    async with node.running():
        node.node.lose(0)
        await node.kubelet.wait_allocatable(GPU, 7)
        pod = await node.admit("a", gpu=7)
        assert len(node.kubelet.injected("a").cdi_devices) >= 7
        assert pod.failure is None
        node.node.restore(0)
        await node.kubelet.wait_allocatable(GPU, 8)


@pytest.mark.parametrize("strategies", [("cdi-cri",), ("envvar", "cdi-cri")])
async def test_one_mig_device_that_cannot_be_injected_costs_one_mig_device(rig, fast, strategies):
    """Its capability nodes are unknown to the driver's table; its siblings on the same GPU have theirs."""
    node = rig(
        "a100-mig-mixed", config=fast(f"flags: {{migStrategy: mixed, plugin: {{deviceListStrategy: [{', '.join(strategies)}]}}}}\n")
    )
    minors = node.node.root / "proc/driver/nvidia-caps/mig-minors"
    minors.write_text("".join(line for line in minors.read_text().splitlines(keepends=True) if not line.startswith("gpu0/gi7/")))
    alone = len(strategies) == 1
    async with node.running():
        await node.kubelet.wait_allocatable("nvidia.com/mig-1g.5gb", 8 if alone else 9)
        assert len(node.kubelet.listed("nvidia.com/mig-1g.5gb")) == 9
        await node.admit("a", **{"nvidia.com/mig-1g.5gb": 8})
        assert len(node.kubelet.injected("a").cdi_devices) >= (8 if alone else 7)
