"""`python -m bench`: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.calls import measure_calls, measure_many
from bench.changes import measure_restarts, measure_swaps, measure_xids
from bench.figures import format_rows
from bench.life import measure_life
from bench.process import BenchFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Row

GROUPS = {
    "life": measure_life,
    "calls": measure_calls,
    "many": measure_many,
    "swaps": measure_swaps,
    "restarts": measure_restarts,
    "xids": measure_xids,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 whatever the figures, unless `--check` was given and one is over its budget (1); 2: could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench.json"), help="where the JSON goes; default: build/bench.json"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts; default: 3")
    parser.add_argument("--only", choices=GROUPS, action="append", help="measure this group only; may be repeated")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is missed")
    arguments = parser.parse_args(argv)
    machine = describe_machine()
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    rows: list[Row] = []
    try:
        for name in arguments.only or GROUPS:
            started = time.monotonic()
            rows += asyncio.run(GROUPS[name](arguments.rounds))
            print(f"measured {name} in {time.monotonic() - started:.0f} s", file=sys.stderr)
    except BenchFailed as failure:
        print(f"could not measure {name}: {failure}", file=sys.stderr)
        return 2
    print(format_rows(rows))
    missed = [row for row in rows if row.passes is False]
    print(f"{len(missed)} of {sum(row.passes is not None for row in rows)} budgets missed")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"machine": machine, "rows": [row.to_json() for row in rows]}, indent=2) + "\n")
    return 1 if missed and arguments.check else 0


def describe_machine() -> dict[str, Any]:
    """What the figures depend on. The load is that of the last minute before the measurement."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    sys.exit(main())
