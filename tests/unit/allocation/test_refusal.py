"""What Allocate refuses, and what it says."""

from __future__ import annotations

import pytest

from device_plugin.allocation.response import allocate
from device_plugin.config.values import DeviceListStrategy
from device_plugin.errors import AllocationRefused
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.sharing.offer import PreferencePolicy

ENVVAR, CRI = DeviceListStrategy.ENVVAR, DeviceListStrategy.CDI_CRI
XID = Cause(CauseKind.XID, "GPU-0", "79", "XID 79", 0.0, ClearedBy.RESET)
NO_SPECIFICATION = Cause(CauseKind.INJECTION, "GPU-0", "cdi", "cannot write /var/run/cdi", 0.0, ClearedBy.PROBE)


def refusal(table, ids: list[str]) -> str:
    with pytest.raises(AllocationRefused) as refused:
        allocate(table, ids)
    return str(refused.value)


def test_unknown_ids(make_table, make_gpu):
    """The text names the resource, each unknown ID, and what to do; known ones are not named."""
    assert refusal(make_table([make_gpu(0)]), ["GPU-0", "GPU-7", "no-such-device"]) == (
        'invalid allocation request for "nvidia.com/gpu": invalid request: unknown device: GPU-7, no-such-device; '
        "this node does not offer it under that resource (any more); "
        "kubelet does not try this pod again: delete it, a new one is given other devices"
    )


@pytest.mark.parametrize("device_id", ["GPU-0", "GPU-0::2", "GPU-0::", "GPU-0::00", "gpu-0::0", "", "GPU-0::0 "])
def test_ids_are_matched_whole(make_table, make_replicas, device_id):
    """Nothing but an ID of the list is one: not its GPU, not another number."""
    assert "unknown device" in refusal(make_table(make_replicas(0, 2)), [device_id])


def test_many_ids_are_not_all_named(make_table):
    """The text stays readable in a pod's status."""
    text = refusal(make_table([]), [f"GPU-{n}" for n in range(100)])
    assert "GPU-0, GPU-1, GPU-2, GPU-3, GPU-4, GPU-5, GPU-6, GPU-7 and 92 more" in text


def test_no_text_outgrows_what_grpc_carries(make_table, make_replicas):
    """Some gRPC clients take no text of more than 16 KiB, so the reason was lost: neither long IDs nor many GPUs lead there."""
    assert len(refusal(make_table([]), ["x" * 100_000] * 9)) < 2000
    crowded = make_table([device for gpu in range(64) for device in make_replicas(gpu, 20)], PreferencePolicy.DISTINCT)
    text = refusal(crowded, list(crowded.positions))
    assert "GPU-7 would give" in text
    assert " and 56 more; kubelet" in text
    assert len(text) < 4000


def test_gone_devices(make_table, make_gpu):
    """A device whose hardware is gone is still listed, and cannot be given."""
    text = refusal(make_table([make_gpu(0, causes=(XID,), leaving_since=1.0, present=False)]), ["GPU-0"])
    assert "device is gone: GPU-0" in text


def test_unhealthy_and_leaving_devices_are_given(make_table, make_gpu):
    """Kubelet picked before it knew, and a refusal would fail the pod for good."""
    table = make_table([make_gpu(0, causes=(XID,)), make_gpu(1, leaving_since=1.0)])
    assert allocate(table, ["GPU-0", "GPU-1"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}


def test_requests_greater_than_one(make_table, make_replicas, make_gpu):
    """Two replicas are refused where the config says so, with the number found and both ways out; one, and whole GPUs, are not."""
    devices = [*make_replicas(0, 2), *make_replicas(1, 2), make_gpu(2), make_gpu(3)]
    table = make_table(devices, fail_greater_than_one=True)
    text = refusal(table, ["GPU-0::1", "GPU-1::0"])
    assert "maximum request size for shared resources is 1; found 2: GPU-0::1, GPU-1::0; " in text
    assert "ask for 1, or set failRequestsGreaterThanOne to false" in text
    assert "found 2" in refusal(table, ["GPU-0::1", "GPU-2"])
    assert allocate(table, ["GPU-0::1"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
    assert allocate(table, ["GPU-2", "GPU-3"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-3"}
    assert allocate(make_table(devices), ["GPU-0::0", "GPU-0::1"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}


def test_distinct_is_hard(make_table, make_replicas):
    """Two devices of one GPU are refused, naming GPU, IDs and the way out (NVIDIA/k8s-device-plugin#491)."""
    table = make_table([*make_replicas(0, 4), *make_replicas(1, 4)], PreferencePolicy.DISTINCT, name="nvidia.com/gpu.shared")
    assert refusal(table, ["GPU-0::0", "GPU-1::0", "GPU-0::2"]) == (
        'invalid allocation request for "nvidia.com/gpu.shared": invalid request: '
        "under the policy distinct a container gets at most one device of each GPU, and too few GPUs have one free: "
        "GPU-0 would give GPU-0::0, GPU-0::2; "
        "kubelet does not try this pod again: ask for fewer, or set its allocationPolicy to distributed"
    )
    assert allocate(table, ["GPU-0::0", "GPU-1::0"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}


def test_distinct_looks_at_the_physical_gpu(make_table, make_mig):
    """Two MIG devices of one GPU are two devices of one GPU."""
    table = make_table([*make_mig(0, 2), *make_mig(1, 1)], PreferencePolicy.DISTINCT)
    assert "GPU-0 would give MIG-0-0, MIG-0-1" in refusal(table, ["MIG-0-0", "MIG-0-1"])
    assert allocate(table, ["MIG-0-1", "MIG-1-0"]).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-0-1,MIG-1-0"}


def test_no_answer_without_injection(make_table, make_gpu):
    """With CDI alone, a device that no specification defines is refused with the cause: no container starts without its GPU."""
    devices = [make_gpu(0, causes=(NO_SPECIFICATION,)), make_gpu(1)]
    table = make_table(devices, strategies=(CRI,), cdi_classes=("gpu",))
    text = refusal(table, ["GPU-0", "GPU-1"])
    assert "no way to inject GPU-0: no CDI specification defines it" in text
    assert "injection: cannot write /var/run/cdi" in text
    assert allocate(table, ["GPU-1"]).cdi_devices == ("k8s.device-plugin.nvidia.com/gpu=GPU-1",)
    assert "no way to inject GPU-1" in refusal(make_table(devices, strategies=(CRI,)), ["GPU-1"])
    assert allocate(make_table(devices, strategies=(CRI, ENVVAR)), ["GPU-0"]).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
