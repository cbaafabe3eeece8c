"""Podman and runc, given the specifications this plugin writes: what a container sees, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from device_plugin.cdi import CdiOptions

pytestmark = pytest.mark.requires("podman", "busybox", "unshare")

VERSION = "550.163.01"
GPUS = [f"GPU-0000000{number}-aaaa-bbbb-cccc-dddddddddddd" for number in range(3)]
MIGS = [f"MIG-0000000{number}-aaaa-bbbb-cccc-dddddddddddd" for number in range(2)]
NVIDIA_NODES = "ls -d /dev/nvidia* /dev/nvidia-caps*/* 2>/dev/null || true"


def seen(finished) -> list[str]:
    """The lines a container printed; the runtime's complaint if it did not run."""
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


@pytest.mark.parametrize("name", [GPUS[0], "0"])
def test_a_container_gets_its_gpu_and_no_other(name: str, node, cdi: Path, run):
    """Under both names: its node with the host's numbers, the control node, and nothing of the neighbours."""
    node.write(cdi, CdiOptions())
    finished = run(f"{NVIDIA_NODES}; stat -c %t:%T /dev/nvidia0", f"gpu={name}")
    assert seen(finished) == ["/dev/nvidia0", "/dev/nvidiactl", "1:3"]


def test_a_container_with_two_gpus_gets_both(node, cdi: Path, run):
    """Names are added up; what is common comes once."""
    node.write(cdi, CdiOptions())
    assert seen(run(NVIDIA_NODES, f"gpu={GPUS[0]}", f"gpu={GPUS[1]}")) == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]


@pytest.mark.parametrize(("mig", "capabilities"), [(0, (3, 4)), (1, (12, 13))])
@pytest.mark.parametrize("by_index", [False, True])
def test_a_mig_device_brings_its_own_capabilities_only(mig: int, capabilities, by_index: bool, node, cdi: Path, run):
    """The parent's node opens nothing without them, so a sibling on the same GPU stays closed."""
    node.write(cdi, CdiOptions())
    found = seen(run(NVIDIA_NODES, f"gpu=2:{mig}" if by_index else f"gpu={MIGS[mig]}"))
    caps = sorted(f"/dev/nvidia-caps/nvidia-cap{number}" for number in capabilities)
    assert sorted(found) == sorted(["/dev/nvidia-caps", *caps, "/dev/nvidia2", "/dev/nvidiactl"])


def test_the_libraries_are_those_of_the_running_driver(node, cdi: Path, run):
    """Under the versioned name and, no hook program being there, under the one the loader asks for; read-only."""
    (node.root / "usr/lib64/libcuda.so.535.104.05").write_text("libcuda 535.104.05")
    node.write(cdi, CdiOptions())
    script = f"""
        ls /usr/lib64
        cat /usr/lib64/libcuda.so.{VERSION} /usr/lib64/libcuda.so.1 /usr/local/nvidia/lib64/libnvidia-ml.so.1
        echo broken 2>/dev/null > /usr/lib64/libcuda.so.1 || echo refused
    """
    names = [f"{stem}.so.{end}" for stem in ("libcuda", "libnvidia-ml") for end in ("1", VERSION)]
    contents = ["libcuda", f"{VERSION}libcuda", f"{VERSION}libnvidia-ml", f"{VERSION}refused"]
    assert seen(run(script, f"gpu={GPUS[0]}")) == [*names, *contents]


@pytest.mark.parametrize("stated", [(), ("NVIDIA_VISIBLE_DEVICES=all",)])
def test_the_variable_that_asks_for_all_gpus_is_void(stated: tuple[str, ...], node, cdi: Path, run):
    """Images and pods that state `all` saw every GPU (NVIDIA/k8s-device-plugin#87, NVIDIA/gpu-operator#421,
    NVIDIA/gpu-operator#700).

    A specification is applied after the pod's own environment.
    """
    node.write(cdi, CdiOptions())
    assert seen(run("echo $NVIDIA_VISIBLE_DEVICES", f"gpu={GPUS[0]}", env=stated)) == ["void"]


def test_other_classes_are_applied_beside_the_gpu(node, cdi: Path, run):
    """An IMEX channel, as every container with a GPU gets it when asked for."""
    node.write(cdi, CdiOptions(imex_channels=(0,)))
    channel = "/dev/nvidia-caps-imex-channels"
    expected = {"/dev/nvidia1", "/dev/nvidiactl", channel, f"{channel}/channel0"}
    assert set(seen(run(NVIDIA_NODES, f"gpu={GPUS[1]}", "imex-channel=0"))) == expected


@pytest.mark.parametrize("name", [GPUS[2], "2", f"{GPUS[0]}::1", "all"])
def test_a_name_that_was_not_written_starts_nothing(name: str, node, cdi: Path, run):
    """A GPU in MIG mode, a replica's ID, an invented name: the runtime refuses instead of starting without a device."""
    node.write(cdi, CdiOptions())
    finished = run("echo started", f"gpu={name}")
    assert finished.returncode != 0
    assert "started" not in finished.stdout
    assert name in finished.stderr


def test_a_gpu_in_mig_mode_that_is_offered_whole_starts(node, cdi: Path, run):
    """Fault of NVIDIA's plugin under strategy none: the runtime refuses the name its answer holds."""
    node.write(cdi, CdiOptions(whole_mig_gpus=True))
    assert "/dev/nvidia2" in seen(run(NVIDIA_NODES, f"gpu={GPUS[2]}"))


def test_an_old_answer_still_starts_after_repartitioning(node, cdi: Path, run):
    """Kubelet replays what it stored when the container of a pod that holds the MIG device starts again."""
    node.write(cdi, CdiOptions())
    whole = replace(node.inventory.gpus[2], mig_enabled=False, mig_devices=())
    later = replace(node, inventory=replace(node.inventory, gpus=(*node.inventory.gpus[:2], whole)))
    later.write(cdi, CdiOptions(), still_named={f"k8s.device-plugin.nvidia.com/gpu={MIGS[0]}"})
    assert "/dev/nvidia-caps/nvidia-cap3" in seen(run(NVIDIA_NODES, f"gpu={MIGS[0]}"))
    assert run("true", f"gpu={MIGS[1]}").returncode != 0


def test_hooks_are_run_with_their_arguments(node, cdi: Path, run):
    """A stand-in for NVIDIA's hook program notes what it was asked to do, in which order."""
    notes = node.root / "notes"
    program = node.root / "usr/bin/nvidia-ctk"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\n')
    program.chmod(0o755)
    node.write(cdi, CdiOptions(hook_path=str(program)))
    assert seen(run("ls /usr/lib64", f"gpu={GPUS[0]}")) == [f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}"]
    links = [
        "libcuda.so.1::/usr/lib64/libcuda.so",
        f"libcuda.so.{VERSION}::/usr/lib64/libcuda.so.1",
        f"libnvidia-ml.so.{VERSION}::/usr/lib64/libnvidia-ml.so.1",
    ]
    assert notes.read_text().splitlines() == [
        f"hook create-symlinks --link {' --link '.join(links)}",
        f"hook enable-cuda-compat --host-driver-version={VERSION}",
        "hook update-ldcache --folder /usr/lib64",
        "hook disable-device-node-modification",
        "hook update-application-profile",
    ]
