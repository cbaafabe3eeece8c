"""What the driver tells of GPUs, and what it may not tell."""

from __future__ import annotations

import pytest

from device_plugin.errors import DriverError, GpuLost, LibraryNotFound, NotSupported, VersionMismatch
from device_plugin.hardware.driver import DriverFacts
from device_plugin.hardware.model import ComputeMode
from device_plugin.hardware.nvml import NvmlDriver


def test_a_gpu_is_described_in_full(opened):
    """Every property that NVML knows of a GPU arrives with its unit and type."""
    gpu = opened({"pci": "0000:0f:00.0", "computeMode": "exclusive-process"}).driver.read_gpu(0)
    assert gpu.name == "NVIDIA A100-SXM4-40GB"
    assert gpu.uuid.startswith("GPU-")
    assert (gpu.index, gpu.minor, gpu.pci_bus_id) == (0, 0, "00000000:0F:00.0")
    assert gpu.memory_bytes == 40 * 2**30
    assert gpu.compute_capability == (8, 0)
    assert gpu.compute_mode is ComputeMode.EXCLUSIVE_PROCESS
    assert (gpu.mig_capable, gpu.mig_enabled, gpu.faults) == (True, False, ())


def test_the_driver_tells_its_versions_and_how_many_gpus_it_has(a_node):
    """Opening gives the driver's and CUDA's version and the count."""
    a_node({}, {}, cudaVersion="13.0")
    driver = NvmlDriver()
    assert driver.open() == DriverFacts("580.95.05", (13, 0), 2)
    driver.close()


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
        ("nvmlDeviceGetMinorNumber", "minor"),
        ("nvmlDeviceGetPciInfo", "pci_bus_id"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetComputeMode", "compute_mode"),
    ],
)
def test_a_property_that_is_not_supported_is_none_and_no_fault(opened, function, field):
    """A GPU without an optional property is described without it: memory on a GB10 (NVIDIA/k8s-device-plugin#1482), the minor under
    WSL (NVIDIA/k8s-device-plugin#332).
    """
    gpu = opened({"unsupported": [function]}).driver.read_gpu(0)
    assert getattr(gpu, field) is None
    assert gpu.faults == ()


@pytest.mark.parametrize(("mode", "coherent"), [("ats", True), ("hmm", False), ("none", False), (None, None)])
def test_a_coherent_gpu_says_so(opened, mode, coherent):
    """GPU and CPU share one address space where the addressing mode is ATS (GH200, GB200)."""
    assert opened({"addressingMode": mode}).driver.read_gpu(0).coherent is coherent


def test_mig_that_is_not_supported_is_no_mig(opened):
    """A GPU whose driver knows no MIG is neither capable of it nor in its mode."""
    gpu = opened({"migCapable": False}).driver.read_gpu(0)
    assert (gpu.mig_capable, gpu.mig_enabled, gpu.mig_devices, gpu.faults) == (False, False, (), ())


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetFieldValues",
    ],
)
def test_a_symbol_that_an_old_library_lacks_is_a_property_that_is_not_there(opened, symbol):
    """An old library that lacks an entry point is used without it, where the peer once died of the missing symbol
    (NVIDIA/k8s-device-plugin#66).
    """
    found = opened({}, {}, missingSymbols=[symbol])
    gpu = found.driver.read_gpu(1)
    assert (gpu.index, gpu.faults) == (1, ())
    assert len(found.driver.read_links([found.driver.read_gpu(0), gpu])) == 2
    assert (found.driver.probe(gpu.uuid).unknown, found.driver.probe(gpu.uuid).lost) == ((), None)


def test_cuda_version_of_an_old_library(a_node):
    """Where only the first form of the version call exists, that is used."""
    a_node({}, missingSymbols=["nvmlSystemGetCudaDriverVersion_v2"], cudaVersion="12.4")
    driver = NvmlDriver()
    assert driver.open().cuda_version == (12, 4)
    driver.close()


def test_a_library_without_the_first_function_is_too_old(a_node):
    """A library that cannot even be initialised is an error that says why, not a property that is missing."""
    a_node({}, missingSymbols=["nvmlInitWithFlags"])
    with pytest.raises(DriverError, match="too old") as caught:
        NvmlDriver().open()
    assert not isinstance(caught.value, NotSupported)


def test_a_property_that_fails_is_none_and_named(opened):
    """An optional property that cannot be read for another reason is left out and the GPU says so; it is still described."""
    found = opened({})
    found.node.answer("nvmlDeviceGetMemoryInfo", "UNKNOWN")
    gpu = found.driver.read_gpu(0)
    assert gpu.memory_bytes is None
    assert len(gpu.faults) == 1
    assert "memory size" in gpu.faults[0]
    assert "nvmlDeviceGetMemoryInfo" in gpu.faults[0]


def test_a_gpu_without_a_name_is_described(opened):
    """Not even the name is needed; the fault says what it costs."""
    gpu = opened({"unsupported": ["nvmlDeviceGetName"]}).driver.read_gpu(0)
    assert gpu.name == "unknown"
    assert "pattern" in gpu.faults[0]


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_a_gpu_without_an_identity_is_not_passed_over_like_a_display(opened, function, code):
    """What every GPU has and this driver would not give is a fault of that GPU, never a reason to forget it without a word."""
    found = opened({}, {})
    found.node.answer(function, code, times=1)
    with pytest.raises(DriverError, match=function) as caught:
        found.driver.read_gpu(0)
    assert not isinstance(caught.value, NotSupported)
    assert found.driver.read_gpu(1).index == 1


