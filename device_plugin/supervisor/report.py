"""One log line for each transition: of what kubelet is shown, devices grouped by their hardware, and of what is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from device_plugin.logs import Logger
    from device_plugin.serving.served import Served, ServedDevice, ServedResource

_Group = tuple[str, bool, tuple[tuple[str, str], ...]]  # hardware UUID, whether it leaves, each cause's kind and text


def log_changes(logger: Logger, before: Served | None, after: Served, *, config_hash: str) -> None:
    """Log what differs between the two."""
    old = {resource.name: resource for resource in before.resources} if before else {}
    new = {resource.name: resource for resource in after.resources}
    counts = {
        name: [len(old[name].devices) if name in old else 0, len(new[name].devices) if name in new else 0]
        for name in sorted(old.keys() | new.keys())
    }
    changed = {name: count for name, count in counts.items() if count[0] != count[1] and name in old and name in new}
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    if added or removed or changed:
        logger.info(
            "resources.changed",
            added={name: counts[name][1] for name in added},
            removed=removed,
            devices=changed,
            config_hash=config_hash,
        )
    for name in sorted(new):
        _log_devices(logger, old.get(name), new[name], config_hash)


def _log_devices(logger: Logger, before: ServedResource | None, after: ServedResource, config_hash: str) -> None:
    """A GPU of 1,000 replicas makes one line, not 1,000."""
    known = {served.device.id: served for served in before.devices} if before else {}
    groups: dict[_Group, int] = {}
    for served in after.devices:
        if _is_news(known.get(served.device.id), served):
            causes = tuple((cause.kind.value, cause.detail) for cause in served.causes)
            group = (served.device.hardware_id, served.leaving_since is not None, causes)
            groups[group] = groups.get(group, 0) + 1
    for (hardware, is_leaving, causes), count in groups.items():
        fields = {"resource": after.name, "device": hardware, "devices": count, "config_hash": config_hash}
        if is_leaving:
            logger.info("device.left_offer", **fields)
        elif causes:
            kinds, details = ", ".join(sorted({kind for kind, _ in causes})), "; ".join(detail for _, detail in causes)
            logger.warning("device.became_unhealthy", cause=kinds, detail=details, **fields)
        else:
            logger.info("device.became_healthy", **fields)


def _is_news(before: ServedDevice | None, now: ServedDevice) -> bool:
    """Whether a device has got a cause or lost its last one, leaves or returns. A figure that grows in a text is no news."""
    if before is None:
        return not now.is_healthy
    if now.leaving_since is not None or before.leaving_since is not None:
        return (now.leaving_since is None) != (before.leaving_since is None)
    return bool(_places(now) - _places(before)) or now.is_healthy != before.is_healthy


def _places(served: ServedDevice) -> set[tuple[str, ...]]:
    return {cause.place for cause in served.causes}


class UseTeller:
    """Tells how much is in use, each time that changes.

    Kubelet goes on booking devices of pods that were deleted by force until it is restarted (kubernetes/kubernetes#130145). Nobody
    but kubelet can mend that; here it can be seen: more in use than there are pods.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._told: dict[str, dict[str, int]] = {}

    def tell(self, served: Served | None, held: Mapping[str, frozenset[str]] | None) -> None:
        """`held` are the device IDs that kubelet's pod-resources name, by resource; None where nobody can tell."""
        if served is None or held is None:
            return
        use = {
            resource.name: {
                "healthy": sum(device.is_healthy for device in resource.devices),
                "in_use": len(held.get(resource.name, frozenset())),
            }
            for resource in served.resources
        }
        if use != self._told:
            self._told = use
            self._logger.info("devices.use_changed", resources=use)
