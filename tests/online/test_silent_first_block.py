"""A first block of which no row can be learned: an estimator answers as after a row of weight 0."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import olsq
import olsq.river

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 2))
Y = X @ [1.0, -2.0] + 3.0 + 0.1 * RNG.standard_normal(30)
NOTHING = np.full((3, 2), np.nan)
PRIOR = (np.array([1.0, 2.0, -1.0]), np.array([np.inf, 1.0, 0.5]))

KINDS = {
    "covariance": lambda: olsq.RecursiveLeastSquares(forget=0.9),
    "sqrt": lambda: olsq.RecursiveLeastSquares(method="sqrt", ridge=0.0),
    "information": lambda: olsq.RecursiveLeastSquares(method="information", residuals=False),
    "fixed": lambda: olsq.RecursiveLeastSquares(ridge_mode="fixed", forget=0.9),
    "sandwich": lambda: olsq.RecursiveLeastSquares(cov="sandwich"),
    "by target": lambda: olsq.RecursiveLeastSquares(missing="skip_target"),
    "prior": lambda: olsq.RecursiveLeastSquares(prior=PRIOR),
    "strategy": lambda: olsq.RecursiveLeastSquares(forget=olsq.forgetting.Directional(0.9)),
    "rolling": lambda: olsq.RollingLeastSquares(12),
    "rolling positions": lambda: olsq.RollingLeastSquares(12, window_of="positions"),
    "rolling few": lambda: olsq.RollingLeastSquares(12, min_samples=4),
    "robust": olsq.RobustLeastSquares,
    "constrained": lambda: olsq.ConstrainedLeastSquares(bounds=(0.0, np.inf)),
    "elastic net": lambda: olsq.OnlineElasticNet(0.1),
    "total": olsq.TotalLeastSquares,
    "kernel": olsq.KernelLeastSquares,
}
ATTRIBUTES = [
    "coef_", "intercept_", "dual_coef_", "n_samples_seen_", "sigma2_", "coef_stderr_",
    "intercept_stderr_", "rank_", "determined_", "n_held_", "n_features_in_", "metadata_",
]  # fmt: skip


def answers(est):
    """Read every attribute and prediction, or the error that it gives."""
    found = {}
    for name in (*ATTRIBUTES, "predict", "leverage", "predict_interval"):
        try:
            value = getattr(est, name)
            found[name] = value(X[:2]) if callable(value) else value
        except (AttributeError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def same(found, wanted, rtol=1e-9):
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        if isinstance(value, (str, dict)):
            assert value == wanted[name], name
        else:
            np.testing.assert_allclose(value, wanted[name], rtol=rtol, atol=1e-12, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_like_a_row_of_weight_0(kind):
    est = KINDS[kind]().partial_fit(NOTHING, np.ones(3))
    weightless = KINDS[kind]()
    if kind != "kernel":  # whose row of weight 0 joins the dictionary
        forget = {} if kind == "strategy" or "rolling" in kind else {"forget": 1.0}
        weightless.partial_fit(np.ones((3, 2)), np.ones(3), np.zeros(3), **forget)
        same(answers(est), answers(weightless))
    before = answers(est)
    for other in (olsq.loads(est.to_bytes()), pickle.loads(pickle.dumps(est)), copy.copy(est)):
        same(answers(other), before)
        other.partial_fit(NOTHING, np.ones(3))
        same(answers(other), before)
        other.partial_fit(X, Y)
        same(answers(other), answers(KINDS[kind]().partial_fit(X, Y)), 1e-9)
    same(answers(est), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_may_begin_with_it(kind):
    """Row by row and with paths, as what reads a sensor that is offline does."""
    est = KINDS[kind]()
    prediction, residual = est.step(NOTHING[0], 1.0)
    assert np.isnan([prediction, residual]).all()
    _, residual = est.step(X[0], np.nan)
    assert np.isnan(residual)
    for x, y in zip(X, Y, strict=True):
        prediction, residual = est.step(x, y)
        if kind != "total":  # NaN until the rows determine it
            np.testing.assert_allclose(prediction + residual, y)
    fresh = KINDS[kind]()
    for x, y in zip(X, Y, strict=True):
        fresh.step(x, y)
    same(answers(est), answers(fresh))
    if kind in ("robust", "kernel", "total"):  # no path; NaN until the rows determine it
        return
    est, blocks = KINDS[kind](), [(NOTHING, np.ones(3)), (X[:10], Y[:10]), (X[10:], Y[10:])]
    paths = [est.partial_fit_path(*block) for block in blocks]
    assert np.isnan(paths[0].residual).all()
    whole = KINDS[kind]().partial_fit_path(np.vstack([NOTHING, X]), np.append(np.ones(3), Y))
    for name, array in whole._asdict().items():
        found = np.concatenate([getattr(path, name) for path in paths])
        atol = 1e-6 if kind == "float32" else 1e-9
        np.testing.assert_allclose(found, array, rtol=1e-6, atol=atol, err_msg=name)
    with pytest.raises(ValueError, match="no row is left"):
        KINDS[kind]().fit(NOTHING, np.ones(3))


@pytest.mark.parametrize("kind", ["covariance", "sqrt", "information", "rolling", "robust"])
def test_it_merges_like_any_other(kind):
    silent = KINDS[kind]().partial_fit(NOTHING, np.ones(3))
    learned = KINDS[kind]().partial_fit(X, Y)
    for both in (olsq.merge(silent, learned), olsq.merge(learned, silent)):
        np.testing.assert_allclose(both.coef_, learned.coef_, rtol=1e-8)
        assert both.n_samples_seen_ == 30


@pytest.mark.parametrize("half_life", [3.0, "3min"])
def test_times_of_skipped_rows_are_kept(half_life):
    times = np.arange(33.0)
    if isinstance(half_life, str):
        times = np.datetime64("2026-01-01") + times.astype(int) * np.timedelta64(1, "m")
    est = olsq.RecursiveLeastSquares(half_life=half_life)
    est.partial_fit(NOTHING, np.ones(3), times=times[:3])
    est = olsq.loads(est.to_bytes())
    with pytest.raises(ValueError, match="times must not go back"):
        est.partial_fit(X, Y, times=times[:30])
    est.partial_fit(X, Y, times=times[3:])
    whole = olsq.RecursiveLeastSquares(half_life=half_life).fit(X, Y, times=times[3:])
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-10)


def test_a_refused_first_block_still_leaves_nothing():
    est = olsq.RecursiveLeastSquares(missing="raise")
    for call in (lambda: est.partial_fit(NOTHING, np.ones(3)),
                 lambda: est.set_params(missing="skip").partial_fit(NOTHING, np.ones(2)),
                 lambda: est.partial_fit(NOTHING, np.ones(3), -np.ones(3))):  # fmt: skip
        with pytest.raises(ValueError):
            call()
        assert not hasattr(est, "coef_")
    with pytest.raises(ValueError, match="no row is left"):
        olsq.coefficient_path(NOTHING, np.ones(3))


def test_a_bank_and_groups():
    bank = olsq.FilterBank(3, forget=0.9).partial_fit(NOTHING, np.ones(3))
    bank = olsq.loads(bank.to_bytes())
    prediction, residual = olsq.FilterBank(3).step(NOTHING, np.ones(3))
    assert np.isnan([prediction, residual]).all()
    bank.partial_fit(X[:3], Y[:3])
    np.testing.assert_allclose(bank.coef_, olsq.FilterBank(3).partial_fit(X[:3], Y[:3]).coef_)
    for by in (["a", "b", "a"], [None, None, None]):
        groups = olsq.GroupedLeastSquares().partial_fit(NOTHING, np.ones(3), by=by)
        for other in (olsq.loads(groups.to_bytes()), copy.copy(groups),
                      olsq.merge(groups, groups)):  # fmt: skip
            assert other.keys() == [key for key in dict.fromkeys(by) if key]
            assert other.coef_.shape == (len(other), 2)
            labels = np.where(np.arange(30) % 2, "a", "c")
            other.partial_fit(X, Y, by=labels)
            fresh = olsq.GroupedLeastSquares().partial_fit(X, Y, by=labels)
            np.testing.assert_allclose(other["c"].coef_, fresh["c"].coef_, rtol=1e-9)
            np.testing.assert_allclose(other["a"].coef_, fresh["a"].coef_, rtol=1e-9)


def test_river():
    model = olsq.river.RecursiveLeastSquares()
    model.learn_one({"a": np.nan}, 1.0)
    assert model.weights == {"a": 0.0}
    assert olsq.loads(model.estimator.to_bytes()).coef_.tolist() == [0.0]
    fresh = olsq.river.RecursiveLeastSquares()
    for row, y in zip(X, Y, strict=True):
        for each in (model, fresh):
            each.learn_one({"a": row[0], "b": row[1]}, y)  # "b" is new
    assert model.predict_one({"a": 1.0, "b": 2.0}) == pytest.approx(
        fresh.predict_one({"a": 1.0, "b": 2.0}), rel=1e-9
    )


@pytest.mark.full
@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("d", [1, 3])
def test_forgetting_goes_on_after_a_reset_at_a_silent_row(d, ridge):
    """Old columns that the rows since a reset do not excite have nothing that could be held."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((12, d)), rng.standard_normal(12)
        gates = rng.choice([0.5, 0.9, 1.0], 12)
        reset = int(rng.integers(1, 6))
        gates[reset] = 0.0
        X[reset] = 0.0
        X[reset + 1 : reset + 3, 0] = 0.0
        weights = np.append(np.cumprod(gates[:reset:-1])[::-1], 1.0)  # of the rows since
        root = np.sqrt(weights)
        theta, loss = np.linalg.lstsq(root[:, None] * X[reset:], root * y[reset:], rcond=None)[:2]
        rows, squared = weights.sum(), (weights**2).sum()
        sigma2 = loss[0] / (rows - d * squared / rows)  # tr(W) - tr(P X^T W^2 X), on average
        for method in ("sqrt", "information", "covariance"):
            given = {"method": method, "ridge": ridge, "fit_intercept": False}
            est = olsq.RecursiveLeastSquares(**given).partial_fit(X, y, forget=gates)
            path = olsq.coefficient_path(X, y, forget=gates, **given)
            np.testing.assert_allclose(est.coef_, theta, rtol=1e-9)
            assert est.sigma2_ == pytest.approx(path.sigma2[-1], rel=1e-9)
            assert est.sigma2_ == pytest.approx(sigma2, rel=1e-9), (method, seed)
        fed = olsq.RecursiveLeastSquares(residuals=False, **given | {"method": "information"})
        assert fed.partial_fit(X, y, forget=gates).sigma2_ == pytest.approx(sigma2, rel=1e-9)
