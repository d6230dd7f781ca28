"""Seeded data streams for the stability and speed measurements.

Every generator returns a :class:`Stream`: regressors, target, the noise level the target was made
with, and the true coefficients. The streams are stationary unless their name says otherwise, so
that an error that grows can only come from arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOISE = 0.1
"""Standard deviation of the noise of every stream, before scaling."""


@dataclass(frozen=True)
class Stream:
    """One regression stream.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        Regressors.
    y : ndarray, shape (n,)
        Target.
    noise : float
        Standard deviation of the target's noise, the yardstick of all fit errors.
    coef : ndarray, shape (d,)
        Coefficients that made the target.
    """

    X: np.ndarray
    y: np.ndarray
    noise: float
    coef: np.ndarray


def conditioned(
    n: int, d: int = 8, cond: float = 1.0, dtype: type = np.float64, seed: int = 0
) -> Stream:
    """White Gaussian regressors mixed so that their covariance has condition number ``cond**2``.

    Parameters
    ----------
    n, d : int
        Rows and columns.
    cond : float
        Condition number of the regressors; singular directions are spaced evenly in the logarithm
        and turned by a random rotation, so that no column is special.
    dtype : type
        Data type of the result. The noise is added in float64 and rounded once.
    seed : int
        Seed of the generator.
    """
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((d, d)))
    mix = np.logspace(0, -np.log10(cond), d)[:, None] * rotation
    coef = rng.standard_normal(d)
    X = (rng.standard_normal((n, d)) @ mix).astype(dtype)
    y = X.astype(np.float64) @ coef + NOISE * rng.standard_normal(n)
    return Stream(X, y.astype(dtype), NOISE, coef)


def silence(n_before: int, n_silent: int, n_after: int, d: int = 8, seed: int = 0) -> Stream:
    """White regressors, ``n_silent`` rows of zeros (the target is noise there), white again."""
    stream = conditioned(n_before + n_silent + n_after, d, seed=seed)
    X, y = stream.X, stream.y
    rows = slice(n_before, n_before + n_silent)
    y[rows] -= X[rows] @ stream.coef
    X[rows] = 0.0
    return stream


def one_key(n_before: int, n_key: int, n_after: int, d: int = 8, seed: int = 0) -> Stream:
    """White rows, one regressor repeated ``n_key`` times, white rows again."""
    stream = conditioned(n_before + n_key + n_after, d, seed=seed)
    X, y = stream.X, stream.y
    rows = slice(n_before, n_before + n_key)
    key = X[n_before].copy()
    y[rows] += (key - X[rows]) @ stream.coef
    X[rows] = key
    return stream


def one_nan(n: int, d: int = 8, seed: int = 0) -> Stream:
    """White regressors with a single NaN, in row ``n // 2``."""
    stream = conditioned(n, d, seed=seed)
    stream.X[n // 2, 1] = np.nan
    return stream


def scaled(n: int, scale: float, d: int = 8, seed: int = 0) -> Stream:
    """White regressors and their target, both in units of ``scale``."""
    stream = conditioned(n, d, seed=seed)
    return Stream(stream.X * scale, stream.y * scale, NOISE * scale, stream.coef)
