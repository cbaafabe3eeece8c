"""`plan`: what this node would offer under this config, what each GPU ends up as, and every problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from device_plugin.cli.node import load_config, open_node
from device_plugin.cli.report import format_table, print_data
from device_plugin.cli.run import configure_logs, settings_from
from device_plugin.logs import get_logger
from device_plugin.problems import Severity
from device_plugin.sharing.message import KUBELET_LIMIT_BYTES, list_bytes
from device_plugin.sharing.plan import plan as plan_offer
from device_plugin.sharing.usage import describe_gpus

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from device_plugin.hardware.model import Inventory
    from device_plugin.problems import Problem
    from device_plugin.sharing.offer import Offer
    from device_plugin.sharing.usage import GpuUse


def plan(arguments: argparse.Namespace) -> int:
    """Exit status 1 if the Offer has an error. Raises PluginError where there is none: a broken config, no hardware to read."""
    configure_logs(arguments)
    with open_node(arguments, get_logger()) as node:
        settings_from(arguments, node.root)  # checked as `run` would; nothing of them shows here
        loaded = load_config(arguments, node)
        inventory = node.read_inventory(loaded.config)
    offer = plan_offer(inventory, loaded.config)
    problems = tuple(dict.fromkeys((*loaded.problems, *offer.problems)))
    if arguments.output == "table":
        _print_table(inventory, offer, problems)
    else:
        print_data(_data(inventory, offer, problems), arguments.output)
    return 1 if any(problem.severity is Severity.ERROR for problem in problems) else 0


def _print_table(inventory: Inventory, offer: Offer, problems: Sequence[Problem]) -> None:
    kind = "simulated node" if inventory.simulated else "node"
    count = len(inventory.gpus) + len(inventory.unreadable)
    print(f"This {kind}: {count} {'GPU' if count == 1 else 'GPUs'}, driver {inventory.driver_version or 'unknown'}\n")
    rows = [
        (
            resource.name,
            len(resource.devices),
            resource.policy.value,
            f"{list_bytes(resource.devices):,} of {KUBELET_LIMIT_BYTES:,}",
        )
        for resource in offer.resources
    ]
    print(format_table(("RESOURCE", "DEVICES", "PREFERS", "LIST BYTES"), rows) if rows else "No resource would be offered.")
    print()
    gpus = [
        (use.index, use.name or "?", use.uuid or "?", "; ".join(_uses(use)) or "nothing") for use in describe_gpus(inventory, offer)
    ]
    print(format_table(("GPU", "PRODUCT", "UUID", "OFFERED AS"), gpus))
    if problems:
        print()
        for problem in problems:
            print(problem)


def _uses(use: GpuUse) -> list[str]:
    return [f"{item.count} x {item.resource} ({item.kind})" for item in use.uses] + [
        f"not offered: {reason}" for reason in use.withheld
    ]


def _data(inventory: Inventory, offer: Offer, problems: Sequence[Problem]) -> dict[str, Any]:
    """The same for programs. Keys are part of the command's interface."""
    return {
        "simulated": inventory.simulated,
        "driverVersion": inventory.driver_version,
        "resources": [
            {
                "name": resource.name,
                "policy": resource.policy.value,
                "failRequestsGreaterThanOne": resource.fail_requests_greater_than_one,
                "listBytes": list_bytes(resource.devices),
                "devices": [
                    {"id": device.id, "gpu": device.gpu_uuid, "index": device.index, "numaNode": device.numa_node}
                    for device in resource.devices
                ],
            }
            for resource in offer.resources
        ],
        "gpus": [
            {
                "index": use.index,
                "uuid": use.uuid,
                "product": use.name,
                "uses": [{"resource": item.resource, "count": item.count, "kind": str(item.kind)} for item in use.uses],
                "withheld": list(use.withheld),
            }
            for use in describe_gpus(inventory, offer)
        ],
        "problems": [
            {
                "severity": problem.severity.value,
                "kind": problem.kind.value,
                "message": problem.message,
                "source": problem.origin.source,
                "line": problem.origin.line,
                "column": problem.origin.column,
                "path": problem.origin.path,
            }
            for problem in problems
        ],
    }
