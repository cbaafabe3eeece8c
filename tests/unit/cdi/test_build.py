"""What the specifications of a node hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.cdi import CdiFeature, CdiOptions, Roots, build_specs
from device_plugin.cdi.spec import encode
from device_plugin.errors import InjectionImpossible
from device_plugin.hardware.model import Inventory, Platform


def nodes(device: dict) -> list[str]:
    return [node["path"] for node in device["containerEdits"].get("deviceNodes", ())]


def by_name(document: dict) -> dict[str, dict]:
    return {device["name"]: device for device in document["devices"]}


def messages(built) -> str:
    return "\n".join(problem.message for problem in built.problems)


def test_every_device_has_both_its_names(inventory, roots, options, documents):
    """A name that Allocate gave stays resolvable when the id strategy is switched."""
    devices = by_name(documents(build_specs(inventory, roots, options))["gpu"])
    assert {name: nodes(device) for name, device in devices.items()} == {
        "0": ["/dev/nvidia0"],
        "1": ["/dev/nvidia1"],
        inventory.gpus[0].uuid: ["/dev/nvidia0"],
        inventory.gpus[1].uuid: ["/dev/nvidia1"],
    }


def test_a_mig_device_brings_its_own_capabilities_only(mig_inventory, roots, options, documents):
    """The parent's node, its GPU instance's and its compute instance's; never a sibling's."""
    devices = by_name(documents(build_specs(mig_inventory, roots, options))["gpu"])
    expected = {"0:0": ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"]}
    expected |= {"0:1": ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap13", "/dev/nvidia-caps/nvidia-cap14"]}
    expected |= {"1": ["/dev/nvidia1"]}
    assert {name: nodes(device) for name, device in devices.items() if "-" not in name} == expected
    assert {name for name in devices if "-" in name} == {
        *(mig.uuid for mig in mig_inventory.gpus[0].mig_devices),
        mig_inventory.gpus[1].uuid,
    }


def test_a_gpu_in_mig_mode_that_is_offered_whole_resolves(mig_inventory, roots, documents):
    """Fault of NVIDIA's plugin: under strategy none its specification lacks the name that its Allocate returns."""
    devices = by_name(documents(build_specs(mig_inventory, roots, CdiOptions(whole_mig_gpus=True)))["gpu"])
    whole = devices[mig_inventory.gpus[0].uuid]
    assert devices["0"]["containerEdits"] == whole["containerEdits"]
    assert nodes(whole) == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidia-caps/nvidia-cap14",
        "/dev/nvidia-caps/nvidia-cap3",
        "/dev/nvidia-caps/nvidia-cap4",
    ]


def test_node_details_are_those_of_the_host(inventory, roots, own, options, documents):
    """Major, minor, mode and permissions of a node that can be seen; its paths alone for one that cannot."""
    own.node("/dev/nvidia0", minor=5, mode=0o666)
    built = build_specs(inventory, roots, options)
    devices = by_name(documents(built)["gpu"])
    assert devices["0"]["containerEdits"]["deviceNodes"] == [
        {
            "path": "/dev/nvidia0",
            "hostPath": "/dev/nvidia0",
            "major": 1,
            "minor": 5,
            "fileMode": 0o666,
            "permissions": "rwm",
        }
    ]
    assert devices["1"]["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia1", "hostPath": "/dev/nvidia1"}]
    assert "/dev/nvidia1 cannot be seen" in messages(built)


def test_a_node_for_its_group_alone_brings_the_group(inventory, roots, own, documents):
    """Unless switched off; that needs version 0.7.0."""
    own.node("/dev/nvidia0", mode=0o660, gid=44)
    own.node("/dev/nvidiactl", mode=0o666, gid=44)
    with_group = documents(build_specs(inventory, roots, CdiOptions()))["gpu"]
    assert by_name(with_group)["0"]["containerEdits"]["additionalGids"] == [44]
    assert "additionalGids" not in with_group["containerEdits"]
    assert with_group["cdiVersion"] == "0.7.0"
    plain = documents(build_specs(inventory, roots, CdiOptions(features=frozenset({CdiFeature.NO_ADDITIONAL_GIDS}))))["gpu"]
    assert "additionalGids" not in by_name(plain)["0"]["containerEdits"]
    assert by_name(plain)["0"]["containerEdits"]["deviceNodes"][0]["gid"] == 44
    assert plain["cdiVersion"] == "0.5.0"


