"""Which files of the driver are found, and what is said where they are not."""

from __future__ import annotations

import pytest

from device_plugin.cdi.driver_files import DriverFile, Link, find_driver_files
from device_plugin.errors import InjectionImpossible

VERSION = "550.163.01"


def paths(files) -> list[str]:
    return [file.path for file in files]


def test_only_libraries_of_the_running_version_are_taken(tree):
    """A second driver left behind by an upgrade stays out of the container."""
    tree.file("/usr/lib64/libcuda.so.535.104.05")
    files = find_driver_files(tree.root, VERSION)
    assert paths(library.file for library in files.libraries) == [
        f"/usr/lib64/libcuda.so.{VERSION}",
        f"/usr/lib64/libnvidia-ml.so.{VERSION}",
        f"/usr/lib64/libnvidia-ptxjitcompiler.so.{VERSION}",
    ]
    assert files.version_directories == ("/usr/lib64",)


@pytest.mark.parametrize("directory", ["/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"])
def test_every_distributions_library_directory_is_searched(tmp_path, directory, tree):
    """Each stands on its own; /lib64 of a driver root that is a plain directory of libraries counts too."""
    tree.root = tmp_path / "other"
    tree.driver(directory=directory)
    assert find_driver_files(tree.root, VERSION).version_directories == (directory,)


def test_a_directory_reached_by_two_names_counts_once(tree):
    """On a merged system /lib64 is /usr/lib64."""
    tree.link("/lib64", "usr/lib64")
    assert find_driver_files(tree.root, VERSION).version_directories == ("/usr/lib64",)


def test_libraries_for_32_bits_stay_out(tree):
    """They lie in /usr/lib under the same names; mounted in place of the others, nothing would load."""
    tree.driver(directory="/usr/lib")
    assert find_driver_files(tree.root, VERSION).version_directories == ("/usr/lib64",)


def test_debians_alternatives_are_followed_inside_the_root(tree, tmp_path):
    """The versioned file lies in nvidia/current; the links in the library directory lead there by absolute targets."""
    tree.root = tmp_path / "debian"
    tree.driver(directory="/usr/lib/x86_64-linux-gnu/nvidia/current")
    tree.link("/etc/alternatives/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/etc/alternatives/libcuda.so.1")
    (cuda, *_) = find_driver_files(tree.root, VERSION).libraries
    assert cuda.file.path == f"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{VERSION}"


def test_a_library_that_is_a_link_is_mounted_from_its_target(tree):
    """The host would follow an absolute link outside the driver root."""
    tree.file("/opt/driver/libnvidia-nvvm.so")
    tree.link(f"/usr/lib64/libnvidia-nvvm.so.{VERSION}", "/opt/driver/libnvidia-nvvm.so")
    found = {library.file for library in find_driver_files(tree.root, VERSION).libraries}
    assert DriverFile(f"/usr/lib64/libnvidia-nvvm.so.{VERSION}", "/opt/driver/libnvidia-nvvm.so") in found


def test_the_links_to_a_library_are_known_nearest_first(tree):
    """`libnvidia-ml.so` leads to `libnvidia-ml.so.1`, that to the file."""
    tree.link("/usr/lib64/libnvidia-ml.so", "libnvidia-ml.so.1")
    links = {library.file.name: library.links for library in find_driver_files(tree.root, VERSION).libraries}
    assert links[f"libnvidia-ml.so.{VERSION}"] == (
        Link("/usr/lib64/libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}"),
        Link("/usr/lib64/libnvidia-ml.so", "libnvidia-ml.so.1"),
    )


def test_programs_settings_firmware_and_sockets_are_found(tree):
    """One of each kind; Vulkan's settings go to /etc/vulkan wherever they lie."""
    tree.file("/usr/bin/nvidia-smi", mode=0o755)
    tree.file("/usr/share/vulkan/icd.d/nvidia_icd.json")
    tree.file("/etc/OpenCL/vendors/nvidia.icd")
    tree.file(f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
    tree.file("/run/nvidia-persistenced/socket")
    tree.link("/var/run", "/run")
    (tree.root / "tmp/nvidia-mps").mkdir(parents=True)
    tree.file("/usr/lib64/vdpau/libvdpau_nvidia.so." + VERSION)
    tree.file("/usr/lib64/nvidia/xorg/nvidia_drv.so")
    files = find_driver_files(tree.root, VERSION)
    assert paths(files.files) == [
        "/usr/bin/nvidia-smi",
        "/etc/OpenCL/vendors/nvidia.icd",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    ]
    assert paths(files.sockets) == ["/run/nvidia-persistenced/socket", "/tmp/nvidia-mps"]
    libraries = paths(library.file for library in files.libraries)
    assert "/usr/lib64/nvidia/xorg/nvidia_drv.so" in libraries
    assert f"/usr/lib64/vdpau/libvdpau_nvidia.so.{VERSION}" in libraries


def test_unversioned_libraries_come_only_when_asked_for(tree):
    """`enable-explicit-driver-libraries` adds the GL and OpenCL libraries under their own file names, with their links."""
    tree.file("/usr/lib64/libEGL.so.1.1.0")
    tree.link("/usr/lib64/libEGL.so.1", "libEGL.so.1.1.0")
    tree.link("/usr/lib64/libEGL.so", "libEGL.so.1")
    plain = find_driver_files(tree.root, VERSION)
    explicit = find_driver_files(tree.root, VERSION, explicit_libraries=True)
    (added,) = set(explicit.libraries) - set(plain.libraries)
    assert added.file == DriverFile("/usr/lib64/libEGL.so.1.1.0", "/usr/lib64/libEGL.so.1.1.0")
    assert [link.path for link in added.links] == ["/usr/lib64/libEGL.so.1", "/usr/lib64/libEGL.so"]


def test_what_is_missing_is_named(tree):
    """What computing uses apart from what only graphics use."""
    (tree.root / "usr/lib64" / f"libnvidia-ml.so.{VERSION}").unlink()
    files = find_driver_files(tree.root, VERSION)
    assert f"libnvidia-ml.so.{VERSION}" in files.missing
    assert "nvidia-smi" in files.missing
    assert "OpenCL/vendors/nvidia.icd" in files.absent


def test_a_driver_under_another_root_is_reported_with_the_paths_searched(tree):
    """Fault: a driver under another root, generation fails without saying where it looked (NVIDIA/k8s-device-plugin#621)."""
    with pytest.raises(InjectionImpossible) as refused:
        find_driver_files(tree.root, "570.86.10")
    text = str(refused.value)
    assert "libcuda.so.570.86.10" in text
    assert f"{tree.root} in /usr/lib64" in text
    assert f"found of other versions: libcuda.so.{VERSION}" in text
    assert "--driver-root-ctr-path" in text


def test_an_empty_root_is_reported_with_all_directories(tmp_path):
    """Nothing mounted at the driver root reads differently from a wrong version."""
    with pytest.raises(InjectionImpossible, match=r"/usr/lib64, .*none of these exists"):
        find_driver_files(tmp_path, VERSION)


def test_the_version_is_read_from_the_only_libcuda_where_the_driver_is_silent(tree):
    """An old driver's library needs no answer of NVML."""
    assert find_driver_files(tree.root, None).version == VERSION


def test_a_silent_driver_with_two_libraries_is_refused(tree):
    """Neither is more likely than the other."""
    tree.file("/usr/lib64/libcuda.so.535.104.05")
    with pytest.raises(InjectionImpossible, match=rf"535\.104\.05, {VERSION}"):
        find_driver_files(tree.root, None)
