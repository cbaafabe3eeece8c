"""How containers get their devices on this node: the Injection in force, and the CDI specifications behind it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from device_plugin.allocation.cdi_names import CdiClass, gpu_name
from device_plugin.allocation.model import Injection
from device_plugin.config.values import DeviceIdStrategy
from device_plugin.errors import InjectionImpossible
from device_plugin.health.state import EVERY_GPU
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record
from device_plugin.sharing.channels import missing_channels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.sharing.offer import Device
    from device_plugin.supervisor.settings import Settings


@record
class Prepared:
    """What came of preparing the node: the Injection, what cannot be injected, and all Problems.

    `impossible` has the reason by GPU (UUID, `*` for all) and hardware (a MIG device's or the GPU's own UUID, None for all on it).
    """

    injection: Injection
    impossible: Mapping[tuple[str, str | None], str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def prepare(
    inventory: Inventory,
    config: Config,
    settings: Settings,
    devices: Iterable[Device],
    held: Mapping[str, frozenset[str]] | None,
) -> Prepared:
    """The Injection for this node, its CDI specifications written where they are needed. Reads and writes files.

    `devices` are those that Allocate may name from now on; `held` what pods hold, None where that cannot be known. Without an IMEX
    channel that is required nothing can be injected. A specification that cannot be written, or a name in it that no runtime would
    resolve, is no error here: with another strategy left the answers go without CDI, with none left the GPU cannot be injected.
    """
    injection = injection_from(config, inventory)
    hardware = {device.hardware_id: device for device in devices}
    if any(strategy.is_cdi for strategy in injection.strategies):
        prepared = _with_specs(injection, inventory, config, settings, hardware, held)
    else:
        _keep_named_specs(injection, settings, held)
        prepared = Prepared(injection)
    missing = missing_channels(inventory, config) if config.imex.required else None
    return prepared if missing is None else replace(prepared, impossible={**prepared.impossible, (EVERY_GPU, None): missing})


def _keep_named_specs(injection: Injection, settings: Settings, held: Mapping[str, frozenset[str]] | None) -> None:
    """Specifications of an earlier config stay for those who hold their names, and go with the last of them."""
    if held is not None and any(settings.cdi_directory.glob("*")):
        from device_plugin.cdi import write_specs  # noqa: PLC0415 - a start without CDI is the faster for not importing it

        write_specs((), settings.cdi_directory, still_named=_still_named(injection, (), held))


def _with_specs(
    injection: Injection,
    inventory: Inventory,
    config: Config,
    settings: Settings,
    hardware: Mapping[str, Device],
    held: Mapping[str, frozenset[str]] | None,
) -> Prepared:
    from device_plugin.cdi import (  # noqa: PLC0415 - as above
        CDI_DIRECTORIES,
        build_specs,
        check_names,
        list_devices,
        options_from,
        roots_from,
        write_specs,
    )

    names = {hardware_id: _names(injection, device) for hardware_id, device in hardware.items()}
    roots = roots_from(config, settings.host_root)
    try:
        built = build_specs(inventory, roots, options_from(config, settings.cdi_feature_flags, settings.cdi_disabled_hooks))
    except InjectionImpossible as error:
        return _where_cdi_fails(injection, {(EVERY_GPU, None): str(error)}, ())
    written = write_specs(built.specs, settings.cdi_directory, still_named=_still_named(injection, names.values(), held))
    own = settings.cdi_directory
    listing = list_devices(CDI_DIRECTORIES if own in CDI_DIRECTORIES else (own,))
    answered = {
        by_uuid if injection.id_strategy is DeviceIdStrategy.UUID else by_index: hardware_id
        for hardware_id, (by_uuid, by_index) in names.items()
    }
    refused = check_names(answered, listing) | {name: written.failures[name] for name in answered if name in written.failures}
    defined = tuple(spec.device_class for spec in built.specs if not _failed(spec.device_class, written.failures))
    injection = replace(injection, cdi_classes=defined, cdi_undefined=frozenset(answered[name] for name in refused))
    impossible: dict[tuple[str, str | None], str] = {
        (hardware[answered[name]].gpu_uuid, answered[name]): reason for name, reason in refused.items()
    }
    return _where_cdi_fails(injection, impossible, built.problems)


def give_up_cdi(inventory: Inventory, config: Config, reason: str) -> Prepared:
    """What holds where the specifications could not even be built."""
    injection = injection_from(config, inventory)
    if not any(strategy.is_cdi for strategy in injection.strategies):
        return Prepared(injection)
    return _where_cdi_fails(injection, {(EVERY_GPU, None): f"the CDI specifications cannot be made: {reason}"}, ())


def injection_from(config: Config, inventory: Inventory) -> Injection:
    """The Injection that the config asks for on this node, before any CDI specification.

    A driver container's root has a `dev` of its own. Where the config says that the driver's nodes are elsewhere on the host, what
    lies there says nothing, and this process's own /dev has them.
    """
    flags = config.flags
    is_elsewhere = flags.dev_root.rstrip("/") != flags.nvidia_driver_root.rstrip("/")
    extras = (("gdrcopy", flags.gdrcopy_enabled), ("gds", flags.gds_enabled), ("mofed", flags.mofed_enabled))
    return Injection(
        strategies=tuple(flags.plugin.device_list_strategy),
        id_strategy=flags.plugin.device_id_strategy,
        pass_device_specs=flags.plugin.pass_device_specs,
        dev_root=flags.dev_root,
        control_nodes=inventory.own_control_nodes if is_elsewhere else inventory.control_nodes,
        imex_channels=tuple(channel for channel in sorted(set(config.imex.channel_ids)) if channel in inventory.imex_channels),
        extras=tuple(name for name, is_on in extras if is_on),
        cdi_annotation_prefix=flags.plugin.cdi_annotation_prefix,
    )


def _where_cdi_fails(
    injection: Injection, impossible: Mapping[tuple[str, str | None], str], problems: tuple[Problem, ...]
) -> Prepared:
    """With no other strategy left those GPUs cannot be injected; else their answers go without CDI, which is said."""
    if injection.is_cdi_only:
        return Prepared(injection, impossible, problems)
    said = tuple(
        Problem(
            Severity.ERROR, ProblemKind.HARDWARE, f"answers for {hardware or 'every GPU'} go without CDI: {reason}", Origin("node")
        )
        for (_, hardware), reason in sorted(impossible.items(), key=lambda item: item[0][1] or "")
    )
    return Prepared(injection, {}, (*problems, *said))


def _names(injection: Injection, device: Device) -> tuple[str, str]:
    """Both names of a device: by UUID and by index."""
    prefix = injection.cdi_kind_prefix
    return gpu_name(prefix, device.hardware_id), gpu_name(prefix, device.index)


def _still_named(
    injection: Injection, names: Iterable[tuple[str, str]], held: Mapping[str, frozenset[str]] | None
) -> frozenset[str] | None:
    """Every name that an answer may hold or have held; None where nobody can tell, so that no name goes."""
    if held is None:
        return None
    by_holder = {gpu_name(injection.cdi_kind_prefix, device.partition("::")[0]) for ids in held.values() for device in ids}
    return frozenset(by_holder.union(*names))


def _failed(device_class: str, failures: Mapping[str, str]) -> bool:
    return device_class != CdiClass.GPU and any(name.partition("=")[0].endswith(f"/{device_class}") for name in failures)
