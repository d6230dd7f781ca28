"""Merge the states of two streams into that of the first's rows followed by the second's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.kernels import kernel
from olsq.online.forms.counting import DECAY, absorb_squares, count_row, noise_level
from olsq.online.forms.factor.counters import count_squares
from olsq.online.forms.factor.edges import check_state
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.factor.kernels import load_row
from olsq.online.forms.factor.noise import absorb_carefully, find_noise
from olsq.online.forms.lapack import dpstrf, dtrmm, inverse_of_triangle
from olsq.online.forms.rows import forgotten


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
    absorb_squares(spread, second, ones, ones, 0, ones.size)
    return spread


def without_ridge(form: FactorForm, ridge: NDArray[np.float64]) -> tuple[NDArray, NDArray, NDArray]:
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
    noise = 8 * noise_level(unit, ridge.size, form.tally) * (1 + growth)
    if not np.diagonal(rest).max(initial=0.0) > noise:  # LAPACK takes any first pivot above 0
        return R[:0], z[:0], R[:0]
    L, pivots, rank, _ = dpstrf(rest.T, tol=noise, overwrite_a=1)  # symmetric: no copy
    L[rank:], order = 0.0, pivots - 1
    R = R[order]
    X = _product(L, R.copy())[:rank]
    Y = solve_triangular(L[:rank, :rank], z[order[:rank]], trans=1)
    # A rounding error of the pivot L_ii^2 changes L_ii one way and the entries beside it the other,
    # by 1 / L_ii^2 of their size: no column of the row is off by as much as the next.
    pivots = np.diagonal(L)[:rank, None] ** 2
    np.fill_diagonal(L, 0.0)
    errors = _product(np.abs(L, out=L), np.abs(R, out=R))[:rank]
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
    parts = [slice(k, k + 32) for k in range(0, len(R), 32)]  # large models have no room for more
    rest, grown = np.empty_like(R, shape=(len(R), len(R))), np.zeros(len(R))
    for part in parts:
        rest[part] = -(inverse[:, part].T * ridge) @ inverse
    rest[np.diag_indices_from(rest)] += 1.0
    np.abs(inverse, out=inverse)
    for part in parts:
        share = (inverse[:, part].T * ridge) @ inverse
        grown += (share * (np.abs(R[part]) @ inverse)).sum(0)
    return rest, float(grown.max(initial=0.0))


@kernel(strict=True, makes_arrays=True)
def absorb_observations(state, X, Y, errors, largest, faintest, limits):
    """Absorb rows X (n, d), Y (n, m) that combine rows of a factor; they forget nothing.

    ``largest`` (d,) are the largest entries of the factor's columns.  What cancels in a row leaves
    rounding errors in proportion to them, at the size of the row where that is faint, from before a
    gap: no row is older than to be ``faintest`` beside the newest.  ``errors`` (n, d), in units of
    rounding, come on top.
    """
    check_state(state)
    F, D, columns, tally, loss = state
    d, m, n = D.shape[0], loss.shape[0], X.shape[0]
    if X.shape != (n, d) or Y.shape != (n, m) or errors.shape != X.shape or largest.shape != (d,):
        raise ValueError("the shapes of rows, targets, errors and largest do not fit the state")
    w, noise, error, heard = np.empty(d + m), np.empty(d), np.empty(m), np.empty((1, d))
    for t in range(n):
        level, size = noise_level(limits, d, tally), faintest
        for k in range(d):
            if X[t, k] != 0:
                size = max(size, abs(X[t, k]) / largest[k])
        for k in range(d):
            noise[k] = size * largest[k] + errors[t, k]
            heard[0, k] = X[t, k] if abs(X[t, k]) > level * noise[k] else 0.0
        load_row(w, heard, Y[t : t + 1], 0)
        find_noise(F, D, columns[0], w, 1.0, level, noise)
        load_row(w, heard, Y[t : t + 1], 0)
        absorb_carefully(F, D, loss, w, 1.0, 1.0, noise, error)
        count_squares(columns, heard[0], 1.0, 1.0)
        count_row(tally, 1.0, 1.0)


def merge_factors(first: FactorForm, second: FactorForm, ridge: NDArray) -> FactorForm:
    """Return the state of first's rows followed by second's; the ridge is counted once.

    ``H = Z_b H_a + (H_b - Z_b Lambda)`` with Z_b the product of second's gates: what second knows
    without its copy of the ridge is absorbed like observations.
    """
    decay = second.tally[DECAY]
    rows = [np.ascontiguousarray(array) for array in without_ridge(second, decay * ridge)]
    R = second.R
    largest = np.maximum(R.max(0), -R.min(0))
    del R
    merged = FactorForm(
        first.F.copy(),
        decay * first.D,
        decay * first.columns,
        merged_tally(first.tally, second.tally),
        np.zeros_like(first.loss),
        first.held + second.held,
        merged_spread(first.spread, second.spread, decay),
        intercept=first.intercept,
        precision=first.precision,
    )
    for j in np.flatnonzero(merged.D == 0):  # nothing is left of them
        merged.F[j], merged.F[j, j] = 0.0, 1.0
    tally = merged.tally.copy()
    limits = merged.limits.square_root
    absorb_observations(merged.in_kernels, *rows, largest, float(np.sqrt(decay)), limits)
    del rows
    # J_ab(theta) = Z_b J_a(theta) + J_b(theta) - Z_b |theta|_Lambda^2, at its minimum.
    theta = merged.coefficients()
    loss = forgotten(first.loss, decay) + second.loss
    if ridge.any():
        loss -= decay * (ridge * theta**2).sum(1)
    for part, gate in ((first, decay), (second, 1.0)):
        loss += gate * ((theta @ part.R.T - part.z) ** 2).sum(1)
    merged.loss = np.maximum(loss, 0.0)
    merged.columns[1] = merged.columns[0]
    merged.tally = tally
    return merged
