"""Indices of the numbers that a strategy passes to its kernel and keeps in its state; its codes.

Kept apart so that an edit of a strategy does not recompile the kernels.  Of the state, ``memory``
(7,) holds single numbers, ``aside`` what else a strategy needs, in one array.
"""

from __future__ import annotations

FACTOR, SHORTEST, LONGEST, NOISE, NOISE_ROWS, RATIO, THRESHOLD, KEEP = range(8)
N_OPTIONS = 8
OUTLIER = SHORTEST  # strategies of other kinds use the place otherwise
TRACE = SMALLEST = CYCLIC = SHORTEST

VARIABLE, RESET, PER_COEFFICIENT, DIRECTIONAL, RESETTING, BOUNDED, WALK = range(7)


# Entries of ``memory``: the last row's factor; rows behind the noise's variance; the test's
# statistic; breaks found; the coefficient whose turn it is, or the rows since the trace was
# computed; the trace of P (0: not known); rows since the start or a break.
GATE, ROWS, STATISTIC, BREAKS, TURN, LAST_TRACE, SEEN = range(7)
N_MEMORY = 7

# ResetOnBreak: 0 where no trial runs, 1 in the row of an alarm, else 2 and the rows compared.
TRIAL = TURN
# Variable: rows of the present stretch, those of them that were clipped, and whether the stretch
# before was one of large errors.
STRETCH, STRETCH_CLIPPED, STRETCHES = TURN, STATISTIC, BREAKS
# PerCoefficient: whether ``aside`` holds the coefficients.
KNOWN = TURN


def aside_shape(kind: int, d: int, m: int) -> tuple[int, int]:
    """Return the shape of ``aside`` for the strategy of this kind.

    ResetOnBreak: the state of a trial in one row (see ``error_kernels``); Variable: each target's
    sum of squares of the present stretch and of the one before; PerCoefficient: the coefficients.
    """
    if kind == RESET:
        return 1, d * (d + m) + d + 2 * d + 4 + m + 4 * m + 1
    return m, {VARIABLE: 2, PER_COEFFICIENT: d}.get(kind, 0)
