"""What stands in the `:authority` header when we dial kubelet."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub, RegistrationStub
from device_plugin.kubelet.changes import first_of
from device_plugin.kubelet.podresources import PodResources
from device_plugin.kubelet.registration import call_register
from device_plugin.kubelet.sockets import target

OPTIONS = pb.DevicePluginOptions()


@contextlib.asynccontextmanager
async def wiretap(path, far):
    """Pipes a socket to another one, and keeps what the client sends."""
    heard, pipes = bytearray(), set()

    async def copy(source, sink, keep=None):
        while data := await source.read(65536):
            if keep is not None:
                keep.extend(data)
            sink.write(data)
            await sink.drain()

    async def pipe(near_in, near_out):
        pipes.add(asyncio.current_task())
        far_in, far_out = await asyncio.open_unix_connection(str(far))
        await first_of(copy(near_in, far_out, heard), copy(far_in, near_out))
        for writer in (near_out, far_out):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_unix_server(pipe, str(path))
    yield heard
    server.close()
    await asyncio.wait(pipes, timeout=5)


def header(authority):
    """The header as HPACK's static table gives its name: entry 1, a literal value without Huffman coding."""
    return bytes([len(authority)]) + authority.encode()


@pytest.fixture
async def tapped(kubelet, root):
    path = root / "tap.sock"
    async with wiretap(path, kubelet.socket) as heard:
        yield path, heard


async def test_registering_names_localhost(tapped, plugin, snapshot):
    """A Python client sends the socket's escaped path, which strict servers refuse (grpc/grpc#38142,
    kubernetes/kubernetes#112597)."""
    path, heard = tapped
    server = await plugin.serve(snapshot(["a"]))
    await call_register(path, server.endpoint, "nvidia.com/gpu", OPTIONS)
    assert header("localhost") in heard
    assert b"%2F" not in heard
    assert b"tap.sock" not in heard


async def test_the_trap_is_real(tapped, plugin, snapshot):
    """Without the setting this gRPC does send the escaped path, so the test above can fail."""
    path, heard = tapped
    server = await plugin.serve(snapshot(["a"]))
    async with grpc.aio.insecure_channel(target(path)) as channel:
        request = pb.RegisterRequest(version="v1beta1", endpoint=server.endpoint, resource_name="nvidia.com/gpu")
        await RegistrationStub(channel).Register(request, timeout=5)
    assert b"tap.sock" in heard
    assert header("localhost") not in heard


async def test_asking_for_pod_resources_names_localhost(kubelet, root):
    """The same for kubelet's other socket."""
    path = root / "tap.sock"
    async with wiretap(path, kubelet.pod_resources) as heard:
        client = PodResources(path)
        assert await client.held() == {}
        await client.close()
    assert header("localhost") in heard
    assert b"tap.sock" not in heard


@pytest.mark.parametrize(
    "authority",
    ["localhost", "/var/lib/kubelet/device-plugins/plugin.sock", "%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fplugin.sock", ""],
)
async def test_our_server_takes_whatever_authority_a_client_sends(plugin, snapshot, directory, root, authority):
    """Servers that were not written in Go refused kubelets that dialled with the socket's path as the authority
    (kubernetes/kubernetes#109081, kubernetes/kubernetes#108254). Ours refuses neither a path nor an empty one."""
    server = await plugin.serve(snapshot(["a"]))
    path, stated = root / "tap.sock", [("grpc.default_authority", authority)]
    async with (
        wiretap(path, directory / server.endpoint) as heard,
        grpc.aio.insecure_channel(target(path), options=stated) as channel,
    ):
        options = await DevicePluginStub(channel).GetDevicePluginOptions(pb.Empty(), timeout=5)
    assert options.get_preferred_allocation_available
    assert b":authority" + header(authority) in heard
