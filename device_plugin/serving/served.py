"""Served: what kubelet is shown now. Lists and RPC answers are made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from device_plugin.health.cause import Cause
    from device_plugin.sharing.offer import Device, PreferencePolicy


@record
class ServedDevice:
    """A device as kubelet is shown it. `leaving_since` (Unix seconds) is set once it is no longer in the Offer.

    `present` is False once the hardware behind it is gone: then Allocate refuses it too.
    """

    device: Device
    causes: tuple[Cause, ...] = ()
    leaving_since: float | None = None
    present: bool = True

    @property
    def is_healthy(self) -> bool:
        return not self.causes and self.leaving_since is None


@record
class ServedResource:
    """One resource as kubelet is shown it. `closing` is set once it is no longer in the Offer."""

    name: str
    devices: tuple[ServedDevice, ...]
    policy: PreferencePolicy
    fail_requests_greater_than_one: bool = False
    closing: bool = False

    def device(self, device_id: str) -> ServedDevice | None:
        return next((served for served in self.devices if served.device.id == device_id), None)


@record
class Served:
    """Everything kubelet is shown, resources ordered by name."""

    resources: tuple[ServedResource, ...] = ()

    def resource(self, name: str) -> ServedResource | None:
        return next((resource for resource in self.resources if resource.name == name), None)
