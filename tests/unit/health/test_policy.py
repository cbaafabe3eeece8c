"""What every XID means, by NVIDIA's catalogue and by what the operator says."""

from __future__ import annotations

import pytest

from device_plugin.config.model import Health
from device_plugin.config.values import XidAction
from device_plugin.config.xids import XidClass, XidSet
from device_plugin.config.xids import XidPolicy as Preset
from device_plugin.health.catalogue import catalogue, class_of, describe
from device_plugin.health.policy import DEFAULT_ACTIONS, XidPolicy, policy_from

IGNORE, RESET, REBOOT, ASK = XidAction.IGNORE, XidAction.UNTIL_RESET, XidAction.UNTIL_REBOOT, XidAction.ASK_DRIVER
EVERYTHING = XidSet(all=True)


def policy(classes=(), xids=(), disabled=(), enabled=(), preset=Preset.CATALOGUE):
    def some(these):
        return these if isinstance(these, XidSet) else XidSet(xids=tuple(these))

    return XidPolicy.from_settings(dict(classes), dict(xids), some(disabled), some(enabled), preset)


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (14, IGNORE),  # IGNORE
        (13, IGNORE),  # RESTART_APP
        (31, IGNORE),
        (43, IGNORE),
        (94, IGNORE),
        (45, IGNORE),  # the clean-up after another fault
        (46, RESET),  # RESET_GPU
        (95, RESET),
        (109, RESET),
        (119, RESET),
        (48, RESET),
        (74, RESET),  # NVLink
        *((xid, RESET) for xid in range(144, 151)),
        (79, REBOOT),  # RESTART_BM
        (151, REBOOT),  # RESTART_VM
        (54, REBOOT),  # CHECK_MECHANICALS
        (78, REBOOT),  # UPDATE_SWFW
        (142, REBOOT),  # CONTACT_SUPPORT
        (154, ASK),
        (159, RESET),  # CHECK_UVM
        (171, RESET),  # NONE_STATED
        (1, RESET),  # not in the catalogue
        (0, RESET),
        (9999, RESET),
        (2**64 - 1, RESET),
    ],
)
def test_the_defaults_follow_the_catalogue(xid, action):
    """The class decides, not a hand-kept list, and the verdict says so."""
    verdict = policy().verdict(xid)
    assert verdict.action is action
    assert str(class_of(xid)) in verdict.reason or verdict.reason == "not in NVIDIA's catalogue"


def test_every_class_has_a_default_and_every_entry_a_class():
    """No XID of the catalogue can be without a verdict."""
    assert set(DEFAULT_ACTIONS) == set(XidClass)
    assert len(catalogue()) > 100
    for xid, entry in catalogue().items():
        assert policy().verdict(xid).action is DEFAULT_ACTIONS[entry.xid_class]


def test_the_defaults_contradict_the_catalogue_nowhere():
    """NVIDIA/k8s-device-plugin#1974, NVIDIA/k8s-device-plugin#945: 94 (restart the application) took the GPU out, 109 (reset the
    GPU) was ignored."""
    assert policy().verdict(94).action is IGNORE
    assert policy().verdict(109).action is RESET
    assert policy().verdict(68).reason == "NVIDIA's catalogue: RESTART_APP"


def test_an_xid_has_its_name():
    """People read names; an XID that has none keeps its number."""
    assert describe(79) == "XID 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS)"
    assert describe(9999) == "XID 9999"


