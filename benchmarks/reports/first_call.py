"""Seconds until the first answer, with an empty cache and with a full one.

    python -m benchmarks.reports.first_call [--only fit] [--before CHECKOUT]

Each call is made in a process of its own, which compiles a small reference kernel first: a unit in
which machines, and a machine at two times, can be compared.  What a call imports counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ..support import machine
from ..support.marked import replace_between

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "measurements" / "speed.md"
RESULTS = Path(__file__).parents[1] / "results" / "first_call.json"

PROGRAM = """
import json, time
import numpy as np
from typing import NamedTuple
import olsq
from olsq.kernels import kernel
CALLS = {calls!r}

class State(NamedTuple):
    P: np.ndarray
    theta: np.ndarray

@kernel()
def reference(state, x, y):
    error = y
    for i in range(x.size):
        error -= state.theta[i] * x[i]
    for i in range(x.size):
        gain = 0.0
        for j in range(x.size):
            gain += state.P[i, j] * x[j]
        state.theta[i] += gain * error
    return error

X, y = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
Y, K = np.stack([y, y], 1), np.random.default_rng(0).standard_normal((2, 40, 4))
setup, call = CALLS[{name!r}]
start = time.perf_counter()
reference(State(np.eye(3), np.zeros(3)), np.ones(3), 1.0)
unit = time.perf_counter() - start
exec(setup)
start = time.perf_counter()
exec(call)
print(json.dumps([unit, time.perf_counter() - start]))
"""
CALLS = {
    "`RecursiveLeastSquares.fit`": ("", "olsq.RecursiveLeastSquares().fit(X, y)"),
    "several targets": ("", "olsq.RecursiveLeastSquares().fit(X, Y)"),
    "`RandomWalk`": (
        "", "olsq.RecursiveLeastSquares(forget=olsq.forgetting.RandomWalk(.1)).fit(X, y)",
    ),
    "`RollingLeastSquares.fit`": ("", "olsq.RollingLeastSquares(10).fit(X, y)"),
    "`RobustLeastSquares.fit`": ("", "olsq.RobustLeastSquares().fit(X, y)"),
    "`GroupedLeastSquares.fit`": ("", "olsq.GroupedLeastSquares().fit(X, y, by=np.arange(50) % 2)"),
    "`FilterBank.step`": ("", "olsq.FilterBank(2).step(X[:2], y[:2])"),
    "`from olsq import compiled`": ("", "from olsq import compiled"),
    "`compiled.update`": (
        "from olsq import compiled; s = compiled.init(3)", "compiled.update(s, X[0], 1.0)",
    ),
    "`online_lstsq` of NumPy arrays": ("", "olsq.online_lstsq(K, K, K, ridge=1.0)"),
    "the same, float32": ("K = K.astype(np.float32)", "olsq.online_lstsq(K, K, K, ridge=1.0)"),
}  # fmt: skip


def measure(name: str, cache: str, checkout: Path = ROOT) -> tuple[float, float]:
    """Seconds of the reference kernel and of the call, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(calls=CALLS, name=name)],
        capture_output=True,
        text=True,
        check=True,
        cwd=checkout,
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(checkout)},
    )
    unit, seconds = json.loads(done.stdout)
    return unit, seconds


def table(results: dict) -> str:
    """The Markdown table of the page."""
    lines = [
        "| first call | empty cache, s | in reference kernels | full cache, s |",
        "|---|---|---|---|",
    ]
    for name, r in results["calls"].items():
        units = r["empty"] / r["unit"]
        lines.append(f"| {name} | {r['empty']:.1f} | {units:.0f} | {r['full']:.2f} |")
    return "\n".join(lines)


def first_calls(only: str | None, checkout: Path) -> dict[str, dict[str, float]]:
    """Measure the calls whose name contains ``only``."""
    calls = {}
    for name in CALLS:
        if only is not None and only not in name:
            continue
        with tempfile.TemporaryDirectory() as cache:
            unit, empty = measure(name, cache, checkout)
            full = measure(name, cache, checkout)[1]
        calls[name] = {"unit": unit, "empty": empty, "full": full}
        units = empty / unit
        print(f"{name:40s} {empty:6.1f} s, {units:5.1f} units; then {full:.2f} s", flush=True)
    return calls


def main() -> None:
    """Measure every first call, store and show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="calls whose name contains this; nothing is stored")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="store the first calls of an older version"
    )
    arguments = parser.parse_args()
    calls = first_calls(arguments.only, arguments.before or ROOT)
    if arguments.only is not None:
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.before is not None:
        results["before"] = {name: r["empty"] for name, r in calls.items()}
    else:
        results |= {"machine": machine.describe(), "calls": calls}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    replace_between(PAGE, "first call", table(results))


if __name__ == "__main__":
    main()
