"""Hooks where NVIDIA's hook program is, mounts in place of the links it would make where it is not."""

from __future__ import annotations

import pytest

from device_plugin.cdi import CdiHook, CdiOptions, Roots, build_specs

VERSION = "550.163.01"
ALL_HOOKS = [
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
]


def hooks(document: dict) -> list[dict]:
    return document["containerEdits"].get("hooks", [])


def container_paths(document: dict) -> list[str]:
    return [mount["containerPath"] for mount in document["containerEdits"]["mounts"]]


def test_the_hooks_run_links_first(inventory, roots, options, documents):
    """The loader's cache is made when the links are there."""
    found = hooks(documents(build_specs(inventory, roots, options))["gpu"])
    assert [hook["args"][2] for hook in found] == ALL_HOOKS
    assert {hook["hookName"] for hook in found} == {"createContainer"}
    assert {(hook["path"], *hook["args"][:2], *hook["env"]) for hook in found} == {
        ("/usr/bin/nvidia-ctk", "nvidia-ctk", "hook", "NVIDIA_CTK_DEBUG=false")
    }


def test_the_program_of_its_own_name_takes_no_subcommand(inventory, tree, roots, documents):
    """`nvidia-cdi-hook` is `nvidia-ctk hook` under another name."""
    tree.file("/usr/bin/nvidia-cdi-hook", mode=0o755)
    document = documents(build_specs(inventory, roots, CdiOptions(hook_path="/usr/bin/nvidia-cdi-hook")))["gpu"]
    assert hooks(document)[-1]["args"] == ["nvidia-cdi-hook", "update-application-profile"]


@pytest.mark.parametrize("disabled", ALL_HOOKS)
def test_one_hook_can_be_left_out(disabled, inventory, roots, documents):
    """The others stay, in their order."""
    options = CdiOptions(disabled_hooks=frozenset({CdiHook(disabled)}))
    found = hooks(documents(build_specs(inventory, roots, options))["gpu"])
    assert [hook["args"][2] for hook in found] == [hook for hook in ALL_HOOKS if hook != disabled]


def test_without_the_program_a_container_can_still_compute(inventory, tree, roots, options, documents):
    """Each library is there under the name the loader asks for, in its own directory and in the one CUDA images search."""
    (tree.root / "usr/bin/nvidia-ctk").unlink()
    built = build_specs(inventory, roots, options)
    document = documents(built)["gpu"]
    assert hooks(document) == []
    for directory in ("/usr/lib64", "/usr/local/nvidia/lib64"):
        for name in ("libcuda.so.1", f"libcuda.so.{VERSION}", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
            assert f"{directory}/{name}" in container_paths(document)
    sources = {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}
    assert sources["/usr/lib64/libcuda.so.1"] == f"/usr/lib64/libcuda.so.{VERSION}"
    (warning,) = [problem.message for problem in built.problems if "without hooks" in problem.message]
    assert "/usr/bin/nvidia-ctk" in warning


def test_the_loaders_names_do_not_depend_on_the_installers_links(inventory, tree, roots, options, documents):
    """A driver root without links still gives libcuda.so.1 and libnvidia-ml.so.1."""
    (tree.root / "usr/bin/nvidia-ctk").unlink()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tree.root / "usr/lib64" / name).unlink()
    paths = container_paths(documents(build_specs(inventory, roots, options))["gpu"])
    assert {"/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-ml.so.1"} <= set(paths)


def test_switching_all_hooks_off_is_as_having_no_program(inventory, tree, roots, options, documents):
    """The mounts step in, and nothing is warned about: it was asked for."""
    off = build_specs(inventory, roots, CdiOptions(disabled_hooks=frozenset({CdiHook.ALL})))
    assert not [problem for problem in off.problems if "without hooks" in problem.message]
    (tree.root / "usr/bin/nvidia-ctk").unlink()
    assert documents(off) == documents(build_specs(inventory, roots, options))


@pytest.mark.parametrize("left", ["create-symlinks", "update-ldcache"])
def test_no_mount_stands_where_a_hook_makes_a_link(left, inventory, roots, documents):
    """The hook would fail to replace a mounted file, and the container with it."""
    disabled = frozenset(CdiHook(hook) for hook in ALL_HOOKS if hook != left)
    paths = container_paths(documents(build_specs(inventory, roots, CdiOptions(disabled_hooks=disabled)))["gpu"])
    assert "/usr/lib64/libcuda.so.1" not in paths


@pytest.mark.parametrize(
    ("host_driver", "hook_path", "stated", "expected"),
    [
        ("/run/nvidia/driver", "/usr/local/nvidia/toolkit/nvidia-cdi-hook", True, "/usr/local/nvidia/toolkit/nvidia-cdi-hook"),
        ("/run/nvidia/driver", "/usr/bin/nvidia-ctk", False, None),
        ("/", "/opt/missing/nvidia-ctk", True, None),
        ("/", "/usr/bin/nvidia-ctk", False, "/usr/bin/nvidia-ctk"),
    ],
)
def test_a_hook_path_is_believed_only_where_it_cannot_be_checked(
    host_driver, hook_path, stated, expected, inventory, tree, own, documents
):
    """A hook that is missing on the host would fail every container."""
    roots = Roots(driver=tree.root, host_driver=host_driver, own=own.root)
    options = CdiOptions(hook_path=hook_path, hook_was_stated=stated)
    found = hooks(documents(build_specs(inventory, roots, options))["gpu"])
    assert {hook["path"] for hook in found} == ({expected} if expected else set())


def test_a_file_that_cannot_be_run_is_no_hook_program(inventory, tree, roots, options, documents):
    """Nor is a directory of that name."""
    (tree.root / "usr/bin/nvidia-ctk").chmod(0o644)
    assert hooks(documents(build_specs(inventory, roots, options))["gpu"]) == []


def test_links_that_programs_expect_are_made(inventory, tree, roots, options, documents):
    """libcuda.so, and GLX's entry for indirect rendering, though no installer made them."""
    tree.file(f"/usr/lib64/libGLX_nvidia.so.{VERSION}")
    links = hooks(documents(build_specs(inventory, roots, options))["gpu"])[0]["args"][3:]
    assert "libcuda.so.1::/usr/lib64/libcuda.so" in links
    assert f"libGLX_nvidia.so.{VERSION}::/usr/lib64/libGLX_indirect.so.0" in links
    assert f"libcuda.so.{VERSION}::/usr/lib64/libcuda.so.1" in links
