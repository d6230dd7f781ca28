"""The default solver beside plain conjugate gradient at every kind of gates, in one process.

    python -m benchmarks.reports.sequence_gates  # five minutes; rewrites the table in the docs

8 heads, 2,048 tokens, d 64, Zipf tokens, float32.  Conjugate gradient stops at 1e-6, the default
goes on to rounding.  "mixed" are gates of .999 with .1 at every 20th token on average, "resets"
have a 0 at every 500th.  The sides take turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.reports.numpy_solvers import alternate
from benchmarks.reports.registry import write_blocks
from benchmarks.suites.sequence_streams import make
from benchmarks.support import machine
from olsq.reference import sequence as reference

RESULTS = Path(__file__).parents[1] / "results" / "sequence_gates.json"
HEADS, LENGTH, WIDTH = 8, 2048, 64
GATES = (0.3, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0, "mixed", "resets")
RIDGES = (1.0, 0.01)
SOLVERS = {"default": None, "cg": olsq.ConjugateGradient(400, 1e-6)}


def gates_of(kind: float | str) -> np.ndarray:
    """Gates (H, T) by name, or all equal."""
    chance = np.random.default_rng(0).uniform(size=(HEADS, LENGTH))
    if kind == "mixed":
        gates = np.where(chance < 0.05, 0.1, 0.999)
    elif kind == "resets":
        gates = np.where(chance < 0.002, 0.0, 0.999)
    else:
        gates = np.full(chance.shape, kind)
    return gates.astype(np.float32)


def solved(solver: str, ridge: float, arrays: tuple[Any, ...]) -> Callable[[], Any]:
    """A compiled solve, ready to run."""

    @jax.jit
    def run(k: Any, v: Any, q: Any, g: Any) -> Any:
        return olsq.online_lstsq(k, v, q, forget=g, ridge=ridge, solver=SOLVERS[solver]).value

    on_device = tuple(map(jnp.asarray, arrays))
    return lambda: run(*on_device)


UNSHOWN = ("0.5", "0.8", "0.95", "0.98")  # close to their neighbours


def table(rows: list[list[Any]]) -> str:
    """The page's table: milliseconds of both solvers and their ratio."""
    lines = ["| ridge | gates | default ms | CG ms | ratio |", "|---|---|---|---|---|"]
    for ridge, kind, ours, plain, *_ in rows:
        if str(kind) in UNSHOWN:
            continue
        lines.append(
            f"| {ridge:g} | {kind} | {1e3 * ours:.0f} | {1e3 * plain:.0f} | {ours / plain:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    streams = make("tokens", HEADS, LENGTH, WIDTH, WIDTH)
    rows: list[list[Any]] = []
    for ridge in RIDGES:
        for kind in GATES:
            gates = gates_of(kind)
            runs = [solved(name, ridge, (*streams, gates)) for name in SOLVERS]
            wide = [np.asarray(x[0], np.float64) for x in streams]
            truth = reference.solve(
                *wide, forget=gates[0].astype(np.float64), ridge=np.full(WIDTH, ridge)
            ).value
            size = np.abs(truth).max()
            errors = [float(np.abs(np.asarray(run())[0] - truth).max() / size) for run in runs]
            ours, plain = alternate(*runs)
            rows.append([ridge, kind, ours, plain, *errors])
            print(*rows[-1], flush=True)
    found = {"machine": machine.describe(), "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    write_blocks("sequence_gates", found)


if __name__ == "__main__":
    main()
