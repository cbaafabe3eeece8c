"""Names and identities of socket files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.kubelet.sockets import MAX_PATH_BYTES, OwnSocket, SocketIdentity, denied, is_served, socket_name, target

PLUGINS = Path("/var/lib/kubelet/device-plugins")


def bind(path, *, listen=True):
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    if listen:
        made.listen(1)
    return made


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", "gpu-device-plugin-nvidia.com-gpu.sock"),
        ("nvidia.com/gpu.shared", "gpu-device-plugin-nvidia.com-gpu.shared.sock"),
        ("nvidia.com/mig-1g.10gb", "gpu-device-plugin-nvidia.com-mig-1g.10gb.sock"),
        ("nvidia.com/mig-1c.3g.20gb.shared", "gpu-device-plugin-nvidia.com-mig-1c.3g.20gb.shared.sock"),
    ],
)
def test_a_socket_is_named_after_its_resource(resource, expected):
    """Readable where it fits, and never NVIDIA's `nvidia-` prefix: two plugins would take each other's sockets away."""
    assert socket_name(resource, PLUGINS) == expected


def test_every_legal_name_gets_a_path_that_gRPC_binds_and_its_own_one():
    """Kubelet takes names of up to 244 and 63 characters; paths over 105 bytes are hashed, and differ."""
    names = [f"{'d' * prefix}/{'g' * name}" for prefix in (1, 10, 30, 244) for name in (1, 20, 40, 63)]
    paths = [str(PLUGINS / socket_name(name, PLUGINS)) for name in names]
    assert max(map(len, paths)) <= MAX_PATH_BYTES
    assert len(set(paths)) == len(paths)


def test_a_dash_in_the_domain_makes_no_two_resources_one_socket():
    """Of two resources with one socket only the first could be served."""
    names = ["nvidia.com/a-b", "nvidia.com-a/b", "my-company.com/gpu", "my/company.com-gpu"]
    assert len({socket_name(name, PLUGINS) for name in names}) == len(names)


def test_the_length_counts_bytes():
    """A directory with non-ASCII letters is longer than it looks."""
    directory = Path("/" + "ü" * 25)
    assert socket_name("nvidia.com/gpu.shared.pool", directory).endswith("gpu.shared.pool.sock")
    longer = Path("/" + "ü" * 32)
    assert len(os.fsencode(longer / socket_name("nvidia.com/gpu.shared.pool", longer))) <= MAX_PATH_BYTES


def test_a_directory_too_deep_for_any_socket_is_refused_with_the_room_there_is():
    """The message names the directory and how long it may be."""
    with pytest.raises(SocketUnusable, match="69 bytes are left for the directory"):
        socket_name("nvidia.com/gpu", Path("/" + "d" * 69))
    assert socket_name("nvidia.com/gpu", Path("/" + "d" * 68))


def test_a_target_is_a_uri():
    """What means something in a URI is escaped."""
    assert target(Path("/a b/c%d?e#f.sock")) == "unix:/a%20b/c%25d%3Fe%23f.sock"


def test_identity_changes_with_ctime_though_the_inode_stays(root):
    """A new kubelet's socket often has the old one's inode number: the ctime tells them apart."""
    made = bind(root / "kubelet.sock")
    before = SocketIdentity.of(root / "kubelet.sock")
    (root / "kubelet.sock").chmod(0o700)
    after = SocketIdentity.of(root / "kubelet.sock")
    made.close()
    assert before != after
    assert before.is_same_file(after)


@pytest.mark.parametrize("kind", ["nothing", "file", "directory", "below a file"])
def test_what_is_no_socket_has_no_identity(root, kind):
    """Kubelet's directory holds plain files too; none of them is taken for a socket."""
    path = root / "x"
    if kind == "directory":
        path.mkdir()
    elif kind != "nothing":
        path.write_text("")
    assert SocketIdentity.of(path / "y" if kind == "below a file" else path) is None


def test_a_socket_is_served_while_somebody_listens(root):
    """Bound is not enough, and a full backlog is a listener too."""
    path = root / "a.sock"
    assert not is_served(path)
    made = bind(path, listen=False)
    assert not is_served(path)
    made.listen(0)
    waiting = []
    for _ in range(5):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        waiting.append(client)
        try:
            client.connect(str(path))
        except BlockingIOError:
            break
    assert is_served(path)
    for client in [*waiting, made]:
        client.close()
    assert not is_served(path)


def test_a_socket_that_may_not_be_looked_at_is_not_taken_for_a_dead_one(root, monkeypatch):
    """A living server's socket would be cleared away for a refusal."""

    class Refused(socket.socket):
        def connect(self, address):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(SocketUnusable, match=r"could not connect to .*: permission denied"):
        is_served(root / "a.sock")


def test_why_grpc_could_not_bind_is_found_out(root):
    """gRPC says it in its own log only. Where the same step works meanwhile, gRPC's words are all there is."""
    assert isinstance(OwnSocket(root / "gone" / "a.sock").why_unbound(RuntimeError("no")), FileNotFoundError)
    assert str(OwnSocket(root / "a.sock").why_unbound(RuntimeError("no"))) == "[Errno 11] no"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("enforce", "speaks_of_selinux"), [("1\n", True), ("0\n", False), (None, False)])
def test_permission_denied_speaks_of_selinux_where_it_is_enforcing(root, enforce, speaks_of_selinux):
    """Under SELinux even root is refused, with the same words (kubernetes/kubernetes#73240)."""
    state = root / "enforce"
    if enforce is not None:
        state.write_text(enforce)
    text = denied("make the socket", Path("/x/y.sock"), state)
    assert text.startswith('could not make the socket "/x/y.sock": permission denied; ')
    assert ("SELinux is enforcing" in text) is speaks_of_selinux


def publish(root, name="gpu.sock"):
    own = OwnSocket(root / name)
    listener = bind(own.staging)
    own.publish()
    return own, listener


def test_publishing_leaves_one_name_with_our_mode(root):
    """The staging name is gone, the socket has mode 0600 from its first moment under its own name."""
    own, listener = publish(root)
    assert [path.name for path in root.iterdir()] == ["gpu.sock"]
    assert stat.S_IMODE(own.path.stat().st_mode) == 0o600
    assert (own.is_ours(), is_served(own.path)) == (True, True)
    own.withdraw()
    assert (own.is_ours(), list(root.iterdir())) == (False, [])
    listener.close()


def test_a_living_socket_is_never_replaced(root):
    """Whoever serves the name keeps it, and our staging name is cleared away."""
    first, listener = publish(root)
    second = OwnSocket(root / "gpu.sock")
    other = bind(second.staging)
    with pytest.raises(SocketTaken):
        second.publish()
    assert first.is_ours()
    assert [path.name for path in root.iterdir()] == ["gpu.sock"]
    second.withdraw()
    assert first.is_ours()
    listener.close()
    other.close()


def test_withdrawing_leaves_what_is_not_ours(root):
    """Our path has been taken over: it is no longer ours to remove."""
    own, listener = publish(root)
    own.path.unlink()
    other = bind(root / "gpu.sock")
    assert not own.is_ours()
    own.withdraw()
    assert is_served(root / "gpu.sock")
    listener.close()
    other.close()
