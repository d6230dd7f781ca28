"""The problem every solver of this package solves, and the checks made once at the public edge.

A stream of keys ``k_t`` (regressors, shape (d,)) and values ``v_t`` (targets, shape (m,)), a
forgetting factor ``gamma_t`` in [0, 1], a sample weight ``beta_t >= 0`` and a diagonal ridge
``Lambda >= 0``.  With ``zeta_ti = gamma_{i+1} ... gamma_t``, for every t::

    Phi_t = argmin_Phi  1/2 sum_{i<=t} zeta_ti beta_i |v_i - Phi k_i|^2
                        + 1/2 tr(Phi Lambda_t Phi^T)

Two problems share that sentence and differ in the ridge only:

* ``ridge_mode="discounted"``: ``Lambda_t = zeta_t0 Lambda``; the ridge is forgotten with the data
  (classical recursive least squares);
* ``ridge_mode="fixed"``: ``Lambda_t = Lambda`` at every t (regularised RLS, the Mesa layer).

They agree if and only if every gamma is 1.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RidgeMode = Literal["discounted", "fixed"]
RIDGE_MODES: tuple[str, ...] = ("discounted", "fixed")

# Largest magnitude whose square, summed over 1e4 rows, is still finite.  Larger entries are
# refused: they would overflow inside any method that squares a regressor.
LARGEST = {np.dtype(np.float64): 1e152, np.dtype(np.float32): 1e17}


class Moments(NamedTuple):
    """The whole state of the problem: what a stream has to remember.

    Attributes
    ----------
    gram : array (..., d, d)
        ``H_t = gamma_t H_{t-1} + beta_t k_t k_t^T``, the information matrix of the data.
    cross : array (..., m, d)
        ``G_t = gamma_t G_{t-1} + beta_t v_t k_t^T``.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import Moments
    >>> state = Moments(gram=np.eye(2), cross=np.ones((1, 2)))
    >>> state.cross @ np.linalg.inv(state.gram)
    array([[1., 1.]])
    """

    gram: Any
    cross: Any


class Stats(NamedTuple):
    """How hard each token was.

    Attributes
    ----------
    steps : int32 array (..., T)
        Iterations or corrections spent on the token; 0 for a direct solve.
    residual : array (..., T)
        ``|q - (H + Lambda) q*| / |q|``, 0 for a zero query; of no meaning where the output is NaN.
    """

    steps: Any
    residual: Any


class Solution(NamedTuple):
    """What :func:`olsq.online_lstsq` returns.

    Attributes
    ----------
    value : array (..., T, m)
        ``o_t = Phi_t q_t``; NaN from a non-finite sample on, until a gate of 0.
    state : Moments
        Moments after the last token; give them as ``state=`` to go on, with JAX or NumPy arrays.
    stats : Stats
        Steps and residuals per token.  Inside ``jax.jit`` they cost nothing if not used.
    """

    value: Any
    state: Moments
    stats: Stats


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_forget(forget: ArrayLike, name: str = "forget") -> NDArray[np.float64]:
    """Return the forgetting factors as float64; raise ValueError if any is outside [0, 1]."""
    gates = np.asarray(forget, dtype=np.float64)
    if gates.ndim == 0 and 0.0 <= gates <= 1.0:
        return gates
    if not ((gates >= 0) & (gates <= 1)).all():
        raise ValueError(
            f"{name} must lie in [0, 1] (1 forgets nothing, 0 resets); got a value of "
            f"{gates[~((gates >= 0) & (gates <= 1))].flat[0]!r}"
        )
    return gates


def forget_from_half_life(half_life: float) -> float:
    """Forgetting factor under which a sample's weight halves every ``half_life`` samples.

    Examples
    --------
    >>> from olsq.problem import forget_from_half_life
    >>> round(forget_from_half_life(10.0) ** 10, 12)
    0.5
    """
    if not (isinstance(half_life, (int, float, np.number)) and half_life > 0):
        raise ValueError(f"half_life must be a positive number of samples, got {half_life!r}")
    return float(2.0 ** (-1.0 / float(half_life)))


def check_ridge(ridge: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """Return the ridge as a float64 vector (n_features,); refuse negative or non-finite ones."""
    vector = np.asarray(ridge, dtype=np.float64)
    if vector.ndim > 1 or (vector.ndim == 1 and vector.shape[0] != n_features):
        raise ValueError(
            f"ridge must be a number or one number per feature ({n_features}), got an array of "
            f"shape {vector.shape}"
        )
    if not (np.isfinite(vector).all() and (vector >= 0).all()):
        raise ValueError(f"ridge must be finite and >= 0, got {ridge!r}")
    return np.ascontiguousarray(np.broadcast_to(vector, (n_features,)))


def check_per_row(value: ArrayLike, n_rows: int, name: str) -> NDArray[np.float64]:
    """Return a scalar or (n_rows,) argument as a contiguous float64 vector (n_rows,)."""
    vector = np.asarray(value, dtype=np.float64)
    if vector.ndim == 0:
        return np.full(n_rows, vector)
    if vector.ndim > 1 or vector.shape[0] != n_rows:
        raise ValueError(
            f"{name} must be a number or one number per row ({n_rows}), got an array of shape "
            f"{vector.shape}"
        )
    return np.ascontiguousarray(vector)


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Return the sample weights (n_rows,); refuse negative or non-finite ones."""
    if sample_weight is None:
        return np.ones(n_rows)
    weights = check_per_row(sample_weight, n_rows, "sample_weight")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0")
    return weights


def check_streams(keys: Any, values: Any, queries: Any) -> tuple[tuple[int, ...], int, int, int]:
    """Check three streams, JAX or NumPy, against each other; return (batch shape, T, d, m)."""
    shapes = {"keys": keys.shape, "values": values.shape, "queries": queries.shape}
    for name, shape in shapes.items():
        if len(shape) < 2:
            raise ValueError(
                f"{name} must have shape (..., T, features), got {shape}; one token is "
                f"{name}[None, :]"
            )
    if not shapes["keys"][-2] == shapes["values"][-2] == shapes["queries"][-2]:
        raise ValueError(
            "keys, values and queries must have the same length T on axis -2, got "
            + ", ".join(f"{n} {s}" for n, s in shapes.items())
        )
    if shapes["keys"][-1] != shapes["queries"][-1]:
        raise ValueError(
            f"queries must have the width of keys, got keys {shapes['keys']} and "
            f"queries {shapes['queries']}"
        )
    try:
        batch = np.broadcast_shapes(*(s[:-2] for s in shapes.values()))
    except ValueError:
        raise ValueError(
            "the leading axes of keys, values and queries do not broadcast: "
            + ", ".join(f"{n} {s}" for n, s in shapes.items())
        ) from None
    return batch, shapes["keys"][-2], shapes["keys"][-1], shapes["values"][-1]
