"""Start a form from moments given by a user, or from a normal prior.

Moments are ``gram = sum w x x^T`` (d, d) and ``cross = sum w y x^T`` (m, d), forgotten like the
data; column 0 is the intercept's, a regressor of ones, where there is one.  A discounted ridge is
in the gram from the start and forgotten with it; a fixed ridge is not in it.

A prior of mean mu and covariance ``sigma2 C`` is the information ``C^-1`` about mu.  As the factor
R with ``R^T R = C^-1`` it is k rows of regressors with the targets ``R mu``, which are fitted
exactly: the state is the one that had learned them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.online.forms.counting import COUNT, COUNT_SQUARED, WEIGHT
from olsq.online.forms.factor.form import FactorForm, counters
from olsq.online.forms.factor.form import factor_of as unit_factor_of
from olsq.online.forms.form_switch import FormSwitch, read_with
from olsq.online.forms.moment_factor import factor, tally_of
from olsq.online.rows.complex_rows import embed_prior
from olsq.online.rows.options import check_forget
from olsq.problem import LARGEST, Moments

WANTED = "prior must be a pair (mean, covariance) or olsq.Moments"


def check(moments: Any, fit_intercept: bool) -> Moments:
    """Return one pair of moments as NumPy floats, gram symmetric; refuse what cannot be one."""
    if not isinstance(moments, Moments):
        raise TypeError(
            f"moments must be olsq.Moments, got {type(moments).__name__}; of a Solution give "
            ".state, of a decoding state .moments"
        )
    gram, cross = (_as_floats(a, n) for a, n in zip(moments, Moments._fields, strict=True))
    d = gram.shape[-1] if gram.ndim else 0
    if gram.shape != (d, d) or d == 0:
        raise ValueError(
            f"moments.gram must have shape (d, d), one problem without batch axes, got {gram.shape}"
        )
    if cross.ndim != 2 or cross.shape[1] != d or cross.shape[0] == 0:
        raise ValueError(f"moments.cross must have shape (m, {d}), got {cross.shape}")
    if fit_intercept and d < 2:
        raise ValueError(
            "moments.gram has one column, which fit_intercept=True takes for the intercept's; "
            "give fit_intercept=False"
        )
    tolerance = np.sqrt(np.finfo(gram.dtype).eps)
    diagonal = np.diagonal(gram)
    size = np.sqrt(np.maximum(np.abs(diagonal), np.finfo(gram.dtype).tiny))
    with np.errstate(over="ignore"):
        asymmetric = np.abs(gram - gram.T) > tolerance * np.outer(size, size)
    if asymmetric.any():
        raise ValueError("moments.gram must be symmetric")
    return Moments(0.5 * gram + 0.5 * gram.T, cross)


def _as_floats(array: Any, name: str) -> NDArray:
    masked = isinstance(array, np.ma.MaskedArray)
    floats = real_array(array, f"moments.{name}") if masked else np.asarray(array)
    if floats.dtype.kind not in "fiub":
        raise TypeError(f"moments.{name} must be real numbers, got dtype {floats.dtype}")
    floats = floats.astype(np.float32 if floats.dtype == np.float32 else np.float64)
    if not np.isfinite(floats).all():
        raise ValueError(f"moments.{name} must be finite")
    return floats


def switch_from(
    moments: Moments,
    ridge: NDArray,
    *,
    intercept: bool,
    discounted: bool,
    solving: bool,
    precision: str,
    sandwich: bool = False,
) -> FormSwitch:
    """Build the state that continues from checked moments; ``ridge`` (d,) is 0 if they hold it.

    The loss is unknown and infinite, until a gate of 0 forgets it.
    """
    gram, cross = (a.astype(np.float64) for a in moments)
    m = cross.shape[0]
    eps = float(np.finfo(moments.gram.dtype).eps)  # that they were accumulated in
    R, z, error = _checked_factor(gram, cross, eps)
    if not np.isfinite(z).all():
        raise ValueError("moments.cross is too large for moments.gram to come from the same rows")
    columns, tally, loss, *others = counters((R**2).sum(0), m, sandwich)
    loss[:] = np.inf
    tally = tally_of(min(error, eps**0.5), tally)
    F, D = unit_factor_of(R, z)
    data = FactorForm(F, D, columns, tally, loss, *others, intercept=intercept, precision=precision)
    return FormSwitch(data if discounted else read_with(data, ridge, solving))


def _checked_factor(A: NDArray, G: NDArray, eps: float) -> tuple[NDArray, NDArray, float]:
    """Return R, z and the error of :func:`factor`; refuse what rows cannot have added up to."""
    diagonal = np.diagonal(A)
    length = np.sqrt(np.maximum(diagonal, 0.0))
    absent = length == 0
    scale = np.where(absent, 1.0, length)
    with np.errstate(over="ignore"):
        correlation = A / scale / scale[:, None]
    if (diagonal < 0).any() or A[absent].any() or (np.abs(correlation) > 1 + eps**0.5).any():
        raise ValueError(_INDEFINITE)
    if G[:, absent].any():
        raise ValueError(
            "moments.cross must be zero where moments.gram's diagonal is: that regressor was "
            "never seen"
        )
    R, z, error, least = factor(A, G, eps)
    if least < -(eps**0.5):
        raise ValueError(_INDEFINITE)
    return R, z, error


_INDEFINITE = "moments.gram must be positive semidefinite: it is a sum of squares"


def merge(first: Moments, second: Moments, forget: Any) -> Moments:
    """Return ``forget * first + second`` for NumPy moments; a gate of 0 drops non-finite entries
    too.
    """
    first, second = (Moments(*map(np.asarray, pair)) for pair in (first, second))
    for name, a, b in zip(Moments._fields, first, second, strict=True):
        if a.shape[-2:] != b.shape[-2:]:
            raise ValueError(
                f"cannot merge: {name} has shape {a.shape} in the first moments and {b.shape} in "
                "the second"
            )
    gate = check_forget(forget)[..., None, None]

    def joined(a: NDArray, b: NDArray) -> NDArray:
        kept = np.where((gate == 0) & ~np.isfinite(a), 0, a)
        return (gate * kept + b).astype(np.result_type(a, b, np.float32), copy=False)

    return Moments(joined(first.gram, second.gram), joined(first.cross, second.cross))


def prior_shape(prior: Any, intercept: bool, is_complex: bool) -> tuple[int, int]:
    """Return the number of features of a prior, and of targets: 0 of one for a vector of targets.

    Raises as :func:`factor_of`.
    """
    _, z, one_target = factor_of(prior, intercept, is_complex)
    k = z.shape[1] // (2 if is_complex else 1)
    return k - int(intercept), 0 if one_target else z.shape[0]


def factor_for(
    prior: Any, intercept: bool, is_complex: bool, shape: tuple[int, int]
) -> tuple[NDArray, NDArray]:
    """Return R and z of :func:`factor_of` for rows of m targets and k coefficients, ``shape``.

    Raises ValueError also for a prior of another shape.
    """
    R, z, _ = factor_of(prior, intercept, is_complex)
    if z.shape != shape:
        part = 2 if is_complex else 1
        raise ValueError(
            f"the prior is of {z.shape[1] // part} coefficients and {z.shape[0]} targets; "
            f"these rows have {shape[1] // part} (the intercept counts) and {shape[0]}"
        )
    return R, z


def factor_of(
    prior: Any, intercept: bool, is_complex: bool = False
) -> tuple[NDArray, NDArray, bool]:
    """Return R (k, k) upper triangular with ``R^T R`` the prior's information, and z = R mu (m, k).

    Third, whether the mean is for one target, a vector.  Raises ValueError or TypeError for what is
    no prior.
    """
    if is_complex:  # whose intercept is among the pairs' columns
        prior, intercept = embed_prior(prior), False
    if isinstance(prior, dict) and prior.keys() == {"gram", "cross"}:  # from a state file
        prior = Moments(np.asarray(prior["gram"]), np.asarray(prior["cross"]))
    if isinstance(prior, Moments):
        gram, cross = check(prior, intercept)
        eps = float(np.finfo(gram.dtype).eps)  # that they were accumulated in
        R, z, _ = _checked_factor(gram.astype(np.float64), cross.astype(np.float64), eps)
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
    with np.errstate(over="ignore", invalid="ignore"):
        z = means @ R.T
        size = np.abs(np.column_stack([R.T, z.T])).max()
    if not size <= LARGEST[np.dtype(np.float64)]:
        raise ValueError(
            "the prior overflows: its standard deviations are too small, or its mean is too large "
            "in units of them. Rescale X or y"
        )
    return R, z, mean.ndim == 1


def _root_of_inverse(covariance: NDArray) -> NDArray[np.float64]:
    """Compute R with ``R^T R`` the inverse of ``covariance``; an infinite variance adds nothing."""
    variance = np.diagonal(covariance)
    known = np.isfinite(variance)
    inside = covariance[np.ix_(known, known)]
    scale = np.sqrt(np.where(variance[known] > 0, variance[known], 1.0))
    scaled = inside / np.outer(scale, scale)
    beside = np.where(np.eye(known.size, dtype=bool), 0.0, covariance)[~known]
    wrong = (
        np.isnan(covariance).any()
        or beside.any()
        or not np.isfinite(inside).all()
        or (np.abs(scaled - scaled.T) > 1e-8).any()
    )
    if wrong:
        raise ValueError(
            "the prior's covariance must be a symmetric matrix of finite numbers (inf on the "
            "diagonal, with zeros beside it, for a coefficient of which nothing is known)"
        )
    try:
        lower = np.linalg.cholesky(0.5 * scaled + 0.5 * scaled.T)
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


def switch_from_prior(
    R: NDArray,
    z: NDArray,
    *,
    intercept: bool,
    precision: str,
) -> FormSwitch:
    """Build the state that has learned the rows of R (k, k) with the targets z (m, k)."""
    m, rows = z.shape[0], np.count_nonzero(np.diagonal(R))
    columns, tally, *others = counters((R**2).sum(0), m)
    tally[[COUNT, COUNT_SQUARED, WEIGHT]] = rows
    F, D = unit_factor_of(R, z)
    return FormSwitch(
        FactorForm(F, D, columns, tally, *others, intercept=intercept, precision=precision)
    )
