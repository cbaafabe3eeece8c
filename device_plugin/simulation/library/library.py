"""The library object: looks functions up by name as ctypes does, and keeps the session.

pynvml passes ctypes arguments and reads results from them, so what stands in for C here is called exactly as C would be. The
library is no kinder than NVML: no call before nvmlInit, none on handles of an earlier session, no device that came later.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.library import condition, devices, events, mig
from device_plugin.simulation.library.session import Refusal, Session, number
from device_plugin.simulation.live import EVENT_WAIT, base_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.simulation.live import HardwareEvent, LiveMachine
    from device_plugin.simulation.machine import MigInstance, SimulatedGpu

_FUNCTIONS: dict[str, Callable[..., None]] = {
    **devices.FUNCTIONS,
    **mig.FUNCTIONS,
    **condition.FUNCTIONS,
    **events.FUNCTIONS,
}


class SimulatedLibrary:
    """An object with the functions of libnvidia-ml.so.1, as loaded when this object was made."""

    def __init__(self, live: LiveMachine) -> None:
        self._live = live
        self._version = live.machine.driver_version  # a loaded library stays what it is, whatever driver is loaded later
        self._session: Session | None = None
        self._users = 0
        live.listen(self._deliver)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The C function. Raises `AttributeError`, as ctypes does, for one that this library lacks."""
        own: dict[str, Callable[..., Any]] = {
            "nvmlInitWithFlags": self._initialise,
            "nvmlInit_v2": self._initialise,
            "nvmlShutdown": self._shut_down,
            "nvmlErrorString": self._error_string,
            f"{EVENT_WAIT}_v2": self._wait,
        }
        if name in self._live.machine.missing_symbols or (name not in own and name not in _FUNCTIONS):
            raise AttributeError(f"undefined symbol: {name}")
        return partial(self._call, name, own[name]) if name in own else partial(self._ask, name, _FUNCTIONS[name])

    @property
    def version(self) -> str | None:
        """The driver version this library belongs to; None until a driver is loaded for the first time."""
        return self._version

    def install(self) -> None:
        """Take the place of pynvml's library."""
        pynvml.nvmlLib = self
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - pynvml keeps the functions it has looked up there

    def remove(self) -> None:
        """Give the place back, if it is still ours."""
        if pynvml.nvmlLib is self:
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as above

    def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        with self._live.changed:
            code = self._live.interfere(name, frozenset())
            if code is not None:
                return code
            try:
                return function(*args)
            except Refusal as refusal:
                return refusal.code

    def _ask(self, name: str, function: Callable[..., None], *args: Any) -> int:
        """One function that needs a session, about a device or the system."""
        with self._live.changed:
            try:
                session = self._living_session()
                if self._live.is_tampered_with or base_name(name) in self._live.lacking:
                    subjects = self._subjects(session, name, args)
                    code = self._live.interfere(name, subjects)
                    if code is not None:
                        return code
                    session = self._living_session()  # looked up again: it may have ended while the call was held up
                    _check_supported(session, name, subjects)
                function(session, *args)
            except Refusal as refusal:
                return refusal.code
            return pynvml.NVML_SUCCESS

    def _initialise(self, *_flags: Any) -> int:
        machine = self._live.machine
        if machine.driver_version is None:
            return pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        if self._version is None:
            self._version = machine.driver_version
        if machine.driver_version != self._version:
            return pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        if self._session is None:
            self._session = Session(self._live)
        self._users += 1
        return pynvml.NVML_SUCCESS

    def _shut_down(self) -> int:
        if self._session is None:
            return pynvml.NVML_ERROR_UNINITIALIZED
        self._users -= 1
        if not self._users:
            self._session = None
            self._live.changed.notify_all()
        return pynvml.NVML_SUCCESS

    def _wait(self, *args: Any) -> int:
        session = self._living_session()
        events.wait(session, lambda: self._session is session, *args)
        return pynvml.NVML_SUCCESS

    def _error_string(self, code: Any) -> bytes:
        return f"NVML return code {number(code)}".encode()

    def _deliver(self, event: HardwareEvent) -> None:
        if self._session is not None:
            events.deliver(self._session, event)

    def _living_session(self) -> Session:
        if self._session is None:
            raise Refusal(pynvml.NVML_ERROR_UNINITIALIZED)
        if self._session.driver_load != self._live.driver_loads:
            raise Refusal(pynvml.NVML_ERROR_UNKNOWN)  # the driver was unloaded under the session
        return self._session

    def _subjects(self, session: Session, name: str, args: tuple[Any, ...]) -> frozenset[str]:
        """The UUIDs of what a call is about: a GPU, or a MIG device and its GPU."""
        if base_name(name) == "nvmlDeviceGetHandleByUUID":
            return frozenset({args[0].value.decode()})
        if base_name(name) == "nvmlDeviceGetHandleByIndex":
            return frozenset(session.gpu_uuids[number(args[0]) : number(args[0]) + 1])
        if args and isinstance(args[0], ctypes._Pointer) and not base_name(name).startswith("nvmlEventSet"):  # noqa: SLF001 - the type of POINTER(...) objects
            target = session.target(args[0])
            return frozenset(uuid for uuid in (target.gpu_uuid, target.mig_uuid) if uuid)
        return frozenset()


def _check_supported(session: Session, name: str, subjects: frozenset[str]) -> None:
    """What a GPU does not support, its MIG devices do not either."""
    function = base_name(name)
    for gpu in session.machine.gpus:
        parts: tuple[SimulatedGpu | MigInstance, ...] = (gpu, *gpu.mig)
        if any(function in part.unsupported and part.uuid in subjects for part in parts):
            raise Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
