"""What files tell, on made trees."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import Gpu, Inventory, MigDevice, Platform, sysfs_address
from device_plugin.hardware.sysfs import Host, complete


def write(root, name, text=""):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, plain_nodes=True)


@pytest.mark.parametrize(
    ("pci_bus_id", "address"),
    [
        ("00000000:17:00.0", "0000:17:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00000000:AF:00.0", "0000:af:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("10000000:00:00.0", "10000000:00:00.0"),
    ],
)
def test_addresses_as_sysfs_names_them(pci_bus_id, address):
    """NVML's address in lower case with four digits of domain, unless the domain has more."""
    assert sysfs_address(pci_bus_id) == address


@pytest.mark.parametrize(("text", "node"), [("0\n", 0), ("1\n", 1), (" 3 \n", 3), ("-1\n", None)])
def test_numa_nodes(host, text, node):
    """The number in the file; negative means that the kernel knows none."""
    write(host.root, "sys/bus/pci/devices/0000:17:00.0/numa_node", text)
    assert host.numa_node("00000000:17:00.0") == (node, None)


def test_no_numa_file_is_no_topology(host):
    """Machines without NUMA information leave the topology unset, where the peer once crashed (NVIDIA/k8s-device-plugin#140)."""
    assert host.numa_node("00000000:17:00.0") == (None, None)


@pytest.mark.parametrize("text", ["", "node1", "0x1", "1_0", "\x00\xff", str(2**63)])
def test_a_numa_file_that_is_no_number_is_a_fault_and_no_failure(host, text):
    """The peer ended over such a file; here the GPU is offered without a topology and says why."""
    write(host.root, "sys/bus/pci/devices/0000:17:00.0/numa_node", text)
    node, fault = host.numa_node("00000000:17:00.0")
    assert node is None
    assert "numa_node" in fault


