"""Work on one partition, or two states: plain functions that run on the workers.

None changes its arguments, since a task may run again after a worker is lost, and another task may
hold the same state.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online import CoefficientPath, RecursiveLeastSquares, RollingLeastSquares
from olsq.online import coefficient_path as whole_path
from olsq.online.paths.arrays import fill_rows, rows_like
from olsq.online.pieces import pieces
from olsq.online.pieces.pieces import INSTEAD_OF_PIECES, PieceRows
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.times import of_frames, read_times, times_and_zone
from olsq.online.whole_array import hide_first


@dataclass(frozen=True)
class Work:
    """Work on partitions; ``columns`` gives the columns of X that hold y, weights, and so on.

    ``parameters`` are those of the estimator, a :class:`RollingLeastSquares` if ``rolling``; ``by``
    says whether rows have labels of groups.
    """

    parameters: dict[str, Any]
    columns: dict[str, Any]
    rolling: bool
    by: bool
    options: dict[str, Any] | None = None  # of a rolling path, as coefficient_path takes them
    learns_times: bool = True  # False: times are labels, or for the horizon of forecasts
    fewest: int | None = None  # samples of a path without a window; below them it reads NaN

    def estimator(self) -> Any:
        """Make a new estimator, without any rows."""
        kind = RollingLeastSquares if self.rolling else RecursiveLeastSquares
        return kind(**copy.deepcopy(self.parameters))

    def without_prior(self) -> Work:
        """Return the work for states, which hold no prior, so that it need not travel with every
        task.
        """
        if self.rolling:
            return self
        return replace(self, parameters=self.parameters | {"prior": None})

    def collect_rows(self, blocks: tuple[Any, ...]) -> PieceRows:
        """Collect the rows of a partition from the blocks of X, y, sample_weight, forget, times,
        by.
        """
        rows, fields = PieceRows(*blocks), {}
        if self.columns:
            X, taken = rows.X, []
            fields = {name: X[column] for name, column in self.columns.items()}
            for column in self.columns.values():
                taken += column if isinstance(column, list) else [column]
            fields["X"] = X.drop(columns=taken)
        if not self.learns_times:
            fields["times"] = None
        return rows._replace(**fields)

    # -- states -----------------------------------------------------------------------------------

    def state(self, *blocks: Any) -> Any:
        """Reduce a partition to its state: a piece, one per group, or the tail of a window."""
        rows = self.collect_rows(blocks)
        est = self.estimator()
        if self.rolling:
            return tail_of(est, rows)
        if not self.by:
            return pieces.learned(est, rows)
        self._check_labels(rows)
        return {key: pieces.learned(est, rows.take(members)) for key, members in rows.groups}

    def merged(self, first: Any, second: Any) -> Any:
        """Merge the states of first's rows and then second's."""
        if self.rolling:
            return merged_tails(self.estimator(), first, second)
        if not self.by:
            return pieces.merged(first, second)
        both = dict(first)
        for key, piece in second.items():
            both[key] = pieces.merged(both.get(key), piece)
        return both

    def _check_labels(self, rows: PieceRows) -> None:
        if self.parameters.get("missing") != "raise":
            return
        labelled = np.zeros(rows.n, np.bool_)
        for _, members in rows.groups:
            labelled[members] = True
        if not labelled.all():
            raise ValueError(
                f"by has no label in row {int(np.argmin(labelled))} of a partition; such rows are "
                "passed over with missing='skip'"
            )

    # -- results ----------------------------------------------------------------------------------

    def build_estimator(self, state: Any) -> Any:
        """Build the fitted estimator from the state of all rows."""
        parts = state.values() if self.by else [state]
        if not any(samples_of(part) for part in parts):
            raise ValueError(
                "no row is left to learn from: each has a missing value or a sample_weight of 0"
            )
        if isinstance(state, Tail):
            return fitted_to_tail(self.estimator(), state)
        if self.by:
            return pieces.grouped(self.parameters, state)
        return pieces.begun(self.estimator(), state)

    def path(self, before: Any, *blocks: Any) -> CoefficientPath:
        """Compute the path over a partition's rows, after the state of all rows before it."""
        rows = self.collect_rows(blocks)
        shown = replace(self, learns_times=True).collect_rows(blocks)
        intercept = self.parameters["fit_intercept"]
        if self.rolling:
            path = self._rolling_path(before, rows)
        elif not self.by:
            path = self._path_of_one(before, rows)
        else:
            self._check_labels(rows)
            before = before or {}
            every_array = rows_like(pieces.blank(rows, intercept), rows.n)
            for key, members in rows.groups:
                part = rows.take(members)._replace(by=None)
                fill_rows(every_array, members, self._path_of_one(before.get(key), part))
            path = CoefficientPath.of_arrays(every_array)
        return path.labelled(pieces.labels_of(shown, intercept))

    def _path_of_one(self, piece: Any, rows: PieceRows) -> CoefficientPath:
        """Compute the path of one regression's rows after its piece."""
        path = pieces.path_after(self.estimator(), piece, rows)
        if self.fewest is None:
            return path
        learned = 0 if piece is None else piece._learned_by_target.reshape(path.residual.shape[1:])
        return hide_first(path, self.fewest, rows.sample_weight, learned)

    def _rolling_path(self, before: Tail | None, rows: PieceRows) -> CoefficientPath:
        assert self.options is not None
        last = None if before is None else before.rows
        every = rows if last is None else joined(last, rows)
        # Rows without a label are no group's: those of a path that begins with them read blank.
        labelled = [members for _, members in every.groups]
        known = every if every.by is None or not labelled else every.take(np.concatenate(labelled))
        if not (rows.n and labelled and pieces.can_learn(self.estimator(), known)):
            return pieces.blank(rows, self.parameters["fit_intercept"], np.nan)
        factors = {} if every.forget is None else {"forget": every.forget}
        path = whole_path(
            every.X,
            every.y,
            sample_weight=every.sample_weight,
            times=every.times,
            by=every.by,
            **self.options | factors,
        )
        return path.each(lambda array: array[every.n - rows.n :])


