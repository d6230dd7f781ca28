"""The rolling window of large models: a block of rows in and rows out by matrix products.

Four rows at a time (``block_kernels``) pass over P once for every four rows, which from some
hundreds of coefficients on takes longer than the arithmetic.  Rows x_j that enter (s_j = 1) and
leave (s_j = -1), in the order of single rows and times ``sqrt(w_j)``, are the rows of K and e:

    M = diag(s) + K P K^T = L D L^T,   N = |D|^-1/2 L^-1 K P,   eps = |D|^-1/2 L^-1 e,
    P' = P - N^T diag(s) N,            theta' = theta + eps^T diag(s) N.

``s_j D_j = 1 + s_j w_j x_j.P_j x_j`` is what single rows divide by, so the bounds are theirs, and a
block with a row beyond one of them is not taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from olsq.kernels import kernel
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.rows import Rows
from olsq.online.forms.square_root_blocks import WEIGHT_RANGE
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, WEIGHT
from olsq.online.windows.accuracy import EPS, SUM, is_accurate

dgemm, dsymm, dtrsm, dsyrk = get_blas_funcs(("gemm", "symm", "trsm", "syrk"), dtype=np.float64)

# Coefficients from which products are faster than four rows at a time: 1.7 times their time at 256,
# 0.93 at 512, 0.76 at 1024, 0.48 at 2048 (one thread).
PRODUCTS_FROM = 512
BLOCK = 64  # rows that enter at most
PANEL = 16  # turns eliminated together
FEWEST = 16  # rows for which products are worth their overhead
# Leverage before the block, above which its system loses digits that single rows keep: with bounds
# of 1e3, 1e4 and 1e6 errors of coefficients were 1.0, 1.3 and 130 times those of rows (d = 130).
LARGEST_LEVERAGE = 1e3
MOST_LEAVING = 8  # rows with one that enters
# A row that leaves divides by ``1 - w x.P x``.  Below this the block's common S loses digits that
# rows one after the other keep.
SMALLEST_REMAINDER = 1e-2


class Turns(NamedTuple):
    """Rows that enter and leave in the order in which they do, p of them."""

    X: NDArray[np.float64]  # (p, d)
    Y: NDArray[np.float64]  # (p, m)
    weights: NDArray[np.float64]  # (p,)
    signs: NDArray[np.float64]  # (p,): 1 where the row enters, -1 where it leaves
    ends: NDArray[np.int64]  # (b,): number of turns up to the end of each row of the call

    @property
    def enter(self) -> NDArray[np.bool_]:
        return self.signs > 0


def turns_of(rows: Rows, old: Rows, leaving: NDArray[np.int64]) -> Turns:
    """Put the rows that enter and the ``old`` ones in order; ``leaving`` (b,) go with each row."""
    b = len(rows.X)
    ends = np.cumsum(leaving + 1)
    signs = -np.ones(ends[-1])
    signs[ends - leaving - 1] = 1.0
    turns = Turns(
        np.empty((signs.size, rows.X.shape[1])),
        np.empty((signs.size, rows.Y.shape[1])),
        np.empty(signs.size),
        signs,
        ends,
    )
    enter = turns.enter
    assert enter.sum() == b
    for target, new, gone in (
        (turns.X, rows.X, old.X),
        (turns.Y, rows.Y, old.Y),
        (turns.weights, rows.weights, old.weights),
    ):
        target[enter], target[~enter] = new, gone
    return turns


@kernel()
def eliminate_panel(M, signs, largest, smallest, D, start, stop):
    """Eliminate columns start..stop of M's upper triangle, in rows start..stop only.

    These rows receive L^T and D (p,) the pivots.  False where ``s_j D_j`` is beyond ``1 + largest``
    for a row that enters, or below ``smallest`` for one that leaves.
    """
    p = M.shape[0]
    if M.shape != (p, p) or signs.shape != (p,) or D.shape != (p,) or not 0 <= start <= stop <= p:
        raise ValueError("the shapes of signs and pivots do not fit M")
    for i in range(start, stop):
        pivot, own = M[i, i], M[i]
        left = signs[i] * pivot
        if signs[i] > 0:
            if not 1.0 <= left <= 1.0 + largest:
                return False
        elif not smallest <= left <= 1.0:
            return False
        D[i] = pivot
        for j in range(i + 1, stop):
            factor, row = own[j] / pivot, M[j]
            for k in range(j, p):
                row[k] -= factor * own[k]
        for k in range(i, p):
            own[k] /= pivot
    return True


def eliminate(M: NDArray, signs: NDArray, largest: float, D: NDArray) -> bool:
    """Factor ``M = L D L^T`` in order, a panel of rows at a time: M's upper triangle receives L^T.

    False where a pivot is out of bounds.
    """
    p = signs.size
    for start in range(0, p, PANEL):
        stop = min(start + PANEL, p)
        if not eliminate_panel(M, signs, largest, SMALLEST_REMAINDER, D, start, stop):
            return False
        if stop < p:
            above = M[start:stop, stop:]
            M[stop:, stop:] -= above.T @ (D[start:stop, None] * above)
    return True


@kernel()
def inspect_rows(P, N, turns, D, eps, limits, state):
    """Check every row of a block against the bounds of single rows: True if all are within them.

    ``state`` = (columns, loss, monitor, sizes) is updated to what it is after the block.
    """
    X, Y, weights, signs, ends = turns
    columns, loss, monitor, sizes = state
    d, m, p = P.shape[0], loss.shape[0], signs.shape[0]
    if (
        P.shape != (d, d)
        or N.shape != (p, d)
        or X.shape != (p, d)
        or weights.shape != (p,)
        or Y.shape != (p, m)
        or D.shape != (p,)
        or columns.shape != (2, d)
        or eps.shape != (p, m)
        or monitor.shape != (2,)
        or sizes.shape != (3, m)
        or ends.shape[0] == 0
        or ends[-1] != p
    ):
        raise ValueError("the shapes of a block do not fit together")
    diagonal, j = np.empty(d), 0
    for k in range(d):
        diagonal[k] = P[k, k]
    for end in ends:
        rounding = growth = 1.0
        while j < end:
            sign, weight, n, x = signs[j], weights[j], N[j], X[j]
            if sign > 0:
                rounding = D[j]
            else:
                rounding, growth = (rounding + 1.0) / -D[j], growth / -D[j]
            for k in range(d):
                diagonal[k] -= sign * n[k] * n[k]
                columns[0, k] = max(columns[0, k] + sign * weight * x[k] * x[k], 0.0)
            for target in range(m):
                loss[target] += sign * eps[j, target] ** 2
                square = sign * weight * Y[j, target] ** 2
                sizes[SUM, target] = max(sizes[SUM, target] + square, 0.0)
            j += 1
        inflation, grown, outside = 0.0, 0.0, 0
        for k in range(d):
            inflation = max(inflation, diagonal[k] * columns[0, k])
            columns[1, k] = max(columns[1, k], columns[0, k])
            grown = max(grown, diagonal[k] * columns[1, k])
            outside += 0 if diagonal[k] > 0 else 1
        rounding *= EPS * inflation
        monitor[0], monitor[1] = monitor[0] * growth + rounding, monitor[1] + rounding
        bound = min(monitor[0], monitor[1] * grown)
        if not (
            outside == 0 and inflation < limits[1] and is_accurate(bound, limits[2], sizes, loss)
        ):
            return False
    return True


def absorb_block(
    form: CovarianceForm,
    monitor: NDArray[np.float64],
    sizes: NDArray[np.float64],
    turns: Turns,
    limits: tuple[float, float, float],
    residual: NDArray,
) -> bool:
    """Update the form by all turns, as one block; False, with nothing changed, where single rows
    have to.

    Only P's upper triangle is read and updated: the caller mirrors it after the last block.
    ``monitor``, ``sizes`` and ``limits`` as in ``row_kernels.update``; ``residual`` (b, m) receives
    the a-priori errors of the rows that enter.
    """
    P, theta, weights, signs = form.P, form.theta, turns.weights, turns.signs
    positive = weights[weights > 0]
    enter = turns.enter
    if not (weights[enter] > 0).all() or positive.max() > WEIGHT_RANGE * positive.min():
        return False
    root = np.sqrt(weights)[:, None]
    K = root * turns.X
    # SciPy's BLAS is column major: it sees the transposes of C-contiguous arrays as they are.
    gain = dsymm(1.0, P.T, K.T, lower=1)  # (d, p): P K^T, of P's upper triangle
    M = dgemm(1.0, K.T, gain, trans_a=True).T
    leverage = np.diagonal(M)
    if not (leverage.min() >= 0 and leverage.max() <= LARGEST_LEVERAGE):
        return False
    np.einsum("ii->i", M)[:] += signs
    D = np.empty(signs.size)
    if not eliminate(M, signs, limits[0], D):
        return False
    # L^T lies in M's upper triangle by rows, which is L by columns.
    N = dtrsm(1.0, M.T, gain, side=1, lower=1, trans_a=1, diag=1, overwrite_b=1).T
    errors = root * turns.Y - dgemm(1.0, K.T, theta.T, trans_a=True)
    errors = dtrsm(1.0, M.T, np.asfortranarray(errors), lower=1, diag=1, overwrite_b=1)
    scale = 1.0 / np.sqrt(np.abs(D))[:, None]
    N *= scale
    eps = errors * scale
    after = tuple(a.copy() for a in (form.columns, form.loss, monitor, sizes))
    if not inspect_rows(P, N, tuple(turns), D, np.ascontiguousarray(eps), limits, after):
        return False
    residual[:] = errors[enter] / root[enter]  # rows that leave may have weight 0
    theta += dgemm(1.0, signs[:, None] * eps, N.T, trans_a=True, trans_b=True)
    for chosen, sign in ((enter, -1.0), (~enter, 1.0)):
        if chosen.any():
            part = np.ascontiguousarray(N[chosen])
            dsyrk(sign, part.T, beta=1.0, c=P.T, lower=True, overwrite_c=True)
    form.columns[:], form.loss[:], monitor[:], sizes[:] = after
    tally = form.tally
    tally[COUNT] += (signs * (weights > 0)).sum()
    tally[COUNT_SQUARED] = tally[COUNT]
    tally[WEIGHT] = max(tally[WEIGHT] + (signs * weights).sum(), 0.0)
    return True


def block_at(window: Any, rows: Rows, leaving: NDArray[np.int64], t: int) -> Turns | None:
    """Return the next block of rows from t on, with the rows that leave; None if it is too short.

    ``window`` is a :class:`RollingWindow`; ``leaving`` is empty where one row leaves with each.
    """
    stop = min(len(rows.X), t + BLOCK)
    out = leaving[t:stop] if leaving.size else np.ones(stop - t, np.int64)
    order = window._order
    # End the block before a row with which too many leave, or the last of the old window's rows.
    held = (np.cumsum(out) < order.size) & (out <= MOST_LEAVING)
    length = stop - t if held.all() else int(np.argmin(held))
    if length < FEWEST:
        return None
    out = out[:length]
    block = Rows(*(a[t : t + length] for a in rows))
    slots = order[: int(out.sum())]
    X, Y = (a[slots].astype(np.float64, copy=False) for a in (window.ring_X, window.ring_Y))
    return turns_of(block, Rows(X, Y, np.ones(slots.size), window.ring_w[slots]), out)
