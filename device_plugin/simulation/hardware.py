"""The simulated hardware of a node, and all that can be done to it: it changes, reports events, and its driver fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.instances import WantedInstance, place_instances
from device_plugin.simulation.live import ANY_CALL, LONGEST_DELAY_SECONDS, HardwareEvent, LiveMachine, Rule, base_name
from device_plugin.simulation.machine import Machine, SimulatedGpu, generated_uuid
from device_plugin.simulation.profile import GpuEntry, NodeProfile, gpu_from_entry, machine_from_profile
from device_plugin.simulation.values import FABRIC_STATES, RECOVERY_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.simulation.library import SimulatedLibrary
    from device_plugin.simulation.root import SimulatedRoot

GpuName = int | str  # a GPU's index on the node now, or its UUID


class SimulatedHardware:
    """Everything may be called from any thread; changes are seen by the library's next call, and in the node's files."""

    def __init__(self, machine: Machine, tree: SimulatedRoot) -> None:
        self.live = LiveMachine(machine)
        self._library: SimulatedLibrary | None = None  # the one that this process has loaded
        self._tree = tree
        self._tree.update(machine)

    @property
    def name(self) -> str:
        return self.live.machine.name

    @property
    def gpus(self) -> tuple[SimulatedGpu, ...]:
        """The GPUs now, in NVML's order."""
        return self.live.machine.gpus

    # Changes of the hardware

    def set(self, gpu: GpuName, /, **values: Any) -> None:
        """Change properties of a GPU: the fields of SimulatedGpu, with the profile's words (`recovery_action="reset"`)."""
        from device_plugin.simulation.changes import CHANGEABLE, new_value  # noqa: PLC0415 - no start changes anything

        unknown = sorted(values.keys() - CHANGEABLE)
        if unknown:
            raise ValueError(f"a simulated GPU has no {', '.join(unknown)}; it has {', '.join(sorted(CHANGEABLE))}")
        for name, value in values.items():
            try:
                values[name] = new_value(name, value)
            except ValueError as error:
                raise ValueError(f"{name} cannot be {value!r}: {error}") from error
        self._change(gpu, **values)

    def lose(self, gpu: GpuName) -> None:
        """The GPU falls off the bus: the driver still counts it, but it answers nothing."""
        self._change(gpu, lost=True)

    def restore(self, gpu: GpuName) -> None:
        self._change(gpu, lost=False)

    def add_gpu(self, entry: GpuEntry | None = None) -> str:
        """A GPU more, of the last one's kind and without its faults unless an entry says otherwise; its UUID.

        The driver sees it when it is opened next.
        """
        with self.live.changed:
            gpus = self.gpus
            number = 1 + max((int(gpu.pci_bus_id.split(":")[1], 16) for gpu in gpus), default=0x0F)
            pci_bus_id, gpu_uuid = f"00000000:{number:02X}:00.0", generated_uuid("GPU", self.name, "added", number)
            minor = 1 + max((gpu.minor for gpu in gpus if gpu.minor is not None), default=-1)
            if entry is not None:
                made = gpu_from_entry(self.name, len(gpus), entry)
                taken = {gpu.uuid for gpu in gpus}
                made = replace(made, uuid=gpu_uuid) if made.uuid in taken else made
                made = made if entry.pci else replace(made, pci_bus_id=pci_bus_id)
            elif gpus:
                failed = None if gpus[-1].remap_failed is None else False  # a reboot mends no memory
                made = replace(_rebooted(gpus[-1]), pci_bus_id=pci_bus_id, uuid=gpu_uuid, minor=minor, remap_failed=failed)
            else:
                raise ValueError("a node without GPUs needs an entry that says what the new one is")
            self._replace(replace(self.live.machine, gpus=(*gpus, made)))
            return made.uuid

    def remove_gpu(self, gpu: GpuName) -> None:
        """The GPU goes away. Whoever has the driver open finds it lost; the driver does not count it when it is opened next."""
        with self.live.changed:
            gone = self._gpu(gpu)
            self._replace(replace(self.live.machine, gpus=tuple(each for each in self.gpus if each is not gone)))

    def set_mig_mode(self, gpu: GpuName, *, enabled: bool) -> None:
        """Switch MIG on, without instances, or off."""
        self._change(gpu, mig_enabled=enabled, mig_capable=True, mig=())

    def repartition(self, gpu: GpuName, profiles: Sequence[str]) -> None:
        """The MIG devices of a GPU are now these. Those that stay keep their UUID."""
        with self.live.changed:
            old = self._gpu(gpu)
            mig = place_instances(old.uuid, old.memory_bytes, [WantedInstance(profile) for profile in profiles], old.mig)
            self._change(gpu, mig_enabled=True, mig_capable=True, mig=mig)

    def unload_driver(self) -> None:
        """The kernel driver is unloaded: open sessions are dead, no new one can be opened."""
        with self.live.changed:
            self._replace(replace(self.live.machine, driver_version=None))

    def load_driver(self, version: str | None = None) -> None:
        """The driver is loaded (again). If its version is not the library's, opening it fails until the process starts afresh."""
        with self.live.changed:
            loaded = version or (self._library.version if self._library else None) or "550.163.01"
            self._replace(replace(self.live.machine, driver_version=None))
            self._replace(replace(self.live.machine, driver_version=loaded))

    def reboot(self) -> None:
        """Another boot id, every condition clean, no MIG instance left (the mode stays), every session dead."""
        with self.live.changed:
            machine = self.live.machine
            self._replace(replace(machine, driver_version=None))
            self._replace(replace(machine, boots=machine.boots + 1, gpus=tuple(_rebooted(gpu) for gpu in machine.gpus)))

    def replace_profile(self, profile: NodeProfile) -> None:
        """The node is now what this profile says, past changes forgotten. Faults of calls stay."""
        with self.live.changed:
            self._replace(replace(machine_from_profile(profile), boots=self.live.machine.boots))

    # Events and faults of calls

    def xid(self, gpu: GpuName | None, xid: int, gpu_instance: int | None = None, compute_instance: int | None = None) -> None:
        """The driver reports an XID; `gpu` None: of a GPU that it cannot name."""
        self._emit(pynvml.nvmlEventTypeXidCriticalError, gpu, xid, gpu_instance, compute_instance)

    def ecc_event(self, gpu: GpuName) -> None:
        """The driver reports a double-bit ECC error."""
        self._emit(pynvml.nvmlEventTypeDoubleBitEccError, gpu, 0, None, None)

    def answer(self, call: str, code: int | str, *, gpu: GpuName | None = None, times: int | None = None) -> None:
        """Let a C function ("*": any) return a code: NVML's number, or its name as in `GPU_IS_LOST`.

        `gpu` limits it to calls about that GPU or MIG device, `times` to so many calls.
        """
        number = code if isinstance(code, int) else _code(code)
        self.live.add_rule(Rule(_function(call), self._subject(gpu), number, times))

    def hang(self, call: str, *, gpu: GpuName | None = None) -> None:
        """Let a C function ("*": any) not return before `release`."""
        self.live.add_rule(Rule(_function(call), self._subject(gpu), None))

    def release(self) -> None:
        """Let hanging calls go on."""
        self.live.clear_rules(hangs_only=True)

    def clear(self) -> None:
        """Let every call succeed at once again."""
        self.live.clear_rules()
        self.slow(0)

    def slow(self, seconds: float) -> None:
        """Let every call but the wait for events take so long."""
        if not 0 <= seconds <= LONGEST_DELAY_SECONDS:
            raise ValueError(f"a call cannot take {seconds} seconds; expected 0 to {LONGEST_DELAY_SECONDS:.0f}")
        with self.live.changed:
            self.live.delay_seconds = seconds

    def _emit(self, kind: int, gpu: GpuName | None, data: int, gpu_instance: int | None, compute_instance: int | None) -> None:
        gpu_uuid = self._gpu(gpu).uuid if gpu is not None else None
        self.live.emit(HardwareEvent(kind, data, gpu_uuid, gpu_instance, compute_instance))

    def _gpu(self, gpu: GpuName) -> SimulatedGpu:
        gpus = self.gpus
        found = gpus[gpu] if isinstance(gpu, int) and 0 <= gpu < len(gpus) else None
        found = found or next((each for each in gpus if each.uuid == gpu), None)
        if found is None:
            raise ValueError(f"the simulated node {self.name!r} has no GPU {gpu!r}; it has {len(gpus)}")
        return found

    def _subject(self, gpu: GpuName | None) -> str | None:
        if gpu is None or (isinstance(gpu, str) and gpu.startswith("MIG-")):
            return gpu
        return self._gpu(gpu).uuid

    def _change(self, gpu: GpuName, **values: Any) -> None:
        with self.live.changed:
            old = self._gpu(gpu)
            new = replace(old, **values)
            self._replace(replace(self.live.machine, gpus=tuple(new if each is old else each for each in self.gpus)))

    def _replace(self, machine: Machine) -> None:
        self._tree.update(machine)
        self.live.replace(machine)


def _rebooted(gpu: SimulatedGpu) -> SimulatedGpu:
    return replace(
        gpu,
        lost=False,
        mig=(),
        ecc_uncorrectable=None if gpu.ecc_uncorrectable is None else 0,
        remap_pending=None if gpu.remap_pending is None else False,
        recovery_action=None if gpu.recovery_action is None else RECOVERY_ACTIONS["none"],
        fabric_state=None if gpu.fabric_state is None else FABRIC_STATES["completed"],
        fabric_status=0,
    )


def _function(call: str) -> str:
    if call != ANY_CALL and not call.startswith("nvml"):
        raise ValueError(f"{call!r} is not an NVML function; expected a name such as nvmlDeviceGetMemoryInfo, or * for any")
    return base_name(call)


def _code(name: str) -> int:
    code = getattr(pynvml, f"NVML_ERROR_{name.removeprefix('NVML_ERROR_')}", None)
    if not isinstance(code, int):
        raise ValueError(f"{name!r} is not an NVML return code; expected a name such as GPU_IS_LOST")
    return code
