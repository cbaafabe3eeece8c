"""The whole plugin beside the recordings: NVIDIA's command line and config file in, what kubelet sees over real sockets out.

Discovery, plan, serving and answers are the real code over the simulated library. Endpoints are our own socket names; where the
peer's order is random ours is defined.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from device_plugin.cli.arguments import config_flags, parse_arguments
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.kubelet.sockets import target
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin

RECORDINGS = Path(__file__).parent / "recordings"
RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(RECORDINGS.glob("*.json"))}
SERVED = [name for name, recorded in RECORDED.items() if "plugins" in recorded]
REFUSED = [name for name, recorded in RECORDED.items() if "exit_code" in recorded and "bad" in name]


class Witness(StandInKubelet):
    """Kubelet that keeps the requests it got."""

    def __init__(self, directory):
        super().__init__(directory)
        self.requests = []

    async def register(self, request, time_left_seconds):
        self.requests.append(request)
        return await super().register(request, time_left_seconds)


@pytest.fixture
def short_path():
    """pytest's own directories would leave no room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as directory:
        yield Path(directory)


@pytest.fixture
def recorded_node(golden_machine):
    """The node of a recording: its hardware, and the files that the scenario says were there or not."""

    def make(recorded) -> SimulatedNode:
        profile = recorded["profile"]
        layout = profile if profile.startswith("a100-mig-") else None
        machine = golden_machine(profile.partition("-")[0], layout)
        if recorded["scenario"] == "a100-no-numa":
            machine = replace(machine, gpus=tuple(replace(gpu, numa=None) for gpu in machine.gpus))
        if profile == "a100-migon":
            machine = replace(machine, gpus=tuple(replace(gpu, mig_enabled=True) for gpu in machine.gpus))
        if profile == "a100-imex":
            machine = replace(machine, imex_channels=(0,))
        return SimulatedNode(machine)

    return make


def write_config(recorded, directory: Path) -> Path | None:
    if recorded["config_file"] is None:
        return None
    path = directory / "config.yaml"
    path.write_text(json.dumps(recorded["config_file"]))
    return path


def data(message) -> dict:
    """As the recordings have it: original names, defaults written out."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def normalised(response: dict) -> dict:
    """Without what varies: the UUID of an annotation's key, the peer's random order of nodes and of IDs by index."""
    envs = dict(response["envs"])
    visible = envs.get("NVIDIA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"[0-9:]+(,[0-9:]+)*", visible):
        envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(sorted(visible.split(",")))
    keys = {re.sub(r"_[-0-9a-f]{36}$", "_uuid", key): value for key, value in response["annotations"].items()}
    return response | {
        "envs": envs,
        "devices": sorted(response["devices"], key=lambda node: node["container_path"]),
        "annotations": keys,
    }


async def check_list(stub, plugin: dict) -> None:
    stream = stub.ListAndWatch(pb.Empty())
    first = await stream.read()
    stream.cancel()
    devices = sorted(data(first)["devices"], key=lambda device: device["ID"])
    assert devices == [with_topology(device) for device in plugin["list_and_watch"]["devices"]]
    assert (first.ByteSize(), len(first.devices)) == (plugin["list_and_watch_bytes"], plugin["device_count"])


def with_topology(device: dict) -> dict:
    return {name: value for name, value in device.items() if name != "topology" or value}


async def check_allocate(stub, call: dict) -> None:
    request = pb.AllocateRequest(**call["request"])
    if "error" in call:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Allocate(request)
        assert refused.value.code().name == call["error"]["code"]
        assert refused.value.details().startswith(call["error"]["details"])
        return
    answer = data(await stub.Allocate(request))
    expected = [normalised(response) for response in call["response"]["container_responses"]]
    assert [normalised(response) for response in answer["container_responses"]] == expected


async def check_preferred(stub, call: dict, *, is_aligned: bool) -> None:
    """The peer's answer, where it is one and does not vary; never an error, always a valid choice of as many as can be had."""
    wanted = {**call["request"], "allocation_size": int(call["request"]["allocation_size"])}
    answer = await stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[wanted]))
    (chosen,) = (list(response.deviceIDs) for response in answer.container_responses)
    available, required = wanted["available_deviceIDs"], wanted["must_include_deviceIDs"]
    assert set(required) <= set(chosen) <= {*available, *required}
    theirs = call["response"]["container_responses"][0]["deviceIDs"] if "response" in call else []
    if not theirs:
        assert len(chosen) == min(max(wanted["allocation_size"], 0), len(available))
    elif is_aligned and available == sorted(available):
        assert chosen == theirs
    elif is_aligned:
        assert len(chosen) == len(theirs)
    else:
        assert sorted(per_hardware(chosen)) in call.get("replicas_per_gpu_seen", [sorted(per_hardware(theirs))])


