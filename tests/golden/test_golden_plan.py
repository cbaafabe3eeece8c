"""The same config on the same hardware gives the resources, IDs and topologies that NVIDIA's plugin sent to kubelet.

`recordings/` holds what its v0.20.0 said and did, one scenario a file, `nodes/` the hardware behind them; README.md says where
they come from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_plugin.config.model import Config
from device_plugin.hardware.model import Gpu, Inventory, MigAttributes, MigDevice
from device_plugin.problems import ProblemKind
from device_plugin.sharing.message import HEALTHY, list_bytes
from device_plugin.sharing.offer import PreferencePolicy
from device_plugin.sharing.plan import plan

HERE = Path(__file__).parent
NODES = {"a100": "a100", "a100-migon": "a100", "h100": "h100", "t4": "t4", "dgx1v": "dgx1v"}
AGREED = [
    "a100-envvar",
    "a100-no-numa",
    "a100-timeslicing-10",
    "a100-timeslicing-10-rename-failgt1",
    "a100-mig-single",
    "a100-mig-mixed",
    "a100-mig-mixed-timeslicing",
    "t4-envvar",
    "h100-envvar",
    "dgx1v-envvar",
]


def recording(scenario: str) -> dict[str, Any]:
    return json.loads((HERE / "recordings" / f"{scenario}.json").read_text())


def config_of(recorded: dict[str, Any]) -> Config:
    data = dict(recorded["config_file"] or {})
    for argument in recorded["argv"]:
        if argument.startswith("--mig-strategy="):
            data["flags"] = {"migStrategy": argument.partition("=")[2]}
    return Config.model_validate_json(json.dumps(data))


def inventory_of(recorded: dict[str, Any]) -> Inventory:
    """The node of a recording: GPUs 0-3 on NUMA node 0, 4-7 on node 1, all T4s on node 0; MIG devices in the layout's order."""
    profile = recorded["profile"]
    layouts = json.loads((HERE / "nodes" / "mig-layouts.json").read_text())
    layout = layouts.get(profile)
    node = json.loads((HERE / "nodes" / f"node-{'a100' if layout else NODES[profile]}.json").read_text())
    split: dict[int, list[MigDevice]] = {}
    for row in layout or ():
        devices = split.setdefault(int(row["gpu"]), [])
        ids = (int(row["gpuInstanceId"]), int(row["computeInstanceId"]))
        devices.append(MigDevice(row["uuid"], len(devices), *ids, row["profile"], attributes_of(row["profile"])))
    gpus = []
    for entry in node["gpus"]:
        index = entry["index"]
        numa_node = None if recorded["scenario"] == "a100-no-numa" else 0 if profile == "t4" else index // 4
        enabled = index in split or profile == "a100-migon"
        gpus.append(
            Gpu(
                index,
                entry["uuid"],
                entry["name"],
                entry["minor"],
                entry["pciBusId"],
                numa_node=numa_node,
                mig_enabled=enabled,
                mig_devices=tuple(split.get(index, ())),
            )
        )
    return Inventory(gpus=tuple(gpus))


def attributes_of(profile: str) -> MigAttributes:
    slices = int(profile[0])
    return MigAttributes(14 * slices, 1, 0, 0, "+me" in profile, 0, slices, slices, 4864 * slices)


@pytest.mark.parametrize("scenario", AGREED)
def test_resources_ids_and_topologies_are_those_recorded(scenario):
    """Resource names, device IDs, NUMA nodes and the size of each list are the peer's; the order, random there, is ours."""
    recorded = recording(scenario)
    offer = plan(inventory_of(recorded), config_of(recorded))
    expected = {name: list_of(plugin) for name, plugin in recorded["plugins"].items()}
    assert expected == {
        resource.name: sorted((device.id, device.numa_node) for device in resource.devices) for resource in offer.resources
    }
    for resource in offer.resources:
        plugin = recorded["plugins"][resource.name]
        assert (plugin["list_and_watch_bytes"], plugin["device_count"]) == (
            list_bytes(resource.devices, health=HEALTHY),
            len(resource.devices),
        )
    assert not offer.errors()


def list_of(plugin: dict[str, Any]) -> list[tuple[str, int | None]]:
    devices = []
    for device in plugin["list_and_watch"]["devices"]:
        nodes = (device.get("topology") or {}).get("nodes", [])
        devices.append((device["ID"], int(nodes[0]["ID"]) if nodes else None))
    return sorted(devices)


def test_failing_requests_greater_than_one_is_carried():
    """The recording's config asks for it; only the shared resource has it."""
    recorded = recording("a100-timeslicing-10-rename-failgt1")
    (resource,) = plan(inventory_of(recorded), config_of(recorded)).resources
    assert resource.fail_requests_greater_than_one
    assert resource.policy is PreferencePolicy.DISTRIBUTED


def test_mig_mode_without_instances_offers_nothing_and_says_why():
    """The peer waited with a warning for each GPU; so do we, and the Offer is empty."""
    recorded = recording("a100-migon-strategy-mixed")
    offer = plan(inventory_of(recorded), config_of(recorded))
    assert (recorded["registrations"], offer.resources) == (0, ())
    assert sum("MIG enabled, no instances" in problem.message for problem in offer.problems) == 8


@pytest.mark.parametrize("scenario", ["startup-mig-single-nonuniform", "startup-mig-single-partial"])
def test_single_on_a_layout_that_does_not_fit(scenario):
    """The peer refused to start; here it is one error that the caller can wait on, and nothing is offered."""
    recorded = recording(scenario)
    assert recorded["exit_code"] == 1
    offer = plan(inventory_of(recorded), config_of(recorded))
    assert offer.resources == ()
    assert [problem.kind for problem in offer.errors()] == [ProblemKind.MIG_SINGLE]
