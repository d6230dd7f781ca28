"""What suites share: parts of olsq that a commit may lack, ratios in one process, exact answers."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit

FORGET, RIDGE = 0.999, 1e-3


def need(*names: str) -> list[Any]:
    """Parts of olsq by their dotted names; a commit that lacks one is skipped, with the reason.

    Raises
    ------
    NotImplementedError
        If one of them does not exist: asv then skips the benchmark.
    """
    return [_found(name) for name in names]


def _found(name: str) -> Any:
    parts = name.split(".")
    try:
        value = importlib.import_module(parts[0])
        for i, part in enumerate(parts[1:], 2):
            if not hasattr(value, part):
                importlib.import_module(".".join(parts[:i]))
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise NotImplementedError(f"this commit has no {name}") from error
    return value


def library(name: str, package: str | None = None) -> Any:
    """Another library, or NotImplementedError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{package or name} is not installed: pip install {package or name}"
        raise NotImplementedError(message) from error


def ratio(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float = 0.4) -> float:
    """Processor time of ``ours`` over that of ``theirs``: the least of each, taken in turn."""
    calls, best, counts = (ours, theirs), [np.inf, np.inf], []
    for call in calls:
        call()  # compiles
        start = time.process_time()
        call()
        counts.append(max(1, int(0.01 / max(time.process_time() - start, 1e-6))))
    end = time.process_time() + seconds
    for round_ in range(1000):
        for i, call in enumerate(calls):
            start = time.process_time()
            for _ in range(counts[i]):
                call()
            best[i] = min(best[i], (time.process_time() - start) / counts[i])
        if round_ >= 4 and time.process_time() > end:
            break
    return best[0] / best[1]


def one_by_one(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows X (1, d), y (1,), again and again: one row for ever would wind other directions up."""
    return itertools.cycle([(X[t : t + 1], y[t : t + 1]) for t in range(len(X))])


def relative_error(got: Any, exact: np.ndarray) -> float:
    """Largest difference over the largest entry; infinite where something is not finite."""
    got = np.asarray(got, np.float64)
    if not np.all(np.isfinite(got)):
        return float("inf")
    return float(np.abs(got - exact).max() / np.abs(exact).max())


def dense(X: np.ndarray, y: np.ndarray, forget: float = FORGET, ridge: float = RIDGE) -> np.ndarray:
    """Coefficients after the last row by one float64 solve: (d,) or (m, d)."""
    n, d = X.shape
    weight = np.sqrt(forget ** np.arange(n - 1, -1, -1.0))[:, None]
    design = np.vstack([weight * X, np.sqrt(ridge * forget**n) * np.eye(d)])
    target = np.vstack([weight * y.reshape(n, -1), np.zeros((d, y.size // n))])
    return np.linalg.lstsq(design, target, rcond=None)[0].T.reshape((*y.shape[1:], d))


def regression(n: int, d: int, m: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """White regressors (n, d) and one target (n,) or several (n, m), with noise of .1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal((d, m)) + 0.1 * rng.standard_normal((n, m))
    return X, y[:, 0] if m == 1 else y


@njit(cache=False)
def touch(P: np.ndarray, times: int, factor: float) -> None:  # pragma: no cover - compiled
    """Read and write every entry ``times`` times: what any update of P must at least do."""
    for _ in range(times):
        for i in range(P.size):
            P[i] = P[i] * factor


@njit(cache=False, error_model="numpy")
def textbook(X, y, P, theta, forget):  # pragma: no cover - compiled
    """The textbook recursion, ``P = (P - g x'P) / forget``: a rival that rounds badly."""
    n, d = X.shape
    for t in range(n):
        x = X[t]
        Px = P @ x
        gain = Px / (forget + x @ Px)
        error = y[t] - x @ theta
        for i in range(d):
            theta[i] += gain[i] * error
            for j in range(d):
                P[i, j] = (P[i, j] - gain[i] * Px[j]) / forget
