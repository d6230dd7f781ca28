"""Regression in context with nonlinear targets, and estimators without training to hold it against.

As in :mod:`drifting_regression` token t holds the input x_t and the pair before it, and asked for
is y_t.  Inputs are uniform on a sphere, so that softmax's weights are those of a kernel in their
distance.  A linear map to all pairs is misspecified for every target but "linear".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from drifting_regression import FORGET, NOISE, OUTPUTS, hebbian_errors, lms_errors, rls_errors
from numpy.typing import NDArray

import olsq

INPUTS = 4
PIECES, HIDDEN, STEEPNESS = 4, 16, 3.0
FLAT = 1e9  # a ridge that leaves no slope


class Target(NamedTuple):
    """Which function; how its linear parts move, as in :class:`drifting_regression.Drift`."""

    kind: str  # "linear", "piecewise", "network"
    keep: float = 1.0
    size: float = 1.0  # of the inputs

    @property
    def features(self) -> int:
        """Features that the moving linear map applies to."""
        return {"linear": INPUTS, "piecewise": PIECES * INPUTS, "network": HIDDEN}[self.kind]


def draw(
    rng: np.random.Generator, target: Target, n: int, length: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inputs (n, T, D) of length ``size sqrt(D)`` and targets (n, T, M) of variance about 1."""
    unit = rng.normal(size=(n, length, INPUTS))
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    if target.kind == "network":  # a random network of one hidden layer
        inner = rng.normal(size=(n, INPUTS, HIDDEN)) * STEEPNESS
        features = np.tanh(unit @ inner + rng.normal(size=(n, 1, HIDDEN)))
        features *= HIDDEN**-0.5 / np.sqrt(np.mean(features**2))
    else:
        features = unit  # W x / sqrt(D) with x of length sqrt(D)
    if target.kind == "piecewise":  # a linear map of its own nearest to each of a few centres
        centres = rng.normal(size=(n, INPUTS, PIECES))
        near = np.argmax(unit @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)), -1)
        own = np.eye(PIECES)[near]
        features = (own[..., None] * unit[:, :, None]).reshape(n, length, -1)
    w = rng.normal(size=(n, target.features, OUTPUTS))
    y, a = np.empty((n, length, OUTPUTS)), target.keep
    for t in range(length):
        if t and a < 1:
            w = a * w + np.sqrt(1 - a * a) * rng.normal(size=w.shape)
        y[:, t] = np.einsum("nf,nfm->nm", features[:, t], w)
    x = target.size * np.sqrt(INPUTS) * unit
    return x, y + NOISE * rng.normal(size=y.shape)


Estimator = Callable[..., NDArray[np.float64]]


def local_errors(
    x: NDArray, y: NDArray, forget: float, scale: float, ridge: float
) -> NDArray[np.float64]:
    """Mean squared errors (n, T) of local least squares: softmax's weights of scale ``scale``.

    A ridge of infinity gives their weighted mean (Nadaraya and Watson), a scale of 0 a global
    regression with an intercept.
    """
    x = x / np.sqrt(x.shape[-1])
    fitted = olsq.local_lstsq(
        x[:, :-1], y[:, :-1], x[:, 1:], scale=scale, ridge=ridge,
        forget=np.full(x[:, 1:].shape[:2], forget),
    )  # fmt: skip
    guess = np.concatenate([np.zeros_like(y[:, :1]), np.asarray(fitted.value)], 1)
    return np.mean((y - guess) ** 2, -1)


def kernel_errors(x: NDArray, y: NDArray, forget: float, scale: float) -> NDArray[np.float64]:
    """As :func:`local_errors`, of the weighted mean."""
    return local_errors(x, y, forget, scale, FLAT)


def each(rule: Estimator) -> Estimator:
    """Errors (n, T) of a rule that gives its means over the streams."""
    return lambda x, y, *given: np.stack(
        [rule(a, b, *given) for a, b in zip(x[:, None], y[:, None], strict=True)]
    )


