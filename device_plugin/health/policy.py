"""What each XID means for new work on its GPU, and who said so."""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING

from device_plugin.config.values import XidAction
from device_plugin.config.xids import XidClass, XidSet
from device_plugin.config.xids import XidPolicy as Preset
from device_plugin.health.catalogue import catalogue, class_of
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from device_plugin.config.model import Health

DEFAULT_ACTIONS: Mapping[XidClass, XidAction] = MappingProxyType(
    {
        XidClass.IGNORE: XidAction.IGNORE,
        XidClass.RESTART_APP: XidAction.IGNORE,  # the application has to start again, the GPU is fine
        XidClass.WORKFLOW_XID_45: XidAction.IGNORE,  # the clean-up after another fault, which has an XID of its own
        XidClass.RESET_GPU: XidAction.UNTIL_RESET,
        XidClass.WORKFLOW_XID_48: XidAction.UNTIL_RESET,
        XidClass.WORKFLOW_NVLINK_ERR: XidAction.UNTIL_RESET,  # register details decide, and an event does not bring them
        XidClass.WORKFLOW_NVLINK5_ERR: XidAction.UNTIL_RESET,
        XidClass.RESTART_BM: XidAction.UNTIL_REBOOT,
        XidClass.RESTART_VM: XidAction.UNTIL_REBOOT,
        XidClass.CHECK_MECHANICALS: XidAction.UNTIL_REBOOT,
        XidClass.UPDATE_SWFW: XidAction.UNTIL_REBOOT,
        XidClass.CONTACT_SUPPORT: XidAction.UNTIL_REBOOT,
        XidClass.XID_154: XidAction.ASK_DRIVER,  # "the recovery action has changed": the driver says to what
        XidClass.CHECK_UVM: XidAction.UNTIL_RESET,  # not decided by the catalogue: fatal, as every XID is for NVIDIA's plugin
        XidClass.NONE_STATED: XidAction.UNTIL_RESET,
        XidClass.UNKNOWN: XidAction.UNTIL_RESET,
    }
)
"""What each class means where nothing else is said."""

IGNORED_BY_NVIDIA = (13, 31, 43, 45, 68, 109)
"""What NVIDIA's plugin ignores; all other XIDs are fatal to it (NVIDIA/k8s-device-plugin v0.20.0, internal/rm/health.go)."""

COUNTED_BY_GOOGLE = (48,)
"""What Google's plugin counts, and nothing else (GoogleCloudPlatform/container-engine-accelerators#262)."""


@record
class XidVerdict:
    """What an XID means, and who said so (`health.xids`, `NVIDIA's catalogue: RESET_GPU`)."""

    action: XidAction
    reason: str


@record
class XidPolicy:
    """The policy in force. The narrower statement wins, in this order:

    1. `xids`, the action of one XID;
    2. `enabled`: it counts, with the action of its class, or until a reset if that is to ignore it;
    3. `disabled`: it does not count;
    4. `classes`, the action of its class;
    5. `preset`: NVIDIA's catalogue by class, or another plugin's choice of what counts.

    `enabled` and `disabled` are what NVIDIA's plugin calls `DP_ENABLE_HEALTHCHECKS` and `DP_DISABLE_HEALTHCHECKS`, as it documents
    them: single XIDs are enabled though all are disabled, and 0 is a number.
    """

    classes: Mapping[XidClass, XidAction] = field(default_factory=dict)
    xids: Mapping[int, XidAction] = field(default_factory=dict)
    disabled: XidSet = field(default_factory=XidSet)
    enabled: XidSet = field(default_factory=XidSet)
    preset: Preset = Preset.CATALOGUE

    @classmethod
    def from_settings(
        cls,
        classes: Mapping[XidClass, XidAction],
        xids: Mapping[int, XidAction],
        disabled: XidSet,
        enabled: XidSet,
        preset: Preset = Preset.CATALOGUE,
    ) -> XidPolicy:
        """The policy of these settings; later changes of the mappings do not reach it."""
        return cls(dict(classes), dict(xids), disabled, enabled, preset)

    def verdict(self, xid: int) -> XidVerdict:
        """What that XID means."""
        if xid in self.xids:
            return XidVerdict(self.xids[xid], f"health.xids: {xid}")
        xid_class = class_of(xid)
        stated = self.classes.get(xid_class)
        if xid in self.enabled:
            action = stated or DEFAULT_ACTIONS[xid_class]
            return XidVerdict(_counting(action), "health.enableXids (DP_ENABLE_HEALTHCHECKS)")
        if xid in self.disabled:
            return XidVerdict(XidAction.IGNORE, "health.disableXids (DP_DISABLE_HEALTHCHECKS)")
        if stated:
            return XidVerdict(stated, f"health.classes: {xid_class}")
        return self._by_preset(xid, xid_class)

    def _by_preset(self, xid: int, xid_class: XidClass) -> XidVerdict:
        default = DEFAULT_ACTIONS[xid_class]
        if self.preset is Preset.CATALOGUE:
            source = "not in NVIDIA's catalogue" if xid_class is XidClass.UNKNOWN else f"NVIDIA's catalogue: {xid_class}"
            return XidVerdict(default, source)
        counts = xid not in IGNORED_BY_NVIDIA if self.preset is Preset.NVIDIA_DEVICE_PLUGIN else xid in COUNTED_BY_GOOGLE
        return XidVerdict(_counting(default) if counts else XidAction.IGNORE, f"health.policy: {self.preset}")

    def summary(self) -> dict[str, str]:
        """The policy in force, for people: each action with its XIDs (`13, 31-32`); `others` has what all remaining ones mean."""
        named = sorted({*catalogue(), *self.xids, *self.disabled.xids, *self.enabled.xids})
        by_action: dict[XidAction, list[int]] = {action: [] for action in XidAction}
        for xid in named:
            by_action[self.verdict(xid).action].append(xid)
        other = next(number for number in range(len(named) + 1) if number not in named)
        return {action.value: _ranges(xids) for action, xids in by_action.items()} | {"others": self.verdict(other).action.value}


def policy_from(health: Health) -> XidPolicy:
    """The policy that the config's block `health` asks for."""
    return XidPolicy.from_settings(health.classes, health.xids, health.disable_xids, health.enable_xids, health.policy)


def _counting(action: XidAction) -> XidAction:
    return XidAction.UNTIL_RESET if action is XidAction.IGNORE else action


def _ranges(numbers: Iterable[int]) -> str:
    """`13, 31-32` from ascending numbers."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in ranges)