def test_gpus_on_the_bus(host):
    """NVIDIA's display devices are listed in order; its audio functions and others' devices are not."""
    for address, vendor, kind in [
        ("0000:41:00.0", "0x10de", "0x030200"),
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x1002", "0x030000"),
        ("0000:03:00.0", "0x10de", "nonsense"),
        ("0000:04:00.0", "0x10de", "0x068000"),
    ]:
        write(host.root, f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
        write(host.root, f"sys/bus/pci/devices/{address}/class", f"{kind}\n")
    write(host.root, "sys/bus/pci/devices/0000:05:00.0/uevent")
    assert host.nvidia_gpus() == ("0000:01:00.0", "0000:41:00.0")


@pytest.mark.parametrize(("driver", "is_ours"), [("nvidia", True), ("vfio-pci", False), ("nouveau", False), (None, True)])
def test_a_gpu_that_another_driver_has_is_none_of_ours(host, driver, is_ours):
    """One passed through to a virtual machine never shows in NVML; one without a driver may still get NVIDIA's."""
    device = "sys/bus/pci/devices/0000:41:00.0"
    write(host.root, f"{device}/vendor", "0x10de\n")
    write(host.root, f"{device}/class", "0x030200\n")
    if driver is not None:
        (host.root / device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    assert (host.nvidia_gpus() != ()) is is_ours


def test_no_bus_at_all(host):
    """A machine without PCI has no GPU on it."""
    assert host.nvidia_gpus() == ()


def test_mig_capabilities_are_read_tolerantly(host):
    """Every known form of line is read, odd ones are passed over."""
    write(
        host.root,
        "proc/driver/nvidia-caps/mig-minors",
        "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n\nrubbish\n"
        "gpu0/gi1 5\ngpu0/gi2/access six\n gpu7/gi14/ci7/access   1082 \n",
    )
    assert host.mig_capabilities() == {
        "config": 1,
        "monitor": 2,
        "gpu0/gi0/access": 3,
        "gpu0/gi0/ci0/access": 4,
        "gpu7/gi14/ci7/access": 1082,
    }


def test_control_nodes_that_exist(host):
    """Only nodes that exist are given to containers, in a fixed order."""
    for name in ("dev/nvidia-uvm", "dev/nvidiactl", "dev/nvidia0"):
        write(host.root, name)
    assert host.control_nodes() == ("/dev/nvidiactl", "/dev/nvidia-uvm")


def test_device_nodes_have_their_own_root(tmp_path):
    """/dev may be under the driver root while /sys and /proc are the container's."""
    write(tmp_path / "driver", "dev/nvidiactl")
    write(tmp_path / "driver", "dev/nvidia-caps-imex-channels/channel2")
    write(tmp_path / "own", "dev/nvidia-caps-imex-channels/channel0")
    host = Host(tmp_path / "own", tmp_path / "driver", plain_nodes=True)
    write(tmp_path / "own", "dev/nvidia-uvm")
    assert (host.control_nodes(), host.own_control_nodes()) == (("/dev/nvidiactl",), ("/dev/nvidia-uvm",))
    assert host.imex_channels() == (0, 2)


def test_imex_channels_are_device_nodes(tmp_path):
    """A plain file is no channel on a real node; in a simulated tree it stands for one."""
    for name in ("channel0", "channel10", "channel2", "channelx", "channel"):
        write(tmp_path, f"dev/nvidia-caps-imex-channels/{name}")
    assert Host(tmp_path, plain_nodes=True).imex_channels() == (0, 2, 10)
    assert Host(tmp_path).imex_channels() == ()


def test_a_character_device_is_a_channel(tmp_path):
    """A link to a character device counts, as nodes under a driver root may be links."""
    directory = tmp_path / "dev/nvidia-caps-imex-channels"
    directory.mkdir(parents=True)
    (directory / "channel0").symlink_to("/dev/null")
    assert Host(tmp_path).imex_channels() == (0,)


def test_extra_nodes(host):
    """Nodes of GDRCopy, GPUDirect Storage and MOFED, numbers in numeric order."""
    for name in ("gdrdrv", "nvidia-fs10", "nvidia-fs2", "infiniband/uverbs1", "infiniband/uverbs0", "infiniband/rdma_cm"):
        write(host.root, f"dev/{name}")
    assert host.extra_nodes() == {
        "gdrcopy": ("/dev/gdrdrv",),
        "gds": ("/dev/nvidia-fs2", "/dev/nvidia-fs10"),
        "mofed": ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"),
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\nGCC version:  gcc 12\n",
            "550.163.01",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\n", "570.86.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n", "580.95.05"),
        ("nonsense\n", None),
        (None, None),
    ],
)
def test_the_loaded_drivers_version(host, text, version):
    """Both flavours of the kernel module tell their version."""
    if text is not None:
        write(host.root, "proc/driver/nvidia/version", text)
    assert host.driver_version() == version


def test_the_boot_id(host):
    """The kernel's id of this boot; None where it cannot be read."""
    assert host.boot_id() is None
    write(host.root, "proc/sys/kernel/random/boot_id", "2f9c4d5e-0000-4000-8000-000000000000\n")
    assert host.boot_id() == "2f9c4d5e-0000-4000-8000-000000000000"


def a_gpu(**values):
    return Gpu(**{"index": 0, "uuid": "GPU-a", "name": "A100", "minor": 3, "pci_bus_id": "00000000:17:00.0", **values})


def test_completing_gives_nodes_and_topology(host):
    """A GPU gets its node by minor number, a MIG device its parent's node and both capability nodes; the parent's MINOR counts."""
    write(host.root, "sys/bus/pci/devices/0000:17:00.0/numa_node", "1")
    write(host.root, "proc/driver/nvidia-caps/mig-minors", "gpu3/gi7/access 66\ngpu3/gi7/ci0/access 67\n")
    write(host.root, "dev/nvidiactl")
    device = MigDevice("MIG-b", 0, gpu_instance_id=7, compute_instance_id=0, profile="1g.5gb")
    done = complete(Inventory(gpus=(a_gpu(mig_devices=(device,)),)), host)
    assert (done.gpus[0].numa_node, done.gpus[0].device_nodes, done.gpus[0].faults) == (1, ("/dev/nvidia3",), ())
    assert done.gpus[0].mig_devices[0].device_nodes == (
        "/dev/nvidia3",
        "/dev/nvidia-caps/nvidia-cap66",
        "/dev/nvidia-caps/nvidia-cap67",
    )
    assert done.control_nodes == ("/dev/nvidiactl",)


def test_completing_without_minor_and_address(host):
    """Neither minor number nor PCI address are needed (NVIDIA/k8s-device-plugin#332): no node, no topology, no fault."""
    gpu = complete(Inventory(gpus=(a_gpu(minor=None, pci_bus_id=None),)), host).gpus[0]
    assert (gpu.device_nodes, gpu.numa_node, gpu.faults) == ((), None, ())


def test_a_missing_capability_is_a_fault_of_the_gpu(host):
    """Where the driver's table lacks an instance, its nodes are unknown and the text names the line; the device stays."""
    device = MigDevice("MIG-b", 0, gpu_instance_id=7, compute_instance_id=0, profile="1g.5gb")
    write(host.root, "sys/bus/pci/devices/0000:17:00.0/numa_node", "?")
    gpu = complete(Inventory(gpus=(a_gpu(mig_devices=(device,), faults=("its memory is unknown",)),)), host).gpus[0]
    assert gpu.mig_devices[0].device_nodes == ()
    driver, numa, capability = gpu.faults
    assert driver == "its memory is unknown", "what the driver would not tell is still said"
    assert "numa_node" in numa
    assert "gpu3/gi7/access" in capability


def test_completing_under_wsl(host):
    """Under WSL every GPU is behind the one paravirtual node, and nothing else is looked up."""
    write(host.root, "sys/bus/pci/devices/0000:17:00.0/numa_node", "1")
    write(host.root, "dev/nvidiactl")
    done = complete(Inventory(gpus=(a_gpu(),), platform=Platform.WSL), host)
    assert (done.gpus[0].device_nodes, done.gpus[0].numa_node, done.control_nodes) == (("/dev/dxg",), None, ())
