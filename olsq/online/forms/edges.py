"""Numba kernels that check the shapes of a call once, before its first row.

The kernels of the forms index without bounds checks.  Whatever reaches them through a mistake
further up must be an error, never a read or a write outside an array.
"""

from __future__ import annotations

from olsq.kernels import kernel


@kernel(forceinline=True)
def check_form(form):
    """Check ``form`` = (matrix (d, d), coefs (m, d), columns (2, d), tally (4,), loss (m,))."""
    matrix, coefs, columns, tally, loss = form
    m, d = coefs.shape
    if (
        matrix.shape != (d, d)
        or columns.shape != (2, d)
        or tally.shape != (4,)
        or loss.shape != (m,)
    ):
        raise ValueError("the arrays of a state do not have shapes that fit together")


@kernel(forceinline=True)
def check_rows(X, Y, weights, start, stop, residual, d, m):
    """Check that rows start..stop exist in X (n, d), Y (n, m), weights (n,), residual (n, m)."""
    n = X.shape[0]
    if not 0 <= start <= stop <= n:
        raise ValueError("rows start..stop are outside of the shape of X")
    if X.shape[1] != d or Y.shape != (n, m) or weights.shape != (n,) or residual.shape != (n, m):
        raise ValueError("the shapes of rows, weights and residuals do not fit the state")


@kernel(forceinline=True)
def check_gates(gates, n):
    """Check that gates have shape (n,)."""
    if gates.shape != (n,):
        raise ValueError("gates do not have the shape (n,)")


@kernel(forceinline=True)
def check_call(form, rows, span, residual):
    """Check a form, and ``rows`` = (X, Y, gates, weights) of which it learns those of the span."""
    X, Y, gates, weights = rows
    check_form(form)
    check_rows(X, Y, weights, span[0], span[1], residual, form[0].shape[0], form[1].shape[0])
    check_gates(gates, X.shape[0])


@kernel(forceinline=True)
def check_trace(trace, n, d, m):
    """Check a trace of n rows, with variances or without them, or None."""
    if trace is None:
        return
    coefs, diags, losses, counts, recursive, sandwich = trace
    if (
        coefs.shape != (n, m, d)
        or losses.shape != (n, m)
        or (diags.shape[0] > 0 and diags.shape != (n, d))
        or counts.shape != (n, 6)
        or recursive.shape != (n, m)
        or (sandwich.shape[0] > 0 and (sandwich.shape != (n, d) or diags.shape[0] == 0))
    ):
        raise ValueError("the shapes of the trace do not fit rows and state")


@kernel(forceinline=True)
def check_spread(spread, d, needed):
    """Check spread (d, d), or (0, 0) or None where it is not ``needed``."""
    if spread is None:
        if needed:
            raise ValueError("the trace of a sandwich needs a spread of shape (d, d)")
        return
    if spread.shape != (d, d) and (needed or spread.shape != (0, 0)):
        raise ValueError("spread does not have a shape that fits state and trace")


@kernel(forceinline=True)
def wants_sandwich(trace):
    """Test whether a trace, or None, takes up the diagonal of the sandwich."""
    if trace is None:
        return False
    return trace[5].shape[0] > 0
