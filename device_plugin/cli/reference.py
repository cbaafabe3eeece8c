"""The page of the commands, made from their help texts.

`python -m device_plugin.cli.reference` brings `docs/commands.md` of a checkout up to date: each block between two markers is what
the command named there prints for `--help`. A test holds the page to the parser.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.arguments import PROGRAM, make_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = "docs/commands.md"
COLUMNS = 100
_BLOCK = re.compile(r"<!-- help: (?P<command>[a-z ]*) -->\n.*?<!-- end of help -->", re.DOTALL)


def with_help(page: str) -> str:
    """The page with the present help of each command between its markers."""
    return _BLOCK.sub(lambda match: _block(match["command"]), page)


def documented(page: str) -> list[str]:
    """The commands whose help the page holds, in its order."""
    return [match["command"] for match in _BLOCK.finditer(page)]


def _block(command: str) -> str:
    words = command.split()
    call = " ".join([PROGRAM, *words, "--help"])
    return f"<!-- help: {command} -->\n```console\n$ {call}\n{_help(words)}```\n<!-- end of help -->"


def _help(words: Sequence[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        make_parser(COLUMNS).parse_args([*words, "--help"])
    return printed.getvalue()


def write(root: Path) -> None:
    """Brings the page of a checkout up to date."""
    page = root / PAGE
    page.write_text(with_help(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
