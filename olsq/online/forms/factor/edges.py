"""Checks of shapes, once for a call: kernels index without bounds checks."""

from __future__ import annotations

from olsq.kernels import kernel


@kernel(forceinline=True)
def check_state(state):
    """Check ``state`` = (F (d, d + m), D (d,), columns (2, d), tally (4,), loss (m,))."""
    F, D, columns, tally, loss = state
    d, m = D.shape[0], loss.shape[0]
    if F.shape != (d, d + m) or columns.shape != (2, d) or tally.shape != (4,):
        raise ValueError("the arrays of a state do not have shapes that fit together")


@kernel(forceinline=True)
def check_call(state, rows, span, errors):
    """Check a state, and ``rows`` = (X, Y, gates, weights) of which it learns those of the span."""
    check_state(state)
    X, Y, gates, weights = rows
    d, m, n = state[1].shape[0], state[4].shape[0], X.shape[0]
    if not 0 <= span[0] <= span[1] <= n:
        raise ValueError("the span of rows is outside of the shape of X")
    if (
        X.shape[1] != d
        or Y.shape != (n, m)
        or gates.shape != (n,)
        or weights.shape != (n,)
        or errors.shape != (n, m)
    ):
        raise ValueError("the shapes of rows, gates, weights and errors do not fit the state")
