"""How the demo tells its steps: readable colour on a terminal, plain text elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BOLD, _DIM, _GREEN, _CYAN = "1", "2", "32", "36"


class Story:
    """Prints through `write`, a line at a time."""

    def __init__(self, write: Callable[[str], object], *, colour: bool) -> None:
        self._write, self._colour = write, colour
        self._steps = 0

    def title(self, text: str) -> None:
        self._write(f"\n{self._in(_BOLD, text)}")

    def step(self, text: str) -> None:
        """The next numbered step."""
        self._steps += 1
        self._write(f"\n{self._in(_CYAN, f'{self._steps}. {text}')}")

    def text(self, text: str) -> None:
        self._write(f"   {text}")

    def code(self, text: str) -> None:
        for line in text.splitlines():
            self._write(f"   {self._in(_DIM, f'| {line}')}")

    def took(self, what: str, seconds: float) -> None:
        time = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
        self._write(f"   {what}: {self._in(_GREEN, time)}")

    def capacity(self, resource: str, figures: tuple[int, int]) -> None:
        """Capacity counts all devices, allocatable the healthy ones."""
        self._write(f"   {resource:<24} capacity {figures[0]:>3}   allocatable {figures[1]:>3}")

    def change(self, resource: str, before: tuple[int, int], after: tuple[int, int]) -> None:
        self._write(f"   {resource:<24} allocatable {before[1]} of {before[0]} -> {after[1]} of {after[0]}")

    def pod(self, text: str, injected: Mapping[str, str]) -> None:
        """A pod, and what its container gets."""
        self._write(f"   pod {text}")
        for name, value in injected.items():
            self._write(f"       {self._in(_DIM, f'{name} = {value}')}")

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text
