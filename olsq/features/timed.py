"""Base of the builders of features of time, which read a column of times or count rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features import times
from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_count, check_keys
from olsq.features.table import Table


class TimedBuilder(FeatureBuilder):
    """Features of the time in the column ``of``, or of the row's number where it is None."""

    of: Any

    def _open(self, table: Table) -> State:
        columns = [] if self.of is None else table.find(self.of, self)
        if len(columns) > 1:
            raise ValueError(f"of={self.of!r} must be one column, which holds the time")
        return {"columns": columns, "rows": 0}

    def _read_times(self, state: State, table: Table) -> tuple[NDArray[Any], bool]:
        """Return times (n,) of the rows, and True where they are nanoseconds of time stamps."""
        if state["columns"]:
            return times.read_times(table, state["columns"][0])
        return state["rows"] + np.arange(table.n), False

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "rows"})
        check_columns(state["columns"], width)
        check_count("rows", state["rows"])
        if len(state["columns"]) != (self.of is not None):
            raise ValueError("columns are not the one of the time")
