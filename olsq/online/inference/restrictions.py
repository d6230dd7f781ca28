"""Linear restrictions on coefficients, as arrays or as text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.reals import real_array


class Contrasts(NamedTuple):
    """Estimates of r linear combinations of coefficients; (r,), or (m, r) of m targets.

    Attributes
    ----------
    effect : array
        ``R theta - value``.
    stderr : array
        inf where rows so far do not determine the combination.
    statistic, pvalue : array
        t and its two-sided probability under the restriction; 0 and 1 where undetermined.
    lower, upper : array
        Confidence bounds of the effect.
    freedom : number or array (m,)
        Degrees of freedom of t.
    """

    effect: NDArray[np.float64]
    stderr: NDArray[np.float64]
    statistic: NDArray[np.float64]
    pvalue: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    freedom: Any

    __repr__ = brief_repr


class WaldTest(NamedTuple):
    """F statistic of r restrictions at once and its probability; numbers, or (m,) of m targets."""

    statistic: Any
    pvalue: Any
    restrictions: int
    freedom: Any


def restrictions(
    restriction: Any, value: ArrayLike, names: list[str], n_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return R (r, k) over the coefficients of these ``names`` (k), and the values (r,).

    ``restriction`` may leave out the intercept, which is the first of the names where there are
    more of them than features.
    """
    k = len(names)
    if isinstance(restriction, str):
        R, values = _of_text(restriction, names)
        if np.any(real_array(value, "value") != 0):
            raise ValueError("value is for a restriction given as an array: write it into the text")
        _check_rows(R)
        return R, values
    R = np.atleast_2d(real_array(restriction, "restriction").astype(np.float64))
    if R.ndim != 2 or R.shape[0] == 0 or R.shape[1] not in (n_features, k):
        columns = f"{n_features}" if k == n_features else f"{n_features} (or {k}, intercept first)"
        raise ValueError(
            f"restriction must have {columns} columns, one per coefficient, got an array of shape "
            f"{np.shape(restriction)}"
        )
    _check_rows(R)
    if R.shape[1] < k:
        R = np.hstack([np.zeros((R.shape[0], 1)), R])
    values = real_array(value, "value").astype(np.float64)
    if values.ndim > 1 or values.size not in (1, R.shape[0]) or not np.isfinite(values).all():
        raise ValueError(
            f"value must be a finite number or one per restriction ({R.shape[0]}), got {value!r}"
        )
    return R, np.broadcast_to(values, (R.shape[0],))


def _check_rows(R: NDArray[np.float64]) -> None:
    if not (R.size and np.isfinite(R).all() and R.any(axis=1).all()):
        raise ValueError("restriction must be finite, with a number other than 0 in every row")


def _of_text(text: str, names: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        from formulaic.utils.constraints import LinearConstraints
    except ImportError as error:
        raise ImportError(
            "a restriction as text needs formulaic (pip install formulaic); or give an array"
        ) from error
    try:
        found = LinearConstraints.from_spec(text, variable_names=names)
    except Exception as error:
        raise ValueError(
            f"restriction {text!r} cannot be read as linear in {', '.join(names)}: {error}"
        ) from error
    return np.atleast_2d(np.asarray(found.constraint_matrix, np.float64)), np.atleast_1d(
        np.asarray(found.constraint_values, np.float64)
    )
