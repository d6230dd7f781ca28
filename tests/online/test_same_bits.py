"""A stream gives the same bits through every door, however it is cut, saved and loaded."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import olsq
from olsq import compiled, forgetting
from tests.compiled.loops import learn
from tests.online.state_kinds import take_apart

RLS = olsq.RecursiveLeastSquares
OPTIONS = {
    "ordinary": {},
    "no intercept": {"fit_intercept": False},
    "ridge": {"ridge": 0.5},
    "forgetting": {"forget": 0.97},
    "forgetting and ridge": {"forget": 0.9, "ridge": [0.1, 1.0, 0.0, 2.0, 0.3]},
    "sandwich": {"cov": "sandwich", "forget": 0.99},
    "half-life": {"half_life": 20},
    "fixed ridge": {"ridge_mode": "fixed", "ridge": 0.5, "forget": 0.97},
    "fixed ridge of some": {
        "ridge_mode": "fixed",
        "ridge": [0.1, 1.0, 0.0, 2.0, 0.3],
        "forget": 0.9,
    },
    "fixed ridge, sandwich": {"ridge_mode": "fixed", "ridge": 0.5, "cov": "sandwich"},
    "fixed ridge, skip_target": {
        "ridge_mode": "fixed",
        "ridge": 0.5,
        "forget": 0.97,
        "missing": "skip_target",
    },
    "covariance": {"method": "covariance", "forget": 0.99},
    "sqrt": {"method": "sqrt", "forget": 0.99},
    "prior": {"prior": (np.zeros((2, 6)), np.eye(6))},
    "skip_target": {"missing": "skip_target"},
    "variable": {"forget": forgetting.Variable(20)},
    "directional": {"forget": forgetting.Directional(0.95)},
    "random walk": {"forget": forgetting.RandomWalk(0.01)},
    "bounded trace": {"forget": forgetting.BoundedTrace(0.95, 10.0)},
    "stabilised": {"forget": forgetting.Stabilised(0.95)},
    "per coefficient": {"forget": forgetting.PerCoefficient([1.0, 0.9, 0.95, 1.0, 0.99, 0.97])},
    "resetting": {"forget": forgetting.ExponentialResetting(0.95)},
    "reset on break": {"forget": forgetting.ResetOnBreak(0.95)},
}
OTHERS = {
    "rolling": olsq.RollingLeastSquares(window=40),
    "rolling, fading": olsq.RollingLeastSquares(window=40, forget=0.9),
    "rolling, ridge": olsq.RollingLeastSquares(window=40, ridge=0.5),
    "robust": olsq.RobustLeastSquares(scale_window=12, warm_up=14, forget=0.98),
    "constrained": olsq.ConstrainedLeastSquares(bounds=(0.0, np.inf), forget=0.98),
    "elastic net": olsq.OnlineElasticNet(alpha=0.01, forget=0.98),
    "total": olsq.TotalLeastSquares(),
}  # the kernel of rows and points is a product by BLAS, whose bits are those of the call's length
ESTIMATORS = {name: RLS(**options) for name, options in OPTIONS.items()} | OTHERS
ONE_TARGET = (
    "robust",
    "constrained",
    "elastic net",
    "total",
    "variable",
    "reset on break",
)
WITHOUT_RESIDUALS = ("constrained", "elastic net", "total")
STREAMS = ["ordinary", "dummies", "huge rows", "weights", "missing", "falls silent"]


def stream(kind, n=230):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 5))
    if kind == "dummies":
        X[:, :4] = np.eye(4)[rng.integers(0, 4, n)]
    if kind == "huge rows":
        X[rng.integers(0, n, 4)] *= 1e9
    if kind == "falls silent":
        X[60:, 3] = 0.0
    Y = X @ rng.standard_normal((5, 2)) + rng.standard_normal((n, 2))
    weights = rng.choice([0.0, 1.0, 0.5, 3.0], n) if kind == "weights" else None
    if kind == "missing":
        Y[rng.random(n) < 0.2] = np.nan
    return X, Y, weights


def state_of(estimator):
    """Everything that a file holds, except the residuals of the last call."""
    header, data = take_apart(estimator.to_bytes())
    arrays = {}
    for array in header.pop("arrays"):
        size = int(np.prod(array["shape"])) * np.dtype(array["dtype"]).itemsize
        arrays[array["name"]] = data[array["offset"] : array["offset"] + size]
    arrays.pop("last_residual", None)
    return header, arrays


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_calls_of_any_length_leave_the_same_bits(name, kind):
    X, Y, weights = stream(kind)
    Y = Y[:, 0] if name in ONE_TARGET else Y
    whole = copy.deepcopy(ESTIMATORS[name]).partial_fit(X, Y, weights)
    for length in (1, 7, 100):
        cuts, residual = copy.deepcopy(ESTIMATORS[name]), []
        for start in range(0, len(X), length):
            part = slice(start, start + length)
            cuts.partial_fit(X[part], Y[part], None if weights is None else weights[part])
            residual.append([] if name in WITHOUT_RESIDUALS else cuts.residual_)
            if start % 5 == 0:
                cuts = olsq.loads(cuts.to_bytes())
        if name not in WITHOUT_RESIDUALS:
            assert_array_equal(whole.residual_, np.concatenate(residual), err_msg=str(length))
        assert state_of(whole) == state_of(cuts), length


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("options", ["ordinary", "ridge", "forgetting", "sandwich", "sqrt"])
def test_groups_have_the_bits_of_estimators(options, kind):
    X, Y, weights = stream(kind)
    group = np.arange(len(X)) % 3
    bank = olsq.GroupedLeastSquares(**OPTIONS[options])
    for part in (slice(0, 100), slice(100, None)):
        own = None if weights is None else weights[part]
        bank.partial_fit(X[part], Y[part], own, by=group[part])
    for i, key in enumerate(bank.keys()):
        rows = group == key
        own = None if weights is None else weights[rows]
        est = RLS(**OPTIONS[options]).partial_fit(X[rows], Y[rows], own)
        for name in ("coef_", "intercept_", "n_held_"):
            assert_array_equal(getattr(bank, name)[i], getattr(est, name), err_msg=name)
        # P S P is a product of three matrices, whose order of sums is BLAS's: it differs between
        # one matrix and a stack of them, as much as a row of 1e9 beside rows of 1 lets it.
        rounding = 0.0 if options != "sandwich" else 1e-9 if kind == "huge rows" else 1e-13
        for name in ("sigma2_", "coef_stderr_"):
            found, wanted = getattr(bank, name)[i], getattr(est, name)
            assert_allclose(found, wanted, rtol=rounding, err_msg=name)
        last = rows[100:]
        assert_array_equal(bank.residual_[last], est.residual_[-last.sum() :])


@pytest.mark.parametrize("forget", [1.0, 0.95])
def test_single_steps_have_the_bits_of_one_call(forget):
    X, Y, _ = stream("ordinary")
    est = RLS(forget=forget)
    for x, y in zip(X, Y[:, 0], strict=True):
        est.step(x, y)
    whole = RLS(forget=forget).fit(X, Y[:, 0])
    assert_array_equal(est.coef_, whole.coef_)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("options", ["ordinary", "no intercept", "forgetting and ridge"])
def test_filters_of_a_bank_have_the_bits_of_estimators(options, kind):
    X, Y, weights = stream(kind)
    bank, est = olsq.FilterBank(3, **OPTIONS[options]), RLS(**OPTIONS[options])
    for start in range(0, len(X), 23):
        part = slice(start, start + 23)
        own = () if weights is None else (weights[part],)
        many = (np.repeat(array[part][None], 3, axis=0) for array in (X, Y))
        bank.partial_fit(*many, *(np.repeat(array[None], 3, axis=0) for array in own))
        est.partial_fit(X[part], Y[part], *own)
    for name in ("coef_", "sigma2_", "n_held_"):
        for found in getattr(bank, name):
            assert_array_equal(found, getattr(est, name), err_msg=name)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("options", ["ordinary", "forgetting"])
def test_paths_by_key_have_the_bits_of_paths(options, kind):
    X, Y, weights = stream(kind)
    group = np.arange(len(X)) % 3
    path = olsq.coefficient_path(X, Y, by=group, sample_weight=weights, **OPTIONS[options])
    for key in range(3):
        rows = group == key
        own = None if weights is None else weights[rows]
        one = olsq.coefficient_path(X[rows], Y[rows], sample_weight=own, **OPTIONS[options])
        for name in ("coef", "intercept", "residual"):
            assert_array_equal(getattr(path, name)[rows], getattr(one, name), err_msg=name)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("forget", [1.0, 0.97])
def test_polars_has_the_bits_of_a_path(forget, kind):
    pl = pytest.importorskip("polars")
    pytest.importorskip("olsq.polars")
    X, Y, weights = stream(kind)
    # With statistics, coefficients are carried from row to row together with variances.
    options = {"sample_weight": weights, "forget": forget, "statistics": False}
    path = olsq.coefficient_path(X, Y[:, 0], **options)
    names = [f"x{k}" for k in range(5)]
    frame = pl.DataFrame(dict(zip(names, X.T, strict=True)) | {"y": Y[:, 0], "w": weights})
    own = {"forget": forget, "sample_weight": None if weights is None else "w"}
    target = pl.col("y").fill_nan(None).olsq
    found = frame.select(
        target.rls(*names, **own).alias("coef"),
        target.rls(*names, **own, output="residual").alias("residual"),
    )
    assert_array_equal(found["coef"].struct.unnest().select(names).to_numpy(), path.coef)
    assert_array_equal(found["residual"].to_numpy(), path.residual)


@pytest.mark.parametrize("kind", [kind for kind in STREAMS if kind != "missing"])
@pytest.mark.parametrize("forget", [1.0, 0.97])
def test_compiled_loops_have_the_bits_of_an_estimator(forget, kind):
    X, Y, weights = stream(kind)
    n, ones = len(X), np.ones(len(X))
    _, _, residual = learn(
        compiled.init(5, ridge=0.0),
        X,
        np.ascontiguousarray(Y[:, 0]),
        np.full(n, forget),
        ones if weights is None else weights,
    )
    est = RLS(forget=forget, fit_intercept=False).partial_fit(X, Y[:, 0], weights)
    assert_array_equal(residual, est.residual_)
