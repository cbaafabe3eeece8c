"""The live machine: what the simulated hardware is now, which calls go wrong, and who hears of its events."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.simulation.machine import Machine

_VERSION_SUFFIX = r"_v\d+$"
ANY_CALL = "*"
EVENT_WAIT = "nvmlEventSetWait"
LONGEST_DELAY_SECONDS = 86400.0  # a call that is to take longer hangs; threads cannot wait for any number


@cache
def base_name(function: str) -> str:
    """NVML's function without version suffix: `nvmlDeviceGetCount` for `nvmlDeviceGetCount_v2`."""
    return re.sub(_VERSION_SUFFIX, "", function)


@dataclass(slots=True)
class Rule:
    """Calls of `function` (or any) about `subject` (a UUID; None: whatever) go wrong: they return `code`, or hang without one."""

    function: str
    subject: str | None
    code: int | None
    times: int | None = None

    def matches(self, function: str, subjects: frozenset[str]) -> bool:
        return (
            self.function in (ANY_CALL, base_name(function))
            and (self.subject is None or self.subject in subjects)
            and self.times != 0
        )


@record
class HardwareEvent:
    """One event of the hardware; `gpu_uuid` None: of a GPU that the driver cannot name."""

    event_type: int
    data: int
    gpu_uuid: str | None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class LiveMachine:
    """Shared by the test or command that plays the hardware and the library's callers. `changed` guards everything.

    `lacking` names the functions that some GPU or MIG device does not support.
    """

    def __init__(self, machine: Machine) -> None:
        self.changed = threading.Condition()
        self.machine, self.lacking = machine, _lacking(machine)
        self.driver_loads = 0  # counts loads and unloads of the kernel driver; sessions of an earlier one are dead
        self.delay_seconds = 0.0
        self._rules: list[Rule] = []
        self._listeners: list[Callable[[HardwareEvent], None]] = []
        self._is_closed = False

    def replace(self, machine: Machine) -> None:
        with self.changed:
            if machine.driver_version != self.machine.driver_version:
                self.driver_loads += 1
            self.machine, self.lacking = machine, _lacking(machine)
            self.changed.notify_all()

    def add_rule(self, rule: Rule) -> None:
        with self.changed:
            self._rules.append(rule)

    def clear_rules(self, *, hangs_only: bool = False) -> None:
        """Let hanging calls go on; unless `hangs_only`, let all calls succeed again."""
        with self.changed:
            self._rules = [rule for rule in self._rules if hangs_only and rule.code is not None]
            self.changed.notify_all()

    def listen(self, listener: Callable[[HardwareEvent], None]) -> None:
        with self.changed:
            self._listeners.append(listener)

    def emit(self, event: HardwareEvent) -> None:
        with self.changed:
            for listener in self._listeners:
                listener(event)
            self.changed.notify_all()

    def close(self) -> None:
        """Let every waiting call return."""
        with self.changed:
            self._is_closed = True
            self._rules.clear()
            self.changed.notify_all()

    @property
    def is_tampered_with(self) -> bool:
        """Whether any call is to go wrong, or to take its time."""
        return bool(self._rules or self.delay_seconds)

    def interfere(self, function: str, subjects: frozenset[str]) -> int | None:
        """Delay the call, hold it while it is to hang, and give the code it is to fail with, if any. Called holding `changed`."""
        if not self.is_tampered_with:
            return None
        if self.delay_seconds and base_name(function) != EVENT_WAIT:
            self.changed.wait_for(lambda: self._is_closed, timeout=self.delay_seconds)
        self.changed.wait_for(lambda: self._is_closed or not self.hangs(function, subjects))
        for rule in self._rules:
            if rule.code is not None and rule.matches(function, subjects):
                if rule.times is not None:
                    rule.times -= 1
                return rule.code
        return None

    def hangs(self, function: str, subjects: frozenset[str]) -> bool:
        """Whether such a call is to hang now."""
        return any(rule.code is None and rule.matches(function, subjects) for rule in self._rules)

    @property
    def is_closed(self) -> bool:
        return self._is_closed


def _lacking(machine: Machine) -> frozenset[str]:
    of_gpus = (gpu.unsupported for gpu in machine.gpus)
    return frozenset().union(*of_gpus, *(instance.unsupported for gpu in machine.gpus for instance in gpu.mig))
