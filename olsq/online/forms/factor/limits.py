"""Every threshold of the one factor, with what was measured."""

from __future__ import annotations

EPS = 2.0**-52

# A share of the old pivot in the new one below which a row outweighs what its column knew.  With
# the plain form alone, two columns with one entry of 1e9 each were wrong by 4e-10 of the largest
# coefficient at a condition of 1.2; with this bound by 1e-16.
STEEP = 0.25

# A row's noise is at least this: what is smaller has no square.
SMALLEST_NOISE = 1e-160

# A pivot above SOUND of its column's squares, and above SOUND_NOISE times the square of a row's
# relative rounding error, needs no test of noise.  A p that is rounding noise moves coefficient j
# by ``error p / D_j``, 1e-16 / SOUND of what one unit of the column could.  With 1e-20 the
# coefficients of a column that stands twice drifted apart by 0.5 under forgetting, while a prior
# faded that had kept them together.
SOUND, SOUND_NOISE = 1e-8, 1e4

# Of what was before a row at least this is left, unless its gate is 0: pivots stay normal numbers
# within a row, and what is faint beside the row by as much has no digit in common with it.
FAINTEST_GATE = 2.0**-600

# A pivot below this has an infinite inverse; it counts as one that the row does not change.
SMALLEST_PIVOT = 2.0**-1022

# No coefficient: where fewer rows than coefficients are remembered to 1e-15, each row is eliminated
# from all older ones without pivoting, and rounding errors multiply.
WILDEST = 1e100

# How many times longer a column is whose rounding errors may pass for another column.
FAR = 1e8

# Rows after which a path computes its variances afresh, in units of d, and the fraction of a
# variance below which the difference that carries it has lost digits.
AFRESH, SHRUNK = 4, 0.01

# Forgetting enlarges what a carried variance has lost: at a factor of 0.1 it was wrong by 83 %
# within 64 rows.  Rows go one by one where they keep less than LOST of the rows before them, and
# variances are computed afresh before rows that keep less than FAST.
LOST, FAST = 1e-5, 0.1

# Coefficients from which the directions of a stream's first rows are carried from row to row within
# a call: making them afresh for each is O(d^4) for the start of a stream.
EXTENDED_FROM = 128

# The least squared distance of e_j from the space of the rows, in units of the columns' lengths, at
# which coefficient j is unknown for certain: readings call it determined at distances below 1e-8.
UNKNOWN = 1e-7
