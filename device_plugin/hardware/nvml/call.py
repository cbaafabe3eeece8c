"""The choke point: every NVML call of the project passes here, is on record while it runs, and fails with an error of ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pynvml

from device_plugin.errors import DriverError, GpuLost, LibraryNotFound, NoPermission, NotSupported, VersionMismatch
from device_plugin.hardware.driver import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
T = TypeVar("T")

# NVML's return codes that mean something of their own here. All others are plain DriverErrors.
_ERRORS: Mapping[int, type[DriverError]] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NotSupported,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NotSupported,  # an older library
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: NotSupported,  # an older library: it knows the call, not this form of the answer
    pynvml.NVML_ERROR_DEPRECATED: NotSupported,  # a newer library
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: NotSupported,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: LibraryNotFound,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: VersionMismatch,
    pynvml.NVML_ERROR_NO_PERMISSION: NoPermission,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuLost,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: GpuLost,
    pynvml.NVML_ERROR_RESET_REQUIRED: GpuLost,
}

# What the operator can do about it; NVML's own texts name only the condition.
_ADVICE: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "mount the driver root into this container and name it with --driver-root-ctr-path",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "reload the driver's kernel modules or reboot the node",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the NVIDIA kernel modules",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is older than this call",
}


class Calls:
    """Makes the NVML calls of one thread. `under_way` may be read from any thread."""

    def __init__(self) -> None:
        self.under_way: Call | None = None

    def ask(self, subject: str | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call pynvml's `function` about `subject`. Raises `DriverError` or one of its kin."""
        name = function.__name__
        self.under_way = Call(name, subject, time.monotonic())
        try:
            return function(*args, **kwargs)
        except pynvml.NVMLError as error:
            raise _translated(name, subject, error) from error
        finally:
            self.under_way = None

    def ask_text(self, subject: str | None, function: Callable[P, str], *args: P.args, **kwargs: P.kwargs) -> str:
        """As `ask`, for an answer that is text. What is not UTF-8, as pynvml expects, gets replacement characters."""
        try:
            return self.ask(subject, function, *args, **kwargs)
        except UnicodeDecodeError as garbled:
            return garbled.object.decode("utf-8", "replace")


def _translated(name: str, subject: str | None, error: pynvml.NVMLError) -> DriverError:
    advice = _ADVICE.get(error.value)
    text = f"{error}: {advice}" if advice else str(error)
    return _ERRORS.get(error.value, DriverError)(name, text, code=error.value, subject=subject)


def field_text(struct: object, name: str) -> str:
    """The text in a character array of a structure, up to its NUL.

    Read past pynvml's own conversion, which raises for bytes that are not UTF-8. Bindings differ in the element type (characters,
    signed or unsigned bytes): NVIDIA/go-nvml changed it once, which broke the peer's PCI addresses.
    """
    raw = getattr(type(struct), name).__get__(struct, type(struct))
    data = raw if isinstance(raw, bytes) else bytes(element & 0xFF for element in raw)
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
