"""When the hardware changes under a config that no longer fits it: the best that can be served is, and what is not is said."""

from collections import Counter

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


def errors(rig):
    return [entry["message"] for entry in rig.of("problem.found") if entry["log_level"] == "error"]


async def test_under_single_what_has_the_shape_served_stays(rig, fast):
    """Three GPUs stay when the fourth is split, and a start afresh on such a node would wait (NVIDIA/gpu-operator#460)."""
    node = rig("dgx-a100", fast("flags: {migStrategy: single}\n"))
    async with node.running():
        registrations = node.registrations()
        node.node.repartition(0, ["3g.20gb", "3g.20gb"])
        await node.wait(lambda: node.healthy() == node.uuids(*range(1, 8)))
        await node.wait(lambda: node.kubelet.capacity(GPU) == 7)
        assert node.registrations() == registrations
        [message] = errors(node)
        assert "GPU 0: 2 x 3g.20gb; GPUs 1-7: no MIG mode" in message
        node.node.set_mig_mode(0, enabled=False)
        await node.wait(lambda: node.healthy() == node.uuids(*range(8)))


async def test_gpus_are_served_as_far_as_their_list_fits(rig):
    """A list over 4 MiB costs every device (kubernetes/kubernetes#109304): the GPU that came is left out, not the other."""
    node = rig("gb10", "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 35000}]}}\n")
    async with node.running() as plugin:
        served = node.healthy()
        assert len(served) == 35000
        node.node.add_gpu()
        plugin.supervisor.reload()
        await node.wait(lambda: errors(node))
        [message] = errors(node)
        assert message.startswith("the list of nvidia.com/gpu would take ")
        assert "the first 35000 of 70000" in message
        assert (node.healthy(), node.kubelet.capacity(GPU)) == (served, 35000)


async def test_of_two_entries_that_come_to_claim_one_gpu_the_earlier_has_it(rig, fast):
    """One names GPU 1 by index, one by UUID; a GPU that goes away makes them mean the same one."""
    node = rig("dgx-a100")
    last = node.uuid(7)
    first = "{name: gpu, devices: [6], replicas: 2, rename: gpu.shared}"
    second = f"{{name: gpu, devices: [{last}], replicas: 3, rename: gpu.third}}"
    node.write(fast(f"sharing: {{timeSlicing: {{resources: [{first}, {second}]}}}}\n"))
    async with node.running():
        assert node.kubelet.capacity("nvidia.com/gpu.third") == 3
        node.node.remove_gpu(0)
        await node.wait(lambda: Counter(i.partition("::")[0] for i in node.healthy(SHARED)) == {last: 2})
        await node.wait(lambda: not node.healthy("nvidia.com/gpu.third"))
        [message] = errors(node)
        assert message.startswith(f"device 6 ({last}) is claimed by sharing.timeSlicing.resources[0] (")
