"""Coefficients that drift: against dense Gaussian algebra, statsmodels' state-space code, books."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.tsa.statespace.mlemodel import MLEModel

import olsq
from olsq.datasets import nile, us_macro
from olsq.drift.data import Data
from olsq.drift.kernels import Rows
from olsq.drift.likelihood import BLOCK, evaluate, most_likely_drift, score, smooth
from olsq.online.rows.frames import Labels


class Dense(NamedTuple):
    """The model's numbers from the covariance of all targets."""

    value: float
    s2: float
    coef: np.ndarray
    stderr: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def dense(Z, y, drift, *, steps=None, weights=None, s2=None, ahead=None):
    """Gaussian algebra on the whole covariance, with the first coefficients projected out.

    ``ahead`` = (regressors, time after the last row) of rows to forecast.
    """
    n, k = Z.shape
    time = np.cumsum(np.r_[0.0, np.ones(n - 1)] if steps is None else steps)
    weights = np.ones(n) if weights is None else weights
    weights = np.where(np.isfinite(y) & np.isfinite(Z).all(1), weights, 0.0)
    seen = weights > 0
    X, target = Z[seen], y[seen]
    shared = np.minimum.outer(time, time)  # variance of a walk of unit drift
    V = np.diag(1 / weights[seen])
    for j in range(k):
        V += drift[j] * shared[np.ix_(seen, seen)] * np.outer(X[:, j], X[:, j])
    inverse = np.linalg.inv(V)
    S = X.T @ inverse @ X
    start = np.linalg.solve(S, X.T @ inverse @ target)
    e = target - X @ start
    left, loss = seen.sum() - k, e @ inverse @ e
    s2 = loss / left if s2 is None else s2
    logs = np.linalg.slogdet(V)[1] + np.linalg.slogdet(S)[1]
    value = -0.5 * (left * np.log(2 * np.pi * s2) + logs + loss / s2)

    def coefficients(at):
        """Mean and covariance, in units of s2, of the coefficients at one time."""
        with_y = drift[:, None] * np.minimum(at, time[seen]) * X.T
        gain = np.eye(k) - with_y @ inverse @ X
        covariance = np.diag(drift * at) - with_y @ inverse @ with_y.T
        return start + with_y @ inverse @ e, covariance + gain @ np.linalg.inv(S) @ gain.T

    all_rows = [coefficients(at) for at in time]
    coef = np.array([mean for mean, _ in all_rows])
    stderr = np.sqrt(s2 * np.array([np.diag(P) for _, P in all_rows]))
    mean, std = [], []
    for x, later in zip(*(ahead or ([], [])), strict=True):
        theta, P = coefficients(time[-1] + later)
        mean.append(x @ theta)
        std.append(np.sqrt(s2 * (1 + x @ P @ x)))
    return Dense(value, s2, coef, stderr, np.array(mean), np.array(std))