@pytest.mark.parametrize("name", ["DGX Display", "NVIDIA DGX Display"])
def test_a_dgx_display_is_passed_over(opened, name):
    """The display adapter of a DGX Station is not offered, and its index is not used for another GPU."""
    found = opened({}, {"name": name}, {})
    with pytest.raises(NotSupported, match="display adapter"):
        found.driver.read_gpu(1)
    assert found.driver.read_gpu(2).index == 2


@pytest.mark.parametrize("name", ["NVIDIA DGX Display 2", "dgx display"])
def test_only_the_exact_names_are_displays(opened, name):
    """A name that only resembles a display adapter's is a GPU."""
    assert opened({"name": name}).driver.read_gpu(0).name == name


def test_a_lost_gpu_costs_one_gpu(opened):
    """A GPU that fell off the bus raises, the others are described; the peer failed on all (NVIDIA/k8s-device-plugin#2038)."""
    found = opened({}, {}, {})
    found.node.lose(1)
    with pytest.raises(GpuLost):
        found.driver.read_gpu(1)
    assert [found.driver.read_gpu(index).index for index in (0, 2)] == [0, 2]


@pytest.mark.parametrize("code", ["GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"])
def test_a_gpu_lost_while_it_is_described_is_lost(opened, code):
    """A code that says the GPU is gone ends the description, whatever property it came from."""
    found = opened({}, {})
    found.node.answer("nvmlDeviceGetComputeMode", code, gpu=0)
    with pytest.raises(GpuLost) as caught:
        found.driver.read_gpu(0)
    assert caught.value.subject == found.uuids[0]
    assert found.driver.read_gpu(1).faults == ()


def test_no_gpu_is_a_state(a_node):
    """A driver without GPUs opens and counts none (beclab/Olares#2671)."""
    a_node()
    driver = NvmlDriver()
    assert driver.open().gpu_count == 0
    assert driver.read_links([]) == ()
    driver.close()


def test_gpus_that_come_late_are_seen_when_the_driver_is_opened_again(a_node):
    """NVML's list of devices is from its initialisation: late GPUs (kubernetes/kubernetes#77035) need the driver closed and
    opened."""
    node = a_node({}, {})
    driver = NvmlDriver()
    assert driver.open().gpu_count == 2
    node.add_gpu()
    node.add_gpu()
    with pytest.raises(DriverError):
        driver.read_gpu(2)
    driver.close()
    assert driver.open().gpu_count == 4
    assert len({driver.read_gpu(index).uuid for index in range(4)}) == 4
    driver.close()


def test_versions_that_differ_are_recognised_with_advice(a_node):
    """A driver updated under a running process is a VersionMismatch that says what to do (NVIDIA/k8s-device-plugin#221)."""
    node = a_node({})
    driver = NvmlDriver()
    driver.open()
    node.load_driver("590.1")
    with pytest.raises(DriverError):
        driver.read_gpu(0)
    driver.close()
    with pytest.raises(VersionMismatch, match=r"reload the driver.*reboot"):
        driver.open()


def test_a_driver_that_is_away_and_comes_back_is_opened_again(a_node):
    """Unloaded, the driver cannot be opened; loaded again in the same version, it can (NVIDIA/k8s-device-plugin#170)."""
    node = a_node({})
    driver = NvmlDriver()
    node.unload_driver()
    with pytest.raises(DriverError, match="load the NVIDIA kernel modules"):
        driver.open()
    node.load_driver()
    assert driver.open().gpu_count == 1
    driver.close()


def test_no_library_is_a_library_not_found():
    """Without a library the error is the one that callers wait and retry on."""
    with pytest.raises(LibraryNotFound, match="driver-root-ctr-path"):
        NvmlDriver().open()


def test_a_failure_after_initialisation_closes_the_driver(a_node):
    """Opening that fails half-way leaves nothing open."""
    node = a_node({})
    node.answer("nvmlDeviceGetCount", "UNKNOWN", times=1)
    driver = NvmlDriver()
    with pytest.raises(DriverError, match="nvmlDeviceGetCount"):
        driver.open()
    assert driver.open().gpu_count == 1
    driver.close()


def test_the_text_of_an_error_names_call_subject_and_code(opened):
    """What the driver said is told with the call it answered, whom it was about, and its code."""
    found = opened({})
    found.node.answer("nvmlDeviceGetUUID", 999)
    with pytest.raises(DriverError) as caught:
        found.driver.read_gpu(0)
    assert (caught.value.call, caught.value.subject, caught.value.code) == ("nvmlDeviceGetUUID", "0", 999)


def test_a_code_nobody_knows_is_a_driver_error(opened):
    """A return code of a later NVML is reported with its number."""
    found = opened({})
    found.node.answer("nvmlDeviceGetUUID", 12345)
    with pytest.raises(DriverError, match="12345"):
        found.driver.read_gpu(0)
