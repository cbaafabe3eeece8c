"""Who holds what, from kubelet's pod-resources socket: asked in the background, so that no decision waits for kubelet's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.kubelet.podresources import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from device_plugin.kubelet.podresources import PodResources
    from device_plugin.logs import Logger


class Holders:
    """The last answer of kubelet. `held` is None where kubelet cannot be asked at all."""

    def __init__(self, pod_resources: PodResources, logger: Logger) -> None:
        self.held: Mapping[str, frozenset[str]] | None = None
        self._pod_resources, self._logger = pod_resources, logger
        self._told: str | None = None

    async def refresh(self) -> bool:
        """Ask kubelet; whether the answer differs from the last one. An error leaves the last answer: it is the best there is."""
        answer = await self._pod_resources.held()
        if isinstance(answer, Unreadable):
            self._tell("pod_resources.failed", answer.reason)
            return False
        if answer is None:
            self._tell(
                "pod_resources.missing",
                f'there is no "{self._pod_resources.socket}": which pod holds which device cannot be known, so a device that left '
                "counts as free once its grace time is over",
            )
        else:
            self._told = None
        is_news = answer != self.held
        self.held = answer
        return is_news

    def _tell(self, event: str, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._logger.warning(event, reason=reason)
