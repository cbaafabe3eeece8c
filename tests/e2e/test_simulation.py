"""Simulated hardware takes the real way to kubelet: nothing above the driver's library knows of it."""

from collections import Counter

MIXED = "version: v1\nflags: {migStrategy: mixed}\n"


async def test_simulated_mig_devices_are_allocatable_like_real_ones(rig):
    """Faked MIG devices never reached the node's allocatable (run-ai/fake-gpu-operator#177): tests with them proved nothing."""
    node = rig("a100-mig-mixed", config=MIXED)
    profiles = Counter(mig.profile for gpu in node.node.gpus for mig in gpu.mig)
    async with node.running():
        for profile, count in profiles.items():
            resource = f"nvidia.com/mig-{profile.replace('+', '.')}"
            assert (node.kubelet.capacity(resource), node.kubelet.allocatable(resource)) == (count, count)
        [given] = (await node.admit("pod", **{"nvidia.com/mig-3g.20gb": 1})).devices("main", "nvidia.com/mig-3g.20gb")
        assert given in {mig.uuid for gpu in node.node.gpus for mig in gpu.mig if mig.profile == "3g.20gb"}
        assert dict(node.kubelet.injected("pod").envs) == {"NVIDIA_VISIBLE_DEVICES": given}


async def test_kubelets_checkpoint_is_nobodys_business(rig):
    """It was lost, and it was unreadable (kubernetes/kubernetes#116125, kubernetes/kubernetes#102880): the plugin neither reads nor
    touches it."""
    node = rig("t4")
    node.sockets.mkdir()
    checkpoint = node.sockets / "kubelet_internal_checkpoint"
    checkpoint.write_bytes(b'{"Data": {"PodDeviceEntries": [\x00')
    async with node.running():
        await node.admit("pod", **{"nvidia.com/gpu": 1})
        checkpoint.write_bytes(b"something else")
        await node.kubelet.restart()
        await node.kubelet.wait_allocatable("nvidia.com/gpu", 4)
        assert checkpoint.read_bytes() == b"something else"
        checkpoint.unlink()
        await node.admit("other", **{"nvidia.com/gpu": 3})
    assert not checkpoint.exists()
