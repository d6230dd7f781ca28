"""Fit one regression for each group of rows, to all of them at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.forms.counting import COUNT, COUNT_SQUARED, DECAY, RANK, WEIGHT
from olsq.online.forms.rows import Trace, read_only
from olsq.online.forms.statistics import FitArrays, statistics
from olsq.online.many import fit_kernels
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.parallel import in_pieces, share
from olsq.online.rows.options import check_noise_variance, check_weight

PARALLEL_FROM = 1e6  # multiplications that pay for a thread


class GroupFits(NamedTuple):
    """Coefficients and their standard errors (groups, k), the intercept's first if it is fitted.

    NaN for a group in which there was nothing to learn.
    """

    coef: NDArray[np.float64]
    stderr: NDArray[np.float64]


def fit_groups(
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    lengths: NDArray[np.int64],
    weights: NDArray | None,
    options: dict[str, Any],
) -> GroupFits:
    """Fit ``RecursiveLeastSquares(**options)``, which does not forget, to each group's rows.

    X (n, d) and y (n,) hold the groups one after the other, ``lengths`` (groups,) of them.  Where
    moments determine the coefficients to full precision they are solved, and refined once from the
    residuals; elsewhere (collinear regressors, few rows, ``cov="sandwich"``) the rows are learned
    one by one, as the estimator does.  O(n d^2).

    Raises what the estimator raises.
    """
    k = X.shape[1] + bool(options["fit_intercept"])
    fits = GroupFits(*(np.full((lengths.size, k), np.nan) for _ in range(2)))
    sample_weights = None if weights is None else check_weight(weights, y.size)
    solved = np.zeros(lengths.size, np.bool_)
    if options["cov"] == "posterior":
        solved = _solve(fits, X, y, lengths, sample_weights, options)
        if not solved.all() and options["missing"] == "skip":
            usable = np.isfinite(y) & np.isfinite(X).all(axis=1)
            if sample_weights is not None:
                usable &= np.isfinite(sample_weights)
            if not usable.all():  # rows that are there, in groups that may have none
                codes = np.repeat(np.arange(lengths.size), lengths)[usable]
                X, y = X[usable], y[usable]
                sample_weights = None if sample_weights is None else sample_weights[usable]
                lengths = np.bincount(codes, minlength=lengths.size)
                solved = _solve(fits, X, y, lengths, sample_weights, options)
    left = ~solved & (lengths > 0)
    if left.any():
        rows = np.repeat(left, lengths)
        left_weights = None if sample_weights is None else sample_weights[rows]
        _learn(fits, np.flatnonzero(left), X[rows], y[rows], lengths[left], left_weights, options)
    return fits


def _solve(
    fits: GroupFits,
    X: NDArray,
    y: NDArray,
    lengths: NDArray[np.int64],
    weights: NDArray | None,
    options: dict[str, Any],
) -> NDArray[np.bool_]:
    """Fill in the groups that moments determine; return the mask (groups,) of these."""
    groups, k = fits.coef.shape
    intercept = bool(options["fit_intercept"])
    ridge = np.zeros(k)
    ridge[int(intercept) :] = options["ridge"]
    ends = np.cumsum(lengths)
    begins = ends - lengths
    root = np.empty(0) if weights is None else np.sqrt(weights)
    coef, variance, squares = np.empty((groups, k)), np.empty((groups, k)), np.empty(groups)
    solved = np.zeros(groups, np.bool_)
    arguments = (
        read_only(np.ascontiguousarray(X.T)),
        read_only(np.ascontiguousarray(y)),
        read_only(root),
        begins,
        ends,
        ridge,
        intercept,
    )
    bounds = share(lengths * k**2, PARALLEL_FROM)
    in_pieces(
        lambda begin, end: fit_kernels.fit_groups(
            *arguments, begin, end, coef, variance, squares, solved
        ),
        bounds,
    )
    counts = np.zeros((groups, 6))
    rows, total = lengths.astype(np.float64), lengths.astype(np.float64)
    if weights is not None and weights.size:
        filled = np.flatnonzero(lengths)
        rows[filled] = np.add.reduceat((weights > 0).astype(np.float64), begins[filled])
        with np.errstate(over="ignore"):  # refused by name where the group is learned
            total[filled] = np.add.reduceat(weights, begins[filled])
    counts[:, COUNT] = counts[:, COUNT_SQUARED] = rows
    counts[:, WEIGHT], counts[:, DECAY], counts[:, RANK] = total, 1.0, k
    coef[~solved] = variance[~solved] = squares[~solved] = 0.0
    loss = squares + coef**2 @ ridge
    noise = check_noise_variance(options["noise_variance"], 1)
    sigma2, stderr = np.tile(noise, (groups, 1)), np.empty((groups, 1, k))
    estimates = Trace(
        coef[:, None], variance, loss[:, None], counts, np.empty((0, 1)), np.empty((0, k))
    )
    statistics(estimates, ridge, True, sigma2, stderr, FitArrays.empty(groups, 1))
    fits.coef[solved], fits.stderr[solved] = coef[solved], stderr[solved, 0]
    return solved


def _learn(
    fits: GroupFits,
    which: NDArray[np.int64],
    X: NDArray,
    y: NDArray,
    lengths: NDArray[np.int64],
    weights: NDArray | None,
    options: dict[str, Any],
) -> None:
    """Fill in some groups by learning their rows one by one."""
    counted = np.ones(y.size, np.bool_) if weights is None else weights != 0
    if options["missing"] == "skip":
        counted &= np.isfinite(y) & np.isfinite(X).all(axis=1)
        counted &= True if weights is None else ~np.isnan(weights)
    if not counted.any():
        return
    if which.size == 1:
        learner = RecursiveLeastSquares(**options).fit(X, y, weights)
    else:
        codes = np.repeat(np.arange(which.size), lengths)
        learner = GroupedLeastSquares(**options).fit(X, y, weights, by=codes)
    learned = np.atleast_1d(learner.n_samples_seen_) > 0
    both = (
        (fits.coef, learner.coef_, learner.intercept_),
        (fits.stderr, learner.coef_stderr_, learner.intercept_stderr_),
    )
    for out, slopes, first in both:
        columns = np.atleast_2d(slopes)
        if options["fit_intercept"]:
            columns = np.column_stack([np.atleast_1d(first), columns])
        out[which[learned]] = columns[learned]


def predict_groups(
    X: NDArray[np.float64], lengths: NDArray[np.int64], coef: NDArray[np.float64], intercept: bool
) -> NDArray[np.float64]:
    """Predict rows (n,) by the coefficients (groups, k) of their groups; NaN where not finite."""
    ends = np.cumsum(lengths)
    out = np.empty(X.shape[0])
    columns = read_only(np.ascontiguousarray(X.T))
    in_pieces(
        lambda begin, end: fit_kernels.predict_groups(
            columns, ends - lengths, ends, coef, intercept, begin, end, out
        ),
        share(lengths * coef.shape[1], PARALLEL_FROM),
    )
    return out
