"""Streams on which the forgetting strategies are compared, by what happens in them."""

from __future__ import annotations

import numpy as np

SEED, ROWS, D = 20261122, 4000, 4
STREAMS = ("steady", "drift", "jump", "quiet", "outliers", "collinear")
PHASE = 1000
PHASES = ("steady", "after a jump", "drift", "quiet", "back", "outliers", "collinear")


def stream(name: str, seed: int, n: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw X (n, 4), the signal (n,), and y with noise of deviation 1.

    Coefficients are constant, except: drift, all walk by 0.02 per row; jump, all change sign at
    half and three quarters; quiet, the first two walk and the last two regressors are zero from a
    quarter to three quarters; collinear, the first two walk and the last two regressors agree to
    1e-3.  outliers: one row in fifty is off by 20.
    """
    rng = np.random.default_rng([SEED, STREAMS.index(name), seed])
    X = rng.standard_normal((n, D))
    coef = np.broadcast_to(rng.standard_normal(D), (n, D)).copy()
    steps = np.cumsum(0.02 * rng.standard_normal((n, D)), 0)
    noise = rng.standard_normal(n)
    if name == "drift":
        coef += steps
    elif name == "jump":
        coef[n // 2 : 3 * n // 4] *= -1
    elif name == "quiet":
        coef[:, :2] += steps[:, :2]
        X[n // 4 : 3 * n // 4, 2:] = 0.0
    elif name == "outliers":
        noise += 20 * (rng.random(n) < 0.02) * rng.choice([-1, 1], n)
    elif name == "collinear":
        coef[:, :2] += steps[:, :2]
        X[:, 3] = X[:, 2] + 1e-3 * X[:, 3]
    signal = (X * coef).sum(1)
    return X, signal, signal + noise


def one_stream(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw X, signal and y of all that happens to the six, one after another: ``PHASES``."""
    rng = np.random.default_rng([SEED, len(STREAMS), seed])
    n = PHASE * len(PHASES)
    phase = np.arange(n) // PHASE
    X, noise = rng.standard_normal((n, D)), rng.standard_normal(n)
    steps = 0.02 * rng.standard_normal((n, D))
    steps[~np.isin(phase, [2, 3, 6])] = 0.0
    steps[phase > 2, 2:] = 0.0
    coef = rng.standard_normal(D) * np.where(phase[:, None] == 0, 1, -1) + np.cumsum(steps, 0)
    X[phase == 3, 2:] = 0.0
    noise += 20 * (rng.random(n) < 0.02) * rng.choice([-1, 1], n) * (phase == 5)
    X[phase == 6, 3] = X[phase == 6, 2] + 1e-3 * X[phase == 6, 3]
    signal = (X * coef).sum(1)
    return X, signal, signal + noise
