"""Inventory x roots x options -> the CDI specifications of a node."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.cdi.driver_files import find_driver_files
from device_plugin.cdi.hooks import driver_hooks, find_hook_program, mounts_in_place_of_links
from device_plugin.cdi.nodes import drm_links, drm_nodes, node_edits, unseen
from device_plugin.cdi.options import EXTRA_CLASSES, CdiFeature
from device_plugin.cdi.roots import resolve_inside
from device_plugin.cdi.spec import CdiDevice, Edits, MountEdit, Spec, is_device_name
from device_plugin.cdi.wsl import wsl_spec
from device_plugin.errors import InjectionImpossible
from device_plugin.hardware.model import Platform
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from device_plugin.cdi.driver_files import DriverFiles
    from device_plugin.cdi.hooks import HookProgram
    from device_plugin.cdi.options import CdiOptions
    from device_plugin.cdi.roots import Roots
    from device_plugin.hardware.model import Gpu, Inventory, MigDevice

# Keeps NVIDIA's own runtime, if the container happens to start under it, from adding what the image's variable asks for.
_NOTHING_MORE = "NVIDIA_VISIBLE_DEVICES=void"
_CAPABILITY_NODES = "/dev/nvidia-caps/"
_GDS_PATHS = ("/run/udev", "/etc/cufile.json")


@record
class Built:
    """The specifications, in the order of their classes, and what is not as it should be."""

    specs: tuple[Spec, ...]
    problems: tuple[Problem, ...] = ()


def build_specs(inventory: Inventory, roots: Roots, options: CdiOptions) -> Built:
    """The specifications of the classes that this node has something for. Reads files below `roots`, writes none.

    A device that nothing can be injected for is not in its specification, and a problem says why; so `check_names` finds its name.
    Raises InjectionImpossible where no GPU could be injected: no driver libraries, or a platform that this plugin cannot describe.
    """
    builder = _Builder(inventory, roots, options)
    specs = [
        builder.gpus(),
        builder.imex_channels(),
        *(builder.extra_class(name) for name in EXTRA_CLASSES if name in options.extras),
    ]
    return Built(tuple(spec for spec in specs if spec is not None), tuple(builder.problems))


class _Builder:
    """One run of `build_specs`: what it reads from, and the problems met on the way."""

    def __init__(self, inventory: Inventory, roots: Roots, options: CdiOptions) -> None:
        self.inventory, self.roots, self.options = inventory, roots, options
        self.program, self.problems = self._hook_program()

    def _hook_program(self) -> tuple[HookProgram, list[Problem]]:
        program, problems = find_hook_program(self.roots, self.options)
        return program, list(problems)

    def gpus(self) -> Spec | None:
        """The `gpu` class; None on a node without a GPU."""
        if self.inventory.platform is Platform.TEGRA:
            raise InjectionImpossible(
                "This node is a Tegra system, for which this plugin writes no CDI specification: its devices are described by "
                "the CSV files of NVIDIA's runtime. Use the device list strategy envvar there, or NVIDIA's plugin"
            )
        if not self.inventory.gpus:
            return None
        if self.inventory.platform is Platform.WSL:
            return wsl_spec(self.roots, self.program, self.options.kind_prefix)
        files = find_driver_files(
            self.roots.driver,
            self.inventory.driver_version,
            explicit_libraries=CdiFeature.EXPLICIT_DRIVER_LIBRARIES in self.options.features,
            kernel_release=os.uname().release,
        )
        self._report_missing(files)
        common = self._common_edits(files).tidied()
        devices = sorted(self._gpu_devices(common), key=lambda device: device.name)
        return Spec(self.options.kind_prefix, "gpu", tuple(devices), common) if devices else None

    def imex_channels(self) -> Spec | None:
        """The `imex-channel` class: the channels asked for that the node has."""
        channels = [channel for channel in self.options.imex_channels if channel in self.inventory.imex_channels]
        devices = {str(channel): (f"/dev/nvidia-caps-imex-channels/channel{channel}",) for channel in channels}
        return self._plain_spec("imex-channel", devices)

    def extra_class(self, name: str) -> Spec | None:
        """One of the classes `gdrcopy`, `gds` and `mofed`: a single device `all`."""
        nodes = self.inventory.extra_nodes.get(name, ())
        if not nodes:
            self._warn(f"{name} is switched on, but the node has no device node for it; containers start without")
            return None
        mounts = tuple(
            MountEdit.read_only(self.roots.on_host(source), path)
            for path in (_GDS_PATHS if name == "gds" else ())
            if (source := resolve_inside(self.roots.driver, path))
        )
        return self._plain_spec(name, {"all": nodes}, mounts)

    def _plain_spec(
        self, device_class: str, nodes: Mapping[str, tuple[str, ...]], mounts: tuple[MountEdit, ...] = ()
    ) -> Spec | None:
        devices = tuple(
            CdiDevice(name, replace(self._node_edits(paths), mounts=mounts).tidied()) for name, paths in sorted(nodes.items())
        )
        return Spec(self.options.kind_prefix, device_class, devices, Edits(env=(_NOTHING_MORE,))) if devices else None

    def _common_edits(self, files: DriverFiles) -> Edits:
        """What every container with a GPU gets: the control nodes and the driver."""
        read_only = [MountEdit.read_only(self.roots.on_host(file.source), file.path) for file in files.files]
        libraries = [library.file for library in files.libraries]
        read_only += [MountEdit.read_only(self.roots.on_host(file.source), file.path) for file in libraries]
        sockets = () if CdiFeature.DISABLE_IPC in self.options.features else files.sockets
        return Edits(
            env=(_NOTHING_MORE, f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(files.version_directories)}"),
            nodes=self._node_edits(self.inventory.control_nodes).nodes,
            hooks=driver_hooks(self.program, files),
            mounts=(
                *read_only,
                *mounts_in_place_of_links(self.program, self.roots, files.libraries),
                *(MountEdit.socket(self.roots.on_host(file.source), file.path) for file in sockets),
            ),
            additional_gids=self._node_edits(self.inventory.control_nodes).additional_gids,
        )

    def _gpu_devices(self, common: Edits) -> Iterator[CdiDevice]:
        for gpu in self.inventory.gpus:
            yield from self._whole_gpu(gpu, common, dormant=gpu.mig_enabled and not self.options.whole_mig_gpus)
            for mig in gpu.mig_devices if gpu.mig_enabled else ():
                yield from self._mig_device(gpu, mig, common)

    def _whole_gpu(self, gpu: Gpu, common: Edits, *, dormant: bool) -> Iterator[CdiDevice]:
        """A GPU under both its names.

        One that is offered whole although in MIG mode brings the capabilities of its MIG devices, or nothing could run on it. A
        dormant one does not: they belong to other containers now.
        """
        if not gpu.device_nodes:
            if not dormant:
                self._warn(f"GPU {gpu.index} ({gpu.uuid}) has no device node (its minor number is unknown); it cannot be injected")
            return
        instances = gpu.mig_devices if gpu.mig_enabled and not dormant else ()
        nodes = (*gpu.device_nodes, *(node for mig in instances for node in mig.device_nodes))
        edits = self._device_edits(nodes, drm_nodes(self.roots, gpu.pci_bus_id), common)
        yield from self._named((gpu.uuid, str(gpu.index)), edits, self._annotations(gpu), dormant=dormant)

    def _mig_device(self, gpu: Gpu, mig: MigDevice, common: Edits) -> Iterator[CdiDevice]:
        if mig.fault is not None or not any(node.startswith(_CAPABILITY_NODES) for node in mig.device_nodes):
            why = mig.fault or "its capability nodes are unknown"
            name = f"MIG device {gpu.index}:{mig.index}" + (f" ({mig.uuid})" if mig.uuid else "")
            self._warn(f"{name} cannot be injected: {why}")
            return
        drm = drm_nodes(self.roots, gpu.pci_bus_id) if (mig.profile or "").endswith("+gfx") else ()
        edits = self._device_edits(mig.device_nodes, drm, common)
        yield from self._named((mig.uuid, f"{gpu.index}:{mig.index}"), edits, self._annotations(gpu), dormant=False)

    def _device_edits(self, nodes: Iterable[str], drm: tuple[str, ...], common: Edits) -> Edits:
        paths = tuple(dict.fromkeys((*nodes, *drm)))
        hidden = unseen(self.roots, paths)
        if hidden and not self.inventory.simulated:  # a simulated node has plain files there
            self._warn(f"{', '.join(hidden)} cannot be seen under {self.roots.dev}; the runtime will look for it on the host")
        hooks = self.program.create_links(drm_links(self.roots, drm))
        return replace(self._node_edits(paths), hooks=hooks).tidied().without(common)

    def _named(self, names: Iterable[str], edits: Edits, annotations: dict[str, str], *, dormant: bool) -> Iterator[CdiDevice]:
        for name in names:
            if is_device_name(name):
                yield CdiDevice(name, edits, annotations, dormant)
            else:
                self._warn(f"{name} is no name that CDI allows; use --device-id-strategy=index, or a driver from R470 on")

    def _annotations(self, gpu: Gpu) -> dict[str, str]:
        if CdiFeature.COHERENT_ANNOTATIONS not in self.options.features:
            return {}
        if gpu.coherent is None:
            self._warn(f"GPU {gpu.index} ({gpu.uuid}): the driver does not say whether its memory is coherent; no annotation")
            return {}
        return {"gpu.nvidia.com/coherent": str(gpu.coherent).lower()}

    def _node_edits(self, paths: Iterable[str]) -> Edits:
        return node_edits(self.roots, paths, additional_gids=CdiFeature.NO_ADDITIONAL_GIDS not in self.options.features)

    def _report_missing(self, files: DriverFiles) -> None:
        where = f"under {self.roots.driver}"
        if files.missing:
            self._warn(f"Files of the driver {files.version} not found {where}: {', '.join(files.missing)}; containers do without")
        if files.absent:
            message = f"Optional files of the driver {files.version} not found {where}: {', '.join(files.absent)}"
            self.problems.append(Problem(Severity.INFO, ProblemKind.HARDWARE, message, Origin("node")))

    def _warn(self, message: str) -> None:
        self.problems.append(Problem(Severity.WARNING, ProblemKind.HARDWARE, message, Origin("node")))
