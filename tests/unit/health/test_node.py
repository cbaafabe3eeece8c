"""What happens around the GPUs: they go and come, the driver goes and comes, a reboot."""

from __future__ import annotations

from device_plugin.hardware.driver import RecoveryAction
from device_plugin.hardware.model import Inventory, UnreadableGpu
from device_plugin.health.state import HealthState


def test_a_gpu_that_the_driver_counts_no_more_is_lost(sick, without):
    """And only that one."""
    sick.see(without.gpu("GPU-1"))
    assert sick.causes == [("GPU-1", "gpu-lost", "gone")]
    change = sick.see()
    assert sick.causes == []
    assert change.wants_probe == ("GPU-1",)


def test_a_gpu_that_cannot_be_described_is_lost_too(sick, without):
    """With its UUID or without, in the list of GPUs as last known or not."""
    sick.see(without.gpu("GPU-1", unreadable=(UnreadableGpu(1, "GPU is lost", "GPU-1"),)))
    assert sick.causes == [("GPU-1", "gpu-lost", "gone")]
    sick.see()
    sick.see(without.gpu("GPU-1", unreadable=(UnreadableGpu(1, "unknown error"),)))
    assert sick.causes == [("GPU-1", "gpu-lost", "unreadable")]
    assert "GPU 1: unknown error" in sick.state.causes[0].detail
    sick.see()
    sick.see(Inventory(without.full.gpus, unreadable=(UnreadableGpu(1, "unknown error", "GPU-1"),)))
    assert sick.causes == [("GPU-1", "gpu-lost", "unreadable")]


def test_gone_and_back_with_a_clean_probe_is_a_reset(sick, without):
    """No calm period is needed then, and no recovery action; what takes a reboot stays."""
    sick.xid(48, "GPU-1")
    sick.xid(79, "GPU-1")
    sick.see(without.gpu("GPU-1"))
    sick.see()
    assert ("GPU-1", "xid", "48") in sick.causes
    sick.probe("GPU-1", action=None)
    assert sick.causes == [("GPU-1", "xid", "79")]


def test_back_but_not_clean_is_no_reset_yet(sick, without):
    """The driver still asks for one; once it does not, that is the evidence."""
    sick.xid(48, "GPU-1")
    sick.see(without.gpu("GPU-1"))
    sick.see()
    sick.probe("GPU-1", action=RecoveryAction.RESET)
    assert ("GPU-1", "xid", "48") in sick.causes
    sick.probe("GPU-1")
    assert sick.causes == []


def test_a_handle_lost_and_found_is_a_reset(sick):
    """The probe saw the GPU go and come."""
    sick.xid(48)
    sick.probe(action=None, lost="GPU is lost")
    sick.probe(action=None)
    assert sick.causes == []


def test_a_read_that_failed_for_once_is_no_reset(sick, without):
    """A driver that stumbled over one read has not reset the GPU: it must not come back Healthy for that."""
    sick.xid(48, "GPU-1")
    sick.see(without.gpu("GPU-1", unreadable=(UnreadableGpu(1, "timeout", "GPU-1"),)))
    sick.see()
    sick.probe("GPU-1", action=None)
    assert sick.causes == [("GPU-1", "xid", "48")]


def test_new_gpus_want_a_look_before_they_are_shown(sick):
    """NVIDIA/k8s-device-plugin#111: the first list said Healthy with no check done."""
    sick.state = HealthState()
    assert sick.see().wants_probe == ("GPU-0", "GPU-1", "GPU-2")
    assert sick.see().wants_probe == ()


def test_another_boot_clears_everything_and_forgets_the_gpus(sick, without):
    """What is still wrong is found anew, and a card taken out while the power was off is not missed."""
    sick.around("on_boot", "one")
    sick.xid(48)
    sick.xid(79, "GPU-1")
    sick.see(without.gpu("GPU-2"))
    change = sick.around("on_boot", "two")
    assert sick.causes == []
    assert {transition.reason for transition in change.transitions} == {"the node was rebooted"}
    sick.see(without.gpu("GPU-2"))
    assert sick.causes == []
    assert sick.state.boot_id == "two"


def test_an_unknown_boot_id_is_the_same_boot(sick):
    """A file that cannot be read is no reboot."""
    sick.around("on_boot", "one")
    sick.xid(79)
    sick.around("on_boot", None)
    assert sick.causes == [("GPU-0", "xid", "79")]
    assert sick.state.boot_id == "one"


def test_a_lost_driver_hits_every_gpu(sick):
    """NVIDIA/k8s-device-plugin#1640: NVML failed, and every GPU stayed Healthy."""
    sick.around("on_driver_lost", "driver and library versions differ")
    sick.around("on_driver_lost", "driver not loaded")
    assert sick.causes == [("*", "driver", "driver")]
    assert sick.state.causes_of("GPU-1")[0].detail == "driver not loaded"
    sick.around("on_driver_back")
    assert sick.causes == []


def test_a_hanging_call_hits_the_gpu_it_is_about(sick):
    """Or all of them, for a call about the driver as a whole."""
    sick.around("on_call_hanging", "GPU-1", "nvmlDeviceGetFieldValues has not returned for 10 s")
    sick.around("on_call_hanging", None, "nvmlInit has not returned for 10 s")
    assert sick.causes == [("*", "not-answering", "call"), ("GPU-1", "not-answering", "call")]
    sick.around("on_call_returned", None)
    assert sick.causes == [("GPU-1", "not-answering", "call")]
    sick.around("on_call_returned", "GPU-1")
    assert sick.causes == []


def test_lost_events_are_a_cause(sick):
    """NVIDIA/k8s-device-plugin#2037: without its event loop the plugin watched nothing and said Healthy."""
    sick.around("on_events_lost", "nvmlEventSetWait: unknown error")
    assert sick.causes == [("*", "events-lost", "events")]
    sick.around("on_events_restored", unwatched={"GPU-1": "nvmlDeviceRegisterEvents: unknown error"})
    assert sick.causes == [("GPU-1", "events-lost", "events")]
    sick.around("on_events_restored")
    assert sick.causes == []
    sick.around("on_events_lost", "gone", gpu_uuids=("GPU-2", "GPU-0"))
    assert sick.causes == [("GPU-0", "events-lost", "events"), ("GPU-2", "events-lost", "events")]


def test_what_cannot_be_injected_gets_no_work(sick):
    """The reasons are the whole truth: what they do not name can be injected."""
    sick.around("on_injection", {("*", None): "no space left on device"})
    assert sick.causes == [("*", "injection", "injection")]
    sick.around("on_injection", {("GPU-1", None): "no minor number"})
    assert sick.causes == [("GPU-1", "injection", "injection")]
    sick.around("on_injection", {})
    assert sick.causes == []
