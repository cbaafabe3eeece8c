"""The floor: the least that a device plugin with these libraries costs. `python -m bench.floor DIRECTORY RESOURCE ANSWERS`.

It imports the run-time libraries (for pydantic, which imports half of itself with the first model, that takes one small model),
starts one watchdog observer and one `grpc.aio` server, registers, and answers each call with a message that was made before: the
plugin's own answer to the same request, taken from the file ANSWERS. It has no config, no hardware and no logic. What the plugin
costs above this is the plugin's own.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pynvml  # noqa: F401 - imported for its cost
import structlog  # noqa: F401 - imported for its cost
import yaml  # noqa: F401 - imported for its cost
from pydantic import BaseModel, Field
from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as services
from device_plugin.kubelet.api.podresources.v1 import podresources_pb2_grpc  # noqa: F401 - imported for its cost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

SOCKET = "floor.sock"


class SmallModel(BaseModel):
    """The first model of a process, for its cost."""

    number: int = Field(default=0, ge=0)


class EmptyHandler(services.DevicePluginServicer):
    """Answers from `answers`: serialised messages by `list`, `allocate/<devices>` and `prefer/<size>`."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._list = pb.ListAndWatchResponse.FromString(answers["list"])
        self._allocate = {key: pb.AllocateResponse.FromString(data) for key, data in answers.items() if key.startswith("allocate/")}
        self._prefer = {
            key: pb.PreferredAllocationResponse.FromString(data) for key, data in answers.items() if key.startswith("prefer/")
        }
        self._ended = asyncio.Event()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> pb.DevicePluginOptions:  # noqa: ARG002, N802 the interface's name
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[pb.ListAndWatchResponse]:  # noqa: ARG002, N802
        yield self._list
        await self._ended.wait()

    async def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:  # noqa: ARG002, N802 the interface's name
        return self._allocate[f"allocate/{len(request.container_requests[0].devices_ids)}"]

    async def GetPreferredAllocation(self, request: pb.PreferredAllocationRequest, context: Any) -> pb.PreferredAllocationResponse:  # noqa: ARG002, N802
        return self._prefer[f"prefer/{request.container_requests[0].allocation_size}"]

    async def PreStartContainer(self, request: Any, context: Any) -> pb.PreStartContainerResponse:  # noqa: ARG002, N802 the interface's name
        return pb.PreStartContainerResponse()

    def end(self) -> None:
        """End the streams."""
        self._ended.set()


async def serve(directory: Path, resource: str, answers: Mapping[str, bytes]) -> None:
    """Register once and serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    observer = Observer()
    observer.schedule(FileSystemEventHandler(), str(directory))
    observer.start()
    handler = EmptyHandler(answers)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 * 1024 * 1024)])
    services.add_DevicePluginServicer_to_server(handler, server)
    server.add_insecure_port(f"unix:{directory / SOCKET}")
    await server.start()
    request = pb.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=resource)
    request.options.get_preferred_allocation_available = True
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{directory / 'kubelet.sock'}", options=options) as channel:
        await services.RegistrationStub(channel).Register(request, timeout=15)
    await stop.wait()
    handler.end()
    await server.stop(0.5)
    observer.stop()


def load_answers(text: str) -> dict[str, bytes]:
    """Serialised messages from a file of theirs in hexadecimal."""
    return {key: bytes.fromhex(value) for key, value in json.loads(text).items()}


def dump_answers(answers: Mapping[str, bytes]) -> str:
    """The file that `load_answers` reads."""
    return json.dumps({key: value.hex() for key, value in sorted(answers.items())})


if __name__ == "__main__":
    where, name, file = sys.argv[1:]
    asyncio.run(serve(Path(where), name, load_answers(Path(file).read_text())))
