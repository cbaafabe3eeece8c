"""`cdi generate` and `cdi list`: the CDI specifications of this node, written or looked at by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.allocation.cdi_names import CdiClass
from device_plugin.cdi import CDI_DIRECTORIES, build_specs, list_devices, options_from, roots_from, write_specs
from device_plugin.cdi.spec import encode
from device_plugin.cli.node import load_config, open_node
from device_plugin.cli.process_options import CDI_DISABLE_HOOKS, CDI_FEATURE_FLAGS, process_list, refusal
from device_plugin.cli.report import format_table, node_error, print_problems
from device_plugin.cli.run import configure_logs
from device_plugin.errors import InjectionImpossible
from device_plugin.logs import get_logger
from device_plugin.sharing.channels import has_required_channels
from device_plugin.sharing.phrases import join_words
from device_plugin.sharing.report import Report
from device_plugin.supervisor.state_file import write_atomically

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from device_plugin.cdi import Spec

STANDARD_OUTPUT = "-"
_NAMES_SHOWN = 3


def cdi(arguments: argparse.Namespace) -> int:
    """Exit status 1 if not all could be written, or a name is ambiguous. Raises PluginError if there is nothing to write."""
    return _generate(arguments) if arguments.action == "generate" else _list(arguments)


def _generate(arguments: argparse.Namespace) -> int:
    if not arguments.output:
        raise refusal("--output", "expected a path, not an empty text")
    if arguments.output.endswith("/") and not Path(arguments.output).is_dir():
        raise refusal("--output", f"there is no directory {arguments.output}")
    if _is_special(Path(arguments.output)):  # a file is replaced as a whole: root would put one in the place of /dev/null
        raise refusal("--output", f"{arguments.output} is neither a file nor a directory; {STANDARD_OUTPUT} is standard output")
    configure_logs(arguments)
    with open_node(arguments, get_logger()) as node:
        config = load_config(arguments, node).config
        options = options_from(config, process_list(arguments, CDI_FEATURE_FLAGS), process_list(arguments, CDI_DISABLE_HOOKS))
        inventory = node.read_inventory(config)
        built = build_specs(inventory, roots_from(config, node.root), options)
    report = Report(config)
    complete = has_required_channels(inventory, config, report)
    print_problems((*report.problems, *built.problems))
    if not complete:
        return 1
    if not built.specs:
        raise InjectionImpossible("there is nothing to specify on this node")
    if arguments.output == STANDARD_OUTPUT:
        print(encode(_gpu_class(built.specs).document()).decode(), end="")
        return 0
    output = Path(arguments.output)
    return _write_directory(built.specs, output) if output.is_dir() else _write_file(_gpu_class(built.specs), output)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _gpu_class(specs: Sequence[Spec]) -> Spec:
    """What one file holds: the class of the GPUs, or the first there is."""
    return next((spec for spec in specs if spec.device_class == CdiClass.GPU), specs[0])


def _write_file(spec: Spec, path: Path) -> int:
    try:
        write_atomically(path, encode(spec.document()), mode=0o644)
    except OSError as error:
        print_problems([node_error(f"cannot be written: {error.strerror or error}", str(path))])
        return 1
    print(path)
    return 0


def _write_directory(specs: Sequence[Spec], directory: Path) -> int:
    """Every class in its own file, under the names that `run` uses. Who holds an earlier name is not known here, so none goes."""
    written = write_specs(specs, directory, still_named=None)
    print_problems(node_error(reason) for reason in dict.fromkeys(written.failures.values()))
    for path in written.changed:
        print(path)
    return 1 if written.failures else 0


def _list(arguments: argparse.Namespace) -> int:
    if "" in (arguments.cdi_directory or ()):
        raise refusal("--cdi-directory", "expected a path, not an empty text")
    listing = list_devices([Path(path) for path in arguments.cdi_directory] if arguments.cdi_directory else CDI_DIRECTORIES)
    rows = [(device.name, ", ".join(str(path) for path in device.paths)) for device in listing.devices.values()]
    print(format_table(("DEVICE", "DEFINED IN"), rows) if rows else "No CDI device is defined.")
    ambiguous: dict[tuple[Path, ...], list[str]] = {}
    for device in listing.devices.values():
        if not device.is_resolvable:
            ambiguous.setdefault(device.paths, []).append(device.name)
    print_problems(node_error(_explain_ambiguous(names, paths), str(paths[0])) for paths, names in ambiguous.items())
    print_problems(node_error(reason, str(path)) for path, reason in listing.unreadable.items())
    return 1 if ambiguous or listing.unreadable else 0


def _explain_ambiguous(names: Sequence[str], paths: Sequence[Path]) -> str:
    """A copy of a file doubles all its names, so they are told together, the first few by name."""
    defined = f"defined {len(paths)} times, in {join_words([str(path) for path in dict.fromkeys(paths)])}"
    if len(names) == 1:
        return f"{names[0]} is {defined}, so a runtime refuses it"
    shown = [*names[:_NAMES_SHOWN], *([f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else [])]
    return f"{len(names)} names are {defined}, so a runtime refuses them: {join_words(shown)}"