def walking(n=60, d=2, seed=0, sizes=(0.3, 0.0, 0.5)):
    """X (n, d) and y (n,) with an intercept; sizes of the steps, the intercept's first."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + np.eye(1, d)
    theta = np.cumsum(rng.standard_normal((n, d + 1)) * sizes, axis=0) + 2.0
    return X, theta[:, 0] + (X * theta[:, 1:]).sum(1) + rng.standard_normal(n)


DRIFT = np.array([0.1, 0.0, 0.3])


def with_missing():
    X, y = walking()
    X, y = X.copy(), y.copy()
    y[[0, 7, 8, 59]] = np.nan
    X[[1, 20], 1] = np.nan
    return X, y


def irregular(n=60):
    times = np.cumsum(np.random.default_rng(1).exponential(2.0, n))
    times[10] = times[11]  # two rows at one time
    return times


WEIGHTS = np.random.default_rng(2).choice([0.0, 0.5, 3.0], 60)
HOURS = np.datetime64("2026-03-01T00") + np.sort(np.random.default_rng(3).integers(0, 999, 60))
CASES = {
    "rows": lambda: (*walking(), DRIFT, {}, {}),
    "no intercept": lambda: (*walking(), DRIFT[1:], {"fit_intercept": False}, {}),
    "all constant": lambda: (*walking(), 0 * DRIFT, {}, {}),
    "fast drift": lambda: (*walking(), np.array([50.0, 1e3, 1e-9]), {}, {}),
    "noise known": lambda: (*walking(), DRIFT, {"noise": 2.5}, {"s2": 2.5}),
    "missing": lambda: (*with_missing(), DRIFT, {}, {}),
    "weights": lambda: (*walking(), DRIFT, {"sample_weight": WEIGHTS}, {"weights": WEIGHTS}),
    "times": lambda: (
        *with_missing(), DRIFT, {"times": irregular()},
        {"steps": np.diff(irregular(), prepend=irregular()[0])},
    ),
    "dates": lambda: (
        *walking(), DRIFT, {"times": HOURS, "per": "12h"},
        {"steps": np.diff(HOURS, prepend=HOURS[0]).astype(float) / 12},
    ),
    "blocks": lambda: (*walking(2 * BLOCK + 40), DRIFT, {}, {}),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_equals_dense_gaussian_algebra(case):
    X, y, drift, options, known = CASES[case]()
    fit = olsq.time_varying(X, y, drift=drift, **options)
    first = options.get("fit_intercept", True)
    Z = np.column_stack([np.ones(len(y)), X]) if first else X
    rng = np.random.default_rng(5)
    new, later = rng.standard_normal((4, X.shape[1])), np.arange(1.0, 5.0)
    ahead = {}
    if "times" in options:
        later, unit = np.array([0.0, 1.0, 1.0, 7.5]), 1.0
        if case == "dates":
            later = np.array([0.0, 6.0, 6.0, 36.0]) / 12
            ahead["times"] = HOURS[-1] + np.array([0, 6, 6, 36])
        else:
            ahead["times"] = options["times"][-1] + later * unit
    new_Z = np.column_stack([np.ones(4), new]) if first else new
    true = dense(Z, y, drift, ahead=(new_Z, later), **known)
    assert fit.log_likelihood == pytest.approx(true.value, rel=1e-11)
    assert fit.noise == pytest.approx(true.s2, rel=1e-11)
    coef = np.column_stack([fit.intercept, fit.coef]) if first else fit.coef
    stderr = np.column_stack([fit.intercept_stderr, fit.stderr]) if first else fit.stderr
    np.testing.assert_allclose(coef, true.coef, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(stderr, true.stderr, rtol=1e-8)
    mean, std = fit.forecast(new, **ahead)
    np.testing.assert_allclose(mean, true.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std, true.std, rtol=1e-8)
    np.testing.assert_allclose(fit.filtered.coef[-1], fit.coef[-1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(fit.filtered.stderr[-1], fit.stderr[-1], rtol=1e-8)


@pytest.mark.parametrize("case", ["rows", "fast drift", "missing", "weights", "times"])
def test_filtered_is_the_fit_to_the_rows_so_far(case):
    """The kernels here against the filter of RandomWalk, from the first determined row on."""
    X, y, drift, options, _ = CASES[case]()
    fit = olsq.time_varying(X, y, drift=drift, **options)
    rows = fit._rows
    determined = 0
    for t in range(60):
        some = Rows(*(array[: t + 1] for array in rows))
        if np.linalg.matrix_rank(some.X) < 3:
            assert np.isinf(fit.filtered.stderr[t]).any()
            continue
        determined += 1
        own = evaluate(some, drift, fit.noise)
        coef, variance = smooth(some, drift, own)
        there = fit.filtered
        expected = np.concatenate([[there.intercept[t]], there.coef[t]])
        usable = fit._data.usable
        constant = olsq.RecursiveLeastSquares().fit(X[usable], y[usable], fit._data.weights[usable])
        coef = coef[-1] + [constant.intercept_, *constant.coef_]
        np.testing.assert_allclose(expected, coef, rtol=1e-7, atol=1e-8)
        errors = np.concatenate([[there.intercept_stderr[t]], there.stderr[t]])
        np.testing.assert_allclose(errors, np.sqrt(fit.noise * variance[-1]), rtol=1e-7)
    assert determined > 50
    assert (np.isnan(fit.filtered.residual) == ~fit._data.usable).all()


@pytest.mark.parametrize("case", ["rows", "missing", "weights", "times"])
def test_scores_are_derivatives(case):
    X, y, drift, options, known = CASES[case]()
    drift = np.maximum(drift, 1e-3)
    rows = olsq.time_varying(X, y, drift=drift, **options)._rows
    Z = np.column_stack([np.ones(len(y)), X])
    for noise in (None, 1.7):
        found = score(rows, evaluate(rows, drift, noise))
        for j in range(3):
            step = 1e-5 * drift[j] * np.eye(3)[j]
            up, down = (
                dense(Z, y, drift + sign * step, **{**known, "s2": noise}).value for sign in (1, -1)
            )
            assert found[j] == pytest.approx((up - down) / (2 * step[j]), rel=1e-5, abs=1e-6)


class StateSpace(MLEModel):
    """The same model in statsmodels: parameters are the noise's variance and those of the steps."""

    def __init__(self, y, Z):
        k = Z.shape[1]
        super().__init__(y, k_states=k, initialization="diffuse")
        self.ssm["design"] = Z.T[None]
        self.ssm["transition"] = self.ssm["selection"] = np.eye(k)
        self._k = k

    @property
    def start_params(self):
        return np.r_[np.nanvar(self.endog) / 2, np.full(self._k, 0.01)]

    def transform_params(self, unconstrained):
        return unconstrained**2

    def untransform_params(self, constrained):
        return np.sqrt(constrained)

    def update(self, params, **options):
        params = super().update(params, **options)
        self.ssm["obs_cov", 0, 0] = params[0]
        self.ssm["state_cov"] = np.diag(params[1:])