SCALES = (2.0, 4.0, 8.0, 16.0)
RIDGES = (1e-4, 1e-3, 1e-2, 0.1)
# name -> rule giving the mean errors (T,) or errors by stream (n, T), and what it can be given
ESTIMATORS: dict[str, tuple[Estimator, list[tuple[float, ...]]]] = {
    "sum of outer products": (
        hebbian_errors, list(product(FORGET, (0.03, 0.05, 0.1, 0.2, 0.3, 0.5)))),
    "one gradient step a pair": (lms_errors, list(product(FORGET, (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)))),
    "least squares": (rls_errors, list(product(FORGET, (3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)))),
    "kernel mean (softmax)": (kernel_errors, list(product(FORGET, (*SCALES, 32.0)))),
    "local least squares": (local_errors, list(product(FORGET, (0.0, *SCALES), RIDGES))),
}  # fmt: skip
PER_STREAM = (kernel_errors, local_errors)


def dense_errors(
    x: NDArray, y: NDArray, forget: float, scale: float, ridges: tuple[float, ...], last: int
) -> NDArray[np.float64]:
    """Mean squared errors (R, n) of :func:`local_errors` from ``last`` on, for all ridges at once.

    Formed and solved densely: for many hyperparameters of few features that is quicker.
    """
    x = x / np.sqrt(x.shape[-1])
    total = np.zeros((len(ridges), len(x)))
    penalty = np.array(ridges)[:, None, None, None] * np.eye(x.shape[-1])
    for t in range(last, x.shape[1]):
        keys, values, query = x[:, :t], y[:, :t], x[:, t]
        p = np.exp(scale * (np.einsum("ntd,nd->nt", keys, query) - 1))  # at most 1 for unit vectors
        p *= forget ** np.arange(t - 1, -1, -1)
        p /= p.sum(1, keepdims=True)
        mean, value_mean = (np.einsum("nt,nti->ni", p, z) for z in (keys, values))
        off = keys - mean[:, None]
        weighted = np.swapaxes(p[..., None] * off, 1, 2)
        s, c = weighted @ off, weighted @ (values - value_mean[:, None])
        slope = np.linalg.solve(s + penalty, (query - mean)[..., None])[..., 0]
        guess = value_mean + np.einsum("ndm,rnd->rnm", c, slope)
        total += np.mean((y[:, t] - guess) ** 2, -1)
    return total / (x.shape[1] - last)


@cache
def tune(name: str, target: Target, seed: int, n: int, length: int, last: int) -> tuple[float, ...]:
    """Return the hyperparameters of least mean error from position ``last`` on ``n`` streams."""
    rule, grid = ESTIMATORS[name]
    x, y = draw(np.random.default_rng([seed, 1]), target, n, length)
    if rule not in PER_STREAM:
        scores = [rule(x, y, *given)[last:].mean() for given in grid]
        return grid[int(np.argmin(scores))]
    ridges = RIDGES if rule is local_errors else (FLAT,)
    kernels = list(dict.fromkeys(given[:2] for given in grid))
    table = [dense_errors(x, y, *given, ridges, last).mean(1) for given in kernels]
    row, column = np.unravel_index(np.argmin(table), np.shape(table))
    return (*kernels[row], *((ridges[column],) if rule is local_errors else ()))


def mean_errors(rule: Estimator, x: NDArray, y: NDArray, given: tuple[float, ...]) -> NDArray:
    """Mean errors (T,) of a rule."""
    found = rule(x, y, *given)
    return found.mean(0) if found.ndim == 2 else found


def scored(
    name: str, given: tuple[float, ...], x: NDArray, y: NDArray, last: int
) -> dict[str, object]:
    """Errors by position, and by stream the mean from position ``last`` on."""
    rule = ESTIMATORS[name][0]
    errors = rule(x, y, *given) if rule in PER_STREAM else each(rule)(x, y, *given)
    return {
        "given": list(given), "by_position": errors.mean(0).tolist(),
        "by_stream": errors[:, last:].mean(1).tolist(),
    }  # fmt: skip


def references(target: Target, seed: int, n: int, length: int, last: int) -> dict[str, dict]:
    """As :func:`drifting_regression.references`: errors by position of every tuned estimator."""
    x, y = draw(np.random.default_rng([seed, 0]), target, n, length)
    found = {}
    for name, (rule, _) in ESTIMATORS.items():
        given = tune(name, target, seed, n // 8, length, last)
        by_position = mean_errors(rule, x, y, given).tolist()
        found[name] = {"by_position": by_position, "given": list(given)}
    return found
