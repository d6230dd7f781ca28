"""Measure who stays finite and exact, and write the table into ``docs/measurements/accuracy.md``.

    python -m benchmarks.reports.stability  # run what is missing, then write table and figures
    python -m benchmarks.reports.stability --peers  # only the other libraries
    python -m benchmarks.reports.stability --olsq  # only olsq, discarding its earlier results
    python -m benchmarks.reports.stability --render  # only write

Every finished cell is on disk (``benchmarks/results/stability.json``) before the next one starts,
so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ..support import machine
from ..support.peers import OLSQ, PEERS, available
from ..support.stability_cases import Case, judge, main_cases, shortened, special_cases
from . import rolling_drift

RESULTS = Path(__file__).parents[1] / "results" / "stability.json"


def load() -> dict:
    """Results so far."""
    if RESULTS.exists():
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"machine": {}, "cells": {}}


def store(results: dict) -> None:
    """Write all results; a reader never sees half a file."""
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, RESULTS)


def measure(cases: list[Case], methods: dict[str, type], results: dict, machine_key: str) -> None:
    """Fill the cells of ``methods`` that are missing."""
    results["machine"][machine_key] = machine.describe()
    for case in cases:
        cells = results["cells"].setdefault(case.name, {})
        for name, make in methods.items():
            task = shortened(case, name)
            if task is None or name in cells or not available(name):
                continue
            cells[name] = judge(task, make)
            store(results)
            print(f"{case.name:40s} {name:18s} {cells[name]}", file=sys.stderr, flush=True)


def measure_rolling(results: dict, ours: bool) -> None:
    """Fill the missing cells of the rolling table: olsq's (``ours``) or the others'."""
    for stream in rolling_drift.STREAMS:
        cells = results["cells"].setdefault(f"rolling {stream}", {})
        for name, (library, _, _) in rolling_drift.METHODS.items():
            if (library == "olsq") is not ours or name in cells or not available(library):
                continue
            cells[name] = rolling_drift.judge(stream, name)
            store(results)
            print(f"rolling {stream:32s} {name:18s} {cells[name]}", file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="only the other libraries")
    parser.add_argument("--olsq", action="store_true", help="only olsq, measured afresh")
    parser.add_argument("--render", action="store_true", help="only write the page and figures")
    options = parser.parse_args()

    results = load()
    cases = [*main_cases(), *special_cases()]
    if options.olsq:
        for cells in results["cells"].values():
            for name in [name for name in cells if name.startswith("olsq")]:
                del cells[name]
    if not options.render:
        if not options.olsq:
            measure(cases, PEERS, results, "peers")
            measure_rolling(results, ours=False)
        if not options.peers:
            measure(cases, OLSQ, results, "olsq")
            measure_rolling(results, ours=True)
            store(results)
    if not options.peers:
        from .stability_report import write

        write(results)


if __name__ == "__main__":
    main()