def test_drm_nodes_belong_to_the_gpu_at_their_pci_address(inventory, roots, own, options, documents):
    """Found through sysfs; udev's links to them are made by a hook of the device."""
    for index, address in enumerate(("0000:17:00.0", "0000:18:00.0")):
        for name in (f"card{index + 1}", f"renderD{128 + index}"):
            own.file(f"/sys/bus/pci/devices/{address}/drm/{name}/dev")
            own.node(f"/dev/dri/{name}")
        own.link(f"/dev/dri/by-path/pci-{address}-card", f"../card{index + 1}")
    device = by_name(documents(build_specs(inventory, roots, options))["gpu"])["1"]
    assert nodes(device) == ["/dev/nvidia1", "/dev/dri/card2", "/dev/dri/renderD129"]
    (hook,) = device["containerEdits"]["hooks"]
    assert hook["args"] == [
        "nvidia-ctk",
        "hook",
        "create-symlinks",
        "--link",
        "../card2::/dev/dri/by-path/pci-0000:18:00.0-card",
    ]


@pytest.mark.parametrize(("profile", "expected"), [("1g.24gb+gfx", True), ("1g.24gb", False), (None, False)])
def test_only_graphics_mig_profiles_bring_drm_nodes(profile, expected, roots, own, options, documents, gpu, mig):
    """A MIG device for computing has no use for the GPU's display."""
    own.file("/sys/bus/pci/devices/0000:17:00.0/drm/renderD128/dev")
    own.node("/dev/dri/renderD128")
    split = gpu(0, mig_enabled=True, mig_devices=(mig(0, 0, profile=profile),))
    document = documents(build_specs(Inventory(gpus=(split,), driver_version="550.163.01"), roots, options))["gpu"]
    assert ("/dev/dri/renderD128" in nodes(by_name(document)["0:0"])) is expected


@pytest.mark.parametrize("address", [None, "", "unknown:17:00.0", "00000000:99:00.0"])
def test_a_gpu_without_a_drm_driver_has_no_drm_nodes(address, gpu, roots, options, documents):
    """Or without a PCI address that sysfs knows."""
    inventory = Inventory(gpus=(gpu(0, pci_bus_id=address),), driver_version="550.163.01")
    assert nodes(by_name(documents(build_specs(inventory, roots, options))["gpu"])["0"]) == ["/dev/nvidia0"]


def test_a_pci_domain_is_written_as_the_kernel_does(gpu, roots, own, options, documents):
    """Four digits, more where needed (NVML writes eight)."""
    own.file("/sys/bus/pci/devices/10000:01:00.0/drm/card0/dev")
    own.node("/dev/dri/card0")
    inventory = Inventory(gpus=(gpu(0, pci_bus_id="00010000:01:00.0"),), driver_version="550.163.01")
    assert nodes(by_name(documents(build_specs(inventory, roots, options))["gpu"])["0"]) == ["/dev/nvidia0", "/dev/dri/card0"]


