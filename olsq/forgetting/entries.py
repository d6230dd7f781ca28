"""Indices of the numbers that a strategy passes to its kernel, and codes of the kernels' branches.

Kept apart so that an edit of a strategy does not recompile the kernels.
"""

from __future__ import annotations

FACTOR, SHORTEST, LONGEST, NOISE, NOISE_ROWS, RATIO, THRESHOLD, KEEP = range(8)
N_OPTIONS = 8
OUTLIER = SHORTEST  # strategies of other kinds use the place otherwise
TRACE = SMALLEST = CYCLIC = SHORTEST

VARIABLE, RESET, PER_COEFFICIENT, DIRECTIONAL, RESETTING, BOUNDED, WALK = range(7)
