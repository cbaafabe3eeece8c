"""Answers of GetPreferredAllocation and Allocate beside those recorded from NVIDIA's plugin v0.20.0 (NVIDIA/k8s-device-plugin).

The recordings under `recordings/` were made with NVIDIA's own mock of NVML and a stub kubelet. `nodes/` describes the hardware
behind them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from device_plugin.allocation.model import Injection
from device_plugin.allocation.preferred import prefer
from device_plugin.allocation.response import allocate
from device_plugin.allocation.table import AllocationTable, build_table
from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy
from device_plugin.errors import AllocationRefused
from device_plugin.hardware.model import CommonAncestor, Link
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy

HERE = Path(__file__).parent
RECORDINGS = HERE / "recordings"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
NODES = {"h100": "node-h100", "t4": "node-t4", "dgx1v": "node-dgx1v"}
NVSWITCH = "FFFFFFFF:FF:FF.0"


def load(name: str) -> Any:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def load_node(name: str) -> Any:
    return json.loads((HERE / "nodes" / f"{name}.json").read_text())


def cases(kind: str) -> list[Any]:
    """Every recorded request: scenario, resource, number."""
    found = []
    for path in sorted(RECORDINGS.glob("*.json")):
        recorded = load(path.stem)
        for resource, plugin in recorded.get("plugins", {}).items():
            found += [
                pytest.param(path.stem, resource, n, id=f"{path.stem}-{resource}-{n}") for n in range(len(plugin.get(kind, ())))
            ]
    assert found, "no recordings"
    return found


def read_links(node: dict[str, Any]) -> tuple[Link, ...]:
    links = []
    for source, target in ((a, b) for a in node["gpus"] for b in node["gpus"] if a is not b):
        nvlinks = [node["activeNvLinksByRemotePciBusId"][gpu["index"]] for gpu in (source, target)]
        ancestor = node["commonAncestor"][source["index"]][target["index"]]
        links.append(
            Link(
                source=source["index"],
                target=target["index"],
                ancestor=None if ancestor is None else CommonAncestor(ancestor),
                nvlinks=nvlinks[0].get(target["pciBusId"], 0),
                via_switch=all(NVSWITCH in active for active in nvlinks),
            )
        )
    return tuple(links)


def read_hardware(profile: str, node: dict[str, Any]) -> dict[str, Device]:
    """GPUs and MIG devices by UUID, as devices without replicas."""
    gpus = {str(gpu["index"]): gpu for gpu in node["gpus"]}
    devices = {
        gpu["uuid"]: Device(gpu["uuid"], gpu["uuid"], gpu["uuid"], index, device_nodes=(f"/dev/nvidia{gpu['minor']}",))
        for index, gpu in gpus.items()
    }
    seen: Counter[str] = Counter()
    for mig in load_node("mig-layouts").get(profile, ()):
        gpu = gpus[mig["gpu"]]
        devices[mig["uuid"]] = Device(mig["uuid"], mig["uuid"], gpu["uuid"], f"{mig['gpu']}:{seen[mig['gpu']]}")
        seen[mig["gpu"]] += 1
    return devices


def read_injection(argv: list[str]) -> Injection:
    flags = [argument.lstrip("-").partition("=")[::2] for argument in argv[1:]]
    strategies = tuple(DeviceListStrategy(value) for name, value in flags if name == "device-list-strategy")
    names = {name for name, _ in flags}
    return Injection(
        strategies=strategies or (DeviceListStrategy.ENVVAR,),
        id_strategy=DeviceIdStrategy.INDEX if ("device-id-strategy", "index") in flags else DeviceIdStrategy.UUID,
        pass_device_specs="pass-device-specs" in names,
        control_nodes=CONTROL_NODES,
        imex_channels=(0,) if "imex-channel-ids" in names else (),
        extras=tuple(extra for extra in ("gdrcopy", "gds", "mofed") if f"{extra}-enabled" in names),
        cdi_classes=("gpu",),
    )


def read_table(recorded: dict[str, Any], resource: str) -> AllocationTable:
    """The recorded resource as this plugin would serve it."""
    node = load_node(NODES.get(recorded["profile"], "node-a100"))
    hardware = read_hardware(recorded["profile"], node)
    served = []
    for device in recorded["plugins"][resource]["list_and_watch"]["devices"]:
        uuid, _, replica = device["ID"].partition("::")
        real = hardware[uuid]
        served.append(
            ServedDevice(
                Device(
                    device["ID"], uuid, real.gpu_uuid, real.index, int(replica) if replica else None, device_nodes=real.device_nodes
                )
            )
        )
    is_whole = not any(item.device.is_shared or item.device.is_mig for item in served)
    time_slicing = ((recorded["config_file"] or {}).get("sharing") or {}).get("timeSlicing", {})
    return build_table(
        ServedResource(
            resource,
            tuple(served),
            PreferencePolicy.ALIGNED if is_whole else PreferencePolicy.DISTRIBUTED,
            fail_requests_greater_than_one=time_slicing.get("failRequestsGreaterThanOne", False),
        ),
        read_links(node),
        read_injection(recorded["argv"]),
    )


def answer(table: AllocationTable, ids: list[str]) -> dict[str, Any]:
    """Our answer in the form of the recordings, with what varies taken out."""
    allocation = allocate(table, ids)
    return normalise(
        {
            "envs": allocation.envs,
            "mounts": [
                {"container_path": mount.container_path, "host_path": mount.host_path, "read_only": mount.read_only}
                for mount in allocation.mounts
            ],
            "devices": [
                {"container_path": node.container_path, "host_path": node.host_path, "permissions": node.permissions}
                for node in allocation.devices
            ],
            "annotations": allocation.annotations,
            "cdi_devices": [{"name": name} for name in allocation.cdi_devices],
        }
    )


def normalise(response: dict[str, Any]) -> dict[str, Any]:
    """Without the UUID of annotation keys and the random orders of NVIDIA's plugin (device nodes, IDs by index)."""
    envs = dict(response["envs"])
    visible = envs.get("NVIDIA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"[0-9:]+(,[0-9:]+)*", visible):
        envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(sorted(visible.split(",")))
    return response | {
        "envs": envs,
        "devices": sorted(response["devices"], key=lambda node: node["container_path"]),
        "annotations": {
            re.sub(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "_uuid", key): value
            for key, value in response["annotations"].items()
        },
    }


@pytest.mark.parametrize(("scenario", "resource", "number"), cases("allocate"))
def test_containers_get_what_they_got_before(scenario: str, resource: str, number: int) -> None:
    """The same request gets the same environment, mounts, nodes, annotations, CDI devices; refusals start with the same text."""
    recorded = load(scenario)
    table = read_table(recorded, resource)
    call = recorded["plugins"][resource]["allocate"][number]
    requests = [request["devices_ids"] for request in call["request"]["container_requests"]]
    if "error" in call:
        with pytest.raises(AllocationRefused) as refused:
            [allocate(table, ids) for ids in requests]
        assert str(refused.value).startswith(call["error"]["details"])
    else:
        expected = [normalise(response) for response in call["response"]["container_responses"]]
        assert expected == [answer(table, ids) for ids in requests]


def total_score(table: AllocationTable, ids: tuple[str, ...] | list[str]) -> int:
    places = sorted(table.positions[device_id] for device_id in ids)
    return sum(table.scores[a][b] for a, b in combinations(places, 2))


@pytest.mark.parametrize(("scenario", "resource", "number"), cases("preferred"))
def test_the_same_devices_are_preferred(scenario: str, resource: str, number: int) -> None:
    """Whole GPUs: the same set. Replicas and MIG devices: as many per GPU as recorded, MIG devices spread over GPUs no worse.

    Where it failed the pod or answered nothing (too few devices), the answer is all there is. Where it followed the order
    in which kubelet named devices, ours is as good, and the same for every order.
    """
    recorded = load(scenario)
    table = read_table(recorded, resource)
    call = recorded["plugins"][resource]["preferred"][number]
    request = call["request"]
    available, required = request["available_deviceIDs"], request["must_include_deviceIDs"]
    size = int(request["allocation_size"])
    ours = prefer(table, available, required, size)
    theirs = call["response"]["container_responses"][0]["deviceIDs"] if "response" in call else []

    assert set(required) <= set(ours) <= {*available, *required}
    if not theirs:
        assert len(ours) == min(max(size, 0), len(available))
    elif table.resource.policy is not PreferencePolicy.ALIGNED:
        assert sorted(Counter(i.partition("::")[0] for i in ours).values()) in call.get("replicas_per_gpu_seen", [[1] * size])
        parents = [Counter(table.entries[table.positions[i]].served.device.gpu_uuid for i in ids) for ids in (ours, theirs)]
        assert max(parents[0].values()) <= max(parents[1].values())
    elif available == sorted(available):
        assert theirs == list(ours)
    else:
        assert total_score(table, theirs) == total_score(table, ours)


def test_mig_devices_are_spread_over_their_gpus() -> None:
    """Two MIG devices come from two GPUs where there are two; NVIDIA's plugin takes each for a GPU of its own and may crowd one."""
    table = read_table(load("a100-mig-mixed"), "nvidia.com/mig-1g.5gb")
    chosen = prefer(table, list(table.positions), [], 2)
    assert len({table.entries[table.positions[i]].served.device.gpu_uuid for i in chosen}) == 2


def test_a_lost_gpu_does_not_fail_the_others() -> None:
    """A GPU lost while running failed requests for the other seven (NVIDIA/k8s-device-plugin#2038); here they are answered."""
    recorded = load("a100-lost-while-running")
    assert "ERROR_GPU_IS_LOST" in recorded["gpu_3_lost_while_running"]["preferred_2_of_the_other_7"]["error"]["details"]
    table = read_table(recorded, "nvidia.com/gpu")
    others = [device_id for device_id in table.positions if not device_id.endswith("3")]
    assert (others[0], others[1]) == prefer(table, others, [], 2)
    assert recorded["gpu_3_lost_while_running"]["allocate_other_gpu"]["response"]["container_responses"] == [
        answer(table, others[:1])
    ]
