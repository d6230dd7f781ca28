"""Digits of agreement with NIST's certified regressions, for ``docs/numerics.md``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[2] / "tests" / "golden" / "nist.json"
NAMES = ("longley", "norris")
METHODS = ("sqrt", "covariance", "information")


def digits(value: np.ndarray, certified: np.ndarray) -> float:
    """``-log10`` of the largest relative error."""
    return float(-np.log10(max(np.max(np.abs(value / certified - 1)), 1e-16)))


def measure() -> dict[str, list[float]]:
    """Digits by data set: those of ``METHODS``, of batch QR and of the normal equations.

    The last digit depends on where in memory LAPACK finds its arrays.
    """
    import olsq

    data, found = json.loads(DATA.read_text(encoding="utf-8")), {}
    for name in NAMES:
        X, y, certified = (np.array(data[name][key]) for key in ("X", "y", "coef"))
        cells = []
        for method in METHODS:
            est = olsq.RecursiveLeastSquares(ridge=0.0, method=method)
            for row, target in zip(X, y, strict=True):
                est.partial_fit(row[None], [target])
            cells.append(digits(np.append(est.intercept_, est.coef_), certified))
        design = np.column_stack([np.ones(len(y)), X])
        q, r = np.linalg.qr(design)
        cells.append(digits(np.linalg.solve(r, q.T @ y), certified))
        cells.append(digits(np.linalg.solve(design.T @ design, design.T @ y), certified))
        found[name] = [round(cell, 1) for cell in cells]
    return found


def table(found: dict[str, list[float]]) -> str:
    """Markdown table: data sets by methods, with the textbook solutions beside them."""
    lines = [
        "| | " + " | ".join(f"olsq {m}" for m in METHODS) + " | batch QR | normal equations |",
        "|---|" + "---|" * (len(METHODS) + 2),
    ]
    for name, cells in found.items():
        lines.append(f"| {name.capitalize()} | " + " | ".join(f"{c:.1f}" for c in cells) + " |")
    return "\n".join(lines)