@pytest.mark.parametrize("gaps", [False, True])
def test_equals_statsmodels_at_the_same_parameters(gaps):
    X, y = with_missing() if gaps else walking()
    X = np.nan_to_num(X) if gaps else X  # statsmodels takes no hole in the design
    Z = np.column_stack([np.ones(60), X])
    fit = olsq.time_varying(X, y, drift=DRIFT, noise=1.3)
    theirs = StateSpace(y, Z).smooth(np.r_[1.3, 1.3 * DRIFT])
    # There the rows that determine the start count log 2 pi, in Durbin and Koopman's 7.2 they do
    # not: the same constant for any parameters.
    constant = 0.5 * 3 * np.log(2 * np.pi)
    assert fit.log_likelihood - constant == pytest.approx(theirs.llf, rel=1e-12)
    ours = np.column_stack([fit.intercept, fit.coef])
    np.testing.assert_allclose(ours, theirs.smoothed_state.T, rtol=1e-9, atol=1e-9)
    errors = np.sqrt(np.diagonal(theirs.smoothed_state_cov))
    ours = np.column_stack([fit.intercept_stderr, fit.stderr])
    np.testing.assert_allclose(ours, errors, rtol=1e-9)


def test_maximum_is_that_of_statsmodels():
    X, y = walking(150, seed=4)
    Z = np.column_stack([np.ones(150), X])
    fit = olsq.time_varying(X, y)
    theirs = StateSpace(y, Z).fit(disp=False, maxiter=500, method="lbfgs")
    ours = np.r_[fit.noise, fit.noise * fit.drift]
    model = StateSpace(y, Z)
    assert model.loglike(ours) >= theirs.llf - 1e-6
    np.testing.assert_allclose(ours, theirs.params, rtol=2e-3, atol=1e-3)


