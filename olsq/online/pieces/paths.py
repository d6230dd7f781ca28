"""Build coefficient paths and groups from pieces of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import Clocks
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.paths.path import CoefficientPath
from olsq.online.pieces import pieces
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.frames import Labels
from olsq.online.rows.times import as_array, name_of, read_times
from olsq.online.whole_array import path_of


def path_after(
    estimator: RecursiveLeastSquares, piece: RecursiveLeastSquares | None, X: Any, y: Any,
    sample_weight: Any = None, *, forget: Any = None, times: Any = None,
) -> CoefficientPath:  # fmt: skip
    """Return the path over rows of the estimator that has learned ``piece``, which does not change.

    Rows before the first that can be learnt read as they do at the beginning of a stream.
    """
    if piece is not None:
        begun = pieces.begun(estimator, piece)
        return path_of(begun, X, y, sample_weight, times, forget)
    refuse_complex_data("a piece of a stream", pieces.INSTEAD_OF_PIECES, X=X, y=y)
    if not len(X):
        return blank(X, y, estimator.fit_intercept)
    call = estimator._check_call(X, y, sample_weight, forget, None)
    if call.nothing_usable:
        return blank(X, y, estimator.fit_intercept)
    return path_of(estimator, X, y, sample_weight, times, forget)


def blank(
    X: Any, y: Any, fit_intercept: bool, unknown: float = 0.0, labels: Labels | None = None
) -> CoefficientPath:
    """Return the path of rows before anything was learned: coefficients ``unknown``, 0 or NaN."""
    rows, targets = real_array(X, "X"), real_array(y, "y")
    (n, d), m = rows.shape, targets.shape[1:]
    dtype = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
    coef, each = np.full((n, *m, d), unknown, dtype), np.full((n, *m), unknown, dtype)
    nothing = np.full((n, *m), np.nan if np.isnan(unknown) else np.inf)
    found = CoefficientPath(
        coef, each, np.full((n, *m), np.nan, dtype), np.full((n, *m), np.nan), nothing,
        np.broadcast_to(nothing[..., None], coef.shape).copy(),
        nothing if fit_intercept else each.astype(np.float64),
    )  # fmt: skip
    return found.labelled(labels_of(X, y, fit_intercept) if labels is None else labels)


def labels_of(X: Any, y: Any, fit_intercept: bool, times: Any = None) -> Labels:
    """Return the labels of a path of these rows."""
    labels = Labels.of(X, y)._replace(intercept=bool(fit_intercept))
    if times is None:
        return labels
    return labels._replace(times=as_array(*read_times(times)), time_name=name_of(times))


def check_groups(parameters: dict[str, Any]) -> None:
    """Raise TypeError or ValueError for parameters that groups do not have."""
    groups = GroupedLeastSquares(**parameters)
    FilterBank(1, **groups._bank_parameters())._check_parameters()
    if np.ndim(groups.forget) > 0 or np.ndim(groups.ridge) > 1:
        raise ValueError("forget must be a number and ridge a number or an array (d,) with by=")


def grouped(
    parameters: dict[str, Any], found: dict[Any, RecursiveLeastSquares]
) -> GroupedLeastSquares:
    """Build the groups that started from their ridge and have learned each one's piece."""
    known = set(GroupedLeastSquares._parameter_names())
    own = {name: value for name, value in parameters.items() if name in known}
    groups = GroupedLeastSquares(**own)
    first: Any = next(iter(found.values()))
    origin, clocks = first._origin, None
    if first._timing is not None:
        clocks = groups._clocks = Clocks.start(first._timing.kind, len(found))
    bank = FilterBank(len(found), **groups._bank_parameters())
    one = RecursiveLeastSquares(**parameters)
    bank._begin(origin.n_features, origin.n_targets, origin.dtype)
    for f, piece in enumerate(found.values()):
        begun: Any = pieces.begun(one, piece)
        bank._state.set_switch(f, begun._engine.engine, begun.n_samples_seen_)
        if clocks is not None:
            clocks.set_group(f, begun._timing, begun._engine.engine.span)
        if begun._log_weights is not None:
            bank._state.logs[f] = begun._log_weights[0]
    shape: tuple[int, ...] = (0, origin.n_targets) if origin.n_targets else (0,)
    groups.__dict__.update(
        _bank=bank, _places={key: f for f, key in enumerate(found)},
        _residual=np.empty(shape, origin.dtype), n_features_in_=origin.n_features, metadata_={},
    )  # fmt: skip
    return groups


def scattered(
    parts: list[tuple[NDArray[np.int64], CoefficientPath]], n: int, like: CoefficientPath
) -> CoefficientPath:
    """Return one path of n rows from those of groups, whose rows are given; NaN in the others."""
    whole = [np.full((n, *a.shape[1:]), np.nan, a.dtype) for a in like]
    for rows, path in parts:
        for array, piece in zip(whole, path, strict=True):
            array[rows] = piece
    return CoefficientPath(*whole)
