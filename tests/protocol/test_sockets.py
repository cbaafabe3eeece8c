"""Socket files under real servers: nobody's socket is ever taken away."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import grpc
import pytest

from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.directory import SocketDirectory
from device_plugin.kubelet.server import ResourceServer
from device_plugin.kubelet.sockets import OwnSocket, target

GPU = "nvidia.com/gpu"
ROOT = Path(__file__).parents[2]


def new_server(directory, log, name=GPU):
    return ResourceServer(name, directory, answered=lambda ids: None, logger=log.logger)


async def test_a_second_server_does_not_steal_a_living_socket(plugin, log, dial, directory, snapshot):
    """gRPC by itself unlinks a living server's socket and binds the path (grpc/grpc#17122); here the second one is told."""
    first = await plugin.serve(snapshot(["a"]))
    second = new_server(directory, log)
    with pytest.raises(SocketTaken, match="another process serves"):
        await second.start(snapshot(["b"]))
    await second.stop(0.1)
    assert first.owns_socket()
    call = dial(first).ListAndWatch(pb.Empty())
    assert [device.ID for device in (await call.read()).devices] == ["a"]
    assert [path.name for path in directory.iterdir()] == [first.endpoint]


async def test_stopping_an_old_server_leaves_its_successors_socket(plugin, log, directory, snapshot, dial):
    """gRPC by itself unlinks the path of a stopped server even if another one has bound it since (grpc/grpc#17122)."""
    old = await plugin.serve(snapshot(["a"]))
    (directory / old.endpoint).unlink()  # as kubelet's start does
    new = new_server(directory, log)
    await new.start(snapshot(["b"]))
    assert (old.owns_socket(), new.owns_socket()) == (False, True)
    await old.stop(0.5)
    assert new.owns_socket()
    call = dial(new).ListAndWatch(pb.Empty())
    assert [device.ID for device in (await call.read()).devices] == ["b"]
    await new.stop(0.5)


async def test_a_dead_socket_of_an_earlier_process_is_replaced(log, directory, snapshot):
    """A process that was killed leaves its socket file; it refuses connections and is no obstacle."""
    server = new_server(directory, log)
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(directory / server.endpoint))
    left_over.close()
    await server.start(snapshot(["a"]))
    assert server.owns_socket()
    await server.stop(0.1)


async def test_a_sweep_between_binding_and_naming_is_outlived(log, directory, snapshot, monkeypatch):
    """Kubelet's start deletes every socket, perhaps the one we have bound and not named yet: it is bound again."""
    publish, swept = OwnSocket.publish, []

    def sweep_once(own):
        if not swept:
            swept.append(own.staging)
            own.staging.unlink()
        publish(own)

    monkeypatch.setattr(OwnSocket, "publish", sweep_once)
    server = new_server(directory, log)
    await server.start(snapshot(["a"]))
    assert (len(swept), server.owns_socket()) == (1, True)
    await server.stop(0.1)


@pytest.mark.parametrize("step", ["start", "stop"])
async def test_a_rebind_given_up_halfway_harms_no_later_one(plugin, directory, snapshot, dial, monkeypatch, step):
    """Another kubelet may come while the last one's sweep is being mended; a gRPC server that was cancelled at its start raised
    InvalidStateError, which ended the process."""
    server = await plugin.serve(snapshot(["a"]))
    kind, entered = type(server._server), asyncio.Event()
    whole = getattr(kind, step)

    async def entering(self, *arguments):
        entered.set()
        await whole(self, *arguments)

    for _ in range(5):
        (directory / server.endpoint).unlink(missing_ok=True)
        monkeypatch.setattr(kind, step, entering)
        halfway = asyncio.ensure_future(server.rebind())
        await entered.wait()
        halfway.cancel()
        with pytest.raises(asyncio.CancelledError):
            await halfway
        entered.clear()
        monkeypatch.undo()
        await server.rebind()
    assert server.owns_socket()
    assert [device.ID for device in (await dial(server).ListAndWatch(pb.Empty()).read()).devices] == ["a"]
    assert [path.name for path in directory.iterdir()] == [server.endpoint]


