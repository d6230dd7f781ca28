"""The state of compiled filters: a named tuple of arrays, and the index of each number in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr

# Entries of ``totals``: the tally of ``counting`` (4), the minimised objective, and the
# forgotten sum of the logarithms of the weights.
TALLY, LOSS, LOG_WEIGHTS = slice(0, 4), 4, 5
N_TOTALS = 6
# Entries of ``counts``: coefficients held by wind-up protection, rows learned.
HELD, SEEN = 0, 1
N_COUNTS = 2


class State(NamedTuple):
    """The state of one filter, or of n filters with a leading axis n in every array.

    Made by :func:`olsq.compiled.init` or :func:`olsq.compiled.from_estimator`, changed in place by
    :func:`olsq.compiled.update`: read the coefficients with :func:`olsq.compiled.coef`.

    Attributes
    ----------
    factor : float64 array (d, d + 1)
        U unit upper triangular and T: ``U^T D U`` is the information matrix, ``U coef = T``.
    pivots : float64 array (d,)
        The diagonal D; 0 where nothing is known of a coefficient given the ones before it.
    columns : float64 array (2, d)
        Diagonal of the information matrix, now and when each regressor was last excited.
    ridge : float64 array (d,)
        The ridge at the start.
    totals : float64 array (6,)
        Forgotten counts of rows (4), the minimised objective, the sum of the log weights.
    counts : int64 array (2,)
        Coefficients held, rows learned.
    scratch : float64 array (d + 2,)
        Working memory of one update.

    Examples
    --------
    >>> from olsq import compiled
    >>> [array.shape for array in compiled.init(3)]
    [(3, 4), (3,), (2, 3), (3,), (6,), (2,), (5,)]
    """

    factor: NDArray[np.float64]
    pivots: NDArray[np.float64]
    columns: NDArray[np.float64]
    ridge: NDArray[np.float64]
    totals: NDArray[np.float64]
    counts: NDArray[np.int64]
    scratch: NDArray[np.float64]

    __repr__ = brief_repr


def shapes(d: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the arrays of one filter of d coefficients."""
    return (d, d + 1), (d,), (2, d), (d,), (N_TOTALS,), (N_COUNTS,), (d + 2,)


def check_state(state: Any, name: str = "state", *, many: bool = False) -> int:
    """Return d of a state; raise TypeError or ValueError unless its arrays fit together.

    ``many`` says whether a state of n filters will do.
    """
    if not isinstance(state, State):
        raise TypeError(
            f"{name} must be an olsq.compiled.State, got {type(state).__name__}; make one with "
            "olsq.compiled.init"
        )
    for field, array in zip(State._fields, state, strict=True):
        wanted = np.int64 if field == "counts" else np.float64
        if not isinstance(array, np.ndarray) or array.dtype != wanted or not array.flags.carray:
            raise TypeError(
                f"{name}.{field} must be a C-contiguous, writable array of {wanted.__name__}"
            )
    batch = state.factor.shape[:-2]
    if len(batch) == 1 and not many:
        raise ValueError(
            f"{name} holds {batch[0]} filters: choose one with olsq.compiled.state_at({name}, i)"
        )
    d = state.pivots.shape[-1] if state.pivots.ndim else 0
    found = tuple(array.shape for array in state)
    if len(batch) > 1 or d == 0 or found != tuple((*batch, *shape) for shape in shapes(d)):
        raise ValueError(f"the arrays of {name} do not have shapes that fit together: {found}")
    return d