def samples_of(state: Any) -> int:
    """Return the number of samples of a piece or a tail; None has none."""
    return 0 if state is None else getattr(state, "samples", getattr(state, "n_samples_seen_", 0))


# -- windows, which still need the last rows of partitions before them -----------------------------


class Tail(NamedTuple):
    """The rows of a piece that later windows need, and how many samples it had in all."""

    rows: PieceRows
    samples: int


def joined(first: PieceRows, second: PieceRows) -> PieceRows:
    """Join first's rows and second's."""
    return PieceRows(*(_joined(a, b) for a, b in zip(first, second, strict=True)))


def _joined(first: Any, second: Any) -> Any:
    if first is None:
        return None
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second])
    return np.concatenate([first, second])


def tail_of(window: RollingLeastSquares, rows: PieceRows) -> Tail | None:
    """Return the rows that windows after the last row need; None if there are no rows.

    Raises as ``partial_fit`` does.  O(n d), to check the rows.
    """
    n = rows.n
    if n == 0:
        return None
    window._check_parameters()
    refuse_complex_data("a piece of a stream", INSTEAD_OF_PIECES, X=rows.X, y=rows.y)
    call = window._check_call(rows.X, rows.y, rows.sample_weight, rows.forget, None)
    duration, times = window._window_in_time(), None
    if window._duration(False) is not None:
        row_times = of_frames(rows.X, rows.y) if rows.times is None else rows.times
        if row_times is None:  # which is refused there
            window._in_time(call, None, rows.X, rows.y, None, False)
        times = times_and_zone(row_times)[0]
    usable = np.ones((n, 1), np.bool_) if call.usable is None else call.usable.reshape(n, -1)
    usable = usable & (call.weights > 0)[:, None]
    keep = np.zeros(n, np.bool_)
    for _, members in rows.groups:
        if duration is not None and times is not None:
            values = read_times(times[members]).values
            keep[members[values > duration.expired(values[-1])]] = True
        elif window.window_of == "positions":
            keep[members[-window.window :]] = True
        else:
            for target in usable.T:
                last = np.flatnonzero(target[members])[-window.window :]
                if window._fades or rows.forget is not None:  # also rows that only fade others
                    last = slice(last[0] if last.size == window.window else 0, None)
                keep[members[last]] = True
        if not window.fit_intercept:
            learned = members[usable[members].any(axis=1)]
            keep[learned[_first_changes(call.X[learned])]] = True
    return Tail(rows.take(np.flatnonzero(keep)), call.n_samples)


def _first_changes(X: NDArray) -> NDArray[np.int64]:
    """Return the first row of X (n, d) and, by column, the first that differs from it.

    With these rows a window knows which columns have been constant all along: intercepts.
    """
    changed = X[:1] != X
    return np.unique(np.append(changed.argmax(axis=0), 0)) if len(X) else np.empty(0, np.int64)


def merged_tails(
    window: RollingLeastSquares, first: Tail | None, second: Tail | None
) -> Tail | None:
    """Merge the tails of first's rows and second's; second's times may not begin before."""
    if first is None or second is None:
        return second if first is None else first
    if not second.rows.n:
        return Tail(first.rows, first.samples + second.samples)
    both = joined(first.rows, second.rows)
    tail = tail_of(window, both)
    assert tail is not None
    return Tail(tail.rows, first.samples + second.samples)


def fitted_to_tail(window: RollingLeastSquares, last: Tail) -> RollingLeastSquares:
    """Fit the window to the rows of its tail, of which none need be usable."""
    rows = last.rows
    window.partial_fit(rows.X, rows.y, rows.sample_weight, forget=rows.forget, times=rows.times)
    window.n_samples_seen_ = last.samples
    return window


def predict_partition(
    columns: dict[str, Any], no_rows: NDArray, estimator: Any, X: Any, by: Any
) -> Any:
    """Predict a partition of X, (n,) or (n, m); ``no_rows`` is the prediction of an empty one."""
    if not len(X):  # a filter may have emptied it, which predict refuses
        return no_rows
    if "by" in columns:
        X, by = X.drop(columns=[columns["by"]]), X[columns["by"]]
    out = estimator.predict(X) if by is None else estimator.predict(X, by=by)
    return np.asarray(out)
