"""The dense oracle's solution of a stream, and the errors that conditioning allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.problem import Moments
from olsq.reference import sequence as oracle

StatedError = float | Callable[[NDArray, NDArray], float]
STREAMS = ("keys", "values", "queries")
GRADIENTS = ("keys", "values", "queries", "forget", "weight", "ridge", "gram", "cross")


class Truth(NamedTuple):
    """The oracle's solution of one stream."""

    value: NDArray  # (T, m)
    state: Moments
    condition: NDArray  # (T,), of each token's own system
    size: NDArray  # (T,): |x_t| times the sum of what G_t is a sum of
    stated: float  # relative error of a solver that stops before the answer


def empty_state(arrays: dict[str, NDArray], ridge_mode: str) -> Moments:
    """Return moments before the first token; those of the discounted problem hold the ridge."""
    keys, values, ridge = (arrays[n] for n in ("keys", "values", "ridge"))
    d, m = keys.shape[-1], values.shape[-1]
    gram = np.zeros((*keys.shape[:-2], d, d), keys.dtype)
    if ridge_mode == "discounted":
        gram = gram + ridge[..., None] * np.eye(d, dtype=keys.dtype)
    return Moments(gram, np.zeros((*keys.shape[:-2], m, d), keys.dtype))


def earlier_state(arrays: dict[str, NDArray], ridge_mode: str) -> Moments:
    """Return moments of a few samples before the first token."""
    gram, cross = empty_state(arrays, ridge_mode)
    rng, d = np.random.default_rng(9), gram.shape[-1]
    keys = rng.standard_normal((*gram.shape[:-2], 4, d)) / d**0.5
    values = rng.standard_normal((*gram.shape[:-2], 4, cross.shape[-2]))
    back = np.swapaxes(keys, -1, -2)
    return Moments(gram + back @ keys, cross + np.swapaxes(values, -1, -2) @ keys)


def select_stream(arrays: dict[str, NDArray], i: int) -> dict[str, NDArray]:
    """Return stream i of a batch, in float64."""
    return {n: np.asarray(a[i], np.float64) for n, a in arrays.items()}


def solve_densely(
    arrays: dict[str, NDArray], ridge_mode: str, state: Any, stated: StatedError | None
) -> Truth:
    """Solve one stream densely."""
    gates = {n: arrays[n] for n in ("forget", "weight", "ridge")}
    with np.errstate(all="ignore"):
        path = oracle.solve(
            *(arrays[n] for n in STREAMS), **gates, ridge_mode=ridge_mode, state=state
        )
        eigenvalues = np.linalg.eigvalsh(path.systems)
        condition = np.where(
            eigenvalues[:, 0] > 1e-20 * eigenvalues[:, -1],
            eigenvalues[:, -1] / eigenvalues[:, 0],
            np.inf,
        )
    largest, sizes = float(np.linalg.norm(state[1])), []
    for k, v, gate, weight in zip(
        *(arrays[n] for n in ("keys", "values", "forget", "weight")), strict=True
    ):
        largest = gate * largest + weight * np.linalg.norm(k) * np.linalg.norm(v)
        sizes.append(largest)
    left = stated(path.systems, gates["ridge"]) if callable(stated) else stated or 0.0
    return Truth(
        path.value,
        Moments(path.grams[-1], path.crosses[-1]),
        condition,
        np.array(sizes) * np.linalg.norm(path.solution, axis=1),
        float(left),
    )


def allowed(truth: Truth, eps: float, multiple: float) -> NDArray:
    """Return the error allowed (T, 1): a multiple of each token's condition number times eps."""
    with np.errstate(invalid="ignore"):
        error = (multiple * eps * truth.condition + truth.stated) * truth.size
    return np.where(truth.size > 0, error, 0.0)[:, None]


def slopes(
    arrays: dict[str, NDArray], ridge_mode: str, state: Any, cotangent: NDArray
) -> dict[str, NDArray]:
    """Return the oracle's gradients, in the shapes of the arguments."""
    gates = {n: arrays[n] for n in ("forget", "weight", "ridge")}
    keys, values, queries = (arrays[n] for n in STREAMS)
    got = oracle.gradients(
        keys, values, queries, cotangent, **gates, ridge_mode=ridge_mode, state=state
    )
    if got["ridge"].ndim > arrays["ridge"].ndim:  # one ridge serves all tokens
        got["ridge"] = got["ridge"].sum(0)
    return got
