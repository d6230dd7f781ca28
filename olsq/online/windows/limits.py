"""Every threshold of rolling windows, with what was measured."""

from __future__ import annotations

# Bound on the error of the information's row and column j, in relation to the squares of column j
# in the window, at which the factor is made anew.  On streams of huge rows, huge entries, waves of
# eight decades, bursts, collinear columns and levels 0 of 156,000 windows were off by more than
# 1e-9 of their condition, the worst by 5e-11, and ordinary windows were not made anew.
TOLERANCE = 4e-12

# The same per row of the window, in rounding errors: making a factor anew takes as long as taking
# a window of rows, and is to be done at most once in seven windows.
PER_ROW = 16.0

# A loss is made anew once it has shrunk to this part of its largest value.
FORGOTTEN_LOSS = 1e-6

# Product of gates at which they are multiplied out in the ring, a pass over all of its rows.
COARSEST_SCALE = 2.0**-20

# Squares of a column below which its pivot may end in denormal numbers: the factor is made anew
# from the ring, whose weights never fall below 2^-1000.
FAINTEST_COLUMN = 2.0**-960
