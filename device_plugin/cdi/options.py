"""What the operator decides about CDI specifications."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from device_plugin.allocation.cdi_names import CdiClass
from device_plugin.allocation.model import DEFAULT_CDI_KIND_PREFIX
from device_plugin.config.values import MigStrategy
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from device_plugin.config.model import Config


class CdiFeature(StrEnum):
    """The values of `--cdi-feature-flags`, as NVIDIA's plugin names them.

    This plugin reads device nodes without libnvsandboxutils and refuses Tegra, so the three flags about those hold in any case.
    """

    EXPLICIT_DRIVER_LIBRARIES = "enable-explicit-driver-libraries"
    DISABLE_NVSANDBOXUTILS = "disable-nvsandboxutils"
    COHERENT_ANNOTATIONS = "enable-coherent-annotations"
    DISABLE_MULTIPLE_CSV_DEVICES = "disable-multiple-csv-devices"
    NO_ADDITIONAL_GIDS = "no-additional-gids-for-device-nodes"
    DISABLE_IPC = "disable-ipc-discoverer"


class CdiHook(StrEnum):
    """The hooks of NVIDIA's hook program, and the value `all`, for `--cdi-disable-hooks`. `chmod` is never asked for."""

    CREATE_SYMLINKS = "create-symlinks"
    ENABLE_CUDA_COMPAT = "enable-cuda-compat"
    UPDATE_LDCACHE = "update-ldcache"
    DISABLE_DEVICE_NODE_MODIFICATION = "disable-device-node-modification"
    UPDATE_APPLICATION_PROFILE = "update-application-profile"
    CHMOD = "chmod"
    ALL = "all"


EXTRA_CLASSES = (CdiClass.GDRCOPY, CdiClass.GDS, CdiClass.MOFED)


@record
class CdiOptions:
    """What goes into the specifications.

    `hook_path` is a path on the host; `hook_was_stated` says that the operator gave it, so that it is believed where this process
    cannot see that part of the host. `extras` are those of `gdrcopy`, `gds`, `mofed` that are switched on, `imex_channels`
    the channel numbers wanted. `whole_mig_gpus` says that a GPU in MIG mode is offered whole (MIG strategy `none`).
    """

    kind_prefix: str = DEFAULT_CDI_KIND_PREFIX
    features: frozenset[CdiFeature] = frozenset()
    disabled_hooks: frozenset[CdiHook] = frozenset()
    hook_path: str = "/usr/bin/nvidia-ctk"
    hook_was_stated: bool = False
    extras: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    whole_mig_gpus: bool = False

    def allows(self, hook: CdiHook) -> bool:
        """Whether the operator left that hook in."""
        return not {hook, CdiHook.ALL} & self.disabled_hooks


def options_from(config: Config, feature_flags: Iterable[str] = (), disabled_hooks: Iterable[str] = ()) -> CdiOptions:
    """The options of a config and of the two lists that have a flag and a variable only.

    Raises ConfigError naming each unknown value and the known ones: a misspelt switch that does nothing would be found by nobody.
    """
    problems: list[Problem] = []
    flags = config.flags
    switched_on = {"gdrcopy": flags.gdrcopy_enabled, "gds": flags.gds_enabled, "mofed": flags.mofed_enabled}
    options = CdiOptions(
        features=_parse(
            CdiFeature, "--cdi-feature-flags", feature_flags, problems, {"disable-nvsandbox-utils": "disable-nvsandboxutils"}
        ),
        disabled_hooks=_parse(CdiHook, "--cdi-disable-hooks", disabled_hooks, problems),
        hook_path=flags.plugin.nvidia_ctk_path,
        hook_was_stated=config.origin("flags.plugin.nvidiaCTKPath").source != "default",
        extras=tuple(extra for extra in EXTRA_CLASSES if switched_on[extra]),
        imex_channels=tuple(sorted(set(config.imex.channel_ids))),
        whole_mig_gpus=flags.mig_strategy is MigStrategy.NONE,
    )
    if problems:
        raise ConfigError(problems)
    return options


_E = TypeVar("_E", bound=StrEnum)


def _parse(
    known: type[_E], flag: str, texts: Iterable[str], problems: list[Problem], aliases: Mapping[str, str] | None = None
) -> frozenset[_E]:
    """The values named by `texts`; empty items (an empty variable) count as none. Unknown ones go to `problems`."""
    found: set[_E] = set()
    for text in texts:
        value = (aliases or {}).get(text, text)
        try:
            found.update([known(value)] if value else [])
        except ValueError:
            message = f"{text!r} is unknown; known are {', '.join(known)}"
            problems.append(Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(flag)))
    return frozenset(found)
