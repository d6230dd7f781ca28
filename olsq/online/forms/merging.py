"""Merge the states of two streams into that of the first's rows followed by the second's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.online.forms import square_root_kernels as kernels
from olsq.online.forms.lapack import dpstrf, dtrmm, inverse_of_triangle
from olsq.online.forms.rows import forgotten
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import DECAY


def merged_tally(first: NDArray, second: NDArray) -> NDArray:
    """Return the tally of first's rows followed by second's."""
    decay = second[DECAY]
    tally = np.array([decay, decay**2, decay, decay]) * first
    return tally + np.where(np.arange(tally.size) == DECAY, 0.0, second)


def merged_spread(first: NDArray, second: NDArray, decay: float) -> NDArray:
    """Return the factor of squared weights of first's rows then second's: ``S = decay^2 S_a +
    S_b``.
    """
    spread = decay * first
    ones = np.ones(second.shape[0])
    kernels.absorb_squares(spread, second, ones, ones, 0, ones.size)
    return spread


def without_ridge(
    form: SquareRootForm, ridge: NDArray[np.float64]
) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows X (r, d), Y (r, m) with ``X^T X = R^T R - diag(ridge)`` and ``X^T Y = R^T z``.

    The third result (r, d) are rounding errors of X, in units of rounding, that come on top of
    those in proportion to its rows.

    The ridge is ``(S R)^T S R`` with ``S = diag(ridge)^1/2 R^-1``, so that X is ``L R`` with
    ``L^T L = I - S^T S``.  L comes from a Cholesky factorisation with diagonal pivoting, which ends
    where nothing but the ridge and rounding errors is left: fewer rows than coefficients give r of
    their number, however small the ridge, and rows that are faint after a gap keep their digits.
    """
    R, z = form.R, form.z.T
    known = np.diagonal(R) != 0
    if not ridge.any():
        return R[known], z[known], np.zeros_like(R[known])
    if known.all():
        inverse = inverse_of_triangle(R)[0]
    else:  # e_j takes the place of a row that is 0
        inverse = inverse_of_triangle(R + np.diag(~known))[0][:, known]
        R, z = R[known], z[known]
    rest, growth = _without_share(R, inverse, ridge)
    del inverse  # room for what follows, in large models
    unit = (form.limits.square_root[0], 0.0, 0.0)
    # A margin of 8: what passes for known stays so for good.
    noise = 8 * kernels.noise_level(unit, ridge.size, form.tally) * (1 + growth)
    if not np.diagonal(rest).max(initial=0.0) > noise:  # LAPACK takes any first pivot above 0
        return R[:0], z[:0], R[:0]
    L, pivots, rank, _ = dpstrf(rest.T, tol=noise, overwrite_a=1)  # symmetric: no copy
    L[rank:], order = 0.0, pivots - 1
    X = _product(L, R[order])[:rank]
    Y = solve_triangular(L[:rank, :rank], z[order[:rank]], trans=1)
    # A rounding error of the pivot L_ii^2 changes L_ii one way and the entries beside it the other,
    # by 1 / L_ii^2 of their size: no column of the row is off by as much as the next.
    pivots = np.diagonal(L)[:rank, None] ** 2
    np.fill_diagonal(L, 0.0)
    sizes = R[order]
    errors = _product(np.abs(L, out=L), np.abs(sizes, out=sizes))[:rank]
    errors /= pivots
    return X, Y, errors


def _product(L: NDArray[np.float64], R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``L R`` for upper triangular L (k, k), whose entries below are not looked at, in the
    place of R (k, d).
    """
    return dtrmm(1.0, L, R.T, side=1, trans_a=1, overwrite_b=1).T


def _without_share(
    R: NDArray[np.float64], inverse: NDArray[np.float64], ridge: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return ``I - S^T S`` of :func:`without_ridge` and how errors in R grow in it.

    An error of one unit in each entry of R changes a diagonal entry by at most twice that of
    ``|S|^T |S| |R| |R^-1|``, of which the largest is returned.  ``inverse`` is destroyed.
    """
    parts = [slice(k, k + 64) for k in range(0, len(R), 64)]  # large models have no room for more
    rest, grown = np.empty_like(R, shape=(len(R), len(R))), np.zeros(len(R))
    for part in parts:
        rest[part] = -(inverse[:, part].T * ridge) @ inverse
    rest[np.diag_indices_from(rest)] += 1.0
    np.abs(inverse, out=inverse)
    for part in parts:
        share = (inverse[:, part].T * ridge) @ inverse
        grown += (share * (np.abs(R[part]) @ inverse)).sum(0)
    return rest, float(grown.max(initial=0.0))


def merge_roots(first: SquareRootForm, second: SquareRootForm, ridge: NDArray) -> SquareRootForm:
    """Return the form of first's rows followed by second's; the ridge is counted once.

    ``H = Z_b H_a + (H_b - Z_b Lambda)`` with Z_b the product of second's gates: what second knows
    without its copy of the ridge is absorbed like observations.
    """
    decay = second.tally[DECAY]
    root = np.sqrt(decay)
    tally = merged_tally(first.tally, second.tally)
    X, Y, errors = without_ridge(second, decay * ridge)
    form = SquareRootForm(
        root * first.R,
        root * first.z,
        decay * first.columns,
        tally.copy(),
        np.zeros_like(first.loss),
        first.held + second.held,
        merged_spread(first.spread, second.spread, decay),
        intercept=first.intercept,
        precision=first.precision,
    )
    largest = np.maximum(second.R.max(0), -second.R.min(0))
    form.absorb_observations(X, Y, errors, largest, root)
    # J_ab(theta) = Z_b J_a(theta) + J_b(theta) - Z_b |theta|_Lambda^2, at its minimum.
    theta = form.coefficients()
    loss = forgotten(first.loss, decay) + second.loss
    if ridge.any():
        loss -= decay * (ridge * theta**2).sum(1)
    for part, gate in ((first, decay), (second, 1.0)):
        loss += gate * ((theta @ part.R.T - part.z) ** 2).sum(1)
    form.loss = np.maximum(loss, 0.0)
    form.columns[1] = form.columns[0]
    form.tally = tally
    return form
