"""The arrangement: what kubelet was shown last, kept in the state file.

So an edit made while the plugin was away is treated like a live one. Plain values for JSON, out and in. Causes are not in it:
health has its own, and whether hardware is held is found anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_plugin.serving.served import Served, ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy
from device_plugin.stored import stored_seconds, stored_text

VERSION = 1


def arrangement_to_json(served: Served) -> dict[str, Any]:
    """The arrangement as plain values: version, then resources in order, each with its devices in order."""
    return {
        "version": VERSION,
        "resources": [
            {
                "name": resource.name,
                "policy": resource.policy.value,
                "failRequestsGreaterThanOne": resource.fail_requests_greater_than_one,
                "closing": resource.closing,
                "devices": [_device_to_json(device) for device in resource.devices],
            }
            for resource in served.resources
        ],
    }


def arrangement_from_json(value: object) -> tuple[Served | None, str | None]:
    """The arrangement that `arrangement_to_json` wrote, or None and a sentence that says why it cannot be used.

    Half an arrangement would drop IDs that kubelet still names, so it is used as a whole or not at all.
    """
    if not isinstance(value, Mapping):
        return None, f"the last arrangement is {type(value).__name__}, not an object; going on without it"
    if value.get("version") != VERSION:
        return None, f"the last arrangement has version {value.get('version')!r}, expected {VERSION}; going on without it"
    try:
        resources = tuple(_resource_from_json(item) for item in value["resources"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return None, f"the last arrangement cannot be read ({type(error).__name__}: {error}); going on without it"
    return Served(tuple(sorted(resources, key=lambda resource: resource.name))), None


def _device_to_json(served: ServedDevice) -> dict[str, Any]:
    device = served.device
    return {
        "id": device.id,
        "hardwareId": device.hardware_id,
        "gpuUuid": device.gpu_uuid,
        "index": device.index,
        "replica": device.replica,
        "numaNode": device.numa_node,
        "deviceNodes": list(device.device_nodes),
        "gpuInstanceId": device.gpu_instance_id,
        "computeInstanceId": device.compute_instance_id,
        "leavingSince": served.leaving_since,
    }


def _resource_from_json(value: Mapping[str, Any]) -> ServedResource:
    return ServedResource(
        name=stored_text(value["name"]),
        devices=tuple(_device_from_json(item) for item in value["devices"]),
        policy=PreferencePolicy(value["policy"]),
        fail_requests_greater_than_one=value["failRequestsGreaterThanOne"] is True,
        closing=value["closing"] is True,
    )


def _device_from_json(value: Mapping[str, Any]) -> ServedDevice:
    since = value["leavingSince"]
    return ServedDevice(
        Device(
            id=stored_text(value["id"]),
            hardware_id=stored_text(value["hardwareId"]),
            gpu_uuid=stored_text(value["gpuUuid"]),
            index=stored_text(value["index"]),
            replica=_number(value["replica"]),
            numa_node=_number(value["numaNode"]),
            device_nodes=tuple(stored_text(node) for node in value["deviceNodes"]),
            gpu_instance_id=_number(value["gpuInstanceId"]),
            compute_instance_id=_number(value["computeInstanceId"]),
        ),
        leaving_since=None if since is None else stored_seconds(since),
    )


def _number(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"expected a whole number, not {value!r}")
    return value
