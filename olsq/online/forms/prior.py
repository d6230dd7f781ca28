"""A normal prior of the coefficients as a state to start from.

A prior of mean mu and covariance ``sigma2 C`` is the information ``C^-1`` about mu.  As the factor
R with ``R^T R = C^-1`` it is k rows of regressors with the targets ``R mu``, which are fitted
exactly: the state is the one that had learnt them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.information import InformationForm
from olsq.online.forms.moments import check as check_moments
from olsq.online.forms.moments import factor
from olsq.online.forms.square_root import SquareRootForm, counters
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, WEIGHT
from olsq.problem import Moments

WANTED = "prior must be a pair (mean, covariance) or olsq.Moments"


def factor_of(prior: Any, intercept: bool) -> tuple[NDArray, NDArray, bool]:
    """Return R (k, k) upper triangular with ``R^T R`` the prior's information, and z = R mu (m, k).

    Third, whether the mean is for one target, a vector.  Raises ValueError or TypeError for what is
    no prior.
    """
    if isinstance(prior, dict) and prior.keys() == {"gram", "cross"}:  # from a state file
        prior = Moments(np.asarray(prior["gram"]), np.asarray(prior["cross"]))
    if isinstance(prior, Moments):
        gram, cross = check_moments(prior, intercept)
        eps = float(np.finfo(gram.dtype).eps)  # that they were accumulated in
        R, z, _ = factor(gram.astype(np.float64), cross.astype(np.float64), eps)
        return R, z, cross.shape[0] == 1
    try:
        mean, covariance = prior
    except (TypeError, ValueError):
        raise TypeError(f"{WANTED}, got {prior!r}") from None
    mean = real_array(mean, "prior[0], the mean,").astype(np.float64)
    covariance = real_array(covariance, "prior[1], the covariance,").astype(np.float64)
    means = np.atleast_2d(mean)
    k = means.shape[1]
    if mean.ndim not in (1, 2) or means.shape[0] == 0 or k <= int(intercept):
        raise ValueError(
            f"the prior's mean must have shape (k,) or (m, k), got {mean.shape}"
            + ("; with an intercept k is d + 1, the intercept's first" if intercept else "")
        )
    if not np.isfinite(mean).all():
        raise ValueError("the prior's mean must be finite")
    if covariance.shape == (k,):
        covariance = np.diag(covariance)
    if covariance.shape != (k, k):
        raise ValueError(
            f"the prior's covariance must have shape ({k}, {k}), or ({k},) for variances, as the "
            f"mean has {k} coefficients, got {covariance.shape}"
        )
    R = _root_of_inverse(covariance)
    return R, means @ R.T, mean.ndim == 1


def _root_of_inverse(covariance: NDArray) -> NDArray[np.float64]:
    """Compute R with ``R^T R`` the inverse of ``covariance``; an infinite variance adds nothing."""
    variance = np.diagonal(covariance)
    known = np.isfinite(variance)
    inside = covariance[np.ix_(known, known)]
    scale = np.sqrt(np.where(variance[known] > 0, variance[known], 1.0))
    scaled = inside / np.outer(scale, scale)
    beside = np.where(np.eye(known.size, dtype=bool), 0.0, covariance)[~known]
    wrong = (
        np.isnan(covariance).any() or beside.any() or not np.isfinite(inside).all()
        or (np.abs(scaled - scaled.T) > 1e-8).any()
    )  # fmt: skip
    if wrong:
        raise ValueError(
            "the prior's covariance must be a symmetric matrix of finite numbers (inf on the "
            "diagonal, with zeros beside it, for a coefficient of which nothing is known)"
        )
    try:
        lower = np.linalg.cholesky(0.5 * (scaled + scaled.T))
    except np.linalg.LinAlgError:
        lower = np.zeros((1, 1))
    if inside.size and np.diagonal(lower).min() <= 1e-8:
        raise ValueError(
            "the prior's covariance must be positive definite; give a coefficient that is known "
            "exactly a small variance, or subtract its part from y"
        )
    R = np.zeros_like(covariance)
    if inside.size:
        factor = np.linalg.qr(np.linalg.inv(lower) / scale, mode="r")
        factor *= np.where(np.diagonal(factor) < 0, -1.0, 1.0)[:, None]
        R[np.ix_(known, known)] = np.triu(factor)
    return R


def switch_from(
    R: NDArray, z: NDArray, method: str, *, intercept: bool, solving: bool,
    precision: tuple[str, str],
) -> FormSwitch:  # fmt: skip
    """Build the state that has learned the rows of R (k, k) with the targets z (m, k)."""
    m, rows = z.shape[0], np.count_nonzero(np.diagonal(R))
    columns, tally, loss, held, spread = counters((R**2).sum(0), m)
    tally[[COUNT, COUNT_SQUARED, WEIGHT]] = rows
    clock = np.array([1, 1, 0])
    if method == "information":
        information = InformationForm(
            R.T @ R, z @ R, (z**2).sum(1), columns, tally, held, np.zeros(R.shape[0]), spread,
            intercept=intercept, discounted=True, solving=solving, precision=precision,
        )  # fmt: skip
        return FormSwitch(information, method, clock)
    form = SquareRootForm(
        R, z, columns, tally, loss, held, spread, intercept=intercept, precision=precision
    )
    form.narrow()
    switch = FormSwitch(form, method, clock)
    if method == "covariance":
        switch.try_covariance()
    return switch