async def test_a_file_in_the_way_is_left_alone(log, directory, snapshot):
    """What is not a socket was not put there by a device plugin."""
    server = new_server(directory, log)
    (directory / server.endpoint).write_text("precious")
    with pytest.raises(SocketTaken, match="is in the way and is not a socket"):
        await server.start(snapshot(["a"]))
    assert (directory / server.endpoint).read_text() == "precious"


async def test_a_missing_directory_is_named(log, root, snapshot):
    """The path that was tried is in the message (kubernetes/kubernetes#120626)."""
    server = new_server(root / "nowhere", log)
    with pytest.raises(SocketUnusable) as problem:
        await server.start(snapshot(["a"]))
    assert str(problem.value) == f'could not make the socket "{root}/nowhere/{server.endpoint}": its directory is not there'


async def test_a_name_too_long_for_a_path_is_served_under_its_hash(plugin, root, log, snapshot, dial):
    """105 bytes are what gRPC binds; a longer path gets a hashed name, and works."""
    deep = root / ("d" * (105 - len(str(root)) - len("/") - len("/gpu-device-plugin-0123456789ab.sock")))
    deep.mkdir()
    name = f"nvidia.com/mig-{'1c.' * 15}3g.20gb"
    server = new_server(deep, log, name)
    await server.start(snapshot(["a"], name=name))
    path = deep / server.endpoint
    assert len(str(path)) == 105
    async with grpc.aio.insecure_channel(target(path)) as channel:
        await channel.channel_ready()
    await server.stop(0.1)
    longer = root / (deep.name + "d")
    with pytest.raises(SocketUnusable, match="69 bytes are left for the directory"):
        new_server(longer, log)


async def test_a_directory_whose_name_means_something_in_a_uri_works(log, root, snapshot):
    """gRPC reads its address as a URI: `%`, `?`, `#` and blanks in a path must not change it."""
    odd = root / "a%20b?c#d e"
    odd.mkdir()
    server = new_server(odd, log)
    await server.start(snapshot(["a"]))
    async with grpc.aio.insecure_channel(target(odd / server.endpoint)) as channel:
        await channel.channel_ready()
    await server.stop(0.1)


async def test_a_second_process_on_the_directory_waits_and_names_the_holder(log, directory):
    """Two instances on one directory would unlink each other's sockets (grpc/grpc#17122): the second waits for the first to end."""
    program = textwrap.dedent(
        """
        import asyncio, sys, structlog
        from pathlib import Path
        from device_plugin.kubelet.directory import SocketDirectory
        async def main():
            await SocketDirectory(Path(sys.argv[1]), logger=structlog.get_logger()).acquire()
            print("held", flush=True)
            sys.stdin.read()
        asyncio.run(main())
        """
    )
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        while b"held" not in await asyncio.wait_for(first.stdout.readline(), 10):
            pass
        second = SocketDirectory(directory, logger=log.logger)
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert [entry["holder"] for entry in log.of("directory.awaited")] == [f"pid {first.pid} on {socket.gethostname()}"]
    finally:
        first.kill()
        await first.communicate()
    await asyncio.wait_for(waiting, 5)
    second.release()


async def test_programs_can_be_started_while_streams_are_open(plugin, dial, snapshot):
    """Forking after gRPC has started hangs or corrupts (grpc/grpc#13873); exec-style starts are safe, streams go on."""
    server = await plugin.serve(snapshot(["a"]))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.read()
    for number in range(20):
        done = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "print(6 * 7)", stdout=subprocess.PIPE)
        output, _ = await asyncio.wait_for(done.communicate(), 10)
        assert (done.returncode, output) == (0, b"42\n")
        server.update(snapshot(["a", f"b{number}"]))
        assert [device.ID for device in (await call.read()).devices] == ["a", f"b{number}"]
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "false"
