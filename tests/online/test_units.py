"""No estimate depends on the units of X, y or the weights: every estimator, 1e-8 to 1e8."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import olsq
from olsq import forgetting
from olsq.testing import check_estimator_stream
from olsq.testing.estimator_properties import PROPERTIES, SCALE, WEIGHTS, rescale_ridge
from olsq.testing.estimator_subject import least_squares


class InABank:
    """The second of two filters of a bank."""

    def __init__(self, **options):
        self.bank, self.ridge = olsq.FilterBank(2, **options), options["ridge"]

    def partial_fit(self, X, y, sample_weight=None):
        self.bank.ridge = self.ridge
        which = np.ones(len(X), np.int64)
        self.bank.partial_fit(X, y, sample_weight, which=which)
        self.coef_, self.intercept_ = self.bank.coef_[1], self.bank.intercept_[1]

    def __repr__(self):
        return repr(self.bank)


class InAGroup:
    """One group of several, which learned other rows before."""

    def __init__(self, **options):
        self.groups, self.ridge = olsq.GroupedLeastSquares(**options), options["ridge"]

    def partial_fit(self, X, y, sample_weight=None):
        self.groups.ridge = self.ridge
        for key, rows in (("other", slice(None, 5)), ("own", slice(None))):
            weight = None if sample_weight is None else sample_weight[rows]
            self.groups.partial_fit(X[rows], y[rows], weight, by=[key] * len(X[rows]))
        self.coef_, self.intercept_ = self.groups.coef_[1], self.groups.intercept_[1]

    def __repr__(self):
        return repr(self.groups)


class AlongAPath:
    """The last row of :func:`olsq.coefficient_path`."""

    ridge = 0.0

    def __init__(self, **options):
        self.options = options

    def partial_fit(self, X, y, sample_weight=None):
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        path = olsq.coefficient_path(X, y, sample_weight=weight, **self.options)
        self.coef_, self.intercept_ = path.coef[-1], path.intercept[-1]

    def __repr__(self):
        return f"coefficient_path({self.options})"


class Compiled:
    """One filter of :mod:`olsq.compiled`, for each target."""

    def __init__(self, ridge):
        self.ridge = ridge

    def partial_fit(self, X, y, sample_weight=None):
        self.coef_ = np.empty((y.shape[1], X.shape[1]))
        for target in range(y.shape[1]):
            state = olsq.compiled.init(X.shape[1], ridge=self.ridge)
            for x, value, weight in zip(X, y[:, target], sample_weight, strict=True):
                olsq.compiled.update(state, x, value, 0.98, weight)
            self.coef_[target] = olsq.compiled.coef(state)

    def __repr__(self):
        return f"compiled(ridge={self.ridge})"


class AtPoints(olsq.KernelLeastSquares):
    """A function instead of coefficients: its values at three points."""

    def _values(self):
        return self.predict([[0.1, 0.2, 0.3], [-0.5, 0.0, 0.5], [0.5, 0.5, -0.5]]).T

    coef_ = property(_values)


def rescale_drift(est, x, y, weight):
    """Adapt the variance of coefficients in units of that of the noise of a row of weight 1."""
    walk = forgetting.RandomWalk(est.forget.drift / (x * x * weight))
    return rescale_ridge(est.set_params(forget=walk), x, y, weight)


def rescale_trace(est, x, y, weight):
    bound = forgetting.BoundedTrace(est.forget.factor, est.forget.trace / (x * x * weight))
    return rescale_ridge(est.set_params(forget=bound), x, y, weight)


def rescale_lasso(est, x, y, weight):
    return est.set_params(alpha=est.alpha * x * y)


def rescale_constrained(est, x, y, weight):
    lower, upper = est.bounds
    return est.set_params(bounds=(lower * y / x, upper * y / x), ridge=est.ridge * x * x * weight)


def rescale_total(est, x, y, weight):
    return est.set_params(noise_ratio=est.noise_ratio * x / y)


def rescale_kernel(est, x, y, weight):
    """Leave X as it is; the values of the function at points are judged."""
    return est.set_params(ridge=est.ridge * weight)


Recursive, Robust = olsq.RecursiveLeastSquares, olsq.RobustLeastSquares

#   estimator                                             rescale                properties
TABLE = [
    *((Recursive(method=method, ridge=ridge, forget=forget), rescale_ridge, {SCALE, WEIGHTS})
      for method in ("covariance", "sqrt", "information")
      for ridge in (0.0, 0.1) for forget in (1.0, 0.98)),
    (Recursive(ridge_mode="fixed", ridge=0.1, forget=0.98), rescale_ridge, {SCALE, WEIGHTS}),
    *((Recursive(forget=strategy, ridge=0.1), rescale_ridge, {SCALE, WEIGHTS})
      for strategy in (
          forgetting.Variable(30.0), forgetting.ResetOnBreak(0.99), forgetting.Stabilised(0.98),
          forgetting.PerCoefficient([0.99, 0.98, 1.0, 0.99]))),
    *((Recursive(forget=strategy, ridge=0.1, fit_intercept=False), rescale, {SCALE, WEIGHTS})
      for strategy, rescale in (
          (forgetting.Directional(0.98), rescale_ridge),
          (forgetting.RandomWalk(0.05), rescale_drift),
          (forgetting.BoundedTrace(0.98, 4.0), rescale_trace))),
    *((olsq.RollingLeastSquares(window=window, ridge=ridge), rescale_ridge, {SCALE, WEIGHTS})
      for window in (3, 8) for ridge in (0.0, 0.1)),
    (InABank(ridge=0.1, forget=0.98), rescale_ridge, {SCALE, WEIGHTS}),
    (InABank(ridge=0.0, method="sqrt"), rescale_ridge, {SCALE, WEIGHTS}),
    (InAGroup(ridge=0.1, forget=0.98), rescale_ridge, {SCALE, WEIGHTS}),
    (AlongAPath(window=8, fit_intercept=True), rescale_ridge, {SCALE, WEIGHTS}),
    (AlongAPath(half_life=20.0, fit_intercept=True), rescale_ridge, {SCALE, WEIGHTS}),
    (Compiled(ridge=0.1), rescale_ridge, {SCALE, WEIGHTS}),
    *((Robust(loss=loss, warm_up=warm_up, forget=forget), rescale_ridge, {SCALE, WEIGHTS})
      for loss in ("huber", "student") for warm_up in (None, 0) for forget in (1.0, 0.98)),
    (olsq.ConstrainedLeastSquares(bounds=(-0.1, 0.2)), rescale_constrained, {SCALE, WEIGHTS}),
    (olsq.OnlineElasticNet(0.01, l1_ratio=1.0), rescale_lasso, {SCALE, WEIGHTS}),
    (olsq.TotalLeastSquares(0.5), rescale_total, {SCALE, WEIGHTS}),
    *((AtPoints(gamma=1.0, ridge_mode=mode, ridge=0.01, forget=0.98), rescale_kernel, {WEIGHTS})
      for mode in ("fixed", "discounted")),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "rescale", "names"),
    [
        pytest.param(*row, id=f"{number} {type(row[0]).__name__}")
        for number, row in enumerate(TABLE)
    ],
)
def test_units_change_nothing(estimator, rescale, names):
    rolling = isinstance(estimator, olsq.RollingLeastSquares)
    check_estimator_stream(
        estimator, objective=least_squares if rolling else lambda e: None, rescale=rescale,
        skip=set(PROPERTIES) - names, max_examples=0,
    )  # fmt: skip


def columns_of_all_sizes(seed, rows, kind):
    """Make well-conditioned rows of columns from 1e-6 to 1e6; and the sizes of the columns."""
    rng = np.random.default_rng([seed, rows])
    size = 10.0 ** rng.uniform(-6, 6, rng.integers(2, 6))
    Z = rng.standard_normal((rows, size.size))
    if kind == "a column begins late":
        Z[: rows // 2, 0] = 0.0
    return Z * size, Z @ rng.standard_normal(size.size) + 0.1 * rng.standard_normal(rows), size


@pytest.mark.full
@pytest.mark.parametrize("forget", [1.0, 0.98])
@pytest.mark.parametrize("ridge", [1e-9, 1e-3, 1.0])
@pytest.mark.parametrize("kind", ["white", "a column begins late"])
@pytest.mark.parametrize("door", ["estimator", "bank", "compiled"])
def test_a_ridge_far_from_the_units_costs_no_digits_for_good(door, kind, ridge, forget):
    """The covariance form against the square-root form: 9e-11 with wide bounds on entry."""
    for seed in range(12):
        for rows in (30, 300):
            X, y, size = columns_of_all_sizes(seed, rows, kind)
            options = {"ridge": ridge, "forget": forget, "fit_intercept": door != "compiled"}
            truth = Recursive(method="sqrt", **options).fit(X, y).coef_
            if door == "estimator":
                coef = Recursive(method="covariance", **options).fit(X, y).coef_
            elif door == "bank":
                bank = olsq.FilterBank(2, **options)
                coef = bank.partial_fit(X, y, which=np.ones(rows, np.int64)).coef_[1]
            else:
                state = olsq.compiled.init(len(size), ridge=ridge)
                for x, value in zip(X, y, strict=True):
                    olsq.compiled.update(state, x, value, forget, 1.0)
                coef = olsq.compiled.coef(state)
            np.testing.assert_allclose(coef * size, truth * size, rtol=0, atol=2e-12)


def with_a_faint_column(seed, power):
    """Make rows of a column, its double, one 10^power times as long, and others; and the answer.

    The least norm shares what the two have in common as 1 to 2; other coefficients are determined.
    """
    rng = np.random.default_rng([seed, -power])
    Z = rng.integers(-5, 6, (14, 5)).astype(float)
    y = rng.integers(-9, 10, 14).astype(float)
    coef, size = np.linalg.lstsq(Z, y, rcond=None)[0], np.array([1.0, 10.0**power, 1.0, 1.0, 1.0])
    truth = np.append(coef / size, 0.4 * coef[0])
    truth[0] *= 0.2
    X, order = np.column_stack([Z * size, 2 * Z[:, 0]]), rng.permutation(6)
    return X[:, order], y, truth[order]


FAINT_DOORS = {
    **{
        method: Recursive(method=method, fit_intercept=False)
        for method in ("auto", "covariance", "sqrt", "information")
    },
    "window": olsq.RollingLeastSquares(window=14, fit_intercept=False),
    "bank": InABank(ridge=0.0, fit_intercept=False),
    "group": InAGroup(ridge=0.0, fit_intercept=False),
    "path": AlongAPath(fit_intercept=False),
    "path of a window": AlongAPath(window=14, fit_intercept=False),
}


@pytest.mark.full
@pytest.mark.parametrize("power", [-10, -26, -30, -60, -100])
@pytest.mark.parametrize("door", FAINT_DOORS)
def test_a_faint_column_beside_dependent_ones(door, power):
    """Rounding errors of long columns passed for multiples of the faint one: off by 10^30."""
    for seed in range(20):
        X, y, truth = with_a_faint_column(seed, power)
        estimator = copy.deepcopy(FAINT_DOORS[door])
        estimator.partial_fit(X, y)
        np.testing.assert_allclose(estimator.coef_, truth, rtol=1e-9, atol=0, err_msg=str(seed))
