"""Learn a stream in pieces, and put together estimators, paths and groups from them.

A piece is what a run of rows says: an estimator without ridge or prior.
Pieces merge in order, and merging is associative; then :func:`begun` puts the ridge or prior before
the first of them, once.  So nothing is ever subtracted, where :func:`olsq.merge` has to take a
ridge out again.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.online.calls.history import put_values
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.forms import form_switch
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import Clocks
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.labels import group_rows, with_groups
from olsq.online.paths.arrays import RowStatistics
from olsq.online.paths.path import CoefficientPath
from olsq.online.pieces import merging
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.frames import Labels
from olsq.online.rows.times import same_clock, with_times
from olsq.online.whole_array import path_of

INSTEAD_OF_PIECES = "learn the stream with one estimator, or merge() two"


class PieceRows(NamedTuple):
    """Rows as they were passed: arrays, or pandas' frames and series; None for what was not."""

    X: Any
    y: Any
    sample_weight: Any = None
    forget: Any = None
    times: Any = None
    by: Any = None

    @property
    def n(self) -> int:
        """Number of the rows."""
        return len(self.X)

    @property
    def groups(self) -> list[tuple[Any, NDArray[np.int64]]]:
        """Every label with its rows, in order of appearance; rows without a label are left out."""
        every: dict[Any, Any] = {None: np.arange(self.n)}
        return list((every if self.by is None else group_rows(self.by, self.n)).items())

    def take(self, rows: Any) -> PieceRows:
        """Select some of the rows."""
        return self._make(
            part.iloc[rows] if hasattr(part, "iloc") else part if part is None else part[rows]
            for part in self
        )


def learned(estimator: RecursiveLeastSquares, rows: PieceRows) -> RecursiveLeastSquares | None:
    """Learn rows as a piece of the stream of ``estimator``, which itself has learned nothing.

    None where no row can be learned: such rows are as if they had never come, unless they have
    times that count, since no later row may be at a time before theirs.  O(d^2) per row in matrix
    products, memory of the rows and d^2.  Raises as ``partial_fit`` does.
    """
    X, y, sample_weight, forget, times, _ = rows
    if not rows.n:
        return None
    refuse_complex_data("a piece of a stream", INSTEAD_OF_PIECES, X=X, y=y)
    piece: Any = copy.copy(estimator)
    piece.set_params(ridge=0.0, ridge_mode="discounted", prior=None)
    piece._learn(X, y, sample_weight, forget, times, restart=False, want_path=False)
    learned = ~np.isnan(piece._residual)
    if piece._timing is None and not learned.any():
        return None
    if sample_weight is not None:
        learned &= real_array(sample_weight, "sample_weight").reshape(-1, 1) > 0
    piece._learned_by_target = learned.sum(axis=0)
    piece._residual = piece._residual[:0].copy()  # a piece goes to other machines
    piece.__dict__.pop("_labelled_residual", None)
    return piece


def merged(
    first: RecursiveLeastSquares | None, second: RecursiveLeastSquares | None
) -> RecursiveLeastSquares | None:
    """Merge two pieces, first's rows before second's, in O(d^3); neither is changed.

    Raises ValueError where two pieces cannot be of one stream: their features, targets or dtypes
    differ, or second's times begin before first's end.
    """
    if first is None or second is None:
        return second if first is None else first
    merging.check_same(first, second)
    parts: tuple[Any, Any] = first, second
    both: Any = merging.put_together(first, second, _stacked)
    both._learned_by_target = parts[0]._learned_by_target + parts[1]._learned_by_target
    return both


def begun(estimator: RecursiveLeastSquares, piece: RecursiveLeastSquares) -> RecursiveLeastSquares:
    """Return the estimator that started from its ridge or prior and has learned the piece."""
    piece_origin = piece._origin
    other: Any = copy.copy(estimator)
    dtype, ridge = piece_origin.dtype, other._start_ridge(piece_origin.n_features)
    origin = other._make_origin(
        piece_origin.n_features,
        piece_origin.n_targets,
        dtype,
        ridge,
        piece_origin.in_time,
        piece_origin.names,
        piece_origin.targets,
    )
    other._settle(origin, other._engine_of(origin), _constant_values=other._no_values())
    result = merging.put_together(other, piece, _stacked)
    del result._learned_by_target  # which pieces alone have
    result._origin, result._residual = origin, other._residual
    result.set_params(**other.get_params(deep=False))
    return result


def _stacked(first: FormSwitch, second: FormSwitch, _: Any, half_life: float | None) -> FormSwitch:
    """Return the state of first's rows followed by second's; second began with no ridge."""
    nothing = np.zeros(second.form.columns.shape[1])
    return form_switch.merge(first, second, nothing, half_life)


