"""Noise variance and standard errors from a form's counters."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms.counting import (
    COUNT,
    COUNT_SQUARED,
    DECAY,
    EPS,
    RANK,
    USED,
    WEIGHT,
)
from olsq.online.forms.form import Form
from olsq.online.forms.rows import Trace

ROWS, COEFFICIENTS, SQUARED = range(3)  # columns of FitArrays.degrees
FIRST = np.zeros(1, np.int64)  # the one stream, and the first row, of a trace of one stream
Turns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # members, begins, ends


class FitArrays(NamedTuple):
    """Residual sums of squares and degrees of freedom of n states, for their goodness of fit.

    squares (n, m) are the weighted residual sums of squares; degrees (n, 3) the forgotten number of
    rows, the effective number of coefficients, and the number of rows with squared forgetting
    weights, as in ``Counts``.
    """

    squares: NDArray[np.float64]
    degrees: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int) -> FitArrays:
        return cls(np.empty((n, m)), np.empty((n, 3)))

    @property
    def freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom (n, 1) of t statistics; see :attr:`Counts.freedom`."""
        return _freedom(*(self.degrees[:, i : i + 1] for i in (ROWS, COEFFICIENTS, SQUARED)))

    @property
    def arrays(self) -> tuple[NDArray, NDArray]:
        return self.squares, self.degrees  # kernels are compiled for a plain tuple


def statistics(
    trace: Trace,
    ridge: NDArray,
    discounted: bool,
    sigma2: NDArray,
    stderr: NDArray,
    fit: FitArrays,
    turns: Turns | None = None,
) -> None:
    """Estimate the noise variances and standard errors of the n states of a trace.

    "posterior" (no sandwich in the trace): sigma2 (n, m) receives the weighted residual sum of
    squares over ``rows - k squared / rows``, where ``rows`` is the forgotten number of rows,
    ``squared`` the sum of their squared forgetting weights and ``k = rank - tr(Lambda_t P_t)`` the
    effective number of coefficients.  At forget = 1 that is n - k; under forgetting it makes the
    estimate unbiased for regressors whose distribution does not change.  inf without degrees of
    freedom.  A finite number that is already in sigma2 is a known noise variance, and stays:
    callers fill sigma2 with inf where it is to be estimated.

    stderr (n, m, d) receives ``sqrt(sigma2 P_jj)``, inf where either is.

    "sandwich", with the diagonal of ``P S P``: the denominator is ``sum w - tr(P S) -
    tr(P S P Lambda_t)`` with w the forgotten weights.  With r the residuals, W the diagonal matrix
    of w and ``A = X P X^T W``, ``E[r^T W r] = sigma2 tr((1 - A)^T W (1 - A))`` is that times sigma2
    for noise of one variance, whatever the weights are (up to the ridge's pull on the
    coefficients).  Below 1e-6 of ``sum w`` it counts as none.  stderr receives
    ``sqrt(sigma2 (P S P)_jj)``.

    ``ridge`` (d,) is that of all states; or (streams, d), and ``turns`` are the streams (b,) whose
    states the trace has, where each one's begin, and where they end.
    """
    if turns is None:
        turns, ridge = (FIRST, FIRST, np.array((len(trace.coef),))), ridge[None]
    fill_statistics(tuple(trace), turns, ridge, discounted, sigma2, stderr, fit.arrays)


@kernel()
def fill_statistics(trace, turns, ridges, discounted, sigma2, stderr, fit):
    """Fill sigma2, stderr and fit of every row of a trace; :func:`statistics` describes them."""
    coef, variance, loss, counts, _, sandwich = trace
    residual_squares, degrees = fit
    members, begins, ends = turns
    m, d = coef.shape[1:]
    robust = sandwich.shape[0] > 0
    # Part of the rows that is left of their degrees of freedom.  With fewer rows than coefficients
    # and a ridge the sandwich's is of second order in the ridge: a difference of sums that agree to
    # more digits than they have.
    least = 1e-6 if robust else 1e-9
    for i in range(members.shape[0]):
        ridge = ridges[members[i]]
        for t in range(begins[i], ends[i]):
            rows = counts[t, COUNT]
            decay = counts[t, DECAY] if discounted else 1.0
            share = counts[t, COUNT_SQUARED] / rows if rows > 0 else 1.0
            coefficients = _coefficients(counts[t], variance[t], decay, ridge)
            freedom = rows - coefficients * share
            degrees[t, ROWS] = rows
            degrees[t, COEFFICIENTS] = coefficients
            degrees[t, SQUARED] = counts[t, COUNT_SQUARED]
            if robust:
                rows = counts[t, WEIGHT]
                freedom = rows - counts[t, USED]
                for j in range(d):
                    if math.isfinite(sandwich[t, j]):
                        freedom -= decay * ridge[j] * sandwich[t, j]
            for target in range(m):
                penalty = 0.0
                for j in range(d):
                    penalty += ridge[j] * coef[t, target, j] ** 2
                squares = max(loss[t, target] - decay * penalty, 0.0)
                residual_squares[t, target] = squares
                estimate = sigma2[t, target]
                if not math.isfinite(estimate):  # not known beforehand
                    estimate = squares / freedom if freedom > least * rows else math.inf
                    sigma2[t, target] = estimate
                if not math.isfinite(estimate):
                    for j in range(d):
                        stderr[t, target, j] = math.inf
                    continue
                root = math.sqrt(estimate)
                for j in range(d):  # not 0 * inf: an undetermined coefficient of a perfect fit
                    size = variance[t, j]
                    stderr[t, target, j] = root * math.sqrt(size) if size < math.inf else math.inf
                for j in range(d if robust else 0):
                    size = sandwich[t, j]
                    known = math.isfinite(variance[t, j]) and math.isfinite(size)
                    stderr[t, target, j] = root * math.sqrt(size) if known else math.inf


