"""Many small regressions at once: a bank against a loop of estimators, groups against paths.

    python -m benchmarks.reports.many [--rounds 15]

Writes ``benchmarks/results/many.json`` and the table of docs/measurements/rows.md.  Both sides of a
ratio are timed in turn in one process; each number is the least of the rounds.  Before anything is
timed the results are compared, to 1e-9 of the largest coefficient.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import olsq

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "many.json"
FILTERS, D, FORGET = 10_000, 8, 0.99
GROUPS, ROWS = 5_000, 40
LEARNED = 30  # rows before a filter's time is taken: they determine its coefficients


def rows(n: int, T: int, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """T rows for each of n filters: X (n, T, d), y (n, T)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, T, d))
    return X, np.einsum("ntd,nd->nt", X, rng.standard_normal((n, d))) + rng.standard_normal((n, T))


class Bank:
    """``partial_fit`` of a row for each filter, and of 16 rows for each."""

    params = ([100, FILTERS], [4, D, 32], [1, 16])
    param_names = ("filters", "d", "rows")

    def setup(self, n: int, d: int, T: int) -> None:
        X, y = rows(n, max(T, 2 * d), d)
        self.bank = olsq.FilterBank(n, forget=FORGET, fit_intercept=False).partial_fit(X, y)
        self.X, self.y = (X[:, 0], y[:, 0]) if T == 1 else (X[:, :T], y[:, :T])
        self.time_partial_fit(n, d, T)

    def time_partial_fit(self, n: int, d: int, T: int) -> None:
        self.bank.partial_fit(self.X, self.y)

    def track_error(self, n: int, d: int, T: int) -> float:
        """Largest relative error of the first filter's coefficients after a call."""
        X, y = rows(n, T, d)
        bank = olsq.FilterBank(n, forget=FORGET, fit_intercept=False).partial_fit(X, y)
        est = olsq.RecursiveLeastSquares(forget=FORGET, fit_intercept=False).partial_fit(X[0], y[0])
        return float(np.abs(bank.coef_[0] - est.coef_).max() / np.abs(est.coef_).max())

    track_error.unit = "relative"


class Groups:
    """``coefficient_path`` by group: compiled, and one group after another."""

    params = ([{}, {"fit_intercept": True}, {"window": 20}],)
    param_names = ("options",)

    def setup(self, options: dict) -> None:
        X, y = rows(1000, ROWS, 3)
        self.X, self.y = X.reshape(-1, 3), y.reshape(-1)
        self.by = np.repeat(np.arange(1000), ROWS)
        self.time_path(options)

    def time_path(self, options: dict) -> None:
        olsq.coefficient_path(self.X, self.y, by=self.by, **options)


def least(rounds: int, **sides: Callable[[], object]) -> dict[str, float]:
    """Least seconds of each side, all timed in turn."""
    best = dict.fromkeys(sides, np.inf)
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Rows a second of each case, and how many times that of the loop it is."""
    found = {}
    some = 200  # estimators in the loop, whose time a row does not depend on how many there are
    for label, T, intercept in (
        ("a row for each of 10,000 filters, d = 8", 1, False),
        ("the same with an intercept", 1, True),
        ("16 rows for each", 16, False),
    ):
        X, y = rows(FILTERS, LEARNED)
        options = {"forget": FORGET, "fit_intercept": intercept}
        bank = olsq.FilterBank(FILTERS, **options).partial_fit(X, y)
        ests = [olsq.RecursiveLeastSquares(**options).fit(X[i], y[i]) for i in range(some)]
        np.testing.assert_allclose(bank.coef_[:some], [est.coef_ for est in ests], atol=1e-9)
        X, y = X[:, :T].copy(), y[:, :T].copy()

        def loop(ests: list = ests, X: np.ndarray = X, y: np.ndarray = y) -> None:
            for est, x, target in zip(ests, X, y, strict=False):
                est.partial_fit(x, target)

        best = least(rounds, bank=lambda: bank.partial_fit(X, y), loop=loop)  # noqa: B023
        rate = FILTERS * T / best["bank"]
        found[label] = {"rate": rate, "ratio": rate / (some * T / best["loop"])}
    X, y = rows(GROUPS, ROWS, 3)
    X, y = X.reshape(-1, 3), y.reshape(-1)
    by = np.repeat(np.arange(GROUPS), ROWS)
    for label, options, groups in (
        ("`coefficient_path(by=)`, 5,000 groups of 40 rows, d = 3", {}, GROUPS),
        ("the same with a window of 20 rows, 500 groups", {"window": 20}, 500),
    ):
        kept = by < groups

        def path(kept: np.ndarray = kept, options: dict = options) -> None:
            olsq.coefficient_path(X[kept], y[kept], by=by[kept], **options)

        def paths(options: dict = options) -> None:
            for i in range(50):
                olsq.coefficient_path(X[by == i], y[by == i], **options)

        path()
        best = least(max(rounds // 5, 2), path=path, paths=paths)
        rate = groups * ROWS / best["path"]
        found[label] = {"rate": rate, "ratio": rate / (50 * ROWS / best["paths"])}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    lines = ["| | rows per second | times a loop of estimators |", "| --- | ---: | ---: |"]
    for label, numbers in found.items():
        lines.append(f"| {label} | {numbers['rate']:.2g} | {numbers['ratio']:.0f} |")
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    return f"{table(found['cases'])}\n\n{sentence(found['machine'], 'numba')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    found = measure(parser.parse_args().rounds)
    stored = {"machine": describe(), "cases": found}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("many", stored)
    print(table(found))


if __name__ == "__main__":
    main()
