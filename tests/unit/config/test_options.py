"""Flags and variables come from the model, under the peer's names."""

from __future__ import annotations

import pytest

from device_plugin.config.options import OptionKind, fields, options

PEERS = {
    "flags.migStrategy": ("mig-strategy", "MIG_STRATEGY"),
    "flags.failOnInitError": ("fail-on-init-error", "FAIL_ON_INIT_ERROR"),
    "flags.nvidiaDriverRoot": ("driver-root nvidia-driver-root", "NVIDIA_DRIVER_ROOT"),
    "flags.nvidiaDevRoot": ("dev-root nvidia-dev-root", "NVIDIA_DEV_ROOT"),
    "flags.plugin.passDeviceSpecs": ("pass-device-specs", "PASS_DEVICE_SPECS"),
    "flags.plugin.deviceListStrategy": ("device-list-strategy", "DEVICE_LIST_STRATEGY"),
    "flags.plugin.deviceIDStrategy": ("device-id-strategy", "DEVICE_ID_STRATEGY"),
    "flags.gdrcopyEnabled": ("gdrcopy-enabled", "GDRCOPY_ENABLED"),
    "flags.gdsEnabled": ("gds-enabled", "GDS_ENABLED"),
    "flags.mofedEnabled": ("mofed-enabled", "MOFED_ENABLED"),
    "flags.plugin.cdiAnnotationPrefix": ("cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX"),
    "flags.plugin.nvidiaCTKPath": ("nvidia-cdi-hook-path nvidia-ctk-path", "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH"),
    "flags.plugin.containerDriverRoot": (
        "driver-root-ctr-path container-driver-root",
        "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
    ),
    "flags.mpsRoot": ("mps-root", "MPS_ROOT"),
    "flags.plugin.sharedDevicesAllocationPolicy": ("shared-devices-allocation-policy", "SHARED_DEVICES_ALLOCATION_POLICY"),
    "flags.deviceDiscoveryStrategy": ("device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY"),
    "imex.channelIDs": ("imex-channel-ids", "IMEX_CHANNEL_IDS"),
    "imex.required": ("imex-required", "IMEX_REQUIRED"),
    "health.disableXids": ("disable-xids", "DP_DISABLE_HEALTHCHECKS"),
    "health.enableXids": ("enable-xids", "DP_ENABLE_HEALTHCHECKS"),
}


def test_the_settings_have_the_peers_names():
    assert {option.path: (" ".join(option.flags), " ".join(option.variables)) for option in options()} == PEERS


def test_no_name_stands_for_two_settings():
    flags = [flag for option in options() for flag in option.flags]
    variables = [variable for option in options() for variable in option.variables]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize(
    ("path", "kind", "default"),
    [
        ("flags.migStrategy", OptionKind.STRING, "none"),
        ("flags.failOnInitError", OptionKind.BOOL, "true"),
        ("flags.nvidiaDevRoot", OptionKind.STRING, "unset"),
        ("flags.plugin.deviceListStrategy", OptionKind.LIST, "envvar"),
        ("imex.channelIDs", OptionKind.INTS, "unset"),
        ("health.enableXids", OptionKind.LIST, "unset"),
    ],
)
def test_kind_and_default(path, kind, default):
    option = next(option for option in options() if option.path == path)
    assert option.kind is kind
    assert f"Default: {default}." in option.help


def test_help_tells_choices_default_and_variables():
    option = next(option for option in options() if option.path == "flags.migStrategy")
    assert option.help == "How MIG devices are offered. One of none, single, mixed. Default: none. [MIG_STRATEGY]"


def test_every_field_is_described():
    assert [field.path for field in fields() if not field.info.description] == []
