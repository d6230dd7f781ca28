"""From a form to moments and back, and the checks of moments given by a user.

Moments are ``gram = sum w x x^T`` (d, d) and ``cross = sum w y x^T`` (m, d), forgotten like the
data; column 0 is the intercept's, a regressor of ones, where there is one.  A discounted ridge is
in the gram from the start and forgotten with it; a fixed ridge is not in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from olsq.online import covariance
from olsq.online import information as information_form
from olsq.online._moment_kernels import factorise
from olsq.online._square_root_kernels import COUNT
from olsq.online.covariance import CovarianceForm
from olsq.online.information import InformationForm
from olsq.online.recursion import Form, Recursion
from olsq.online.square_root import SquareRootForm, counters, triangular_inverse
from olsq.problem import Moments, check_forget

ASSUMED_ROWS = 10_000  # that singular moments are the sum of


def moments_of(form: Form, ridge: NDArray, discounted: bool) -> Moments:
    """The moments of a form, in float64; ``ridge`` (d,) is what the problem's gram started with."""
    if isinstance(form, InformationForm):
        return information_form.moments(form)
    if isinstance(form, CovarianceForm):
        form = covariance.to_square_root(form)
    R, z = form.R.astype(np.float64), form.z.astype(np.float64)
    return Moments(R.T @ R - (0.0 if discounted else np.diag(ridge)), z @ R)


def check(moments: Any, fit_intercept: bool) -> Moments:
    """Return one pair of moments as NumPy floats, gram symmetric; refuse what cannot be one."""
    if not isinstance(moments, Moments):
        raise TypeError(
            f"moments must be olsq.Moments, got {type(moments).__name__}; of a Solution give "
            ".state, of a decoding state .moments"
        )
    gram, cross = (_as_floats(a, n) for a, n in zip(moments, Moments._fields, strict=True))
    d = gram.shape[-1] if gram.ndim else 0
    if gram.shape != (d, d) or d == 0:
        raise ValueError(
            f"moments.gram must have shape (d, d), one problem without batch axes, got {gram.shape}"
        )
    if cross.ndim != 2 or cross.shape[1] != d or cross.shape[0] == 0:
        raise ValueError(f"moments.cross must have shape (m, {d}), got {cross.shape}")
    if fit_intercept and d < 2:
        raise ValueError(
            "moments.gram has one column, which fit_intercept=True takes for the intercept's; "
            "give fit_intercept=False"
        )
    tolerance = np.sqrt(np.finfo(gram.dtype).eps)
    diagonal = np.diagonal(gram)
    size = np.sqrt(np.maximum(np.abs(diagonal), np.finfo(gram.dtype).tiny))
    with np.errstate(over="ignore"):
        asymmetric = np.abs(gram - gram.T) > tolerance * np.outer(size, size)
    if asymmetric.any():
        raise ValueError("moments.gram must be symmetric")
    return Moments(0.5 * gram + 0.5 * gram.T, cross)


def _as_floats(array: Any, name: str) -> NDArray:
    floats = np.asarray(array)
    if floats.dtype.kind not in "fiub":
        raise TypeError(f"moments.{name} must be real numbers, got dtype {floats.dtype}")
    floats = floats.astype(np.float32 if floats.dtype == np.float32 else np.float64)
    if not np.isfinite(floats).all():
        raise ValueError(f"moments.{name} must be finite")
    return floats


