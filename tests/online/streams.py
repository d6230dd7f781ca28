"""Streams for the online solvers, ordinary and breaking: X (n, d), y (n, m), gates, weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import olsq


class Stream(NamedTuple):
    X: NDArray
    y: NDArray
    gates: NDArray
    weights: NDArray


N, D = 48, 3


def _noisy(rng: np.random.Generator, X: NDArray, m: int) -> NDArray:
    truth = rng.standard_normal((m, X.shape[1]))
    scale = max(np.abs(X).max(), 1e-300)
    return X @ truth.T + 0.5 * scale * rng.standard_normal((X.shape[0], m))


def _white(rng, n):
    return rng.standard_normal((n, D))


def _ar1(rng, n):
    X = rng.standard_normal((n, D))
    for t in range(1, n):
        X[t] += 0.95 * X[t - 1]
    return X


def _tokens(rng, n):
    vocabulary = rng.standard_normal((40, D))
    rank = np.arange(1, 41)
    chosen = rng.choice(40, size=n, p=(1 / rank) / (1 / rank).sum())
    return vocabulary[chosen] + 0.01 * rng.standard_normal((n, D))


def _one_key(rng, n):
    return np.tile(rng.standard_normal(D), (n, 1))


def _long_runs(rng, n):
    return np.repeat(rng.standard_normal((n // 8 + 1, D)), 8, axis=0)[:n]


def _zero_keys(rng, n):
    X = rng.standard_normal((n, D))
    X[n // 4 : n // 2] = 0
    X[0] = 0
    return X


def _collinear(rng, n):
    X = np.round(rng.standard_normal((n, D)) * 64) / 64  # exactly collinear, in float32 too
    X[:, 2] = X[:, 0] - 2 * X[:, 1]
    return X


def _mixed_units(rng, n):
    return rng.standard_normal((n, D)) * [1e-6, 1.0, 1e6]


def _ill_conditioned(rng, n):
    X = rng.standard_normal((n, D))
    X[:, 2] = X[:, 0] + 1e-4 * X[:, 2]
    return X


REGRESSORS = {
    "white": _white,
    "ar1": _ar1,
    "tokens": _tokens,
    "one key": _one_key,
    "long runs": _long_runs,
    "zero keys": _zero_keys,
    "collinear": _collinear,
    "mixed units": _mixed_units,
    "ill-conditioned": _ill_conditioned,
}


def _steady(rng, n):
    return np.full(n, 0.95), np.ones(n)


def _none(rng, n):
    return np.ones(n), np.ones(n)


def _varying(rng, n):
    return rng.uniform(0.7, 1.0, n), rng.uniform(0.2, 3.0, n)


def _resets(rng, n):
    gates = np.full(n, 0.97)
    gates[[n // 3, n // 2]] = 0.0
    return gates, np.ones(n)


def _near_resets(rng, n):
    gates = np.ones(n)
    gates[[n // 3, n // 2]] = 1e-7
    return gates, np.ones(n)


def _zero_weights(rng, n):
    weights = np.ones(n)
    weights[::4] = 0.0
    return np.full(n, 0.9), weights


FORGETTING = {
    "gates 1": _none,
    "gates .95": _steady,
    "gates vary": _varying,
    "resets": _resets,
    "near resets": _near_resets,
    "weights 0": _zero_weights,
}


def make(regressors: str, forgetting: str, *, n: int = N, m: int = 1, seed: int = 0) -> Stream:
    """A seeded stream; gates and weights are those of ``forgetting``."""
    rng = np.random.default_rng([seed, list(REGRESSORS).index(regressors), n, m])
    X = REGRESSORS[regressors](rng, n)
    gates, weights = FORGETTING[forgetting](rng, n)
    return Stream(X, _noisy(rng, X, m), gates, weights)


def worst_inflation(X, y, **options):
    """The largest variance inflation of a coefficient so far (n,), to a factor of the rows.

    A state has as many roundings, and what was lost of it stays lost for a while: two algorithms
    may differ by so much.
    """
    options = options | {"cov": "posterior", "noise_variance": 1.0}
    path = olsq.coefficient_path(X, y, **options)
    size = np.nan_to_num(np.abs(X)).max(0)
    inflation = np.where(np.isfinite(path.stderr), path.stderr, 0.0) ** 2 * size**2
    return np.maximum.accumulate(inflation.reshape(len(X), -1).max(1))