def test_everything_is_rewritten_to_the_host(inventory, tree, own, documents):
    """Host paths alone; the container's own paths stay."""
    tree.file("/usr/bin/nvidia-smi", mode=0o755)
    roots = Roots(driver=tree.root, host_driver="/run/nvidia/driver", host_dev="/", own=own.root)
    options = CdiOptions(hook_path=f"{tree.root}/usr/bin/nvidia-ctk")
    document = documents(build_specs(inventory, roots, options))["gpu"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert {hook["path"] for hook in document["containerEdits"]["hooks"]} == {"/run/nvidia/driver/usr/bin/nvidia-ctk"}
    assert by_name(document)["0"]["containerEdits"]["deviceNodes"][0]["hostPath"] == "/dev/nvidia0"


def test_a_driver_in_a_directory_of_its_own(inventory, tmp_path, own, tree, documents):
    """As Google's operating system has it: libraries and programs in /home/kubernetes/bin/nvidia, nodes in the host's /dev.

    Fault: the library of the running version was not found there (NVIDIA/k8s-device-plugin#621).
    """
    tree.root = tmp_path / "cos"
    tree.driver(directory="/lib64")
    tree.file("/bin/nvidia-smi", mode=0o755)
    roots = Roots(driver=tree.root, host_driver="/home/kubernetes/bin/nvidia", host_dev="/", own=own.root)
    document = documents(build_specs(inventory, roots, CdiOptions()))["gpu"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}
    assert mounts["/bin/nvidia-smi"] == "/home/kubernetes/bin/nvidia/bin/nvidia-smi"
    assert mounts["/lib64/libcuda.so.1"] == "/home/kubernetes/bin/nvidia/lib64/libcuda.so.550.163.01"
    assert by_name(document)["0"]["containerEdits"]["deviceNodes"][0]["hostPath"] == "/dev/nvidia0"


def test_sockets_are_mounted_for_writing_unless_switched_off(inventory, tree, roots, documents):
    """The daemons behind them could not be spoken to otherwise."""
    tree.file("/run/nvidia-fabricmanager/socket")
    mounts = documents(build_specs(inventory, roots, CdiOptions()))["gpu"]["containerEdits"]["mounts"]
    (socket,) = [mount for mount in mounts if mount["containerPath"].endswith("/socket")]
    assert socket["options"] == ["nosuid", "nodev", "rbind", "rprivate", "noexec"]
    without = documents(build_specs(inventory, roots, CdiOptions(features=frozenset({CdiFeature.DISABLE_IPC}))))["gpu"]
    assert not [mount for mount in without["containerEdits"]["mounts"] if mount["containerPath"].endswith("/socket")]


def test_coherence_is_annotated_where_the_driver_says_it(gpu, roots, documents):
    """A GPU whose driver is silent gets no annotation, and that is said."""
    inventory = Inventory(gpus=(gpu(0, coherent=True), gpu(1)), driver_version="550.163.01")
    built = build_specs(inventory, roots, CdiOptions(features=frozenset({CdiFeature.COHERENT_ANNOTATIONS})))
    devices = by_name(documents(built)["gpu"])
    assert devices["0"]["annotations"] == {"gpu.nvidia.com/coherent": "true"}
    assert "annotations" not in devices["1"]
    assert "does not say whether its memory is coherent" in messages(built)


def test_the_other_classes_hold_what_the_node_has(inventory, tree, own, roots, documents):
    """Only classes that are switched on and found; GPUDirect Storage brings two host paths too."""
    tree.file("/etc/cufile.json")
    (tree.root / "run/udev").mkdir(parents=True)
    own.node("/dev/gdrdrv")
    node = replace(
        inventory,
        imex_channels=(0, 1),
        extra_nodes={"gdrcopy": ("/dev/gdrdrv",), "gds": ("/dev/nvidia-fs0", "/dev/nvidia-fs1"), "mofed": ()},
    )
    options = CdiOptions(imex_channels=(0,), extras=("gdrcopy", "gds", "mofed"))
    built = build_specs(node, roots, options)
    found = documents(built)
    assert list(found) == ["gpu", "imex-channel", "gdrcopy", "gds"]
    assert found["imex-channel"]["devices"] == [
        {
            "name": "0",
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/nvidia-caps-imex-channels/channel0",
                        "hostPath": "/dev/nvidia-caps-imex-channels/channel0",
                    }
                ]
            },
        }
    ]
    assert nodes(found["gdrcopy"]["devices"][0]) == ["/dev/gdrdrv"]
    assert nodes(found["gds"]["devices"][0]) == ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]
    mounts = found["gds"]["devices"][0]["containerEdits"]["mounts"]
    assert [mount["containerPath"] for mount in mounts] == ["/etc/cufile.json", "/run/udev"]
    assert "mofed is switched on" in messages(built)
    assert {document["containerEdits"]["env"][-1] for document in found.values()} == {"NVIDIA_VISIBLE_DEVICES=void"}


def test_one_gpu_without_a_node_takes_out_one_gpu(gpu, mig, roots, options, documents):
    """So does a MIG device that the driver would not describe, or whose capability nodes are unknown."""
    split = gpu(
        1,
        mig_enabled=True,
        mig_devices=(
            mig(1, 0, fault="the driver refused"),
            mig(1, 1, device_nodes=("/dev/nvidia1",)),
            mig(1, 2),
            mig(1, 3, uuid="", fault="it has no name"),
        ),
    )
    inventory = Inventory(gpus=(gpu(0, minor=None, device_nodes=()), split), driver_version="550.163.01")
    built = build_specs(inventory, roots, options)
    assert [name for name in by_name(documents(built)["gpu"]) if "-" not in name] == ["1:2"]
    for text in ("GPU 0", "1:0", "the driver refused", "1:1", "capability nodes are unknown", "MIG device 1:3 cannot"):
        assert text in messages(built)