@pytest.mark.parametrize(
    ("settings", "xid", "action", "source"),
    [
        ({"classes": {XidClass.RESTART_APP: RESET}}, 13, RESET, "health.classes: RESTART_APP"),
        ({"classes": {XidClass.RESTART_APP: RESET}}, 79, REBOOT, "NVIDIA's catalogue: RESTART_BM"),
        ({"classes": {XidClass.UNKNOWN: IGNORE}}, 9999, IGNORE, "health.classes: UNKNOWN"),
        ({"classes": {XidClass.RESTART_BM: ASK}, "xids": {79: RESET}}, 79, RESET, "health.xids: 79"),
        ({"xids": {48: IGNORE}, "enabled": [48]}, 48, IGNORE, "health.xids: 48"),
        ({"disabled": [48, 79]}, 48, IGNORE, "health.disableXids (DP_DISABLE_HEALTHCHECKS)"),
        ({"disabled": [48, 79]}, 46, RESET, "NVIDIA's catalogue: RESET_GPU"),
        ({"disabled": [79], "classes": {XidClass.RESTART_BM: RESET}}, 79, IGNORE, "health.disableXids (DP_DISABLE_HEALTHCHECKS)"),
        ({"enabled": [45]}, 45, RESET, "health.enableXids (DP_ENABLE_HEALTHCHECKS)"),
        ({"enabled": [79]}, 79, REBOOT, "health.enableXids (DP_ENABLE_HEALTHCHECKS)"),
        ({"enabled": [13], "classes": {XidClass.RESTART_APP: REBOOT}}, 13, REBOOT, "health.enableXids (DP_ENABLE_HEALTHCHECKS)"),
        ({"preset": Preset.GKE, "classes": {XidClass.RESTART_BM: REBOOT}}, 79, REBOOT, "health.classes: RESTART_BM"),
    ],
)
def test_the_narrower_statement_wins(settings, xid, action, source):
    """Single XIDs before enabled before disabled before classes before the preset; the verdict says which it was."""
    verdict = policy(**settings).verdict(xid)
    assert (verdict.action, verdict.reason) == (action, source)


@pytest.mark.parametrize(
    ("disabled", "enabled", "counts", "ignored"),
    [
        ((), (), [48, 79, 555], [13, 31, 43, 45]),
        (EVERYTHING, (), [], [48, 79, 555]),
        ((), EVERYTHING, [13, 555, 14, 45], []),
        (EVERYTHING, EVERYTHING, [13, 555], []),
        ((11,), (11,), [11], [13, 31]),
        (EVERYTHING, (68, 67), [67, 68], [48, 79]),
        ((0,), (), [48, 79], [0, 13]),
        ((), (0,), [0, 48], [13, 31]),
    ],
)
def test_the_peers_settings_work_as_it_documents_them(disabled, enabled, counts, ignored):
    """Its two variables, without the faults: 0 stands for XID 0 and not for all, and single XIDs count though all are disabled."""
    made = policy(disabled=disabled, enabled=enabled)
    assert [xid for xid in counts + ignored if made.verdict(xid).action is not IGNORE] == counts


def test_nvidias_choice_is_one_setting_away():
    """`policy: nvidia-device-plugin` ignores what its plugin ignores and counts all else."""
    made = policy(preset=Preset.NVIDIA_DEVICE_PLUGIN)
    assert {xid for xid in range(200) if made.verdict(xid).action is IGNORE} == {13, 31, 43, 45, 68, 109}
    assert made.verdict(79).action is REBOOT
    assert made.verdict(94).reason == "health.policy: nvidia-device-plugin"


def test_googles_choice_is_one_setting_away():
    """GoogleCloudPlatform/container-engine-accelerators#262: 48 alone counts, others are added one by one."""
    made = policy(preset=Preset.GKE, enabled=[79])
    assert [xid for xid in range(200) if made.verdict(xid).action is not IGNORE] == [48, 79]


def test_the_policy_in_force_can_be_printed():
    """GoogleCloudPlatform/container-engine-accelerators#497: nobody should have to guess what is in force."""
    assert policy(disabled=EVERYTHING, enabled=[48, 79, 80]).summary() | {"ignore": ""} == {
        "ignore": "",
        "untilReset": "48, 80",
        "untilReboot": "79",
        "askDriver": "",
        "others": "ignore",
    }
    summary = policy(xids={9999: REBOOT}).summary()
    assert summary["untilReboot"] == "54, 78-79, 142, 151, 9999"
    assert summary["others"] == "untilReset"


def test_the_config_block_becomes_the_policy():
    """Every setting of `health` about XIDs arrives."""
    made = policy_from(
        Health(
            classes={XidClass.RESET_GPU: REBOOT},
            xids={13: ASK},
            disable_xids=XidSet(xids=(48,)),
            enable_xids=XidSet(xids=(45,)),
            policy=Preset.GKE,
        )
    )
    assert [made.verdict(xid).action for xid in (46, 13, 48, 45, 79)] == [REBOOT, ASK, IGNORE, RESET, IGNORE]
