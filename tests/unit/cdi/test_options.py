"""Options come from the config and two lists; nothing unknown is accepted."""

from __future__ import annotations

import pytest

from device_plugin.cdi import CdiFeature, CdiHook, options_from
from device_plugin.config.model import Config, Flags, Imex, PluginFlags
from device_plugin.config.values import MigStrategy
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin


def test_the_config_decides():
    """Extras, channels, hook path, and whether GPUs in MIG mode are offered whole."""
    flags = Flags(gds_enabled=True, mofed_enabled=True, mig_strategy=MigStrategy.MIXED, plugin=PluginFlags(nvidia_ctk_path="/x"))
    config = Config(flags=flags, imex=Imex(channel_ids=[0]))
    options = options_from(config.with_origins({"flags.plugin.nvidiaCTKPath": Origin("--nvidia-ctk-path")}))
    assert (options.extras, options.imex_channels, options.hook_path) == (("gds", "mofed"), (0,), "/x")
    assert options.hook_was_stated
    assert not options.whole_mig_gpus


def test_the_default_hook_path_is_not_a_statement():
    """It says where the program usually is, not that it is there."""
    options = options_from(Config())
    assert not options.hook_was_stated
    assert options.whole_mig_gpus


def test_flags_and_hooks_are_read_with_the_peers_aliases():
    """Its misspelling of one flag too; an empty variable is no value."""
    options = options_from(Config(), ["disable-nvsandbox-utils", "disable-ipc-discoverer", ""], ["chmod", "all"])
    assert options.features == {CdiFeature.DISABLE_NVSANDBOXUTILS, CdiFeature.DISABLE_IPC}
    assert options.disabled_hooks == {CdiHook.CHMOD, CdiHook.ALL}
    assert not options.allows(CdiHook.CREATE_SYMLINKS)


def test_all_unknown_values_are_refused_with_the_known_ones():
    """NVIDIA's plugin ignores them, so a misspelt switch had no effect that anybody saw."""
    with pytest.raises(ConfigError) as refused:
        options_from(Config(), ["no-additional-gids"], ["create-symlink"])
    flag, hook = refused.value.problems
    assert (flag.origin, hook.origin) == (Origin("--cdi-feature-flags"), Origin("--cdi-disable-hooks"))
    assert "'no-additional-gids'" in flag.message
    assert "no-additional-gids-for-device-nodes" in flag.message
    assert "create-symlinks, enable-cuda-compat" in hook.message
