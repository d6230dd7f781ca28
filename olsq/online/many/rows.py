"""Check the rows of a bank's call, and assign them to filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_rows_held, is_integer, shown
from olsq.arrays.reals import real_array
from olsq.problem import LARGEST

Groups = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class GivenRows(NamedTuple):
    """Rows X (N, d) and Y (N, m): b filters with T rows each, one filter after the other.

    ``shape`` is y's as it was given, ``rows`` = (b, T) or (b,), ``single`` whether the axis of
    filters was left out, ``groups`` what :class:`olsq.online.many.learning.BankRows` begins with.
    """

    X: NDArray
    Y: NDArray
    n_targets: int  # 0 where y has no axis of targets
    shape: tuple[int, ...]
    rows: tuple[int, ...]
    single: bool
    groups: Groups

    def per_row(self, value: Any, name: str) -> NDArray[np.float64]:
        """Broadcast a number, or an array (b,) or (b, T), to a float64 vector (N,)."""
        array = real_array(value, name).astype(np.float64, copy=False)
        if self.single and array.ndim:
            array = array[None]
        elif array.shape == self.rows[:1]:
            array = array.reshape(array.shape + (1,) * (len(self.rows) - 1))
        try:
            spread = np.broadcast_to(array, self.rows)
        except ValueError:
            spread = None
        fits = array.ndim == len(self.rows) and array.shape[:1] == self.rows[:1]
        if spread is None or not (fits or array.ndim == 0):
            axes = f" or one number per filter {self.rows}"
            if len(self.rows) == 2:
                axes = f" or one per filter or row {self.rows}"
            if self.single:
                axes = f" or one number per row {self.rows[1:]}" if len(self.rows) == 2 else ""
            raise ValueError(
                f"{name} must be a number{axes}, got an array of shape {np.shape(value)}"
            )
        return np.ascontiguousarray(spread).reshape(-1)


def settled(X: NDArray, Y: NDArray) -> bool:
    """Test whether all rows are finite, with squares that cannot overflow; if not, check each.

    The sums are those of ``inputs.usable_rows``, without BLAS, whose threads cost more than a tick.
    """
    bound = min(LARGEST[X.dtype], LARGEST[Y.dtype]) ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        return all(bool(np.einsum("ij,ij", a, a) <= bound) for a in (X, Y))


def check_number(value: Any, name: str) -> None:
    """Raise TypeError or ValueError unless ``value`` is an integer of at least 1."""
    if not is_integer(value):
        raise TypeError(f"{name} must be an integer, got {shown(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {shown(value)}")
    check_rows_held(name, value)


def check_index(which: Any, n: int) -> NDArray[np.int64]:
    """Return ``which`` as indices (b,) of existing filters; negative ones count from the end."""
    index = np.asarray(which)
    if index.dtype == np.bool_ or (index.dtype.kind not in "iu" and index.size):
        raise TypeError(
            f"which must contain indices of filters, as integers, got dtype {index.dtype}"
            + ("; for a mask pass np.flatnonzero(mask)" if index.dtype == np.bool_ else "")
        )
    if index.ndim > 1:
        raise ValueError(f"which must be an integer or an array (b,), got shape {index.shape}")
    index = np.atleast_1d(index).astype(np.int64)
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise ValueError(
            f"which has filter {index[outside][0]}, but this bank has {n} filters, 0 to {n - 1}"
        )
    return np.where(index < 0, index + n, index)


def index_rows(X: NDArray, which: Any, n: int) -> NDArray:
    """Return X with the axis of filters: a row (d,) is for all, or for the one in ``which``."""
    if which is not None and np.ndim(which) == 0:
        return X[None]
    if X.ndim == 1:
        return np.broadcast_to(X, (n if which is None else np.size(which), X.shape[0]))
    return X


def check_X(
    X: Any,
    which: Any,
    b: int,
    n_features: int | None,
    convert: Callable[[Any, str], NDArray] = real_array,
) -> NDArray:
    """Return X as a float array (b, d) or (b, T, d)."""
    rows = index_rows(convert(X, "X"), which, b)
    if rows.ndim not in (2, 3) or rows.shape[0] != b:
        raise ValueError(
            f"X must have shape ({b}, d), one row for each filter, or ({b}, T, d), got "
            f"{np.shape(X)}"
        )
    if rows.shape[-1] == 0:
        raise ValueError(f"X has no features: its shape is {np.shape(X)}")
    if n_features is not None and rows.shape[-1] != n_features:
        raise ValueError(
            f"X has {rows.shape[-1]} features, but FilterBank is expecting {n_features} features "
            "as input"
        )
    return rows


def check_rows(
    X: Any,
    y: Any,
    filters: NDArray[np.int64] | None,
    n: int,
    n_features: int | None,
    n_targets: int | None,
    single: bool,
    convert: Callable[[Any, str], NDArray] = real_array,
) -> GivenRows:
    """Check the rows of a call; ``filters`` (b,) receive them, or all n if None.

    ``n_targets`` is that of earlier calls, None before the first.
    """
    b = n if filters is None else filters.size
    which = filters[0] if single and filters is not None else filters
    rows = check_X(X, which, b, n_features, convert)
    if y is None:
        raise ValueError("FilterBank requires y to be passed, but the target y is None.")
    targets = convert(y, "y")
    shape = targets.shape
    if single:
        targets = targets[None]
    axes = rows.shape[:-1]
    several = targets.ndim == len(axes) + 1
    if targets.shape[: len(axes)] != axes or not (several or targets.ndim == len(axes)):
        want = axes[1:] if single else axes
        raise ValueError(
            f"y must have shape {want}, or {(*want, 'm')} with m targets, as X has "
            f"{np.shape(X)}; got {shape}"
        )
    n_given = targets.shape[-1] if several else 0
    if several and n_given == 0:
        raise ValueError(f"y has no targets: its shape is {shape}")
    if n_targets is not None and n_given != n_targets:
        want = "no axis of targets" if n_targets == 0 else f"{n_targets} targets"
        raise ValueError(f"y must have {want} as in earlier calls, got shape {shape}")
    T = axes[1] if len(axes) == 2 else 1
    return GivenRows(
        np.ascontiguousarray(rows.reshape(b * T, rows.shape[-1])),
        np.ascontiguousarray(targets.reshape(b * T, max(n_given, 1))),
        n_given,
        shape,
        axes,
        single,
        group_rows(filters, b, T),
    )


def group_rows(filters: NDArray[np.int64] | None, b: int, T: int) -> Groups:
    """Return members, begins, ends and order of b T rows; a filter's own keep their order."""
    order, begins = np.arange(b * T), np.arange(b) * T
    if filters is None:
        return np.arange(b), begins, begins + T, order
    members, counts = np.unique(filters, return_counts=True)
    if members.size == b:
        return filters, begins, begins + T, order
    sequence = np.argsort(filters, kind="stable")
    order = (sequence[:, None] * T + np.arange(T)).reshape(-1)
    ends = np.cumsum(counts) * T
    return members, ends - counts * T, ends, order
