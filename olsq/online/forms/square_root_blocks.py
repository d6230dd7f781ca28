"""The square-root form of large models: a block of rows by LAPACK instead of d rotations per row.

Rotations move d^2 numbers for every row, which from some 64 coefficients on takes longer than the
arithmetic.  A block of rows costs the same arithmetic as matrix products:

    [sqrt(zeta) R   sqrt(zeta) z^T   0]          [R'  z'^T   *  ]
    [A              Y                I]  =  Q  [0   rho   Q22^T]

with row i of A and Y times ``sqrt(w_i zeta_i)``, zeta_i the product of the gates after row i and
zeta that of all gates.  The increase of the loss is ``|rho|^2``.  The identity gives the a-priori
residuals: with P before the block and e = Y - A theta, ``S = I + A P A^T = L L^T`` (L lower
triangular) has ``S^-1 = Q22 Q22^T`` and ``rho = Q22^T e``.  So QL, ``Q22^T = O L^-1``, gives the
whitened residuals ``nu = L^-1 e = O^T rho``, and row i's a-priori residual is ``L_ii nu_i``.
Nothing is subtracted and nothing squared, so rows of any leverage keep their digits.

Rotations drop what is rounding error in a row, and hold coefficients that are about to be lost.
:func:`is_regular` says when neither can happen in a block; other blocks go row by row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from olsq.kernels import kernel
from olsq.linalg.numpy.lapack import rotate_rows_in
from olsq.online.forms.edges import check_gates
from olsq.online.forms.rows import Rows
from olsq.online.forms.square_root_kernels import (
    COUNT,
    add_square,
    count_row,
    noise_level,
)

BLOCKED_FROM = 128  # coefficients from which blocks are faster: 0.9 times at 192, 0.6 times at 512
BLOCK = 128  # rows at most, as the identity costs 2 BLOCK / d of the rest; 256 from LARGE on
LARGE = 2048  # coefficients
FEWEST = 16  # rows for which a block is worth its overhead
SMALLEST_GATE = 1e-4  # stronger forgetting than this, in one row or in a block, is left to rows
WEIGHT_RANGE = 1e6  # of weights times gates in one block: small rows keep 13 digits beside large
# How far squared relative pivots must be above rounding.  Rotations drop what is rounding error in
# a row, reflections of a block learn it: a coefficient may move by 1 / SAFETY of its size where
# rows of a block repeat one another exactly.  With 1e6 and the ridge of 1e-3 blocks of
# white regressors begin at once up to d = 4096.
SAFETY = 1e6

(dgeqrf,) = get_lapack_funcs(("geqrf",), dtype=np.float64)


@kernel()
def end_of_block(gates, weights, start, stop, most, smallest_gate, weight_range):
    """Find the first row after ``start`` that cannot share a block with the rows from start on.

    Weights must be positive, the product of gates above ``smallest_gate``, and weights times the
    gates after them within ``weight_range`` of one another.
    """
    check_gates(gates, weights.shape[0])
    if not 0 <= start <= stop <= gates.shape[0]:
        raise ValueError("rows start..stop are outside of the shape of gates")
    product = 1.0
    smallest = largest = 0.0
    for t in range(start, min(stop, start + most)):
        product *= gates[t]
        if not (product >= smallest_gate and weights[t] > 0):
            return t
        size = weights[t] / product  # times the product at the end: what the row weighs there
        if t == start:
            smallest = largest = size
        smallest, largest = min(smallest, size), max(largest, size)
        if not largest <= weight_range * smallest:
            return t
    return min(stop, start + most)


@kernel()
def bring_counters_forward(columns, tally, X, gates, weights, start, stop):
    """Update ``columns`` (2, d) and ``tally`` (4,) by the rows start..stop."""
    n, d = X.shape
    check_gates(gates, n)
    if weights.shape != (n,) or columns.shape != (2, d) or tally.shape != (4,):
        raise ValueError("the shapes of rows, weights and counters do not fit together")
    if not 0 <= start <= stop <= n:
        raise ValueError("rows start..stop are outside of the shape of X")
    for t in range(start, stop):
        for k in range(d):
            add_square(columns, k, gates[t], weights[t] * X[t, k] * X[t, k])
        count_row(tally, gates[t], weights[t])


def is_regular(
    R: NDArray,
    columns: NDArray,
    tally: NDArray,
    added: NDArray,
    decay: float,
    n: int,
    limits: tuple[float, float, float],
) -> bool:
    """Test that no row of a block could be rounding error or need a coefficient held.

    A pivot relative to its column's length, r_j, falls to ``sqrt(decay) r_j`` at worst, with the
    squares ``added`` (d,) by the block in the length.  What is left of x_j when other directions
    are taken out is wrong by about ``noise |x|``, which moves coefficient j by ``noise / r_j^2``.
    """
    later = tally.copy()
    later[COUNT] += n
    noise = noise_level(limits, R.shape[0], later)
    pivots = decay * np.diagonal(R) ** 2
    lengths = np.maximum(columns[0], decay * columns[0] + added)
    highest = np.maximum(columns[1], lengths)
    return bool(
        np.all(pivots > SAFETY * noise * lengths) and np.all(pivots > SAFETY * limits[1] * highest)
    )


def gates_after(gates: NDArray) -> tuple[NDArray, float]:
    """Multiply the gates after each row (n,), and all gates."""
    after = np.ones_like(gates)
    if (gates == 1).all():
        return after, 1.0
    after[:-1] = np.cumprod(gates[:0:-1])[::-1]
    return after, float(after[0] * gates[0])


def absorb_block(
    R: NDArray,
    z: NDArray,
    columns: NDArray,
    tally: NDArray,
    loss: NDArray,
    rows: Rows,
    limits: tuple[float, float, float],
    residual: NDArray,
    out: NDArray,
) -> bool:
    """Absorb all rows, as one block; False, with nothing changed, where single rows have to.

    ``residual`` (n, m) receives the a-priori residuals; ``out`` (d, d) the new R, and may be R.
    Everything else is updated in place.
    """
    X, Y, gates, weights = rows
    (n, d), m = X.shape, Y.shape[1]
    after, decay = gates_after(gates)
    root = np.sqrt(weights * after)[:, None]
    A = np.empty((n, d + m + n))
    np.multiply(X, root, out=A[:, :d])
    added = np.einsum("ij,ij->j", A[:, :d], A[:, :d])
    if not is_regular(R, columns, tally, added, decay, n, limits):
        return False
    np.multiply(Y, root, out=A[:, d : d + m])
    A[:, d + m :] = np.eye(n)
    beside = np.zeros((d, m + n))
    beside[:, :m] = np.sqrt(decay) * z.T
    rotate_rows_in(R, A, beside, float(np.sqrt(decay)), out)
    rest = A[:, d : d + m]
    z[:] = beside[:, :m].T
    loss *= decay
    loss += np.einsum("ij,ij->j", rest, rest)
    residual[:] = a_priori_residuals(A[:, d + m :], rest) / root
    bring_counters_forward(columns, tally, X, gates, weights, 0, n)
    return True


def a_priori_residuals(last: NDArray, rest: NDArray) -> NDArray:
    """Compute ``L_ii nu_i`` (n, m) from ``last`` = Q22^T (n, n) and ``rest`` = rho (n, m)."""
    n = last.shape[0]
    turned = np.empty((n, n + rest.shape[1]), order="F")
    turned[:, :n], turned[:, n:] = last[:, ::-1], rest  # QL is QR of the columns in reverse
    factor = dgeqrf(turned, overwrite_a=True)[0]
    return (factor[:, n:] / np.diagonal(factor)[:, None])[::-1]


def absorb_squares_of_block(spread: NDArray, rows: Rows) -> None:
    """Rotate all rows, times their weights, into ``spread``; gates forget them squared."""
    if not spread.size:
        return
    after, decay = gates_after(rows.gates)
    d = spread.shape[0]
    rotate_rows_in(
        spread, rows.X * (rows.weights * after)[:, None], np.empty((d, 0)), decay, spread
    )
