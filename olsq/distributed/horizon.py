"""Forecasts of a horizon over partitions: those that rest on rows before come in a last step.

A partition's path does not wait for the one before.  It predicts the rows whose known rows it has,
hands on the coefficients of its last rows, and keeps the first rows open; the held coefficients of
all partitions before, merged along a tree as states are, finish them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.distributed.work import Work
from olsq.online import CoefficientPath
from olsq.online.known_rows import HeldRows, estimates_of, or_without, predict_from
from olsq.online.pieces.pieces import PieceRows
from olsq.online.rows.durations import Duration
from olsq.online.rows.times import check_kind, read_times_in_any_order, times_or_index


class OpenRows(NamedTuple):
    """Rows of a partition that no row of it is known before: places, X, y (n, m) and times."""

    places: NDArray[np.int64]
    X: NDArray
    y: NDArray
    groups: dict[Any, NDArray[np.int64]]  # by their place among these
    times: NDArray | None


class OpenPath(NamedTuple):
    """A partition's path, without the forecasts of its open rows."""

    path: CoefficientPath
    held: HeldRows
    open: OpenRows


@dataclass(frozen=True)
class Forecasting:
    """Work on the forecasts of partitions; ``horizon`` is what the user wrote, for messages."""

    work: Work
    horizon: Any
    length: int | Duration
    without: float  # what coefficients are before the first estimate

    def path(self, before: Any, *blocks: Any) -> OpenPath:
        """Compute the path over a partition's rows, after the state of all rows before it."""
        rows = replace(self.work, learns_times=True).collect_rows(blocks)
        path = self.work.path(before, *blocks)
        X, n_targets = real_array(rows.X, "X"), int(np.prod(path.residual.shape[1:]))
        y = real_array(rows.y, "y").reshape(len(X), n_targets)
        groups = {label: members for label, members in rows.groups if members.size}
        held, values = HeldRows(self.length), estimates_of(path)
        times = self._times(rows) if groups else None
        at_origin, begun = held.extend(groups, values, times)
        at_origin = or_without(at_origin, begun, self.without)
        path = _with_forecasts(path, np.arange(rows.n)[begun], X[begun], y[begun], at_origin[begun])
        firsts = {label: members[~begun[members]] for label, members in groups.items()}
        places = np.concatenate([*firsts.values(), np.empty(0, np.int64)])
        ends = np.cumsum([members.size for members in firsts.values()])
        among = np.split(np.arange(places.size), ends[:-1]) if firsts else []
        still_open = OpenRows(
            places,
            X[places],
            y[places],
            {label: members for label, members in zip(firsts, among, strict=True) if members.size},
            None if times is None else times[places],
        )
        return OpenPath(path, held, still_open)

    def finished(self, before: HeldRows | None, part: OpenPath) -> CoefficientPath:
        """Return the path with the forecasts that rest on what is held of all rows before."""
        held = HeldRows(self.length) if before is None else copy.copy(before)
        held.groups = held.groups.copy()
        rows, n = part.open, len(part.open.places)
        unknown = np.full((n, estimates_of(part.path).shape[1]), np.nan)
        at_origin, begun = held.extend(rows.groups, unknown, rows.times)
        at_origin = or_without(at_origin, begun, self.without)
        return _with_forecasts(part.path, rows.places, rows.X, rows.y, at_origin)

    def _times(self, rows: PieceRows) -> NDArray | None:
        if not isinstance(self.length, Duration):
            return None
        parameter = f"horizon={self.horizon!r}"
        times = times_or_index(rows.times, rows.X, rows.y, self.length, parameter)
        read = read_times_in_any_order(times, rows.n)
        check_kind(read.kind, self.length, parameter)
        return read.values


def _with_forecasts(
    path: CoefficientPath,
    places: NDArray[np.int64],
    X: NDArray,
    y: NDArray,
    estimates: NDArray[np.float64],
) -> CoefficientPath:
    """Return the path with the residuals of some rows, predicted from ``estimates``."""
    residual = path.residual.copy()
    skipped = np.isnan(residual[places])
    with np.errstate(invalid="ignore"):
        errors = (y - predict_from(estimates, X)).reshape(skipped.shape)
    residual[places] = np.where(skipped, np.nan, errors)
    return path._replace(residual=residual)
