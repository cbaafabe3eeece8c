"""What one resource's server answers from: a whole value, replaced at once, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from device_plugin.allocation.model import Injection
    from device_plugin.hardware.model import Link
    from device_plugin.serving.served import ServedResource


@record
class Snapshot:
    """One resource's Served, the node's links and the injection in force."""

    resource: ServedResource
    links: tuple[Link, ...]
    injection: Injection
    refuse_unhealthy_restart: bool = False
