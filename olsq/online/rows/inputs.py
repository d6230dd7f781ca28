"""Check the arguments of the estimators; everything here runs before anything changes.

The messages follow scikit-learn's, whose users will meet them; scikit-learn itself is not needed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array
from olsq.online.rows.frames import column_names
from olsq.problem import LARGEST

UNTHREADED = 1 << 13  # OpenBLAS hands a dot product of over 10,000 entries to several threads
SCANNED = 1 << 16  # entries looked at together: what fits a core's cache
SKIP_TARGET = "learns each target from the rows that have it"


class NotFittedError(ValueError, AttributeError):
    """Raised when an estimator is asked before it has seen a sample."""


def not_fitted(estimator: object, reason: str | None = None) -> Exception:
    """Return the error to raise; scikit-learn's own class where scikit-learn is in use."""
    name = type(estimator).__name__
    message = reason or (
        f"This {name} instance is not fitted yet. Call 'fit' or 'partial_fit' with appropriate "
        "arguments before using this estimator."
    )
    exceptions = sys.modules.get("sklearn.exceptions")
    return (exceptions.NotFittedError if exceptions else NotFittedError)(message)


def check_X(
    X: Any,
    estimator: object,
    n_features: int | None,
    *,
    allow_empty: bool,
    convert: Callable[[Any, str], NDArray] = real_array,
) -> NDArray:
    """Return X as a two-dimensional float array with the fitted number of features.

    ``convert`` makes the array: real, or :func:`olsq.online.rows.complex_rows.complex_array`.
    """
    array = convert(X, "X")
    if array.ndim == 1 and hasattr(X, "to_frame"):
        raise ValueError(
            f"Expected a 2-dimensional container but got {type(X)} instead: X must have a column "
            "for each feature. Pass X.to_frame() for a single one."
        )
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead:\narray={array}.\nReshape your "
            "data either using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    check_size(array.shape, estimator, n_features, allow_empty=allow_empty)
    return array


def check_size(
    shape: tuple[int, ...], estimator: object, n_features: int | None, *, allow_empty: bool
) -> None:
    """Raise ValueError unless X has rows and columns, and as many columns as before."""
    for size, what in zip(shape, ("sample", "feature"), strict=True):
        if size == 0 and not (allow_empty and what == "sample"):
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required."
            )
    if n_features is not None and shape[1] != n_features:
        raise ValueError(
            f"X has {shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{n_features} features as input"
        )


def check_lengths(*lengths: int) -> None:
    """Raise ValueError unless all arguments of a call have as many rows."""
    if len(set(lengths)) > 1:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {list(lengths)}"
        )


