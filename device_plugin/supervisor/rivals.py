"""Another owner of one of our resources: noticed by what can be seen, reported, not fought over.

The last registration of a name wins and nobody is told, so two plugins of one resource overwrite each other's lists
(kubernetes/kubernetes#52190). When the winner goes, the resource goes with it: kubelet drops whatever client is registered, and our
stream, which is still open, does not end.
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
    from device_plugin.serving.served import Served, ServedResource

LOOK_SECONDS = 30.0
LOOKS_UNTIL_FORGOTTEN = 2  # in a row; one alone may have met a list on its way


class Rivals:
    """Looks for sockets and device IDs of our resources that are not ours.

    `forgotten` is called with a resource that no rival is seen for and of which kubelet has none of our healthy devices: once,
    until it has some of them again.
    """

    def __init__(
        self, directory: SocketDirectory, pod_resources: PodResources, *, forgotten: Callable[[str], None], logger: Logger
    ) -> None:
        self.found: tuple[str, ...] = ()
        self._directory, self._pod_resources, self._forgotten, self._logger = directory, pod_resources, forgotten, logger
        self._missed: dict[str, int] = {}  # by resource: looks in a row

    async def run(self, served: Callable[[], Served | None]) -> None:
        """Look, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look(served)

    async def look(self, served: Callable[[], Served | None]) -> None:
        """One look; each rival is logged once for as long as it is there."""
        known = await self._pod_resources.allocatable()
        current = served()  # after kubelet's answer: what it told of was in a list of ours before
        if current is None:
            return
        found: list[str] = []
        sockets = self._directory.foreign_sockets(resource.name for resource in current.resources)
        for resource in current.resources:
            rivals = [f"another plugin's socket {foreign.path}" for foreign in sockets if foreign.resource == resource.name]
            if known is not None and not isinstance(known, Unreadable):
                rivals += self._compare(resource, known.get(resource.name, frozenset()), is_contested=bool(rivals))
            found += [f"{resource.name}: {rival}" for rival in rivals]
        for rival in found:
            if rival not in self.found:
                self._logger.warning("resource.contested", reason=rival)
        self.found = tuple(found)
        self._missed = {resource.name: self._missed.get(resource.name, 0) for resource in current.resources}

    def _compare(self, resource: ServedResource, known: frozenset[str], *, is_contested: bool) -> list[str]:
        """What tells of a rival in the IDs that kubelet knows as healthy; and whether it has forgotten all of ours."""
        strange = sorted(known - {served.device.id for served in resource.devices})
        healthy = {served.device.id for served in resource.devices if served.is_healthy}
        is_missed = bool(healthy) and not known and not is_contested
        self._missed[resource.name] = self._missed.get(resource.name, 0) + 1 if is_missed else 0
        if self._missed[resource.name] == LOOKS_UNTIL_FORGOTTEN:
            self._forgotten(resource.name)
        return [f"kubelet knows {len(strange)} devices that are not ours, such as {strange[0]}"] if strange else []
