"""MIG devices: which there are, what they are called, and what one broken one costs."""

from __future__ import annotations

import pynvml
import pytest

from device_plugin.errors import DriverError, GpuLost
from device_plugin.hardware.model import MigAttributes
from device_plugin.hardware.nvml.mig_profile import _SUFFIXES, computed_profile, profile_in_name, with_compute_part

NAMELESS = ["nvmlDeviceGetName"]


def mig(*profiles, **gpu):
    return {"migEnabled": True, "mig": list(profiles), **gpu}


def attributes(slices, memory_mib, compute=None):
    return MigAttributes(14, 1, 0, 0, 0, 0, slices, compute or slices, memory_mib)


def profiles_of(found, index=0):
    return [device.profile for device in found.driver.read_gpu(index).mig_devices]


# Names of profiles on GPUs that needed a release of other plugins (NVIDIA/gpu-operator#1759, NVIDIA/gpu-operator#1351,
# NVIDIA/gpu-operator#1303; GoogleCloudPlatform/container-engine-accelerators#563), and the layout of NVIDIA/k8s-device-plugin#1462.
LAYOUTS = {
    "A100 40GB": (40960, ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]),
    "A100 80GB, NVIDIA/k8s-device-plugin#1462": (81920, ["1g.10gb"] * 5 + ["1g.10gb+me"]),
    "B200": (183359, ["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb"]),
    "GB200": (189471, ["1g.23gb", "1g.47gb", "2g.47gb"]),
    "GB200, another": (189471, ["1g.24gb", "1g.47gb"]),
    "RTX PRO 6000": (97887, ["1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+gfx"]),
    "partial": (40960, ["1c.3g.20gb", "2c.3g.20gb", "1c.2g.10gb"]),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=LAYOUTS)
def test_profiles_are_named_as_the_driver_names_them(opened, layout):
    """Names come from the driver, so GPUs that no table has heard of are right."""
    memory, profiles = LAYOUTS[layout]
    assert profiles_of(opened(mig(*profiles, memoryMib=memory))) == profiles


@pytest.mark.parametrize("layout", LAYOUTS, ids=LAYOUTS)
def test_an_old_driver_names_profiles_through_their_gpu_instance(opened, layout):
    """Where a MIG device has no name, its GPU instance's profile has."""
    memory, profiles = LAYOUTS[layout]
    entries = [{"profile": profile, "unsupported": NAMELESS} for profile in profiles]
    assert profiles_of(opened(mig(*entries, memoryMib=memory))) == profiles


def test_a_name_alone_tells_the_profile(opened):
    """Nothing but the device's name is needed; an old library has no more."""
    missing = ["nvmlDeviceGetGpuInstanceById", "nvmlDeviceGetAttributes_v2"]
    assert profiles_of(opened(mig("1g.5gb+me", "1c.3g.20gb"), missingSymbols=missing)) == ["1g.5gb+me", "1c.3g.20gb"]


@pytest.mark.parametrize("missing", ["nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuInstanceById"])
def test_the_last_resort_is_arithmetic(opened, missing):
    """Where the driver names nothing, eighths of the memory tell the size; the suffix is known where the profile's number is."""
    entries = [{"profile": profile, "unsupported": NAMELESS} for profile in ("3g.20gb", "1g.5gb", "1g.5gb+me", "1c.2g.10gb")]
    suffix = "+me" if missing.endswith("V") else ""
    found = opened(mig(*entries), missingSymbols=[missing])
    assert profiles_of(found) == ["3g.20gb", "1g.5gb", f"1g.5gb{suffix}", "1c.2g.10gb"]


def test_the_suffixes_follow_nvmls_numbering():
    """What NVML's names of profile numbers say that profiles have or lack."""
    suffixes = {"REV1": "+me", "GFX": "+gfx", "NO_ME": "-me", "ALL_ME": "+me.all"}
    named = {name: number for name, number in vars(pynvml).items() if name.startswith("NVML_GPU_INSTANCE_PROFILE_")}
    expected = {
        number: suffix for name, number in named.items() for end, suffix in suffixes.items() if name.endswith(f"_SLICE_{end}")
    }
    assert expected == _SUFFIXES


