"""The places of the numbers that a strategy gives its kernel, and the kernels' branches.

Apart from the rest, so that a change of what strategies say of themselves compiles nothing anew.
"""

from __future__ import annotations

FACTOR, SHORTEST, LONGEST, NOISE, NOISE_ROWS, RATIO, THRESHOLD, KEEP = range(8)
N_OPTIONS = 8
OUTLIER = SHORTEST  # strategies of other kinds use the place otherwise
TRACE = SMALLEST = CYCLIC = SHORTEST

VARIABLE, RESET, PER_COEFFICIENT, DIRECTIONAL, RESETTING, BOUNDED, WALK = range(7)