def test_nile_is_that_of_durbin_and_koopman():
    """Durbin & Koopman 2012, section 2.10.3: 15099 and 1469.1."""
    fit = olsq.time_varying(np.ones((100, 1)), nile()["volume"], fit_intercept=False)
    assert fit.noise == pytest.approx(15098.5, abs=0.1)
    assert fit.noise * fit.drift[0] == pytest.approx(1469.1, abs=0.2)
    assert fit.log_likelihood == pytest.approx(-632.5456, abs=1e-4)
    model = sm.tsa.UnobservedComponents(nile()["volume"], "llevel", use_exact_diffuse=True)
    theirs = model.fit(disp=False)
    ours = [fit.noise, fit.noise * fit.drift[0]]
    assert model.loglike(ours) >= theirs.llf
    assert ours == pytest.approx(theirs.params, rel=0.02)


@pytest.mark.parametrize("seed", range(12))
def test_the_maximum_is_one_also_on_the_boundary(seed):
    """Karush-Kuhn-Tucker, and no better point among random ones."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0.0, 0.03, 0.3, 2.0], 3)
    X, y = walking(120, seed=seed, sizes=sizes)
    fit = olsq.time_varying(X * [1e3, 1e-3], y)
    units = np.array([1.0, 1e6, 1e-6])
    slope = score(fit._rows, evaluate(fit._rows, fit.drift)) / units
    drift = fit.drift * units
    np.testing.assert_allclose((slope * drift)[drift > 0], 0, atol=1e-3)
    assert (slope[drift == 0] <= 1e-6).all()
    for _ in range(30):
        other = np.where(rng.random(3) < 0.3, 0.0, 10 ** rng.uniform(-5, 1, 3)) / units
        assert evaluate(fit._rows, other).value < fit.log_likelihood + 1e-6


def test_constant_coefficients_have_no_drift():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 2))
    y = X @ [1.0, 2.0] + 0.1 * rng.standard_normal(300)
    fit = olsq.time_varying(X, y)
    constant = sm.OLS(y, sm.add_constant(X)).fit()
    assert (fit.drift == 0).any()
    assert fit.likelihood_ratio().p_value > 0.1
    calm = olsq.time_varying(X, y, drift=0.0)
    np.testing.assert_allclose(np.ptp(calm.coef, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(calm.coef[0], constant.params[1:], rtol=1e-10)
    np.testing.assert_allclose(calm.stderr[7], constant.bse[1:], rtol=1e-10)
    assert calm.noise == pytest.approx(constant.scale)


def test_some_drifts_are_given_and_others_estimated():
    X, y = walking(200, seed=2)
    fit = olsq.time_varying(X, y, drift=[np.nan, 0.0, 0.2])
    assert fit.drift[1] == 0
    assert fit.drift[2] == 0.2
    assert np.ptp(fit.coef[:, 0]) < 1e-9
    slope = score(fit._rows, evaluate(fit._rows, fit.drift))
    assert abs(slope[0] * fit.drift[0]) < 1e-3
    fixed = olsq.time_varying(X, y, noise=0.5)
    assert fixed.noise == 0.5
    slope = score(fixed._rows, evaluate(fixed._rows, fixed.drift, 0.5))
    np.testing.assert_allclose((slope * fixed.drift)[fixed.drift > 0], 0, atol=1e-3)


def test_units_and_levels_do_not_matter():
    X, y = walking(150, seed=6)
    fit = olsq.time_varying(X, y)
    scaled = olsq.time_varying(X * [1e5, 1e-5], 1e6 * y + 1e9)
    np.testing.assert_allclose(scaled.drift * [1.0, 1e10, 1e-10], fit.drift, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(scaled.stderr * [0.1, 1e-11], fit.stderr, rtol=1e-3)
    assert scaled.noise == pytest.approx(1e12 * fit.noise, rel=1e-4)


def test_the_estimator_goes_on():
    X, y = walking(80, seed=3)
    fit = olsq.time_varying(X[:60], y[:60])
    walk = olsq.forgetting.RandomWalk(fit.drift)
    path = olsq.coefficient_path(X, y, forget=walk, fit_intercept=True, noise_variance=fit.noise)
    for t in range(60, 80):
        mean, std = fit.estimator.predict(X[t : t + 1], return_std=True)
        if t == 60:
            ours = fit.forecast(X[t : t + 1])
            np.testing.assert_allclose([mean, std], ours, rtol=1e-10)
        _, error = fit.estimator.step(X[t], y[t])
        assert error == pytest.approx(path.residual[t], rel=1e-9)
    np.testing.assert_allclose(fit.estimator.coef_, path.coef[-1], rtol=1e-9)


def test_groups_are_fits_of_their_own():
    X, y = walking(120, seed=8)
    by = np.arange(120) % 2
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "shop": np.where(by, "north", "south")})
    fits = olsq.time_varying(table, y, by="shop", times=np.arange(120.0))
    assert list(fits) == ["south", "north"]
    for key, rows in (("south", by == 0), ("north", by == 1)):
        alone = olsq.time_varying(X[rows], y[rows], times=np.arange(120.0)[rows])
        np.testing.assert_array_equal(fits[key].coef, alone.coef)
        assert list(fits[key].smoothed.to_frame())[:4] == ["time", "intercept", "a", "b"]
    with pytest.raises(ValueError, match="in group 7: X and y must have 4 complete rows"):
        olsq.time_varying(X, y, by=[7] * 2 + [8] * 118)
    with pytest.raises(ValueError, match="by has no label in any row"):
        olsq.time_varying(X, y, by=[None] * 120)


def test_frames_keep_their_names_and_dates():
    data = us_macro()
    dates = pd.period_range("1959Q1", periods=203, freq="Q")
    X = pd.DataFrame({"unemployment": data["unemp"]}, index=dates)
    fit = olsq.time_varying(X, pd.Series(data["infl"], index=dates))
    frame = fit.smoothed.to_frame()
    assert frame.index.equals(dates)
    assert "unemployment_stderr" in frame
    assert "unemployment" in fit.summary()
    figure = fit.plot()
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["intercept", "unemployment"]
    assert repr(fit).startswith("TimeVaryingFit(203 rows, drift=")


def test_dates_of_an_index_are_times_where_a_drift_has_a_length():
    X, y = walking(100, seed=9)
    index = pd.date_range("2026-01-01", periods=100, freq="h")
    indexed = olsq.time_varying(pd.DataFrame(X, index), y, per="2h", drift=0.2)
    given = olsq.time_varying(X, y, times=index, per="2h", drift=0.2)
    in_rows = olsq.time_varying(X, y, drift=0.1)
    np.testing.assert_allclose(indexed.coef, in_rows.coef, rtol=1e-9)
    np.testing.assert_allclose(given.coef, in_rows.coef, rtol=1e-9)
    assert list(indexed.smoothed.to_frame())[:2] == ["intercept", "0"]
    assert indexed.estimator.forget.per == "2h"


X0, Y0 = walking(20)
BAD = {
    "drift must be finite and >= 0": {"drift": [-1.0, 0.0, 0.0]},
    "drift must be a number or one for each of the 3 coefficients": {"drift": [1.0, 1.0]},
    "noise must be one number > 0": {"noise": 0.0},
    "per is a length of time, so that every row needs a time": {"per": 2.0},
    "per must be a positive number": {"times": np.arange(20.0), "per": 10**400},
    "times must not go back": {"times": np.arange(20.0)[::-1]},
    "times must hold one time for each of 20 rows": {"times": np.arange(3.0)},
    "times are numbers, but per is a length between dates": {
        "times": np.arange(20.0), "per": "1D",
    },
    "times must differ for a drift to be estimated": {"times": np.zeros(20)},
    "sample_weight must be finite and >= 0": {"sample_weight": -np.ones(20)},
    "sample_weight must be a number or one number per row": {"sample_weight": np.ones(3)},
    "by must have one label for each of the 20 rows": {"by": [1, 2]},
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments_are_named(message):
    with pytest.raises(ValueError, match=message):
        olsq.time_varying(X0, Y0, **BAD[message])


def test_bad_data_are_named():
    with pytest.raises(ValueError, match=r"X does not determine every coefficient.*x0, x1 apart"):
        olsq.time_varying(np.column_stack([X0[:, 0], 2 * X0[:, 0]]), Y0)
    with pytest.raises(ValueError, match=r"nothing tells intercept, x0 apart\. Leave a column out"):
        olsq.time_varying(np.column_stack([np.ones(20), X0]), Y0)
    with pytest.raises(ValueError, match="4 complete rows or more, for 3 coefficients and the"):
        olsq.time_varying(X0[:3], Y0[:3])
    with pytest.raises(ValueError, match="3 complete rows or more, for 3 coefficients, got 2"):
        olsq.time_varying(X0[:2], Y0[:2], noise=1.0)
    with pytest.raises(ValueError, match="y must be one target"):
        olsq.time_varying(X0, np.column_stack([Y0, Y0]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        olsq.time_varying(X0, Y0[:5])
    with pytest.raises(ValueError, match="y is fitted exactly by constant coefficients"):
        olsq.time_varying(X0, X0 @ [1.0, 2.0])
    with pytest.raises(ValueError, match="got 0: give more rows"):
        olsq.time_varying(X0, np.full(20, np.nan))
    with pytest.raises(ValueError, match="X must be real"):
        olsq.time_varying(X0 + 1j, Y0)


def test_forecasts_name_what_is_wrong():
    fit = olsq.time_varying(X0, Y0, drift=0.1)
    with pytest.raises(ValueError, match="X has 3 features"):
        fit.forecast(np.ones((1, 3)))
    with pytest.raises(ValueError, match="times are not used here"):
        fit.forecast(X0, times=np.arange(20))
    timed = olsq.time_varying(X0, Y0, drift=0.1, times=np.arange(20.0))
    with pytest.raises(ValueError, match="times must be given for the rows ahead"):
        timed.forecast(X0)
    with pytest.raises(ValueError, match="times must not lie before the last row"):
        timed.forecast(X0[:1], times=[3.0])
    with pytest.raises(ValueError, match="times must be numbers, as in the fit, got dates"):
        timed.forecast(X0[:1], times=np.array(["2026-01-01"], "M8[D]"))


def test_drift_of_silent_columns_is_predicted_through():
    """A regressor that is 0 for long says nothing there: its error grows, and no other."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    X[50:150, 1] = 0.0
    y = X @ [1.0, 2.0] + rng.standard_normal(200)
    fit = olsq.time_varying(X, y, drift=[0.0, 0.0, 0.1])
    assert fit.stderr[100, 1] > 2 * fit.stderr[20, 1]
    assert (np.abs(np.diff(fit.stderr[60:90, 0])) < 1e-9).all()


def test_likelihood_is_searched_in_the_data_that_has_times_of_any_unit():
    X, y = walking(100, seed=9)
    in_rows = olsq.time_varying(X, y)
    in_hours = olsq.time_varying(X, y, times=np.datetime64("2026-01-01T00") + np.arange(100))
    np.testing.assert_allclose(in_hours.drift / 24, in_rows.drift, rtol=1e-3, atol=1e-9)
    assert in_hours.log_likelihood == pytest.approx(in_rows.log_likelihood, abs=1e-6)
    assert in_hours.estimator.forget.per == "1D"


def test_data_says_its_names_without_a_frame():
    data = Data(np.ones((2, 1)), np.ones(2), np.ones(2), None, None, None, Labels())
    assert data.names == ["x0"]
    assert most_likely_drift(data.rows(np.zeros(1)), np.array([0.5]), None).tolist() == [0.5]