def recursion_from(
    moments: Moments, method: str, ridge: NDArray, dtype: np.dtype, *, intercept: bool,
    discounted: bool, solving: bool,
) -> Recursion:  # fmt: skip
    """The recursion that goes on from checked moments; ``ridge`` (d,) is zero if they hold it.

    The loss is unknown and infinite, until a gate of 0 forgets it.
    """
    gram, cross = (a.astype(np.float64) for a in moments)
    m, d = cross.shape
    eps = float(np.finfo(moments.gram.dtype).eps)  # that they were accumulated in
    rows, targets, noise = _observations(gram + np.diag(ridge), cross, eps)
    if not (np.abs(targets) <= np.finfo(dtype).max).all():
        raise ValueError("moments.cross is too large for moments.gram to come from the same rows")
    clock = np.array([1, 1, 0])
    if method == "information":
        if rows.shape[0] < d:  # without the rounding errors that would look like information
            gram, cross = rows.T @ rows - np.diag(ridge), targets @ rows
        columns, tally, loss, held = counters(np.maximum(np.diagonal(gram), 0.0), m)
        loss[:] = np.inf
        information = InformationForm(
            gram, cross, loss, columns, tally, held, ridge,
            intercept=intercept, discounted=discounted, solving=solving,
        )  # fmt: skip
        return Recursion(information, method, clock)
    form = SquareRootForm.start(np.zeros(d), m, np.float64, intercept)
    form.tally[COUNT] = _rows_of_noise(noise, np.float64)
    form.absorb_rows(rows, targets.T)
    columns, tally, loss, held = counters((form.R**2).sum(0), m)
    loss[:] = np.inf
    tally[COUNT] = _rows_of_noise(noise, dtype)
    form = SquareRootForm(
        form.R.astype(dtype), form.z.astype(dtype), columns, tally, loss, held, intercept=intercept
    )
    recursion = Recursion(form, method, clock)
    if method == "covariance":
        recursion._try_covariance()
    return recursion


def _rows_of_noise(noise: float, dtype: DTypeLike) -> float:
    """The number of rows for which the square-root form expects this much rounding error.

    It takes its error for three roundings times the root of that number.
    """
    eps = float(np.finfo(dtype).eps)
    return (min(noise, eps**0.5) / (3 * eps)) ** 2


def _observations(A: NDArray, G: NDArray, eps: float) -> tuple[NDArray, NDArray, float]:
    """Rows X (r, d) and targets z (m, r) with ``X^T X = A`` and ``z X = G``.

    The Cholesky factor where A is nonsingular, else eigenvectors above rounding, so that X has
    as many rows as A has directions.  ``eps`` is the precision that A was accumulated in.  The
    third result is how far off X's row space may be, 0 where there is nothing outside of it:
    eigenvalues that should have been zero show A's rounding error, but not that of a factor which
    A was made from.  That is taken for the error of ``ASSUMED_ROWS`` rotations.
    """
    diagonal = np.diagonal(A)
    length = np.sqrt(np.maximum(diagonal, 0.0))
    absent = length == 0
    scale = np.where(absent, 1.0, length)
    with np.errstate(over="ignore"):
        correlation = A / scale / scale[:, None]
    if (diagonal < 0).any() or A[absent].any() or (np.abs(correlation) > 1 + eps**0.5).any():
        raise ValueError(_INDEFINITE)
    if G[:, absent].any():
        raise ValueError(
            "moments.cross must be zero where moments.gram's diagonal is: that regressor was "
            "never seen"
        )
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < -(eps**0.5) * values[-1]:
        raise ValueError(_INDEFINITE)
    R = np.empty_like(A)
    lost = A.shape[0] * eps * values[-1]
    if values[0] > lost and factorise(A, np.zeros_like(diagonal), 1.0, R):
        with np.errstate(over="ignore", invalid="ignore"):
            return R, G @ triangular_inverse(R)[0], 0.0
    kept = values > lost
    root, V = np.sqrt(values[kept]), vectors[:, kept]
    error = np.abs(values[~kept]).max(initial=0.0)
    noise = (8 * error + lost) / values[kept].min() if kept.any() else 0.0
    noise = max(float(noise), 3 * eps * ASSUMED_ROWS**0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        return root[:, None] * V.T * length, (G / scale) @ V / root, noise


_INDEFINITE = (
    "moments.gram must be positive semidefinite (plus the ridge, with ridge_mode='fixed'): it is a "
    "sum of squares"
)


def merge(first: Moments, second: Moments, forget: Any) -> Moments:
    """``forget * first + second`` for NumPy moments; a gate of 0 drops even what is not finite."""
    first, second = (Moments(*map(np.asarray, pair)) for pair in (first, second))
    for name, a, b in zip(Moments._fields, first, second, strict=True):
        if a.shape[-2:] != b.shape[-2:]:
            raise ValueError(
                f"cannot merge: {name} has shape {a.shape} in the first moments and {b.shape} in "
                "the second"
            )
    gate = check_forget(forget)[..., None, None]

    def joined(a: NDArray, b: NDArray) -> NDArray:
        kept = np.where((gate == 0) & ~np.isfinite(a), 0, a)
        return (gate * kept + b).astype(np.result_type(a, b, np.float32), copy=False)

    return Moments(joined(first.gram, second.gram), joined(first.cross, second.cross))