def test_a_uuid_that_cdi_does_not_allow_leaves_the_index(gpu, mig, roots, options, documents):
    """Drivers before R470 name MIG devices with slashes."""
    split = gpu(0, mig_enabled=True, mig_devices=(mig(0, 0, uuid="MIG-GPU-00000000-1234-1234-1234-123456780000/7/0"),))
    built = build_specs(Inventory(gpus=(split,), driver_version="550.163.01"), roots, options)
    assert list(by_name(documents(built)["gpu"])) == ["0:0"]
    assert "--device-id-strategy=index" in messages(built)


def test_a_node_without_gpus_has_no_gpu_specification(roots, options):
    """NVIDIA's plugin ends there; a GPU may come yet."""
    assert build_specs(Inventory(driver_version="550.163.01"), roots, options).specs == ()


def test_a_kind_of_ones_own(inventory, roots, documents):
    """Two plugins on a node, in a test say, do not share names."""
    document = documents(build_specs(inventory, roots, CdiOptions(kind_prefix="example.com")))["gpu"]
    assert document["kind"] == "example.com/gpu"


def test_the_same_node_gives_the_same_bytes(mig_inventory, roots, options):
    """Whatever the order in which a directory is read."""
    first, second = (build_specs(mig_inventory, roots, options).specs for _ in range(2))
    assert [encode(spec.document()) for spec in first] == [encode(spec.document()) for spec in second]


def test_wsl_has_one_device_for_all_gpus(inventory, tree, roots, options, documents):
    """Whatever the number of GPUs: Windows shows them through one node. The files come from its driver store."""
    store = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0123456789abcdef"
    tree.file(f"{store}/libcuda.so.1.1")
    tree.file(f"{store}/nvidia-smi", mode=0o755)
    tree.file("/usr/lib/wsl/lib/libdxcore.so")
    tree.file("/usr/lib/wsl/lib/libcuda.so.1.1")
    node = replace(inventory, platform=Platform.WSL, driver_version=None, control_nodes=())
    document = documents(build_specs(node, roots, options))["gpu"]
    assert {name: nodes(device) for name, device in by_name(document).items()} == {"all": ["/dev/dxg"]}
    assert [mount["containerPath"] for mount in document["containerEdits"]["mounts"]] == [
        "/usr/lib/wsl/lib/libdxcore.so",
        f"{store}/libcuda.so.1.1",
        f"{store}/nvidia-smi",
    ]
    arguments = [hook["args"][2:] for hook in document["containerEdits"]["hooks"]]
    assert ["create-symlinks", "--link", f"{store}/nvidia-smi::/usr/bin/nvidia-smi"] in arguments
    assert ["update-ldcache", "--folder", store, "--folder", "/usr/lib/wsl/lib"] in arguments


def test_wsl_without_windows_driver_is_refused(inventory, roots, options):
    """The driver root is not mounted, most likely."""
    with pytest.raises(InjectionImpossible, match="/usr/lib/wsl/lib"):
        build_specs(replace(inventory, platform=Platform.WSL), roots, options)


def test_tegra_is_refused_by_name(inventory, roots, options):
    """Its devices are described elsewhere; half a specification would start pods without a GPU."""
    with pytest.raises(InjectionImpossible, match="Tegra"):
        build_specs(replace(inventory, platform=Platform.TEGRA), roots, options)


@pytest.mark.parametrize("version", ["450.80.02", "535.104.05", "565.57.01", "570.86.10", "590.48"])
def test_any_drivers_version_can_be_described(version, inventory, tree, roots, options, documents):
    """Fault: generation crashed the plugin for drivers before 570 (NVIDIA/k8s-device-plugin#1555)."""
    tree.driver(version)
    document = documents(build_specs(replace(inventory, driver_version=version), roots, options))["gpu"]
    assert f"/usr/lib64/libcuda.so.{version}" in [mount["containerPath"] for mount in document["containerEdits"]["mounts"]]
