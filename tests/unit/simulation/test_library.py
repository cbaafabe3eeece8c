"""The simulated library is no kinder than NVML."""

from __future__ import annotations

import ctypes
import threading

import pynvml
import pytest

from device_plugin.errors import PluginError
from device_plugin.simulation.node import SimulatedNode


@pytest.fixture
def node(tmp_path):
    with SimulatedNode("a100-mig-mixed", root=tmp_path) as made:
        yield made


def code_of(function, *args):
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*args)
    return caught.value.value


def test_nothing_before_initialisation(node):
    """Every call before nvmlInit is refused."""
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert code_of(pynvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED


def test_initialisation_is_counted(node):
    """The session lives until as many shutdowns as there were initialisations."""
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 8
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED


def test_handles_and_event_sets_die_with_the_session(node):
    """What an earlier session gave out is invalid in the next one."""
    pynvml.nvmlInit()
    handle, events = pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.nvmlEventSetCreate()
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert code_of(pynvml.nvmlDeviceGetUUID, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(pynvml.nvmlEventSetWait, events, 0) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlShutdown()


def test_the_device_table_is_a_snapshot(node):
    """A GPU added later is not counted; one removed is counted still, and lost."""
    pynvml.nvmlInit()
    node.add_gpu()
    node.remove_gpu(0)
    assert pynvml.nvmlDeviceGetCount() == 8
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 0) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 8) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 8
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == node.gpus[0].uuid
    pynvml.nvmlShutdown()


def test_a_missing_symbol_is_a_missing_symbol(tmp_path):
    """What an old library lacks is missing as it is from a real one; so is what nobody ever had."""
    from dataclasses import replace

    from device_plugin.simulation.profile import machine_from_profile
    from device_plugin.simulation.profile_file import load_profile

    machine = replace(machine_from_profile(load_profile("t4")), missing_symbols=frozenset({"nvmlDeviceGetMigMode"}))
    with SimulatedNode(machine, root=tmp_path):
        assert not hasattr(pynvml.nvmlLib, "nvmlDeviceGetMigMode")
        assert not hasattr(pynvml.nvmlLib, "nvmlMakeCoffee")
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert code_of(pynvml.nvmlDeviceGetMigMode, handle) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        pynvml.nvmlShutdown()


def test_a_buffer_that_is_too_small(node):
    """Text that does not fit is refused, as in C."""
    pynvml.nvmlInit()
    buffer = ctypes.create_string_buffer(4)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    code = pynvml.nvmlLib.nvmlDeviceGetName(handle, buffer, ctypes.c_uint(4))
    assert code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    pynvml.nvmlShutdown()


def test_structures_of_another_version_are_refused(node):
    """A versioned structure must carry a version that the function knows."""
    pynvml.nvmlInit()
    node.set(0, fabric_state="completed")
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    info.version = 7
    code = code_of(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.nvmlDeviceGetHandleByIndex(0), ctypes.byref(info))
    assert code == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    pynvml.nvmlShutdown()


def test_a_destroyed_mig_device_has_no_valid_handle(node):
    """Handles of MIG devices end with the device."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(2), 0)
    assert pynvml.nvmlDeviceGetUUID(handle) == node.gpus[2].mig[0].uuid
    node.repartition(2, [])
    assert code_of(pynvml.nvmlDeviceGetUUID, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlShutdown()


def test_mig_devices_are_found_by_uuid(node):
    """NVML finds MIG devices by UUID too, and says not found for what is not there."""
    pynvml.nvmlInit()
    wanted = node.gpus[1].mig[2].uuid
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(wanted)) == wanted
    assert code_of(pynvml.nvmlDeviceGetHandleByUUID, "GPU-0") == pynvml.NVML_ERROR_NOT_FOUND
    pynvml.nvmlShutdown()


def test_a_look_up_by_uuid_trips_over_a_lost_gpu(node):
    """As NVML documents it: any GPU that fell off the bus makes the look-up of those behind it fail."""
    pynvml.nvmlInit()
    node.lose(3)
    assert pynvml.nvmlDeviceGetHandleByUUID(node.gpus[2].uuid)
    assert code_of(pynvml.nvmlDeviceGetHandleByUUID, node.gpus[4].uuid) == pynvml.NVML_ERROR_GPU_IS_LOST
    pynvml.nvmlShutdown()


def test_waiting_on_a_set_with_a_lost_gpu_fails_at_once_every_time(node):
    """The trap that makes the peer's event loop spin; what had come before is still delivered."""
    pynvml.nvmlInit()
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(3), pynvml.nvmlEventTypeXidCriticalError, events)
    node.xid(3, 79)
    node.lose(3)
    assert pynvml.nvmlEventSetWait(events, 1000).eventData == 79
    for _ in range(3):
        assert code_of(pynvml.nvmlEventSetWait, events, 60_000) == pynvml.NVML_ERROR_GPU_IS_LOST
    pynvml.nvmlShutdown()


def test_shutting_down_ends_a_wait_in_another_thread(node):
    """A waiting thread does not outlive the session."""
    pynvml.nvmlInit()
    events = pynvml.nvmlEventSetCreate()
    codes = []
    thread = threading.Thread(target=lambda: codes.append(code_of(pynvml.nvmlEventSetWait, events, 60_000)), daemon=True)
    thread.start()
    pynvml.nvmlShutdown()
    thread.join(5)
    assert codes == [pynvml.NVML_ERROR_UNINITIALIZED]


def test_unknown_event_types_are_refused(node):
    """Only the types that the device supports can be registered."""
    pynvml.nvmlInit()
    events, handle = pynvml.nvmlEventSetCreate(), pynvml.nvmlDeviceGetHandleByIndex(0)
    assert code_of(pynvml.nvmlDeviceRegisterEvents, handle, 0x10, events) == pynvml.NVML_ERROR_NOT_SUPPORTED
    pynvml.nvmlEventSetFree(events)
    assert code_of(pynvml.nvmlEventSetWait, events, 0) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlShutdown()


def test_there_is_one_library_in_a_process(node, tmp_path):
    """A second node is refused, and a process that uses the real library is not taken over."""
    with pytest.raises(PluginError, match="a simulated one already"):
        SimulatedNode("t4", root=tmp_path / "other").install()


def test_the_real_library_is_not_replaced(tmp_path, monkeypatch):
    """Simulation never takes over a process that talks to real GPUs (NVIDIA/k8s-test-infra#591)."""
    monkeypatch.setattr(pynvml, "nvmlLib", object())
    with pytest.raises(PluginError, match="the real NVIDIA library already"):
        SimulatedNode("t4", root=tmp_path).install()


def test_removing_leaves_nothing_behind(tmp_path):
    """After the node is gone, nothing of its library can be called."""
    with SimulatedNode("t4", root=tmp_path):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 4
    assert pynvml.nvmlLib is None
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