@pytest.mark.parametrize(
    ("total_mib", "slices", "memory_mib", "expected"),
    [
        (40960, 1, 4864, "1g.5gb"),
        (40960, 1, 9856, "1g.10gb"),
        (40960, 2, 9856, "2g.10gb"),
        (40960, 3, 19968, "3g.20gb"),
        (40960, 7, 40192, "7g.40gb"),
        (81920, 1, 9728, "1g.10gb"),
        (24576, 1, 5952, "1g.6gb"),
        (183359, 1, 22000, "1g.23gb"),
        (189471, 1, 46000, "1g.47gb"),
    ],
)
def test_arithmetic_rounds_halves_up(total_mib, slices, memory_mib, expected):
    """Eighths of the memory are rounded up, the size to the nearest, halves up: an eighth of 180 GiB is 23, not Python's 22."""
    assert computed_profile(attributes(slices, memory_mib), total_mib * 2**20) == expected


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb", "1c.3g.40gb"),
        ("MIG 1g.24gb+me.all", "1g.24gb+me.all"),
        ("NVIDIA H100 MIG 1g.10gb-me ", "1g.10gb-me"),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA MIG 5000", None),
        ("", None),
    ],
)
def test_a_profile_is_found_in_a_name(name, profile):
    """Only what has the form of a profile after the word MIG is one."""
    assert profile_in_name(name) == profile


def test_the_compute_part_is_put_before_the_instance_profile():
    """A device with a part of its instance's compute slices says which part, once."""
    assert with_compute_part("3g.20gb", attributes(3, 20000, compute=1)) == "1c.3g.20gb"
    assert with_compute_part("1c.3g.20gb", attributes(3, 20000, compute=2)) == "2c.3g.20gb"
    assert with_compute_part("3g.20gb", attributes(3, 20000)) == "3g.20gb"
    assert with_compute_part("3g.20gb", None) == "3g.20gb"


def test_a_mig_device_is_described_in_full(opened):
    """UUID, index, instance ids and attributes of a MIG device arrive."""
    found = opened(mig("3g.20gb", {"profile": "1c.2g.10gb", "gpuInstance": 5, "computeInstance": 1}))
    first, second = found.driver.read_gpu(0).mig_devices
    assert [first.uuid, second.uuid] == [instance.uuid for instance in found.node.gpus[0].mig]
    assert (first.index, second.index) == (0, 1)
    assert (second.gpu_instance_id, second.compute_instance_id) == (5, 1)
    assert (second.attributes.gpu_instance_slice_count, second.attributes.compute_instance_slice_count) == (2, 1)
    assert first.attributes.memory_size_mib == found.node.gpus[0].mig[0].memory_mib
    assert (first.fault, second.fault) == (None, None)


def test_holes_in_the_numbering_are_passed_over(opened):
    """A destroyed device leaves its index empty; those after it are found, with their own index."""
    found = opened(mig("2g.10gb", "1g.5gb", "3g.20gb"))
    found.node.repartition(0, ["2g.10gb", "3g.20gb"])
    assert [(device.index, device.profile) for device in found.driver.read_gpu(0).mig_devices] == [(0, "2g.10gb"), (2, "3g.20gb")]


def test_repartitioning_keeps_the_identity_of_what_stays(opened):
    """A 2g.10gb becomes two 1g.5gb while a 3g.20gb stays: it keeps its UUID (NVIDIA/k8s-device-plugin#992)."""
    found = opened(mig("3g.20gb", "2g.10gb"))
    before = {device.profile: device.uuid for device in found.driver.read_gpu(0).mig_devices}
    found.node.repartition(0, ["3g.20gb", "1g.5gb", "1g.5gb"])
    after = found.driver.read_gpu(0).mig_devices
    assert sorted(device.profile for device in after) == ["1g.5gb", "1g.5gb", "3g.20gb"]
    assert before["3g.20gb"] in {device.uuid for device in after}
    assert before["2g.10gb"] not in {device.uuid for device in after}


def test_mig_mode_without_devices(opened):
    """After a reboot the mode persists and the layout does not (NVIDIA/k8s-device-plugin#225): enabled, and no device."""
    found = opened(mig("1g.5gb"))
    found.node.reboot()
    found.node.load_driver()
    found.driver.close()
    found.driver.open()
    gpu = found.driver.read_gpu(0)
    assert (gpu.mig_enabled, gpu.mig_devices, gpu.faults) == (True, (), ())


def test_refused_attributes_name_the_missing_capability(opened):
    """Without the MIG monitor capability the attributes are refused (NVIDIA/k8s-device-plugin#399): the text names what the
    container lacks.
    """
    found = opened(mig("1g.5gb", "2g.10gb"))
    found.node.answer("nvmlDeviceGetAttributes", "NO_PERMISSION")
    gpu = found.driver.read_gpu(0)
    assert [(device.profile, device.attributes, device.fault) for device in gpu.mig_devices] == [
        ("1g.5gb", None, None),
        ("2g.10gb", None, None),
    ]
    assert all("NVIDIA_MIG_MONITOR_DEVICES" in fault for fault in gpu.faults)
    assert len(gpu.faults) == 2


