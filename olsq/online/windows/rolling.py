"""Take the rows of a call into windows: those of many groups, or that of one estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.factor.snapshots import predict
from olsq.online.forms.factor.stack import Stack, take_path_carefully, with_rows_left
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import Turns
from olsq.online.windows import members as kernels


def roll(
    stack: Stack,
    turns: Turns,
    rows: Rows,
    leaving: NDArray[np.int64],
    samples: NDArray[np.int64],
    errors: NDArray[np.float64],
) -> None:
    """Take rows into windows, and write their a-priori errors.

    ``stack`` has the arrays of :mod:`.members`; ``leaving`` and ``samples`` are those of
    :class:`.arrays.Arriving`.
    """
    arriving, how = (*rows, leaving, samples), (stack.limits, stack.intercept, errors)
    while turns[0].size:
        kernels.roll_members(stack.arrays, turns, arriving, *how)
        turns = with_rows_left(turns)
        if turns[0].size:
            members, position, _ = turns
            errors[position] = rows.Y[position] - predict(stack.theta(members), rows.X[position])
            kernels.take_unsettled_rows(stack.arrays, turns, arriving, *how)
            turns = with_rows_left(turns)


def roll_path(
    stack: Stack,
    turns: Turns,
    rows: Rows,
    leaving: NDArray[np.int64],
    samples: NDArray[np.int64],
    errors: NDArray[np.float64],
    trace: Trace,
    write: Callable[[NDArray[np.int64], NDArray[np.int64]], None],
) -> None:
    """Do :func:`roll`, and write the states after the rows to a trace.

    ``write(at, members)`` writes the present states of some members to their rows of the trace.
    """
    arriving = *rows, leaving, samples

    def with_care(turn: Turns, *after: Any) -> None:
        how = stack.limits, stack.intercept, errors, tuple(trace), after
        kernels.roll_members_unsettled(stack.arrays, turn, arriving, *how)

    while turns[0].size:
        members, position, _ = turns
        written = np.empty(members.size, np.bool_)
        how = stack.limits, errors, tuple(trace), written
        kernels.roll_members_path(stack.arrays, turns, arriving, *how)
        if not written.all():
            write(position[~written] - 1, members[~written])
        turns = with_rows_left(turns)
        if turns[0].size:
            take_path_carefully(stack, turns, rows, errors, trace, with_care)
            turns = with_rows_left(turns)
