"""Another owner of one of our resources: noticed by what can be seen, reported, not fought over.

The last registration of a name wins and nobody is told, so two plugins of one resource overwrite each other's lists
(kubernetes/kubernetes#52190).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.kubelet.podresources import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.kubelet.directory import SocketDirectory
    from device_plugin.kubelet.podresources import PodResources
    from device_plugin.logs import Logger
    from device_plugin.serving.served import Served

LOOK_SECONDS = 30.0


class Rivals:
    """Looks for sockets and device IDs of our resources that are not ours."""

    def __init__(self, directory: SocketDirectory, pod_resources: PodResources, logger: Logger) -> None:
        self.found: tuple[str, ...] = ()
        self._directory, self._pod_resources, self._logger = directory, pod_resources, logger

    async def run(self, served: Callable[[], Served | None]) -> None:
        """Look, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            current = served()
            if current is not None:
                await self.look(current)

    async def look(self, served: Served) -> None:
        """One look; each rival is logged once for as long as it is there."""
        ours = {resource.name: {device.device.id for device in resource.devices} for resource in served.resources}
        found = [
            f"{foreign.resource}: another plugin's socket {foreign.path}"
            for foreign in self._directory.foreign_sockets(sorted(ours))
        ]
        known = await self._pod_resources.allocatable()
        if known is not None and not isinstance(known, Unreadable):
            for name in sorted(ours):
                strange = sorted(known.get(name, frozenset()) - ours[name])
                if strange:
                    found.append(f"{name}: kubelet knows {len(strange)} devices that are not ours, such as {strange[0]}")
        for rival in found:
            if rival not in self.found:
                self._logger.warning("resource.contested", reason=rival)
        self.found = tuple(found)