def path_after(
    estimator: RecursiveLeastSquares,
    piece: RecursiveLeastSquares | None,
    rows: PieceRows,
) -> CoefficientPath:
    """Return the path over rows of the estimator that has learned ``piece``, which does not change.

    Rows before the first that can be learned read as they do at the beginning of a stream.
    """
    X, y, sample_weight, forget, times, _ = rows
    refuse_complex_data("a piece of a stream", INSTEAD_OF_PIECES, X=X, y=y)
    before = estimator if piece is None else begun(estimator, piece)
    return path_of(before, X, y, sample_weight, times, forget, need_usable=False)


def can_learn(estimator: Any, rows: PieceRows) -> bool:
    """Test whether any row has no missing value; raises as ``partial_fit`` does."""
    X, y, sample_weight, forget, *_ = rows
    return not estimator._check_call(X, y, sample_weight, forget, None).nothing_usable


def blank(rows: PieceRows, fit_intercept: bool, unknown: float = 0.0) -> CoefficientPath:
    """Return the path of rows before anything was learned: coefficients ``unknown``, 0 or NaN."""
    X, targets = real_array(rows.X, "X"), real_array(rows.y, "y")
    (n, d), m = X.shape, targets.shape[1:]
    dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
    k, nothing = d + int(bool(fit_intercept)), np.nan if np.isnan(unknown) else np.inf
    columns = np.full((n, *m, k), unknown, dtype), np.full((n, *m, k), nothing)
    constants = (np.full((n, *m), value) for value in (np.nan, np.nan, nothing))
    path = CoefficientPath.of_columns(columns, bool(fit_intercept), *constants, without=unknown)
    path = path._replace(residual=path.residual.astype(dtype))
    fit, rows_so_far = np.full((n, *m), np.nan), np.full((n, *m), unknown)
    path = path.with_statistics(
        RowStatistics(path.residual.copy(), fit, fit, rows_so_far, rows_so_far.copy())
    )
    return path.labelled(labels_of(rows, fit_intercept))


def labels_of(rows: PieceRows, fit_intercept: bool) -> Labels:
    """Return the labels of a path of these rows."""
    labels = Labels.of(rows.X, rows.y)._replace(intercept=bool(fit_intercept))
    labels = labels if rows.by is None else with_groups(labels, rows.by)
    return with_times(labels, rows.times, in_order=rows.by is None)


def check_groups(parameters: dict[str, Any]) -> None:
    """Raise TypeError or ValueError for parameters that groups do not have."""
    groups = GroupedLeastSquares(**parameters)
    FilterBank(1, **groups._bank_parameters())._check_parameters()
    if np.ndim(groups.forget) > 0 or np.ndim(groups.ridge) > 1:
        raise ValueError("forget must be a number and ridge a number or an array (d,) with by=")


def grouped(
    parameters: dict[str, Any], fitted: dict[Any, RecursiveLeastSquares | None]
) -> GroupedLeastSquares:
    """Build the groups that started from their ridge and have learned each one's piece.

    None is the piece of a group of which no row could be learned; not all of them are None.
    """
    names = set(GroupedLeastSquares._parameter_names())
    of_groups = {name: value for name, value in parameters.items() if name in names}
    groups = GroupedLeastSquares(**of_groups)
    first: Any = next(piece for piece in fitted.values() if piece is not None)
    origin, clocks = first._origin, None
    if first._timing is not None:
        timings = (piece._timing for piece in fitted.values() if piece is not None)
        zoned = functools.reduce(same_clock, (t.zoned for t in timings if t is not None))
        clocks = groups._clocks = Clocks.start(first._timing.kind, len(fitted), zoned)
    bank = FilterBank(len(fitted), **groups._bank_parameters())
    one = RecursiveLeastSquares(**parameters)
    bank._begin(origin.n_features, origin.n_targets, origin.dtype)
    for f, piece in enumerate(fitted.values()):
        if piece is None:
            continue
        start: Any = begun(one, piece)
        bank._state.set_switch(f, start._engine.engine, start.n_samples_seen_)
        put_values(bank._state.values[f : f + 1], start._constant_values)
        if clocks is not None:
            clocks.set_group(f, start._timing, start._engine.engine.span)
        if start._log_weights is not None:
            bank._state.logs[f] = start._log_weights[0]
    shape: tuple[int, ...] = (0, origin.n_targets) if origin.n_targets else (0,)
    groups.__dict__.update(
        _bank=bank,
        _places={key: f for f, key in enumerate(fitted)},
        _residual=np.empty(shape, origin.dtype),
        n_features_in_=origin.n_features,
        metadata_={},
        **({} if origin.names is None else {"feature_names_in_": origin.names}),
    )
    return groups
