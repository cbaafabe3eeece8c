"""The choke point: calls under way are on record, text of any bytes is text."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from device_plugin.errors import DriverError
from device_plugin.hardware.nvml.call import Calls, field_text


def wait_for(predicate):
    deadline = time.monotonic() + 5
    while not predicate():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_call_that_hangs_is_on_record(opened):
    """Whoever watches sees which call hangs, about which GPU, and since when; afterwards nothing is under way."""
    found = opened({}, {})
    found.node.hang("nvmlDeviceGetTotalEccErrors", gpu=1)
    began = time.monotonic()
    thread = threading.Thread(target=found.driver.probe, args=(found.uuids[1],), daemon=True)
    thread.start()
    wait_for(lambda: (call := found.driver.current_call) is not None and call.name == "nvmlDeviceGetTotalEccErrors")
    call = found.driver.current_call
    assert call.subject == found.uuids[1]
    assert began <= call.since <= time.monotonic()
    found.node.release()
    thread.join(5)
    assert not thread.is_alive()
    assert found.driver.current_call is None


def test_a_hanging_call_does_not_hold_up_others(opened):
    """While a call about one GPU hangs, another thread's driver reads another GPU."""
    from device_plugin.hardware.nvml import NvmlDriver

    found = opened({}, {})
    found.node.hang("*", gpu=1)
    thread = threading.Thread(target=found.driver.probe, args=(found.uuids[1],), daemon=True)
    thread.start()
    wait_for(lambda: found.driver.current_call is not None)
    other = NvmlDriver()
    other.open()
    assert other.read_gpu(0).index == 0
    other.close()
    found.node.release()
    thread.join(5)
    assert not thread.is_alive()


def test_nothing_is_on_record_after_a_failure():
    """A call that raised is over."""
    import pynvml

    calls = Calls()
    with pytest.raises(DriverError):
        calls.ask("3", pynvml.nvmlDeviceGetCount)
    assert calls.under_way is None


def test_text_that_is_not_utf8_is_text():
    """A name with odd bytes gets replacement characters; it does not end discovery."""

    def nvmlDeviceGetName():
        return b"NVIDIA \xff100".decode()

    assert Calls().ask_text("0", nvmlDeviceGetName) == "NVIDIA \ufffd100"


@pytest.mark.parametrize("element", [ctypes.c_char, ctypes.c_byte, ctypes.c_ubyte])
def test_character_arrays_of_any_element_type(element):
    """Bindings changed the element type of the PCI address once, from unsigned to signed: text up to the NUL either way."""

    class Info(ctypes.Structure):
        _fields_ = (("busId", element * 16),)

    info = Info()
    ctypes.memmove(ctypes.addressof(info), b"00000000:0F:00\0\xff", 16)
    assert field_text(info, "busId") == "00000000:0F:00"