@kernel(forceinline=True)
def _coefficients(counts, variance, decay, ridge):
    """Compute the effective number of coefficients, ``rank - tr(Lambda P)``; P by its diagonal."""
    prior = 0.0
    for j in range(ridge.shape[0]):
        held = decay * ridge[j] * variance[j]
        held = held if held < 1.0 else 1.0
        prior += held if variance[j] < math.inf else 0.0
    return counts[RANK] - prior


def _freedom(rows: Any, coefficients: Any, squared: Any) -> Any:
    """Return degrees of freedom by Satterthwaite.

    A sum of squared residuals with weights zeta has the mean and variance of a chi-squared variable
    of ``(sum zeta)^2 / sum zeta^2`` degrees, less one for each coefficient.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        every = np.where(squared == 0, 0.0, np.square(rows) / squared)
    return np.maximum(every - coefficients, 0.0)


class Counts(NamedTuple):
    """Counts that an estimate rests on, shared by all targets of a form."""

    rows: float  # forgotten number of rows
    squared: float  # the same with squared forgetting weights
    weight: float  # forgotten sum of the sample weights
    coefficients: float  # effective number of them

    @property
    def freedom(self) -> float:
        """Degrees of freedom of sigma2: n - k at forget = 1."""
        return float(_freedom(self.rows, self.coefficients, self.squared))


def counts_of(form: Form, ridge: NDArray, discounted: bool) -> Counts:
    """Return the counts behind the statistics of a form."""
    decay = float(form.tally[DECAY]) if discounted else 1.0
    counts = np.array([*form.tally, form.rank])
    effective = float(_coefficients(counts, form.inverse_diagonal(), decay, ridge))
    rows, squared, weight = (float(counts[i]) for i in (COUNT, COUNT_SQUARED, WEIGHT))
    return Counts(rows, squared, weight, effective)


def objective_of(form: Form, target: int, ridge: NDArray, discounted: bool) -> tuple[float, float]:
    """Return two weighted sums of squares of one target: of the residuals, and of y about the
    prediction of an intercept alone (about 0 without one).
    """
    decay = float(form.tally[DECAY]) if discounted else 1.0
    penalty = float(ridge @ form.coefficients()[target] ** 2)
    residual = max(float(form.loss[target]) - decay * penalty, 0.0)
    total, mean = float(form.explained()[target] + form.loss[target]), 0.0
    if form.intercept:
        H, cross = form.moments(ridge, discounted)
        mean = float(cross[target, 0] ** 2 / H[0, 0]) if H[0, 0] > 0 else 0.0
    return residual, total if total > form.rounding_of_squares() * mean else 0.0


def squares_about_mean(
    form: Form, target: int, values: dict[int, float], ridge: NDArray, discounted: bool
) -> float:
    """Return the weighted sum of squares of y about its mean; ``values`` are those that columns
    always have (two of complex rows, of the real and of the imaginary parts).
    """
    H, cross = form.moments(ridge, discounted)
    H = H if discounted else H + np.diag(ridge)
    theta = form.coefficients()[target]
    step, penalty, weight = -theta, 0.0, form.tally[WEIGHT] / len(values)
    for column, value in values.items():
        step[column] += (mean := cross[target, column] / (value**2 * weight))
        penalty += ridge[column] * mean**2
    # The objective at the mean: that at theta, and how far it rises on the way.
    shrunk = penalty * (float(form.tally[DECAY]) if discounted else 1.0)
    total = float(form.loss[target] + step @ H @ step - shrunk)
    terms = float(np.abs(step) @ np.abs(H) @ np.abs(step)) + shrunk
    squares = float(form.explained()[target] + form.loss[target])
    # Coefficients have the rounding errors of the state, multiplied where columns are alike.
    variance = form.inverse_diagonal()
    inflation = float((form.columns[0] * np.where(variance < np.inf, variance, 0.0)).sum())
    rounding = 16 * EPS * terms + form.rounding_of_squares() * max(inflation, 1.0) * squares
    return total if total > rounding else 0.0


def statistics_of(
    form: Form, ridge: NDArray, discounted: bool, sandwich: bool, noise: NDArray
) -> tuple[NDArray, NDArray, FitArrays]:
    """Return sigma2 (m,), standard errors (m, d) of a form, the intercept's first if any, and
    what its goodness of fit is computed from, for one row.

    ``noise`` (m,) are the known noise variances, inf where they are to be estimated.
    """
    m, d = form.loss.shape[0], ridge.shape[0]
    trace = Trace.empty(1, m, d, sandwich)
    trace.write(0, form)
    sigma2, stderr, fit = noise[None].copy(), np.empty((1, m, d)), FitArrays.empty(1, m)
    statistics(trace, ridge, discounted, sigma2, stderr, fit)
    return sigma2[0], stderr[0], fit