def per_hardware(ids: list[str]) -> list[int]:
    return list(Counter(device_id.partition("::")[0] for device_id in ids).values())


@pytest.mark.parametrize("scenario", SERVED)
async def test_kubelet_sees_what_was_recorded(scenario, recorded_node, short_path):
    """Registrations, options, lists to the byte, and every answer."""
    recorded = RECORDED[scenario]
    flags = config_flags(parse_arguments(recorded["argv"][1:], {}))
    sockets = short_path / "dp"
    with recorded_node(recorded) as node:
        plugin = SimulatedPlugin(node, sockets, config_file=write_config(recorded, short_path), flags=flags)
        async with Witness(sockets) as kubelet, plugin:
            expected = {request["resource_name"]: request for request in recorded["register"]}
            await kubelet.record.wait_for(lambda: all(map(kubelet.is_registered, expected)), 10)
            ours = {request.resource_name: data(request) for request in kubelet.requests}
            assert {name: without_endpoint(request) for name, request in ours.items()} == {
                name: without_endpoint(request) for name, request in expected.items()
            }
            for name, plugin_record in recorded["plugins"].items():
                async with grpc.aio.insecure_channel(target(sockets / ours[name]["endpoint"])) as channel:
                    stub = DevicePluginStub(channel)
                    options = data(await stub.GetDevicePluginOptions(pb.Empty()))
                    assert options == plugin_record["get_device_plugin_options"]
                    await check_list(stub, plugin_record)
                    devices = plugin_record["list_and_watch"]["devices"]
                    is_aligned = not any(device["ID"].startswith("MIG-") or "::" in device["ID"] for device in devices)
                    for call in plugin_record["allocate"]:
                        await check_allocate(stub, call)
                    for call in plugin_record["preferred"]:
                        await check_preferred(stub, call, is_aligned=is_aligned)


def without_endpoint(request: dict) -> dict:
    return {name: value for name, value in request.items() if name != "endpoint"}


async def test_mig_mode_without_instances_registers_nothing_and_stays(recorded_node, short_path):
    """The recorded plugin went on running with nothing to register; so does ours."""
    recorded = RECORDED["a100-migon-strategy-mixed"]
    assert (recorded["running_after_3s"], recorded["registrations"]) == (True, 0)
    sockets = short_path / "dp"
    with recorded_node(recorded) as node:
        plugin = SimulatedPlugin(node, sockets, flags=config_flags(parse_arguments(recorded["argv"][1:], {})))
        async with Witness(sockets) as kubelet, plugin:
            end = asyncio.ensure_future(plugin.wait_end())
            ended, _ = await asyncio.wait({end}, timeout=1)
            assert (ended, kubelet.requests) == (set(), [])


@pytest.mark.parametrize("scenario", REFUSED)
def test_what_was_refused_at_the_start_is_refused(scenario, short_path):
    """The same exit status, and a text that names the value and where it was stated."""
    recorded = RECORDED[scenario]
    write_config(recorded, short_path)
    command = [sys.executable, "-m", "device_plugin", *recorded["argv"][1:], "--simulate=dgx-a100", "--log-format=text"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    finished = subprocess.run(command, cwd=short_path, env=environment, capture_output=True, text=True, timeout=30, check=False)
    stated = {"startup-bad-mig-strategy": ("--mig-strategy: error", "'bogus'")}.get(scenario, ("config.yaml:1:", "'bad name'"))
    assert finished.returncode == recorded["exit_code"]
    assert all(text in finished.stderr for text in stated), finished.stderr
