"""The process: its start, the tasks that keep watch, and an end that takes a few seconds at most."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from device_plugin.health.state import EVERY_GPU, HealthState
from device_plugin.kubelet.directory import SocketDirectory
from device_plugin.kubelet.podresources import PodResources
from device_plugin.kubelet.presence import Presence
from device_plugin.supervisor.clock import SteadyClock
from device_plugin.supervisor.discoverer import Discoverer
from device_plugin.supervisor.edits import Edits
from device_plugin.supervisor.endpoints import Endpoints
from device_plugin.supervisor.health_keeper import HealthKeeper
from device_plugin.supervisor.hints import Hints
from device_plugin.supervisor.holders import Holders
from device_plugin.supervisor.memory import Memory
from device_plugin.supervisor.prober import Prober
from device_plugin.supervisor.reconcile import Reconciler
from device_plugin.supervisor.report import UseTeller
from device_plugin.supervisor.rivals import Rivals
from device_plugin.supervisor.tasks import Tasks
from device_plugin.supervisor.threads import WorkThread
from device_plugin.supervisor.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.model import Config
    from device_plugin.hardware.driver import Event
    from device_plugin.hardware.model import Inventory
    from device_plugin.hardware.sysfs import Host
    from device_plugin.logs import Logger
    from device_plugin.supervisor.configuration import ConfigKeeper
    from device_plugin.supervisor.hardware import Hardware
    from device_plugin.supervisor.settings import Settings

HOLDERS_POLL_SECONDS = 2.0  # while something waits for a pod to let go
HOLDERS_IDLE_SECONDS = 30.0
HOLDERS_WAIT_SECONDS = 0.5
READY_POLL_SECONDS, UNREADY_POLL_SECONDS = 1.0, 0.2
WATCH_WAIT_SECONDS = 2.0  # the watch begins while the first probes are made
HINTS_AFTER_SECONDS = 0.3  # kubelet is to be told first
CLOSE_SECONDS = 4.0


class MakeHardware(Protocol):
    """Opens the way to the node's hardware, once the first config is known. Both functions are called on the running loop."""

    def __call__(
        self,
        config: Callable[[], Config],
        on_events: Callable[[Sequence[Event]], None],
        on_watch_changed: Callable[[dict[str, str]], None],
    ) -> tuple[Hardware, Host]: ...


@dataclass(slots=True)
class Watched:
    """What is there once the first config is known."""

    hardware: Hardware
    discoverer: Discoverer
    prober: Prober


