"""Resource names: which resource a GPU or MIG device belongs to before sharing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.config.values import DEFAULT_DOMAIN, MigStrategy, matches_pattern, parse_resource_name
from device_plugin.problems import ProblemKind
from device_plugin.sharing.phrases import join_words, list_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.config.model import Config, NamedPattern
    from device_plugin.hardware.model import Gpu, MigDevice
    from device_plugin.sharing.report import Report

GPU_RESOURCE = f"{DEFAULT_DOMAIN}/gpu"


def first_match(patterns: Sequence[NamedPattern], text: str) -> NamedPattern | None:
    """The first pattern, in list order, that matches."""
    return next((item for item in patterns if matches_pattern(item.pattern, text)), None)


def default_mig_name(profile: str) -> str:
    """The resource of a MIG profile: `+`, which no resource name may hold, becomes `.`. Raises ValueError if it is no valid "
    "name."""
    return parse_resource_name(f"{DEFAULT_DOMAIN}/mig-{profile.replace('+', '.')}")


def default_name(gpu: Gpu, mig: MigDevice | None, strategy: MigStrategy) -> str:
    """The name without any pattern of the operator's. Raises ValueError for a MIG device whose profile cannot be one."""
    if mig is None or strategy is MigStrategy.SINGLE:
        return GPU_RESOURCE
    if mig.profile is None:
        raise ValueError(f"neither the driver nor the attributes of MIG device {gpu.index}:{mig.index} tell its profile")
    try:
        return default_mig_name(mig.profile)
    except ValueError as error:
        raise ValueError(f"its profile {mig.profile!r} gives no resource name: {error}") from error


def name_hardware(gpu: Gpu, mig: MigDevice | None, config: Config) -> str:
    """The resource that a GPU, or one of its MIG devices, belongs to before sharing.

    Patterns under `resources.gpus` match the product name, those under `resources.mig` the profile as the driver gives it (with its
    `+`). What no pattern matches keeps its default name. Raises ValueError where there is no pattern and no valid default.
    """
    patterns, text = (config.resources.gpus, gpu.name) if mig is None else (config.resources.mig, mig.profile)
    match = first_match(patterns, text) if text is not None else None
    return match.name if match else default_name(gpu, mig, config.flags.mig_strategy)


def report_idle_patterns(gpus: Sequence[Gpu], config: Config, report: Report) -> None:
    """Say which patterns of `resources` name nothing: a model that is not there, or one that an earlier pattern takes."""
    for number, text, matched in _idle(config.resources.gpus, [gpu.name for gpu in gpus]):
        why = f"an earlier pattern takes {join_words(matched)}" if matched else f"this node has {list_products(gpus)}"
        report.warn(ProblemKind.UNMET, f"the pattern {text!r} names no GPU: {why}", f"resources.gpus[{number}].pattern")
    if not config.resources.mig:
        return
    if config.flags.mig_strategy is MigStrategy.NONE:
        report.inform(
            ProblemKind.UNMET, "resources.mig names MIG devices, and the MIG strategy none offers no MIG devices", "resources.mig"
        )
        return
    profiles = sorted({mig.profile for gpu in gpus if gpu.mig_enabled for mig in gpu.mig_devices if mig.profile is not None})
    for number, text, matched in _idle(config.resources.mig, profiles):
        why = f"an earlier pattern takes {join_words(matched)}" if matched else f"this node has {join_words(profiles) or 'none'}"
        report.inform(ProblemKind.UNMET, f"the pattern {text!r} names no MIG device: {why}", f"resources.mig[{number}].pattern")


def _idle(patterns: Sequence[NamedPattern], texts: Sequence[str]) -> list[tuple[int, str, list[str]]]:
    """The patterns that are no text's first match: position, pattern, and the texts that they match behind another."""
    used = {id(match) for text in texts if (match := first_match(patterns, text))}
    return [
        (number, item.pattern, sorted({text for text in texts if matches_pattern(item.pattern, text)}))
        for number, item in enumerate(patterns)
        if id(item) not in used
    ]
