"""Base class of builders of lagged values, with a history of the last rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.table import Table


class Taps(NamedTuple):
    """Lags of y's columns and of X's columns; ranges, so that many of them take no memory."""

    y: Sequence[int]
    X: Sequence[int]


class LaggedBuilder(FeatureBuilder):
    """Features ``s_{t-l}`` of sources s (columns of X, then of y) and their lags l."""

    of: Any

    def _taps(self) -> Taps:
        """Return the lags that the parameters ask for."""
        raise NotImplementedError

    @property
    def _uses_y(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(self._taps().y)

    def _check_parameters(self) -> None:
        self._taps()

    def _depth(self) -> int:
        taps = self._taps()
        return max(_largest(taps.y), _largest(taps.X))

    def _open(self, table: Table) -> State:
        taps = self._taps()
        columns = []
        if taps.X:
            if table.X is None:
                raise ValueError(f"{type(self).__name__} requires X: its features are made of it")
            columns = table.find(self.of, self)
        width = len(columns) + (max(table.targets, 1) if taps.y else 0)
        return {"columns": columns, "tail": np.full((self._depth(), width), np.nan)}

    def _places(self, columns: list[int], targets: int) -> list[tuple[int, int]]:
        """List (source, lag) of every feature: those of y first, all lags of a source together."""
        taps, n_x = self._taps(), len(columns)
        own = [(n_x + j, lag) for j in range(max(targets, 1) if taps.y else 0) for lag in taps.y]
        return own + [(j, lag) for j in range(n_x) for lag in taps.X]

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        columns, tail = state["columns"], state["tail"]
        parts = [table.numbers(columns)] if columns else []
        if self._taps().y:
            assert table.y is not None
            parts.append(table.y)
        rows = np.concatenate([tail, np.concatenate(parts, axis=1)])
        places = self._places(columns, table.targets)
        depth, out = len(tail), np.empty((table.n, len(places)))
        for k, (source, lag) in enumerate(places):
            out[:, k] = rows[depth - lag : depth - lag + table.n, source]
        return out, {"columns": columns, "tail": rows[len(rows) - depth :].copy()}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        sources = [labels[c] for c in state["columns"]]
        sources += [f"y{j}" for j in range(targets)] if targets else ["y"]
        return [f"{sources[s]}_lag{lag}" for s, lag in self._places(state["columns"], targets)]

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "tail"})
        check_columns(state["columns"], width)
        taps, tail = self._taps(), state["tail"]
        if bool(taps.X) != bool(state["columns"]):
            raise ValueError("columns and lags of X do not belong together")
        sources = len(state["columns"]) + (max(targets, 1) if taps.y else 0)
        fits = isinstance(tail, np.ndarray) and tail.shape == (self._depth(), sources)
        if not fits or tail.dtype != np.float64:
            raise ValueError("the history does not have the shape of its lags")


def _largest(lags: Sequence[int]) -> int:
    """Return the largest lag, 0 of none, without going through a range."""
    if isinstance(lags, range):
        return lags[-1] if lags else 0
    return max(lags, default=0)
