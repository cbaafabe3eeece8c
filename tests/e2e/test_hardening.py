"""Faults that come together, or at the worst moment: the plugin lives through them, and shows kubelet the truth afterwards."""

import asyncio

import pytest

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("trouble", ["UNKNOWN", "GPU_IS_LOST"])
async def test_a_watch_that_never_works_does_not_heal_the_gpus_at_each_try(rig, fast, monkeypatch, trouble):
    """An event source could be made but refused every wait: at each try all GPUs were Healthy for a moment, and pods were placed on
    GPUs that nobody watched (NVIDIA/k8s-device-plugin#1640)."""
    monkeypatch.setattr("device_plugin.supervisor.threads.EventThread.LAST_RETRY_SECONDS", 0.05)
    node = rig("l4x4", config=fast())
    async with node.running():
        node.node.answer("nvmlEventSetWait", trouble)
        await node.kubelet.wait_allocatable(GPU, 0)
        lists, lines = len(node.lists()), len(node.log)
        await asyncio.sleep(0.6)  # some ten tries
        assert len(node.lists()) == lists
        assert len(node.log) == lines
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 4)
        node.node.xid(2, 79)
        await node.kubelet.wait_allocatable(GPU, 3)
