"""Time per row of a filter in a loop: compiled, by hand, from Python, and with other libraries.

    python -m benchmarks.reports.compiled [--rounds 40]

Writes ``benchmarks/results/compiled.json`` and the table of docs/measurements/rows.md.  All are
timed in turn in one process, in short runs, and the least of the rounds counts, so that a busy
machine disturbs them little.  The error is that of the coefficients after 2,000 rows of condition
number 1e6 against one dense solve, relative to the largest.  Needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import olsq
from olsq import compiled

from ..suites.common import FORGET, RIDGE, dense, regression, relative_error, textbook
from ..suites.compiled import loop
from ..suites.peers import numpy_loop, padasip
from ..suites.polars_expressions import expression, frame_of, query
from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "compiled.json"
SIZES, ROWS, FEW, FILTERS = (4, 16), 20_000, 200, 1_000
CONDITION = 1e6

LABELS = {
    "compiled": "`compiled.update` in a Numba loop",
    "bank": "the same for 1,000 filters in turn, one row each",
    "hand": "textbook recursion by hand in Numba",
    "fit": "`est.fit` of the whole array",
    "step": "`est.step` in a Python loop",
    "python": "`compiled.update` from Python",
    "numpy": "symmetric recursion by hand in NumPy",
    "padasip": "padasip's `FilterRLS.adapt`",
    "torch": "textbook recursion by hand in PyTorch, a tensor operation at a time",
    "polars": "`pl.Expr.olsq.rls`, the whole column",
    "polars-ols": "polars-ols' `rls`, the whole column",
}


@njit
def turns(states: Any, X: Any, y: Any, forget: float) -> None:  # pragma: no cover - compiled
    """Every filter learns one row."""
    for i in range(y.shape[0]):
        compiled.update(compiled.state_at(states, i), X[i], y[i], forget, 1.0)


def rivals(X: np.ndarray, y: np.ndarray) -> dict[str, tuple[Callable[[], Any], int]]:
    """What learns the rows, each with their number, and returns coefficients."""
    n, d = X.shape
    options = {"forget": FORGET, "ridge": RIDGE, "fit_intercept": False}
    learn, some = loop(), slice(0, FEW)

    def ours() -> np.ndarray:
        state = compiled.init(d, ridge=RIDGE)
        learn(state, X, y, FORGET)
        return compiled.coef(state)

    def by_hand() -> np.ndarray:
        P, theta = np.eye(d) / RIDGE, np.zeros(d)
        textbook(X, y, P, theta, FORGET)
        return theta

    def fitted() -> np.ndarray:
        return olsq.RecursiveLeastSquares(**options).fit(X, y).coef_

    def steps() -> np.ndarray:
        est = olsq.RecursiveLeastSquares(**options)
        for x, target in zip(X[some], y[some], strict=True):
            est.step(x, target)
        return est.coef_

    def from_python() -> np.ndarray:
        state = compiled.init(d, ridge=RIDGE)
        for x, target in zip(X[some], y[some], strict=True):
            compiled.update(state, x, target, FORGET, 1.0)
        return compiled.coef(state)

    states = compiled.init(d, ridge=RIDGE, n=FILTERS)
    for t in range(20):
        turns(states, X[:FILTERS], y[:FILTERS] + t, FORGET)
    return {
        "compiled": (ours, n),
        "bank": (lambda: turns(states, X[:FILTERS], y[:FILTERS], FORGET), FILTERS),
        "hand": (by_hand, n),
        "fit": (fitted, n),
        "step": (steps, FEW),
        "python": (from_python, FEW),
        "numpy": (numpy_loop(X[some], y[some]), FEW),
        "padasip": (padasip(X[some], y[some]), FEW),
        "torch": (torch_loop(X[some], y[some]), FEW),
        **{
            name: (query(frame_of(X, y, 1), expression(library, "rls", "coef", d), 1), n)
            for name, library in (("polars", "olsq"), ("polars-ols", "polars-ols"))
        },
    }


def torch_loop(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    """The recursion of padasip in PyTorch, in float64 on one thread."""
    try:
        import torch
    except ImportError as error:
        raise SystemExit("the PyTorch loop of this report needs the extra torch") from error

    torch.set_num_threads(1)
    rows, targets = torch.tensor(X), torch.tensor(y)

    def learn() -> np.ndarray:
        d = rows.shape[1]
        P, theta = torch.eye(d, dtype=torch.float64) / RIDGE, torch.zeros(d, dtype=torch.float64)
        with torch.inference_mode():
            for x, target in zip(rows, targets, strict=True):
                Px = P @ x
                gain = Px / (FORGET + x @ Px)
                theta = theta + gain * (target - x @ theta)
                P = (P - torch.outer(gain, Px)) / FORGET
        return theta.numpy()

    return learn


def hard_rows(d: int) -> tuple[np.ndarray, np.ndarray]:
    """2,000 rows whose regressors have the condition number 1e6, so large that no ridge helps."""
    X, _ = regression(2_000, d)
    X[:, -1] = X[:, 0] + 2 / CONDITION * X[:, -1]
    X *= CONDITION
    rng = np.random.default_rng(1)
    return X, X @ np.ones(d) + rng.standard_normal(len(X))


def measure(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Nanoseconds per row, and errors on hard rows, by size and rival."""
    found = {}
    for d in SIZES:
        X, y = regression(ROWS, d)
        sides = rivals(X, y)
        least = dict.fromkeys(sides, np.inf)
        for _ in range(rounds):
            for name, (side, rows) in sides.items():
                start = time.perf_counter()
                side()
                least[name] = min(least[name], (time.perf_counter() - start) / rows)
        hard = hard_rows(d)
        answers = {"compiled", "hand", "fit"}  # the others learn fewer rows, by the same recursions
        errors = {
            name: relative_error(side(), dense(*hard))
            for name, (side, _) in rivals(*hard).items()
            if name in answers
        }
        found[str(d)] = {
            name: {"ns": 1e9 * seconds, "error": errors.get(name, float("nan"))}
            for name, seconds in least.items()
        }
    return found


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Time of a row, by method and size."""
    sizes = list(found)
    lines = ["| | " + " | ".join(f"d = {d}, per row" for d in sizes) + " |"]
    lines.append("|---|" + "---:|" * len(sizes))
    for name, label in LABELS.items():
        if name not in found[sizes[0]]:  # a result that was stored before it had this rival
            continue
        times = [found[d][name]["ns"] for d in sizes]
        cells = [f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.1f} µs" for ns in times]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    said = sentence(found["machine"], "numba", "padasip", "polars-ols")
    return f"{table(found['cases'])}\n\n{said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    found = measure(parser.parse_args().rounds)
    stored = {"machine": describe(), "cases": found}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("compiled", stored)
    print(table(found))


if __name__ == "__main__":
    main()
