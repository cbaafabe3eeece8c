"""How this process runs, as opposed to what the operator wants of the node (that is the Config)."""

from __future__ import annotations

from pathlib import Path

from device_plugin.records import record

DEFAULT_KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
DEFAULT_POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DEFAULT_CDI_DIRECTORY = Path("/var/run/cdi")


@record
class Settings:
    """Paths and intervals of the process.

    `socket_directory` is where our own sockets stand, `host_root` holds /sys, /proc and /dev (`/` outside a simulation).
    `kubelet_socket` is None when kubelet is not to be told of them. Intervals are seconds. With `notifications` off nothing but
    polls is used.
    """

    socket_directory: Path = DEFAULT_KUBELET_SOCKET.parent
    kubelet_socket: Path | None = DEFAULT_KUBELET_SOCKET
    pod_resources_socket: Path = DEFAULT_POD_RESOURCES_SOCKET
    host_root: Path = Path("/")
    cdi_directory: Path = DEFAULT_CDI_DIRECTORY
    cdi_feature_flags: tuple[str, ...] = ()
    cdi_disabled_hooks: tuple[str, ...] = ()
    config_poll_seconds: float = 30.0
    kubelet_poll_seconds: float = 0.2
    notifications: bool = True