def test_refused_attributes_of_a_nameless_device_are_its_fault(opened):
    """If nothing tells the profile either, the device is withheld, with that text."""
    found = opened(mig({"profile": "1g.5gb", "unsupported": NAMELESS}), missingSymbols=["nvmlDeviceGetGpuInstanceById"])
    found.node.answer("nvmlDeviceGetAttributes", "NO_PERMISSION")
    (device,) = found.driver.read_gpu(0).mig_devices
    assert device.profile is None
    assert "NVIDIA_MIG_MONITOR_DEVICES" in device.fault


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount"])
def test_a_gpu_that_would_not_say_how_it_is_split_is_not_taken_for_a_whole_one(opened, function):
    """An error of the driver's is no answer: offered whole, the GPU would stand beside the MIG devices that pods hold on it."""
    found = opened(mig("1g.5gb", "1g.5gb"), {})
    found.node.answer(function, "UNKNOWN", gpu=0)
    with pytest.raises(DriverError, match=function):
        found.driver.read_gpu(0)
    assert not found.driver.read_gpu(1).mig_enabled


@pytest.mark.parametrize("code", ["UNKNOWN", "NOT_SUPPORTED", "NOT_FOUND", "INVALID_ARGUMENT"])
def test_one_broken_device_does_not_stop_the_rest(opened, code):
    """A MIG device that the driver would not describe at all is there with its fault, and no hole; its siblings are sound."""
    found = opened(mig("1g.5gb", "1g.5gb", "1g.5gb"), {})
    broken = found.node.gpus[0].mig[1].uuid
    found.node.answer("nvmlDeviceGetUUID", code, gpu=broken)
    gpu = found.driver.read_gpu(0)
    assert [(device.index, device.uuid == "", device.fault is None) for device in gpu.mig_devices] == [
        (0, False, True),
        (1, True, False),
        (2, False, True),
    ]
    assert f"nvmlDeviceGetUUID of MIG device 1 of {gpu.uuid}" in gpu.mig_devices[1].fault
    assert gpu.faults == ()
    assert found.driver.read_gpu(1).faults == ()


def test_a_device_whose_ids_fail_is_still_there(opened):
    """Instance ids are optional: events cannot be narrowed to that device, and its nodes are not known."""
    found = opened(mig("1g.5gb", "1g.5gb"))
    found.node.answer("nvmlDeviceGetGpuInstanceId", "UNKNOWN", gpu=found.node.gpus[0].mig[0].uuid)
    first, second = found.driver.read_gpu(0).mig_devices
    assert (first.gpu_instance_id, first.profile) == (None, "1g.5gb")
    assert second.gpu_instance_id is not None


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("MIG-GPU-12345678-1234-1234-1234-123456780000/3/0", (3, 0)),
        ("MIG-GPU-12345678-1234-1234-1234-123456780000/11/2", (11, 2)),
        ("MIG-12345678-1234-1234-1234-123456780000", (None, None)),
    ],
)
def test_ids_that_fail_are_taken_from_an_old_name(opened, name, ids):
    """Drivers before R470 put the instances into the device's name; an opaque name has none, and then any event may mean it."""
    found = opened({"migEnabled": True, "mig": [{"profile": "1g.5gb", "uuid": name}]})
    found.node.answer("nvmlDeviceGetGpuInstanceId", "UNKNOWN")
    found.node.answer("nvmlDeviceGetComputeInstanceId", "UNKNOWN")
    (device,) = found.driver.read_gpu(0).mig_devices
    assert (device.uuid, device.gpu_instance_id, device.compute_instance_id) == (name, *ids)


def test_a_gpu_that_is_lost_while_its_devices_are_read_is_lost(opened):
    """A lost GPU is not described as one with broken MIG devices."""
    found = opened(mig("1g.5gb"))
    found.node.answer("nvmlDeviceGetAttributes", "GPU_IS_LOST")
    with pytest.raises(GpuLost):
        found.driver.read_gpu(0)


def test_mig_capable_next_to_incapable(opened):
    """Each GPU decides for itself: an A100 in MIG mode beside a T4 (Project-HAMi/HAMi#1044)."""
    found = opened(mig("1g.5gb"), {"name": "Tesla T4", "migCapable": False})
    assert [(gpu.mig_enabled, len(gpu.mig_devices)) for gpu in map(found.driver.read_gpu, (0, 1))] == [(True, 1), (False, 0)]
