"""The exceptions of the project, in one tree.

PluginError
|-- ConfigError            the configuration cannot be used; carries every Problem found
|-- DriverError            the NVIDIA driver answered with an error
|   |-- LibraryNotFound    no libnvidia-ml to load
|   |   `-- NotServedHere  nor will there be one: a platform that this plugin does not support
|   |-- VersionMismatch    the library and the loaded kernel driver differ
|   |-- NotSupported       the driver, or this GPU, has no such property: knowledge, not a fault
|   |-- GpuLost            the GPU fell off the bus or needs a reset before it answers
|   |-- NoPermission       the driver refused us access
|   `-- WaitTimedOut       no event came within the time given
|-- AllocationRefused      the IDs asked for cannot be given; the text is all the user sees
|-- RegistrationFailed     kubelet did not take the registration
|-- InjectionImpossible    a container could not be given its devices (a CDI specification that cannot be written)
|-- SocketTaken            the socket or its directory belongs to another process
`-- SocketUnusable         the socket, or its directory, cannot be used: missing, forbidden, its path too long
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.problems import Problem


class PluginError(Exception):
    """Anything this project raises on purpose."""


class ConfigError(PluginError):
    """The configuration cannot be used. `problems` holds everything found, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class DriverError(PluginError):
    """The driver's answer to one call.

    `call` is the NVML function, `code` NVML's return code (None where no call was made), `subject` what it was asked about
    (a GPU's UUID or index; None for the whole driver).
    """

    def __init__(self, call: str, message: str, *, code: int | None = None, subject: str | None = None) -> None:
        self.call, self.code, self.subject = call, code, subject
        self.reason = message
        super().__init__(f"{call}{f' of {subject}' if subject else ''}: {message}")


class LibraryNotFound(DriverError):
    """There is no libnvidia-ml.so.1 where we looked."""


class NotServedHere(LibraryNotFound):
    """The node is of a platform that has no libnvidia-ml and that this plugin does not support. The text says what was found."""


class VersionMismatch(DriverError):
    """The library and the loaded kernel driver are of different versions: reload the driver or reboot the node."""


class NotSupported(DriverError):
    """This driver or GPU does not have the property. Also raised where an old library lacks the function."""


class GpuLost(DriverError):
    """The GPU does not answer any more."""


class NoPermission(DriverError):
    """The driver refused access to us, not to the GPU's users."""


class WaitTimedOut(DriverError):
    """No event within the time given."""


class CallHangs(DriverError):
    """A driver call did not return in its time. The thread that made it has been given up."""


class AllocationRefused(PluginError):
    """The request names IDs that cannot be given. Kubelet shows the text as the pod's failure."""


class RegistrationFailed(PluginError):
    """Kubelet refused the registration, or could not be reached."""


class InjectionImpossible(PluginError):
    """What Allocate would have to answer cannot be provided on this node."""


class SocketTaken(PluginError):
    """Another process owns the socket, or the socket directory."""


class SocketUnusable(PluginError):
    """A socket cannot be made where it was asked for. The text names the path that was tried and what to do."""
