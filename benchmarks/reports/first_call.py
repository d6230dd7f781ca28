"""Seconds until the first answer, with an empty cache and with a full one.

    python -m benchmarks.reports.first_call [--only fit] [--before CHECKOUT]
    python -m benchmarks.reports.first_call --programs [--before CHECKOUT]

Each call is made in a process of its own, which compiles a small reference kernel first: a unit in
which machines, and a machine at two times, can be compared.  What a call imports counts.

With ``--programs`` calls of JAX arrays are measured instead, plainly and inside of ``jax.jit``: the
processor's seconds and the number of programs, of this version and of an older one in turn.
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
from .registry import write_blocks

ROOT = Path(__file__).parents[2]
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

JAX_PROGRAM = """
import json, time
import jax, jax.numpy as jnp, numpy as np, olsq
from olsq import attention
counts = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: counts.append(1) if event.endswith("backend_compile_duration") else None
)
x = np.random.default_rng(0).standard_normal((3, 1, 256, 2, 32)).astype(np.float32)
q, k, v = (jax.device_put(a) for a in x)
t = tuple(jax.device_put(a[:, 0]) for a in x)
s = tuple(jax.device_put(a[0, :, 0]) for a in x)
one = jax.device_put(x[0, 0, 0, 0]), jax.device_put(x[1, 0, 0, 0, :4])
moments = olsq.Moments(*(jax.device_put(a) for a in (np.eye(32, dtype="f4"), x[0, 0, :4, 0])))
call = {call}
found = []
for function in (call, jax.jit(call)):
    counts.clear()
    start = time.process_time()
    jax.block_until_ready(function(0.99))
    found += [time.process_time() - start, len(counts)]
    again = []
    for _ in range(9):
        start = time.perf_counter()
        jax.block_until_ready(function(0.99))
        again.append(time.perf_counter() - start)
    found.append(1e3 * min(again))
print(json.dumps(found))
"""
JAX_CALLS = {
    "`attention.gla`": "lambda g: attention.gla(q, k, v, forget=g)",
    "`attention.gla_step`": "lambda g: attention.gla_step(*t, forget=g)",
    "`attention.softmax`": "lambda g: attention.softmax(q, k, v, scale=0.1)",
    "`attention.gated_delta`": "lambda g: attention.gated_delta(q, k, v, forget=g)",
    "`attention.mesa`": "lambda g: attention.mesa(q, k, v, ridge=1.0, forget=g)",
    "`online_lstsq`, JAX": "lambda g: olsq.online_lstsq(*s, ridge=1.0, forget=g)",
    "`local_lstsq`, JAX": "lambda g: olsq.local_lstsq(*s, ridge=1.0)",
    "`update`, JAX": "lambda g: olsq.update(moments, *one, forget=g)",
}
PROGRAMS_RESULTS = RESULTS.with_name("first_programs.json")
FIELDS = "seconds", "programs", "ms"


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


def count_programs(name: str, checkout: Path) -> dict[str, dict[str, float]]:
    """Seconds of the processor, programs, and milliseconds again: of a plain and a jitted call."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JAX_PROGRAM.format(call=JAX_CALLS[name])],
        capture_output=True,
        text=True,
        check=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    found = json.loads(done.stdout)
    plain, jitted = (dict(zip(FIELDS, part, strict=True)) for part in (found[:3], found[3:]))
    return {"plain": plain, "jitted": jitted}


def report_programs(only: str | None, before: Path | None) -> None:
    """Measure calls of JAX arrays, of an older version too if there is one, store and show.

    Without one, the stored measurements of an older version stay.
    """
    stored = json.loads(PROGRAMS_RESULTS.read_text()) if PROGRAMS_RESULTS.exists() else {}
    calls = {}
    for name in JAX_CALLS:
        if only is not None and only not in name:
            continue
        versions = {"before": before, "after": ROOT}
        calls[name] = stored.get("calls", {}).get(name, {})
        calls[name] |= {v: count_programs(name, path) for v, path in versions.items() if path}
        print(name, json.dumps(calls[name]), flush=True)
    if only is None:
        results = {"machine": machine.describe(), "calls": calls}
        PROGRAMS_RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    """Measure every first call, store and show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="calls whose name contains this; nothing is stored")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="store the first calls of an older version"
    )
    parser.add_argument("--programs", action="store_true", help="measure calls of JAX arrays")
    arguments = parser.parse_args()
    if arguments.programs:
        report_programs(arguments.only, arguments.before)
        return
    calls = first_calls(arguments.only, arguments.before or ROOT)
    if arguments.only is not None:
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.before is not None:
        results["before"] = {name: r["empty"] for name, r in calls.items()}
    else:
        results |= {"machine": machine.describe(), "calls": calls}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_blocks("first_call", results)


if __name__ == "__main__":
    main()
