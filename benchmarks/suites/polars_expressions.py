"""Regressions inside Polars queries: ``pl.col("y").olsq`` beside polars-ols, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .common import RIDGE, library, need, ratio, regression, relative_error

METHODS = ("ols", "expanding", "rls", "rolling")
OUTPUTS = ("coef", "prediction")
WINDOW, HALF_LIFE = 60, 100.0
LIBRARIES = "olsq", "polars-ols"


def frame_of(X: np.ndarray, y: np.ndarray, groups: int) -> Any:
    """The rows in a frame, with groups ``g`` in no order."""
    pl = library("polars")
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    g = np.random.default_rng(1).integers(0, groups, y.size)
    return pl.DataFrame(columns | {"y": y, "g": g})


def expression(library_name: str, method: str, output: str, d: int) -> Any:
    """The same regression in either library; an output that one lacks raises KeyError."""
    pl = library("polars")
    names, target = [f"x{j}" for j in range(d)], pl.col("y")
    if library_name == "olsq":
        need("olsq.polars")
        options = {
            "ols": {}, "expanding": {"ridge": RIDGE}, "rolling": {"window": WINDOW},
            "rls": {"half_life": HALF_LIFE, "ridge": RIDGE},
        }[method]  # fmt: skip
        return getattr(target.olsq, method)(*names, output=output, **options)
    library("polars_ols", "polars-ols")
    mode = {"coef": "coefficients", "prediction": "predictions", "stderr": "statistics"}[output]
    theirs, options = {
        "ols": ("ols", {}), "rolling": ("rolling_ols", {"window_size": WINDOW}),
        "expanding": ("expanding_ols", {"initial_state_covariance": 1 / RIDGE}),
        "rls": ("rls", {"half_life": HALF_LIFE, "initial_state_covariance": 1 / RIDGE}),
    }[method]  # fmt: skip
    return getattr(target.least_squares, theirs)(*names, mode=mode, **options)


def query(frame: Any, found: Any, groups: int) -> Callable[[], Any]:
    """Run an expression over all rows, or over each group."""
    found = found.over("g") if groups > 1 else found
    return lambda: frame.select(found.alias("found"))


def exact_at(X: np.ndarray, y: np.ndarray, method: str, t: int) -> np.ndarray:
    """Coefficients after row t by one dense solve."""
    rows = slice(max(t + 1 - WINDOW, 0) if method == "rolling" else 0, t + 1)
    X, y = X[rows], y[rows]
    if method in ("rls", "expanding"):
        decay = 0.5 ** (1 / HALF_LIFE) if method == "rls" else 1.0
        root = np.sqrt(decay ** np.arange(t, -1, -1.0))
        prior = np.sqrt(RIDGE * decay ** (t + 1)) * np.eye(X.shape[1])
        X, y = np.vstack([root[:, None] * X, prior]), np.r_[root * y, np.zeros(X.shape[1])]
    return np.linalg.lstsq(X, y, rcond=None)[0]


def error(found: Any, X: np.ndarray, y: np.ndarray, method: str) -> float:
    """Largest relative error of the coefficients in a column of structs, over some rows."""
    got = found.struct.unnest().to_numpy()
    if method == "ols":
        return relative_error(got[-1], exact_at(X, y, method, len(y) - 1))
    rows = np.linspace(2 * WINDOW, len(y) - 1, 25).astype(int)
    return max(relative_error(got[t], exact_at(X, y, method, int(t))) for t in rows)


class Speed:
    """Processor time of polars-ols over that of olsq."""

    params = (list(METHODS), list(OUTPUTS), [2, 8], [1, 1000])
    param_names = ("method", "output", "d", "groups")
    timeout = 600

    def setup(self, method: str, output: str, d: int, groups: int) -> None:
        frame = frame_of(*regression(100_000, d), groups)
        self.ours, self.theirs = (
            query(frame, expression(name, method, output, d), groups) for name in LIBRARIES
        )

    def track_speedup(self, method: str, output: str, d: int, groups: int) -> float:
        return ratio(self.theirs, self.ours)

    track_speedup.unit = "times as long as olsq"


class Error:
    """Largest error of the coefficients against dense solves."""

    params = (list(METHODS), [2, 8], list(LIBRARIES))
    param_names = ("method", "d", "library")

    def track_error(self, method: str, d: int, name: str) -> float:
        X, y = regression(5000, d)
        found = query(frame_of(X, y, 1), expression(name, method, "coef", d), 1)()
        return error(found["found"], X, y, method)

    track_error.unit = "relative"