def check_y(
    y: Any,
    estimator: object,
    n_rows: int,
    n_targets: int | None,
    convert: Callable[[Any, str], NDArray] = real_array,
) -> NDArray:
    """Return y as a float array (n,) or (n, m) that fits X and the targets seen before."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    array = convert(y, "y")
    columns = count_targets(array)
    check_lengths(n_rows, array.shape[0])
    if n_targets is not None and columns != n_targets:
        want = "(n,)" if n_targets == 0 else f"(n, {n_targets})"
        raise ValueError(f"y must have shape {want} as in earlier calls, got {array.shape}")
    return array


def count_targets(y: NDArray) -> int:
    """Return m for y (n, m), 0 for y (n,); ValueError for other shapes."""
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise ValueError(f"y must have shape (n,) or (n, m), got {y.shape}")
    return 0 if y.ndim == 1 else y.shape[1]


def rows_to_learn(
    X: NDArray,
    y: NDArray,
    weights: NDArray | None,
    missing: str,
    estimator: object,
) -> NDArray[np.bool_] | None:
    """Mark the rows (n,), or (n, m) by target, that a state can learn; None if it can learn all.

    By target only with ``missing="skip_target"``.  Raises ValueError as :func:`usable_rows`.
    """
    if missing != "skip_target":
        return usable_rows(X, y, weights, missing, estimator)
    present = np.isfinite(y if y.ndim == 2 else y[:, None])
    if present.all():
        rows = usable_rows(X, y, weights, "skip", estimator)
        return None if rows is None else rows[:, None] & present
    filled = np.where(np.isfinite(y), y, y.dtype.type(0))
    rows = usable_rows(X, filled, weights, "skip", estimator)
    return present if rows is None else rows[:, None] & present


def usable_rows(
    X: NDArray,
    y: NDArray,
    weights: NDArray | None,
    missing: str,
    estimator: object,
) -> NDArray[np.bool_] | None:
    """Return a mask of the rows without a missing value, or None if all are usable.  O(n) memory.

    A row whose weight is NaN has a missing value too.

    Raises ValueError for non-finite rows under ``missing="raise"`` and, always, for finite rows
    whose squares, times their weight, would overflow in the data's dtype.
    """
    largest = min(LARGEST[X.dtype], LARGEST[y.dtype])
    largest_sum = largest * largest
    if weights is not None:
        heaviest = float(weights.max(initial=1.0))
        largest_sum = largest * (largest / heaviest) if heaviest <= largest_sum else -1.0
    # One product each settles the usual case; it is NaN or infinite if any entry is.
    if X.size <= SCANNED and sum_of_squares(X) <= largest_sum and sum_of_squares(y) <= largest_sum:
        return None
    step = max(1, SCANNED // (X.shape[1] + (y.shape[1] if y.ndim == 2 else 1)))
    mask = None
    for start in range(0, X.shape[0], step):
        some = slice(start, start + step)
        if sum_of_squares(X[some]) <= largest_sum and sum_of_squares(y[some]) <= largest_sum:
            continue
        finite = _finite_rows(X[some]) & _finite_rows(y[some])
        if weights is not None:
            finite &= ~np.isnan(weights[some])
        for name, array in (("X", X), ("y", y)):
            heavy = np.ones(finite.size) if weights is None else weights[some]
            _refuse_overflow(name, array[some], heavy, finite, start, largest)
        if finite.all():
            continue
        if missing == "raise":
            bad = start + int(np.argmin(finite))
            name = "y" if np.isfinite(X[bad]).all() else "X"
            name = name if name == "X" or not np.isfinite(y[bad]).all() else "sample_weight"
            raise ValueError(
                f"Input {name} contains NaN, infinity or a value too large for "
                f"dtype('{X.dtype}') (first in row {bad}). {type(estimator).__name__} skips such "
                "rows with missing='skip'."
            )
        if mask is None:
            mask = np.ones(X.shape[0], np.bool_)
        mask[some] = finite
    return mask


def sum_of_squares(array: NDArray) -> float:
    """Sum the squares of all entries on the calling thread alone.

    A second thread saves little of a pass over memory, and waits spinning for a core on a busy
    machine.
    """
    flat = array.ravel("K")
    if flat.size <= UNTHREADED:
        return float(np.vdot(flat, flat))
    parts = (flat[i : i + UNTHREADED] for i in range(0, flat.size, UNTHREADED))
    return sum(float(np.vdot(part, part)) for part in parts)


def _finite_rows(array: NDArray) -> NDArray[np.bool_]:
    finite = np.isfinite(array)
    return finite if array.ndim == 1 else np.logical_and.reduce(finite, axis=1)


def _refuse_overflow(
    name: str, array: NDArray, weights: NDArray, finite: NDArray, start: int, largest: float
) -> None:
    """Raise ValueError if a finite row holds an entry whose weighted square would overflow."""
    size = np.abs(array) if array.ndim == 1 else np.abs(array).max(axis=1)
    size = np.where(finite, size, 0.0).astype(np.float64)
    if size.max(initial=0.0) > largest:
        raise ValueError(
            f"{name} contains a value of magnitude {size.max():.3g}; squares of "
            f"values beyond {largest:.0e} overflow. Rescale {name}"
            + (" or pass it as float64." if array.dtype == np.float32 else ".")
        )
    # The intercept's regressor is 1.
    over = np.sqrt(weights) * np.maximum(size, 1.0) > largest
    if over.any():
        t = int(np.argmax(over))
        raise ValueError(
            f"sample_weight of row {start + t} is {weights[t]:.3g} where {name} holds "
            f"{size[t]:.3g}: their product with a square overflows. Rescale sample_weight"
        )


def check_ridge_size(ridge: NDArray) -> None:
    """Raise ValueError for a ridge that a state cannot hold."""
    largest = LARGEST[np.dtype(np.float64)] ** 2
    if ridge.max(initial=0.0) > largest:
        raise ValueError(
            f"ridge must be at most {largest:.0e}, got {ridge.max():.3g}. To keep a feature out, "
            "leave it out of X"
        )


def no_usable_row(y: NDArray) -> ValueError:
    """Return the error for fitting on rows that all have a missing value."""
    what = "infinity or a value too large for" if np.isinf(y).any() else "NaN for"
    hint = ""
    if y.ndim == 2 and y.shape[1] > 1 and np.isfinite(y).any(axis=0).all():
        hint = f" missing='skip_target' {SKIP_TARGET}."
    return ValueError(
        f"Input y contains {what} dtype('{y.dtype}') or X or sample_weight contains such "
        f"values in every row; no row is left to learn from.{hint}"
    )


def warn_of_lost_rows(y: NDArray, usable: NDArray[np.bool_]) -> None:
    """Warn if the targets y (n, m) miss so many different rows that few are ``usable`` (n,).

    The text is always the same, so that Python shows it once in a stream of calls.
    """
    values = np.count_nonzero(np.isfinite(y)) / y.shape[1]  # of the average target
    if y.shape[1] > 1 and values >= 10 and 4 * np.count_nonzero(usable) < values:
        warnings.warn(
            "fewer than a quarter of the rows in which a target has a value have a value of every "
            f"target, and the others are skipped: missing='skip_target' {SKIP_TARGET}",
            stacklevel=2,
        )


def feature_names(X: Any) -> NDArray[np.object_] | None:
    """Return column names of a data frame if all are strings, else None."""
    columns = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's; the others'
    if columns is None:
        return None
    names = list(columns)
    if names and all(isinstance(name, str) for name in names):
        return np.asarray(names, dtype=object)
    return None


def check_target_names(y: Any, fitted: tuple[str, ...] | None) -> None:
    """Raise ValueError if a frame has a fitted target in the place of another one."""
    names = column_names(y, "y")
    if names is None or fitted is None or len(fitted) < 2 or names == fitted:
        return
    if any(name in fitted and fitted[i] != name for i, name in enumerate(names)):
        raise ValueError(
            f"the columns of y should be the targets of earlier calls, in the same order: "
            f"{shown(list(fitted))}, got {shown(list(names))}"
        )


def check_row_names(x: Any, fitted: ArrayLike | None) -> None:
    """Raise ValueError unless a row with labels, a series or a frame, has the fitted ones."""
    index = getattr(x, "index", None)
    if np.ndim(x) == 1 and fitted is not None and index is not None and not callable(index):
        labels = list(index)
        if all(isinstance(label, str) for label in labels) and labels != list(np.asarray(fitted)):
            raise ValueError(
                f"x should have the labels {shown(list(np.asarray(fitted)))} in this order, got "
                f"{shown(labels)}"
            )
    check_feature_names(x, fitted)


def check_feature_names(X: Any, fitted: ArrayLike | None) -> None:
    """Raise ValueError unless a data frame has the fitted columns, in the same order."""
    names = feature_names(X)
    if names is None or fitted is None:
        return
    fitted_names, passed_names = list(np.asarray(fitted)), list(names)
    if passed_names == fitted_names:
        return
    lines = ["The feature names should match those that were passed during fit."]
    unseen = sorted(set(passed_names) - set(fitted_names))
    absent = sorted(set(fitted_names) - set(passed_names))
    if unseen:
        lines += ["Feature names unseen at fit time:", *(f"- {name}" for name in unseen)]
    if absent:
        lines += ["Feature names seen at fit time, yet now missing:", *(f"- {n}" for n in absent)]
    if not unseen and not absent:
        lines += ["Feature names must be in the same order as they were in fit."]
    raise ValueError("\n".join(lines) + "\n")


def with_ones(X: NDArray, intercept: bool, dtype: DTypeLike = np.float64) -> NDArray:
    """Return X (n, d), contiguous, behind the intercept's column of ones if there is one."""
    if not intercept:
        return np.ascontiguousarray(X, dtype)
    rows = np.empty((X.shape[0], X.shape[1] + 1), dtype)
    rows[:, 0] = 1
    rows[:, 1:] = X
    return rows
