"""`cdi generate` and `cdi list`: the CDI specifications of this node, written or looked at by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.allocation.cdi_names import CdiClass
from device_plugin.cdi import CDI_DIRECTORIES, build_specs, list_devices, options_from, roots_from, write_specs
from device_plugin.cdi.spec import encode
from device_plugin.cli.arguments import CDI, named, process_list
from device_plugin.cli.node import load_config, open_node
from device_plugin.cli.report import format_table, print_problems
from device_plugin.cli.run import configure_logs
from device_plugin.errors import ConfigError, PluginError
from device_plugin.logs import get_logger
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.supervisor.state_file import write_atomically

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from device_plugin.cdi import Spec


def cdi(arguments: argparse.Namespace) -> int:
    """Exit status 1 if nothing could be written, or a name is ambiguous."""
    return _generate(arguments) if arguments.action == "generate" else _list(arguments)


def _generate(arguments: argparse.Namespace) -> int:
    try:
        configure_logs(arguments)
        with open_node(arguments, get_logger()) as node:
            config = load_config(arguments, node).config
            inventory = node.read_inventory(config)
            options = options_from(
                config,
                process_list(arguments, named(CDI, "cdi-feature-flags")),
                process_list(arguments, named(CDI, "cdi-disable-hooks")),
            )
            built = build_specs(inventory, roots_from(config, node.root), options)
    except ConfigError as error:
        print_problems(error.problems)
        return 1
    except PluginError as error:
        print_problems([Problem(Severity.ERROR, ProblemKind.HARDWARE, str(error), Origin("node"))])
        return 1
    print_problems(built.problems)
    if not built.specs:
        print_problems([Problem(Severity.ERROR, ProblemKind.HARDWARE, "there is nothing to specify on this node", Origin("node"))])
        return 1
    return _write(built.specs, arguments.output)


def _write(specs: Sequence[Spec], output: str) -> int:
    """To standard output or one file: the `gpu` class, or what there is; to a directory: every class in its own file."""
    if output != "-" and Path(output).is_dir():
        written = write_specs(specs, Path(output), still_named=())
        for name, reason in sorted(written.failures.items()):
            print_problems([Problem(Severity.ERROR, ProblemKind.HARDWARE, reason, Origin(name))])
        for path in written.changed:
            print(path)
        return 1 if written.failures else 0
    spec = next((spec for spec in specs if spec.device_class == CdiClass.GPU), specs[0])
    if output == "-":
        print(encode(spec.document()).decode(), end="")
        return 0
    try:
        write_atomically(Path(output), encode(spec.document()), mode=0o644)
    except OSError as error:
        print_problems([Problem(Severity.ERROR, ProblemKind.HARDWARE, f"cannot be written: {error.strerror}", Origin(output))])
        return 1
    print(output)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    listing = list_devices([Path(path) for path in arguments.cdi_directory] if arguments.cdi_directory else CDI_DIRECTORIES)
    rows = [(device.name, ", ".join(str(path) for path in device.paths)) for device in listing.devices.values()]
    print(format_table(("DEVICE", "DEFINED IN"), rows) if rows else "No CDI device is defined.")
    ambiguous = [device for device in listing.devices.values() if not device.is_resolvable]
    for device in ambiguous:
        message = f"{device.name} is defined {len(device.paths)} times, so a runtime refuses it"
        print_problems([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(str(device.paths[0])))])
    for path, reason in listing.unreadable.items():
        print_problems([Problem(Severity.ERROR, ProblemKind.CONFIG, reason, Origin(str(path)))])
    return 1 if ambiguous or listing.unreadable else 0
