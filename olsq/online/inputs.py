"""Checks at the public edge of the estimators: everything here runs before anything changes.

The messages follow scikit-learn's, whose users will meet them; scikit-learn itself is not needed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.problem import LARGEST


class NotFittedError(ValueError, AttributeError):
    """Raised when an estimator is asked before it has seen a sample."""


def not_fitted(estimator: object, reason: str | None = None) -> Exception:
    """The error to raise; scikit-learn's own class where scikit-learn is in use."""
    name = type(estimator).__name__
    message = reason or (
        f"This {name} instance is not fitted yet. Call 'fit' or 'partial_fit' with appropriate "
        "arguments before using this estimator."
    )
    exceptions = sys.modules.get("sklearn.exceptions")
    return (exceptions.NotFittedError if exceptions else NotFittedError)(message)


def _as_floats(values: Any, name: str) -> NDArray:
    if type(values) is np.ndarray and values.dtype in LARGEST:
        return values
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. "
            "Use '.toarray()' to convert to a dense numpy array."
        )
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported\n{values}\n")
    if array.dtype == np.float32 or array.dtype == np.float64:
        return array
    try:
        return array.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{name} must be numeric: {error}") from None


def check_X(X: Any, estimator: object, n_features: int | None, *, allow_empty: bool) -> NDArray:
    """X as a two-dimensional float array with the number of features that was fitted."""
    array = _as_floats(X, "X")
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead:\narray={array}.\nReshape your "
            "data either using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    if array.shape[0] == 0 and not allow_empty:
        raise ValueError(
            f"Found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    if array.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"X has {array.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{n_features} features as input"
        )
    return array


def check_y(y: Any, estimator: object, n_rows: int, n_targets: int | None) -> NDArray:
    """y as a float array (n,) or (n, m) that fits X and the targets seen before."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    array = _as_floats(y, "y")
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise ValueError(f"y must have shape (n,) or (n, m), got {array.shape}")
    if array.shape[0] != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: "
            f"{[n_rows, array.shape[0]]}"
        )
    given = 0 if array.ndim == 1 else array.shape[1]
    if n_targets is not None and given != n_targets:
        want = "(n,)" if n_targets == 0 else f"(n, {n_targets})"
        raise ValueError(f"y must have shape {want} as in earlier calls, got {array.shape}")
    return array


def usable_rows(
    X: NDArray, y: NDArray, missing: str, estimator: object
) -> NDArray[np.bool_] | None:
    """Mask of the rows without a missing value, or None if all are usable.

    Raises ValueError for non-finite rows under ``missing="raise"`` and, always, for finite values
    so large that their squares would overflow.
    """
    largest = min(LARGEST[X.dtype], LARGEST[y.dtype])
    # One product each settles the usual case; it is NaN or infinite if any entry is.
    if _within(X, largest) and _within(y, largest):
        return None
    finite = np.isfinite(X).all(1) & np.isfinite(y.reshape(y.shape[0], -1)).all(1)
    for name, array in (("X", X), ("y", y)):
        values = array[finite]
        if values.size and np.abs(values).max() > largest:
            raise ValueError(
                f"{name} contains a value of magnitude {np.abs(values).max():.3g}; squares of "
                f"values beyond {largest:.0e} overflow. Rescale {name}"
                + (" or pass it as float64." if array.dtype == np.float32 else ".")
            )
    if finite.all():
        return None
    if missing == "raise":
        name = "X" if not np.isfinite(X).all() else "y"
        bad = int(np.flatnonzero(~finite)[0])
        raise ValueError(
            f"Input {name} contains NaN, infinity or a value too large for "
            f"dtype('{X.dtype}') (first in row {bad}). {type(estimator).__name__} skips such rows "
            "with missing='skip'."
        )
    return finite


def _within(array: NDArray, largest: float) -> bool:
    return bool(np.vdot(array, array) <= largest * largest)


def no_usable_row(y: NDArray) -> ValueError:
    """The error for fitting on rows that all have a missing value."""
    what = "infinity or a value too large for" if np.isinf(y).any() else "NaN for"
    return ValueError(
        f"Input y contains {what} dtype('{y.dtype}') or X contains such values in every row; "
        "no row is left to learn from."
    )


def feature_names(X: Any) -> NDArray[np.object_] | None:
    """Column names of a data frame if all are strings, else None."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = list(columns)
    if names and all(isinstance(name, str) for name in names):
        return np.asarray(names, dtype=object)
    return None


def check_feature_names(X: Any, fitted: ArrayLike | None) -> None:
    """Refuse a data frame whose columns are not those that were fitted, in the same order."""
    names = feature_names(X)
    if names is None or fitted is None:
        return
    known, given = list(np.asarray(fitted)), list(names)
    if given == known:
        return
    lines = ["The feature names should match those that were passed during fit."]
    unseen = sorted(set(given) - set(known))
    absent = sorted(set(known) - set(given))
    if unseen:
        lines += ["Feature names unseen at fit time:", *(f"- {name}" for name in unseen)]
    if absent:
        lines += ["Feature names seen at fit time, yet now missing:", *(f"- {n}" for n in absent)]
    if not unseen and not absent:
        lines += ["Feature names must be in the same order as they were in fit."]
    raise ValueError("\n".join(lines) + "\n")
