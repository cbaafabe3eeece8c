"""What `plan` has to say besides its resources: collected on the way, handed out once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.problems import Origin, Problem, Severity
from device_plugin.sharing.offer import Withheld
from device_plugin.sharing.references import index_key

if TYPE_CHECKING:
    from device_plugin.config.model import Config
    from device_plugin.problems import ProblemKind
    from device_plugin.sharing.offer import Device

NODE = Origin("node")


class Report:
    """The Problems found and the hardware withheld during one `plan`, in the order found.

    A `path` is a config path and becomes the Origin of the value stated there; without one the hardware is the origin.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._problems: dict[Problem, None] = {}
        self._withheld: set[Withheld] = set()

    def error(self, kind: ProblemKind, message: str, path: str = "") -> None:
        self._add(Severity.ERROR, kind, message, path)

    def warn(self, kind: ProblemKind, message: str, path: str = "") -> None:
        self._add(Severity.WARNING, kind, message, path)

    def inform(self, kind: ProblemKind, message: str, path: str = "") -> None:
        self._add(Severity.INFO, kind, message, path)

    def withhold(self, gpu_index: int, hardware_id: str, reason: str, *, mig_index: int | None = None) -> None:
        index = str(gpu_index) if mig_index is None else f"{gpu_index}:{mig_index}"
        self._withheld.add(Withheld(gpu_index=gpu_index, index=index, hardware_id=hardware_id, reason=reason))

    def withhold_device(self, device: Device, reason: str) -> None:
        self._withheld.add(Withheld(index_key(device.index)[0], device.index, device.hardware_id, reason))

    def place(self, path: str) -> str:
        """The config path with its place in the file, where there is one, for messages that point at a second place."""
        origin = self._config.origin(path)
        return f"{path} ({origin})" if origin.line else path

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        return tuple(sorted(self._withheld))

    def _add(self, severity: Severity, kind: ProblemKind, message: str, path: str) -> None:
        origin = self._config.origin(path) if path else NODE
        self._problems[Problem(severity, kind, message, origin)] = None
