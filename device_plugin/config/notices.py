"""What is valid and deserves a word: risks, what has no effect, and where a file means more here than for NVIDIA's plugin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy, matches_pattern, shown_word
from device_plugin.problems import Origin, Problem, ProblemKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from device_plugin.config.model import Config, NamedPattern

_CONFIG_LOOK = r"""(?m)^[ \t{"']*(version["']?[ \t]*:[ \t]*["']?v1\b|(flags|sharing|timeSlicing)["']?[ \t]*:)"""


def find_notices(config: Config, environment: Mapping[str, str]) -> list[Problem]:
    """The words, by subject. `environment` is where a config could stand by mistake: empty where a file was read."""
    return [
        *_configs_in_environment(environment),
        *_other_programs(config),
        *_without_effect(config),
        *_risks(config),
        *_shadowed(config, "gpus", config.resources.gpus),
        *_shadowed(config, "mig", config.resources.mig),
    ]


def keys_beyond_peer(config: Config) -> list[str]:
    """The stated keys that NVIDIA's plugin parses and then ignores (NVIDIA/k8s-device-plugin#353, NVIDIA/k8s-device-plugin#628,
    NVIDIA/k8s-device-plugin#1020)."""
    keys = [f"resources.{kind}" for kind in ("gpus", "mig") if getattr(config.resources, kind)]
    slicing = config.sharing.time_slicing
    for index, entry in enumerate(slicing.resources if slicing else ()):
        path = f"sharing.timeSlicing.resources[{index}]"
        keys += [f"{path}.devices"] if entry.devices != "all" else []
        keys += [f"{path}.rename"] if entry.rename is not None else []
    return keys


def find_differences(config: Config) -> list[Problem]:
    """Those keys, named once, for a reader without a node at hand; where there is one, `plan` knows what comes of them."""
    keys = keys_beyond_peer(config)
    message = f"here these take effect, while NVIDIA's plugin ignores them: {', '.join(keys)}"
    return [Problem(Severity.INFO, ProblemKind.DIFFERENCE, message, config.origin(keys[0]))] if keys else []


def _configs_in_environment(environment: Mapping[str, str]) -> Iterator[Problem]:
    """A ConfigMap taken in by `envFrom` ends up in variables, where nobody reads it (NVIDIA/k8s-device-plugin#615)."""
    for name in sorted(environment):
        if re.search(_CONFIG_LOOK, environment[name]):
            yield _warning(
                f"the variable {name} holds what looks like a config, which is not read from variables; mount the ConfigMap and "
                "name its file with --config-file (CONFIG_FILE)",
                Origin(name),
            )


def _other_programs(config: Config) -> Iterator[Problem]:
    """Keys of the peer's label program: checked, named once, harmless."""
    flags = config.flags
    keys = ["flags.useNodeFeatureAPI"] if flags.use_node_feature_api is not None else []
    if flags.gfd is not None:
        stated = [
            f"flags.gfd.{info.alias}" for name, info in type(flags.gfd).model_fields.items() if name in flags.gfd.model_fields_set
        ]
        keys += stated or ["flags.gfd"]
    if keys:
        yield _info(f"settings of GPU Feature Discovery, without effect on this program: {', '.join(keys)}", config.origin(keys[0]))
    if flags.mps_root is not None:
        yield _info("flags.mpsRoot has no effect: nothing is shared through MPS", config.origin("flags.mpsRoot"))


def _without_effect(config: Config) -> Iterator[Problem]:
    plugin, imex = config.flags.plugin, config.imex
    if plugin.pass_device_specs and all(strategy.is_cdi for strategy in plugin.device_list_strategy):
        yield _warning(
            "flags.plugin.passDeviceSpecs has no effect: CDI brings the device nodes, and every deviceListStrategy is a CDI one",
            config.origin("flags.plugin.passDeviceSpecs"),
        )
    cdi = {strategy for strategy in DeviceListStrategy if strategy.is_cdi}
    for key, strategies in (("cdiAnnotationPrefix", {DeviceListStrategy.CDI_ANNOTATIONS}), ("nvidiaCTKPath", cdi)):
        path = f"flags.plugin.{key}"
        origin = config.origin(path)
        if origin.source != "default" and strategies.isdisjoint(plugin.device_list_strategy):
            yield _info(f"{path} has no effect without {' or '.join(sorted(strategies))} in deviceListStrategy", origin)
    if imex.required and not imex.channel_ids:
        yield _warning("imex.required has no effect without imex.channelIDs: [0]", config.origin("imex.required"))
    excluded = {selector: index for index, selector in reversed([*enumerate(config.devices.exclude)])}
    for index, selector in enumerate(config.devices.include):
        if selector in excluded:
            where = _at(config, f"devices.exclude[{excluded[selector]}]")
            message = f"{shown_word(selector)} is also excluded, {where}; it is not offered"
            yield _warning(message, config.origin(f"devices.include[{index}]"))


def _risks(config: Config) -> Iterator[Problem]:
    plugin = config.flags.plugin
    if {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI} <= set(plugin.device_list_strategy):
        yield _warning(
            "cdi-annotations and cdi-cri together name each device to the runtime twice; take cdi-cri where the runtime has it, "
            "else cdi-annotations",
            config.origin("flags.plugin.deviceListStrategy"),
        )
    if plugin.device_id_strategy is DeviceIdStrategy.INDEX:
        yield _warning(
            "with deviceIDStrategy index a container keeps a number that can mean another GPU after a reboot, and two pods may "
            "end up on one GPU; uuid has no such risk",
            config.origin("flags.plugin.deviceIDStrategy"),
        )


def _shadowed(config: Config, kind: str, patterns: tuple[NamedPattern, ...]) -> Iterator[Problem]:
    """A pattern that matches another pattern's text, stars included, matches everything that the other one does.

    A pattern that is shadowed itself shadows nothing that its own shadow does not.
    """
    standing: dict[str, int] = {}
    starred: list[str] = []  # of those standing; another one matches its own text only
    for later, named in enumerate(patterns):
        text = named.pattern
        match = text if text in standing else next((pattern for pattern in starred if matches_pattern(pattern, text)), None)
        if match is None:
            standing[text] = later
            starred += [text] if "*" in text else []
            continue
        yield _warning(
            f"this pattern is never reached: {match!r} {_at(config, f'resources.{kind}[{standing[match]}].pattern')} "
            "matches all that it does",
            config.origin(f"resources.{kind}[{later}].pattern"),
        )


def _warning(message: str, origin: Origin) -> Problem:
    return Problem(Severity.WARNING, ProblemKind.CONFIG, message, origin)


def _info(message: str, origin: Origin) -> Problem:
    return Problem(Severity.INFO, ProblemKind.CONFIG, message, origin)


def _at(config: Config, path: str) -> str:
    return f"at {config.origin(path)}"
