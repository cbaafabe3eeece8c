"""Problems: something wrong with the config or the node, and where it comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from device_plugin.records import ordered_record, record

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How much a problem matters. An `ERROR` means that something asked for is not served."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@ordered_record
class Origin:
    """Where a value was stated.

    `source` is a file's path, a flag (`--mig-strategy`), an environment variable (`MIG_STRATEGY`), `node` for what the hardware
    says or `default`. `line` and `column` count from 1 and are 0 where the source is not a file. `path` is the key's path in the
    config format (`sharing.timeSlicing.resources[0].name`), empty where there is none.
    """

    source: str
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


class ProblemKind(StrEnum):
    """What a problem is about, for code that must decide by it; the table is in docs/configuration.md."""

    CONFIG = "config"  # the text itself: syntax, unknown key, type, value
    CONTRADICTION = "contradiction"  # two entries claim one device, or disagree about one resource
    UNMET = "unmet"  # an entry that this node cannot meet: index 9 of 8, a model that is not there
    TOO_LARGE = "too-large"  # a list over kubelet's message limit
    MIG_SINGLE = "mig-single"  # the MIG layout does not fit the strategy `single`
    MIG = "mig"  # another trouble with one GPU's MIG devices
    HARDWARE = "hardware"  # the driver or one GPU
    DIFFERENCE = "difference"  # a taken-over file means more here than for NVIDIA's plugin
    PLATFORM = "platform"  # a platform that is not supported, or not as configured


@record
class Problem:
    """One thing wrong. `message` says what was found, what was expected and what to do, without the place.

    As text it is a line: the place, the severity, the config path, the message. A path that the message names is not said twice.
    """

    severity: Severity
    kind: ProblemKind
    message: str
    origin: Origin

    def __str__(self) -> str:
        path = self.origin.path
        text = self.message if not path or _names(self.message, path) else f"{path}: {self.message}"
        return f"{self.origin}: {self.severity}: {text}"


def _names(message: str, path: str) -> bool:
    """Whether the message has the path as a word of its own, not as a part of another path or of a value in quotes.

    Without a pattern for each path: a file can have thousands of problems.
    """
    start = message.find(path)
    while start >= 0:
        before, after = message[:start], message[start + len(path) :]
        begins = before.endswith("key '") or not before or not (before[-1].isalnum() or before[-1] in "_.'")
        goes_on = after[:1].isalnum() or after.startswith(("_", "[")) or (after.startswith(".") and after[1:2].isalnum())
        if begins and not goes_on:
            return True
        start = message.find(path, start + 1)
    return False


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """What was probably meant by a word: the most alike of the known ones, None if none is alike enough (1: the same)."""
    import difflib  # noqa: PLC0415 - most starts have no use for it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)), None)
