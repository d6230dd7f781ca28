"""Columns of a regression that have had one value in every row: each is an intercept.

Sums of squares cannot tell a column of ones from one of 1 and -1, so the values are kept, one per
column: 0 where it varied, or is 0; an empty array before the first row.  None where no column
qualifies, or nothing is known: the state began from a prior or moments, grew, or was saved by an
earlier version.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call

Values = NDArray[np.float64] | None


def values_after_call(values: Values, call: Call) -> Values:
    """Return the values after the rows of a call; skipped rows and those of weight 0 are none."""
    if values is None or call.complex_features or values.size not in (0, call.X.shape[1]):
        return None
    learned = call.weights > 0
    if call.usable is not None:
        learned &= call.usable if call.usable.ndim == 1 else call.usable.any(axis=1)
    at = np.flatnonzero(learned)
    # Two rows are enough to dismiss the columns of ordinary data.
    values = values_after_rows(values, call.X[at[:2]])
    return values if values is None or at.size < 3 else values_after_rows(values, call.X[at[2:]])


def values_after_rows(values: Values, X: NDArray) -> Values:
    """Return the values after rows X (n, d) that were learned."""
    if values is None or not len(X):
        return values
    if values.size and len(X) == 1 and not ((values != X) & (values != 0)).any():
        return values  # single rows of a stream
    first = values if values.size else X[0]
    columns = np.flatnonzero(first)
    columns = columns[(X[:, columns] == first[columns]).all(axis=0)]
    if not columns.size:
        return None
    after = np.zeros(X.shape[1])
    after[columns] = first[columns]
    return after


def values_of_both(first: Values, second: Values) -> Values:
    """Return the values of two streams, one after the other."""
    if first is None or second is None:
        return None
    return values_after_rows(first, second[None]) if second.size else first
