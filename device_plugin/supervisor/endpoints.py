"""Endpoints: one server and one registration for each resource that is served. Only what differs is touched."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from device_plugin.errors import PluginError
from device_plugin.kubelet.backoff import Backoff
from device_plugin.kubelet.registration import Registration
from device_plugin.kubelet.server import ResourceServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from device_plugin.kubelet.presence import Presence
    from device_plugin.kubelet.snapshot import Snapshot
    from device_plugin.logs import Logger
    from device_plugin.supervisor.tasks import Tasks

OWED_SECONDS = 30.0  # kubelet dials back within milliseconds; it may hang for 20 s, and one that refuses the resource never will
SENT_SECONDS = 1.0  # a list is sent within milliseconds, unless kubelet has stopped reading
STOP_GRACE_SECONDS = 2.0  # answers take milliseconds; the process has 5 s to end


@dataclass(slots=True)
class Endpoint:
    """One resource's server, the registration that keeps it known to kubelet (None: kubelet is not told) and that one's task."""

    server: ResourceServer
    snapshot: Snapshot
    shown_at: float  # since when the snapshot is this one, by the loop's clock
    registration: Registration | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether kubelet has this resource's current list."""
        return self.registration.is_registered if self.registration else self.server.owns_socket()


class Endpoints:
    """Every resource that has a socket now."""

    def __init__(
        self,
        directory: Path,
        presence: Presence | None,
        tasks: Tasks,
        *,
        answered: Callable[[str, Sequence[str]], None],
        logger: Logger,
    ) -> None:
        self._directory, self._presence, self._tasks = directory, presence, tasks
        self._answered, self._logger = answered, logger
        self._endpoints: dict[str, Endpoint] = {}
        self._snapshots: Mapping[str, Snapshot] = {}  # what was asked for last
        self._failures: dict[str, str] = {}
        self._backoff = Backoff(first_seconds=0.5, limit_seconds=5.0)
        self.retry_after_seconds: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is something to serve and kubelet has the current list of all of it."""
        return bool(self._endpoints) and not self._failures and all(e.is_ready for e in self._endpoints.values())

    @property
    def failures(self) -> Mapping[str, str]:
        """Resources whose socket could not be made at the last `apply`, with the reason."""
        return self._failures

    async def apply(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Serve exactly these resources, from these snapshots.

        A resource that stays keeps its socket, streams and registration, and sends a list only if that has changed. One whose
        socket cannot be made is in `failures` and tried again at the next call, due in `retry_after_seconds`; the others do not
        wait for it.
        """
        self._snapshots = snapshots
        await self._show_in_order()  # first: nothing else waits for a socket that closes or opens
        for name in sorted(self._endpoints.keys() - snapshots.keys()):
            await self._close(self._endpoints[name])
            del self._endpoints[name]
            self._logger.info("resource.closed", resource=name)
        failures: dict[str, str] = {}
        for name in sorted(snapshots.keys() - self._endpoints.keys()):
            snapshot = self._snapshots.get(name)
            if snapshot is None:
                continue
            try:
                self._endpoints[name] = await self._open(name, snapshot)
            except PluginError as error:
                failures[name] = str(error)
                if self._failures.get(name) != str(error):
                    self._logger.error("resource.not_served", resource=name, reason=str(error))  # noqa: TRY400 - no bug of ours
        self._failures = failures
        if not failures:
            self._backoff.reset()
        self.retry_after_seconds = self._backoff.next_delay() if failures else None
        self._show(self._snapshots)

    def show(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Answer from newer snapshots at once where a resource is served; an `apply` under way goes on with them."""
        self._snapshots = snapshots
        self._show(snapshots)

    def _show(self, snapshots: Mapping[str, Snapshot]) -> None:
        for name, snapshot in snapshots.items():
            endpoint = self._endpoints.get(name)
            if endpoint is not None and endpoint.snapshot != snapshot:
                endpoint.snapshot, endpoint.shown_at = snapshot, asyncio.get_running_loop().time()
                endpoint.server.update(snapshot)

    async def _show_in_order(self) -> None:
        """What takes devices away is sent before what gives any: kubelet is never shown one GPU free under two names."""
        snapshots = self._snapshots
        taking = {
            name: snapshot
            for name, snapshot in snapshots.items()
            if name in self._endpoints and _healthy(self._endpoints[name].snapshot) - _healthy(snapshot)
        }
        self._show(taking)
        if any(name not in self._endpoints or self._endpoints[name].snapshot != snapshot for name, snapshot in snapshots.items()):
            ready = [self._endpoints[name].server for name in taking if self._endpoints[name].server.has_stream]
            await asyncio.gather(*(server.wait_listed(SENT_SECONDS) for server in ready))
        self._show(self._snapshots)

    def owes(self, name: str) -> bool:
        """Whether kubelet has yet to be given that resource's list, and may be expected to take it."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            return name not in self._failures  # an earlier process showed it, or did not get to that
        if endpoint.registration is None or self._presence is None or not self._presence.kubelet.is_accepting:
            return False
        if self._snapshots.get(name, endpoint.snapshot) != endpoint.snapshot:
            return True  # an `apply` under way has not come to it yet: what kubelet has been given is the list before
        waited = asyncio.get_running_loop().time() - endpoint.shown_at
        return not endpoint.registration.is_registered and waited < OWED_SECONDS

    def note_forgotten(self, name: str) -> None:
        """Kubelet has none of that resource's devices though it was given them: it is registered anew."""
        endpoint = self._endpoints.get(name)
        if endpoint is not None and endpoint.registration is not None:
            endpoint.registration.note_forgotten()

    async def close(self) -> None:
        """Let pending calls finish, end all streams, remove all sockets."""
        endpoints, self._endpoints = list(self._endpoints.values()), {}
        await asyncio.gather(*(self._close(endpoint) for endpoint in endpoints))

    async def _open(self, name: str, snapshot: Snapshot) -> Endpoint:
        server = ResourceServer(name, self._directory, answered=partial(self._answered, name), logger=self._logger)
        await server.start(snapshot)
        endpoint = Endpoint(server, snapshot, asyncio.get_running_loop().time())
        self._logger.info("resource.served", resource=name, devices=len(snapshot.resource.devices), endpoint=server.endpoint)
        if self._presence is not None:
            endpoint.registration = Registration(server, self._presence, logger=self._logger)
            endpoint.task = self._tasks.start(f"registration of {name}", endpoint.registration.run())
        return endpoint

    async def _close(self, endpoint: Endpoint) -> None:
        if endpoint.task is not None:
            await self._tasks.end(endpoint.task)
        await endpoint.server.stop(STOP_GRACE_SECONDS)


def _healthy(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(served.device.id for served in snapshot.resource.devices if served.is_healthy)
