"""Absorb many rows into the square-root form, by Householder reflections of a block at a time.

Where nobody asks what the state was after each row, the triangular factor of all of them costs
matrix products instead of d rotations per row (Golub & Van Loan 2013, 5.2 and 6.5; Demmel, Grigori,
Hoemmen & Langou 2012, TSQR).  Targets are columns of the factored matrix, so that what is left
below R is the residual:

    [sqrt(gate) R   sqrt(gate) z^T]            [R'  z'^T]
    [0              sqrt(gate) rho]  = Q'  [0   rho'],    loss = |column of rho'|^2.
    [sqrt(w) X      sqrt(w) Y     ]            [0   0   ]

Nothing is subtracted, so that no digit is lost to squaring: the error is that of QR itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from olsq.online.forms.merging import merged_spread, merged_tally
from olsq.online.forms.rows import Rows, forgotten
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import (
    COUNT,
    COUNT_SQUARED,
    DECAY,
    WEIGHT,
    noise_level,
)

(_tpqrt,) = get_lapack_funcs(("tpqrt",), dtype=np.float64)
PANEL = 16  # columns of a block reflector: within a tenth of the best of 8, 16, 32 at d 16 to 1024


def absorb_blocks(form: SquareRootForm, blocks: Iterable[Rows]) -> None:
    """Absorb rows into a form that holds none yet, in blocks of whatever length.

    O(d^2) per row in matrix products; memory of a block.  ``form`` must be diffuse (R = 0).
    """
    (m, d), robust = form.z.shape, form.spread.shape[0] > 0
    A, S = np.zeros((d + m, d + m), order="F"), np.zeros_like(form.spread, order="F")
    tally = form.tally
    for X, Y, gates, weights in blocks:
        if not len(X):
            continue
        left = np.ones(len(X) + 1)  # of what was before the block, and of each row at its end
        if not (gates == 1).all():
            left[:-1] = np.cumprod(gates[::-1])[::-1]
        decay, left = left[0], left[1:]
        B = np.empty((len(X), d + m), order="F")
        root = np.sqrt(weights * left)[:, None]
        np.multiply(X, root, out=B[:, :d])
        np.multiply(Y, root, out=B[:, d:])
        if decay != 1:
            A *= np.sqrt(decay)
        A = _rotated(A, B)
        if robust:
            S *= decay
            S = _rotated(S, np.asfortranarray(X * (weights * left)[:, None]))
        seen = weights > 0
        tally *= [decay, decay**2, decay, decay]
        tally[COUNT] += left[seen].sum()
        tally[COUNT_SQUARED] += (left[seen] ** 2).sum()
        tally[WEIGHT] += (left * weights).sum()
    form.spread = np.ascontiguousarray(S)
    _take_over(form, A, np.zeros(m))


def stacked(first: SquareRootForm, second: SquareRootForm) -> SquareRootForm:
    """Return the form of first's rows followed by second's, which began with no ridge.

    ``R^T R = Z_b R_a^T R_a + R_b^T R_b`` by rotating one triangle into the other, 2/3 d^3
    multiplications.  Associative, and exact except for rounding; nothing is subtracted.
    """
    (m, d), decay = first.z.shape, second.tally[DECAY]
    root = np.sqrt(decay)
    A, B = np.zeros((2, d + m, d + m)).transpose(0, 2, 1)
    A[:d, :d], A[:d, d:] = root * first.R, root * first.z.T
    B[:d, :d], B[:d, d:] = second.R, second.z.T
    both = {
        "tally": merged_tally(first.tally, second.tally),
        "held": first.held + second.held,
        "spread": merged_spread(first.spread, second.spread, decay),
    }
    form = SquareRootForm(first.R, first.z, **first.shared | both)
    _take_over(form, _rotated(A, B, triangular=True), forgotten(first.loss, decay) + second.loss)
    return form


def _rotated(A: NDArray, B: NDArray, triangular: bool = False) -> NDArray:
    """Compute the triangular factor of A (k, k), upper triangular, over B (b, k); destroys both."""
    k = A.shape[0]
    factor, _, _, info = _tpqrt(
        k if triangular else 0, min(PANEL, k), A, B, overwrite_a=True, overwrite_b=True
    )
    assert info == 0, info
    return factor


def _take_over(form: SquareRootForm, A: NDArray, loss: NDArray) -> None:
    """Set the form from the factor A of [X Y]; ``loss`` (m,) is that of earlier rows."""
    d = form.R.shape[0]
    level = 2 * noise_level(form.limits.square_root, d, form.tally)
    length = np.sqrt((A[:, :d] ** 2).sum(0))
    # A pivot at the rounding level of its column says that the column depends on those before it.
    # What its row says about the columns after it is rotated into the rows below.
    noisy = np.abs(np.diagonal(A)[:d]) <= level * length
    while noisy.any():
        j = int(np.argmax(noisy))
        rest = np.asfortranarray(A[j : j + 1])
        rest[0, j], A[j] = 0.0, 0.0
        A = _rotated(A, rest)
        noisy = (np.abs(np.diagonal(A)[:d]) <= level * length) & (np.arange(d) > j)
    sign = np.where(np.diagonal(A)[:d] < 0, -1.0, 1.0)[:, None]
    form.R = np.ascontiguousarray(np.triu(A[:d, :d]) * sign)
    form.z = np.ascontiguousarray((A[:d, d:] * sign).T)
    form.loss = loss + (np.triu(A[d:, d:]) ** 2).sum(0)
    form.columns = np.repeat((form.R**2).sum(0)[None], 2, axis=0)


def faded(form: SquareRootForm, gate: float) -> SquareRootForm:
    """Return the form after a row of this forgetting factor and of weight 0."""
    root = np.sqrt(gate)
    return SquareRootForm(
        root * form.R,
        root * form.z,
        gate * form.columns,
        form.tally * [gate, gate**2, gate, gate],
        forgotten(form.loss, gate),
        form.held.copy(),
        gate * form.spread,
        intercept=form.intercept,
        precision=form.precision,
    )