class Supervisor:
    """The whole life of the process is `run`. Make it on the running loop."""

    def __init__(self, settings: Settings, keeper: ConfigKeeper, make_hardware: MakeHardware, *, logger: Logger) -> None:
        self._settings, self._make_hardware, self._logger = settings, make_hardware, logger
        self._clock = SteadyClock()
        self._tasks = Tasks(logger)
        self._files: WorkThread[None] = WorkThread("files", None)
        self._stopping, self._watch_told = asyncio.Event(), asyncio.Event()
        self._reconcile_now, self._release_awaited = Wakeup(), Wakeup()
        self._hints = Hints()
        self._watched: Watched | None = None
        self._restart_for: str | None = None
        self._directory = SocketDirectory(settings.socket_directory, logger=logger)
        self._memory = Memory(settings.socket_directory, self._files, logger)
        self._presence = Presence(settings.kubelet_socket, logger=logger) if settings.kubelet_socket else None
        self._pod_resources = PodResources(settings.pod_resources_socket)
        self._holders = Holders(self._pod_resources, self._clock, logger)
        self._health = HealthKeeper(
            HealthState(), self._clock, changed=self._reconcile_now.set, probe_wanted=self._want_probe, logger=logger
        )
        self._endpoints = Endpoints(
            settings.socket_directory, self._presence, self._tasks, answered=self._note_answered, logger=logger
        )
        self._reconciler = Reconciler(
            settings, self._endpoints, self._holders, self._health, self._files, self._clock, logger=logger
        )
        self._edits = Edits(
            keeper,
            self._reconciler,
            poll_seconds=settings.config_poll_seconds,
            inventory=self._inventory,
            about_to_change=self._ask_holders,
            changed=self._use_config,
            logger=logger,
        )

    async def run(self) -> None:
        """Serve until `stop`. Raises what makes going on impossible: ConfigError, DriverError or another PluginError."""
        life, stopping = asyncio.ensure_future(self._live()), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({life, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                await life
        finally:
            for task in (life, stopping):
                task.cancel()
            await asyncio.gather(life, stopping, return_exceptions=True)
            await self._close()

    def stop(self) -> None:
        """End in good order. Harmless when called again."""
        self._stopping.set()

    def reload(self) -> None:
        """Read the config and look at the hardware again, now."""
        self._edits.read_soon(forced=True)
        if self._watched is not None:
            self._watched.discoverer.look_soon(fresh=True)

    async def _live(self) -> None:
        self._edits.look()  # a broken config is said at once, not after a wait for the directory
        await self._directory.acquire()
        self._edits.look()  # it may have been edited while another process had the directory
        self._health.state, self._reconciler.served = self._memory.recall()
        if self._presence is not None:
            self._tasks.start("kubelet presence", self._presence.run())
        loaded = await self._edits.first(self._start_hints)
        self._health.use(loaded.config.health)
        watched = self._watch(loaded)
        self._tasks.start("config", self._edits.follow(self._hints.revive))
        start = asyncio.ensure_future(self._first_look(watched))
        failed = asyncio.ensure_future(self._tasks.wait_failed())
        try:
            await asyncio.wait({start, failed}, return_when=asyncio.FIRST_COMPLETED)
            await (start if start.done() else failed)
            self._start_tasks(watched)
            await asyncio.wait({failed}, timeout=HINTS_AFTER_SECONDS)
            self._start_hints()
            self._edits.read_soon()  # what changed before there were hints
            await failed
        finally:
            start.cancel()
            failed.cancel()

    def _watch(self, loaded: Loaded) -> Watched:
        hardware, host = self._make_hardware(self._edits.config, self._on_events, self._on_watch_changed)
        discoverer = Discoverer(
            hardware,
            host,
            self._health,
            config=self._edits.config,
            changed=self._on_hardware,
            logger=self._logger,
        )
        prober = Prober(
            hardware,
            self._health,
            inventory=lambda: discoverer.inventory,
            interval_seconds=lambda: self._edits.config().health.probe_interval,
            driver_failed=lambda: discoverer.look_soon(fresh=True),
            call_returned=lambda: discoverer.look_soon(fresh=False),
            logger=self._logger,
        )
        self._health.note_boot(host.boot_id())
        self._restart_for = loaded.config.flags.plugin.container_driver_root
        self._watched = Watched(hardware, discoverer, prober)
        return self._watched

    async def _first_look(self, watched: Watched) -> None:
        """The hardware and its condition, before kubelet is shown anything: a restart must not declare a broken GPU healthy.

        Nor one that nobody watches yet: an XID that comes before the watch has begun is never heard of.
        """
        holders = asyncio.ensure_future(self._holders.refresh())
        await watched.discoverer.first()
        while not await watched.prober.look_at_all():
            await watched.discoverer.first()
        await holders
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_WAIT_SECONDS):
                await self._watch_told.wait()
        if not self._watch_told.is_set():
            self._health.note_watch({EVERY_GPU: "the watch for events has not begun yet"})

    def _start_tasks(self, watched: Watched) -> None:
        rivals = Rivals(self._directory, self._pod_resources, forgotten=self._endpoints.note_forgotten, logger=self._logger)
        for name, coroutine in (
            ("discovery", watched.discoverer.run()),
            ("probes", watched.prober.run()),
            ("hanging calls", watched.prober.run_hanging()),
            ("holders", self._follow_holders()),
            ("readiness", self._follow_readiness()),
            ("rivals", rivals.run(lambda: self._reconciler.served)),
            ("reconcile", self._follow_changes(watched)),
            ("directory", self._directory.keep()),
        ):
            self._tasks.start(name, coroutine)

    async def _close(self) -> None:
        """Pending answers go out, streams end, sockets go. A driver call that hangs is left to the end of the process."""
        if self._watched is not None:
            self._watched.hardware.close()  # first: what is heard once the causes have been kept would be forgotten
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._tasks.cancel()  # first, so that nothing is opened any more
                await self._endpoints.close()
                await self._pod_resources.close()
                self._memory.keep(self._health.state, self._reconciler.served)  # a cause may have come since the last time
                await self._files.submit(lambda _: None)  # what is being written gets written
        except TimeoutError:
            self._logger.warning("plugin.close_outlasted", seconds=CLOSE_SECONDS)
        self._hints.stop()
        self._files.stop()
        self._directory.release()
        self._logger.info("plugin.stopped")

    def _start_hints(self) -> None:
        """Have polls come sooner; harmless when called again."""
        if not self._settings.notifications or self._hints.is_watching:
            return
        if self._edits.watched_directory:
            self._hints.watch(self._edits.watched_directory, self._edits.read_soon)
        if self._presence is not None:
            self._hints.watch(str(self._presence.socket.parent), self._presence.hint)

    # ---- the config ----

    def _use_config(self) -> None:
        """Another config is in force."""
        self._health.use(self._edits.config().health)
        self._stop_if_only_a_start_helps()
        if self._watched is not None:  # both may have other intervals now
            self._watched.discoverer.look_soon(fresh=False)
            self._watched.prober.want(())
        self._reconcile_now.set()

    def _stop_if_only_a_start_helps(self) -> None:
        """The library is loaded once per process: another driver root needs another process."""
        root = self._edits.config().flags.plugin.container_driver_root
        if self._restart_for is not None and root != self._restart_for:
            self._logger.warning("plugin.restart_needed", reason=f"the driver root changed from {self._restart_for} to {root}")
            self.stop()

    # ---- the hardware ----

    def _inventory(self) -> Inventory | None:
        return self._watched.discoverer.inventory if self._watched else None

    def _on_hardware(self) -> None:
        self._reconcile_now.set()
        self._edits.note_hardware()

    def _on_events(self, events: Sequence[Event]) -> None:
        inventory = self._inventory()
        if inventory is not None and self._watched is not None:
            self._health.note_events(events, inventory)
            self._watched.discoverer.look_soon(fresh=False)

    def _on_watch_changed(self, unwatched: dict[str, str]) -> None:
        self._watch_told.set()
        self._health.note_watch(unwatched)

    def _want_probe(self, gpu_uuids: Sequence[str]) -> None:
        if self._watched is not None:
            self._watched.prober.want(gpu_uuids)

    # ---- what is served ----

    async def _follow_changes(self, watched: Watched) -> None:
        while True:
            inventory = watched.discoverer.inventory
            if inventory is not None:
                await self._edits.reconcile(inventory)
                self._memory.keep(self._health.state, self._reconciler.served)
                if self._reconciler.awaits_release:
                    self._release_awaited.set()
            await self._reconcile_now.wait(self._reconciler.next_change_in(self._edits.config().reconcile.leaving_grace))

    async def _follow_holders(self) -> None:
        use = UseTeller(self._logger)
        while True:
            await self._release_awaited.wait(HOLDERS_IDLE_SECONDS)
            if self._reconciler.awaits_release:
                await asyncio.sleep(HOLDERS_POLL_SECONDS)
                self._release_awaited.set()
            if await self._holders.refresh():
                self._reconcile_now.set()
            use.tell(self._reconciler.served, self._holders.held)

    async def _follow_readiness(self) -> None:
        """Ready = registered and listed, with a driver behind it."""
        was_ready = False
        while True:
            is_ready = self._endpoints.is_ready and not self._health.driver_is_away
            if is_ready != was_ready:
                self._logger.info("plugin.became_ready" if is_ready else "plugin.became_unready")
                was_ready = is_ready
            await asyncio.sleep(READY_POLL_SECONDS if was_ready else UNREADY_POLL_SECONDS)

    async def _ask_holders(self) -> None:
        """Before a new arrangement: who holds what by the old one. An answer that does not come soon is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLDERS_WAIT_SECONDS):
                await self._holders.refresh()

    def _note_answered(self, resource: str, ids: Sequence[str]) -> None:
        self._holders.note_given(resource, ids)
        if self._reconciler.note_answered(resource, ids):
            self._reconcile_now.set()
