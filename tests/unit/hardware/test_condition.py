"""Probes: a GPU's condition now."""

from __future__ import annotations

import pynvml
import pytest

from device_plugin.hardware.driver import Probe, RecoveryAction


def probe(found, index=0):
    return found.driver.probe(found.uuids[index])


def test_a_healthy_gpu(opened):
    """Everything that the driver counts, remaps and asks for is in the probe."""
    found = opened({})
    assert probe(found) == Probe(
        found.uuids[0], ecc_uncorrectable=0, remap_pending=False, remap_failed=False, recovery_action=RecoveryAction.NONE
    )


def test_a_gpu_without_any_of_it(opened):
    """What a GPU does not have is None: knowledge, not a fault."""
    nothing = dict.fromkeys(("eccUncorrectable", "remapPending", "remapFailed", "recoveryAction"))
    found = opened(nothing)
    assert probe(found) == Probe(found.uuids[0])


def test_recovery_actions_have_nvmls_numbers():
    """A reset taken for nothing to do would leave a broken GPU in use."""
    names = {RecoveryAction.RESET: "GPU_RESET", RecoveryAction.REBOOT: "NODE_REBOOT"}
    for number in range(8):
        action = RecoveryAction(number)
        assert getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{names.get(action, action.name)}") == number


def test_errors_that_raised_no_event_are_found(opened):
    """A GPU with one uncorrectable error from before the watch is found by its counter (NVIDIA/k8s-device-plugin#267)."""
    assert probe(opened({"eccUncorrectable": 1})).ecc_uncorrectable == 1


def test_without_a_total_the_places_are_summed(opened):
    """Where the library has no total any more, the counters of the places give it."""
    assert probe(opened({"eccUncorrectable": 3}, missingSymbols=["nvmlDeviceGetTotalEccErrors"])).ecc_uncorrectable == 3


def test_without_total_and_places_there_is_no_count(opened):
    """A GPU without ECC has no count, whichever way it is asked."""
    assert probe(opened({"eccUncorrectable": None}, missingSymbols=["nvmlDeviceGetTotalEccErrors"])).ecc_uncorrectable is None


@pytest.mark.parametrize(("pending", "failed"), [(True, False), (False, True), (True, True)])
def test_row_remapping(opened, pending, failed):
    """A remapping that waits and one that failed are told apart."""
    found = probe(opened({"remapPending": pending, "remapFailed": failed}))
    assert (found.remap_pending, found.remap_failed) == (pending, failed)


@pytest.mark.parametrize("action", RecoveryAction)
def test_recovery_actions(opened, action):
    """Each action that the driver may ask for is told (kubernetes-sigs/dra-driver-nvidia-gpu#1441)."""
    found = opened({})
    found.node.set(0, recovery_action=action.value)
    assert probe(found).recovery_action is action


def test_an_action_nobody_knows_is_unknown_not_none(opened):
    """An action of a later driver must not read as "none"."""
    found = opened({})
    found.node.set(0, recovery_action=99)
    assert probe(found).recovery_action is None
    assert "99" in probe(found).unknown[0]


def test_fabric_state_is_read_on_switches(opened):
    """A GPU on NVSwitches tells how far its registration with the fabric is."""
    found = opened({"nvswitchLinks": 18, "fabricState": "in-progress", "fabricStatus": 7}, {"fabricState": "in-progress"})
    assert (probe(found).fabric_state, probe(found).fabric_status) == (2, 7)
    assert (probe(found, 1).fabric_state, probe(found, 1).fabric_status) == (None, None)


def test_fabric_state_in_its_first_form(opened):
    """An older library has only the first form of the answer."""
    found = opened({"nvswitchLinks": 18, "fabricState": "completed"}, missingSymbols=["nvmlDeviceGetGpuFabricInfoV"])
    assert probe(found).fabric_state == 3


def test_what_fails_is_named_and_the_rest_is_told(opened):
    """A property that the driver fails at is named, with its text; swallowed errors read as health (gpustack/runtime#26)."""
    found = opened({})
    found.node.answer("nvmlDeviceGetTotalEccErrors", "TIMEOUT")
    answer = probe(found)
    assert answer.ecc_uncorrectable is None
    assert answer.recovery_action is RecoveryAction.NONE
    assert answer.unknown[0].startswith("ecc_uncorrectable: ")


def test_a_lost_gpu_is_lost(opened):
    """A GPU that fell off the bus says so, and its neighbours behind it are probed as ever."""
    found = opened({}, {}, {})
    found.node.lose(1)
    assert probe(found, 1).lost is not None
    assert (probe(found, 2).lost, probe(found, 2).unknown) == (None, ())


def test_a_gpu_lost_half_way_is_lost(opened):
    """A handle that dies between two questions is lost too."""
    found = opened({})
    found.node.answer("nvmlDeviceGetRemappedRows", "GPU_IS_LOST")
    assert probe(found).lost is not None


def test_a_gpu_that_is_gone_is_lost(opened):
    """A removed GPU is lost, and so is one that the driver never had."""
    found = opened({}, {})
    uuid = found.uuids[0]
    found.node.remove_gpu(0)
    assert found.driver.probe(uuid).lost is not None
    found.driver.close()
    found.driver.open()
    assert found.driver.probe(uuid).lost is not None


@pytest.mark.parametrize("code", ["UNKNOWN", "NO_PERMISSION", "TIMEOUT"])
def test_lost_access_is_not_a_lost_gpu(opened, code):
    """When every call fails alike, access is lost and not the GPU (NVIDIA/k8s-device-plugin#426): unknown, not lost."""
    found = opened({})
    found.node.answer("*", code)
    answer = probe(found)
    assert answer.lost is None
    assert answer.unknown != ()


def test_a_closed_driver_does_not_raise(opened):
    """Probing never raises, not even without a session."""
    found = opened({})
    found.driver.close()
    assert probe(found).unknown[0].startswith("handle: ")
