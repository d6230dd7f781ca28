"""Claims of every variant: scikit-learn's contract, files, merging, missing rows, refusals."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import olsq
from olsq.online.files import format as files

ROBUST = olsq.RobustLeastSquares(loss="student", forget=0.98, warm_up=0)
WARM = olsq.RobustLeastSquares(scale_window=30, warm_up=45)
CONSTRAINED = olsq.ConstrainedLeastSquares(bounds="nonnegative", forget=0.98)
EQUALITY = olsq.ConstrainedLeastSquares(equality=([[1.0, 1.0, 1.0]], [1.0]), bounds=(-0.5, 2.0))
SPARSE = olsq.OnlineElasticNet(0.05, forget=0.98)
TOTAL = olsq.TotalLeastSquares([1.0, 0.0, 2.0], forget=0.98)
KERNEL = olsq.KernelLeastSquares(gamma=0.3, threshold=0.1, forget=0.98, fit_intercept=True)
VARIANTS = [ROBUST, WARM, CONSTRAINED, EQUALITY, SPARSE, TOTAL, KERNEL]
# A weighted row passes once, with one residual; a repeated one passes again, and is judged again.
IN_PASSING = {
    "check_sample_weight_equivalence_on_dense_data": "a row is weighted by its residual in passing"
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (olsq.RobustLeastSquares(), {}),
        (olsq.RobustLeastSquares(ridge=1e-3), IN_PASSING),
        (olsq.ConstrainedLeastSquares(bounds="nonnegative"), {}),
        (olsq.OnlineElasticNet(0.1), {}),
        (olsq.TotalLeastSquares(), {}),
        (olsq.KernelLeastSquares(), {}),
    ],
    ids=repr,
)
def test_scikit_learns_checks(estimator, expected):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        found = check_estimator(
            estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
        )
    assert [r["check_name"] for r in found if r["status"] == "failed"] == []
    assert {r["check_name"] for r in found if r["status"] == "xfail"} == set(expected)
    assert {r["check_name"] for r in found if r["status"] == "skipped"} <= {"check_array_api_input"}


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = X @ [0.5, -0.2, 1.0] + 2 + 0.1 * rng.standard_normal(n)
    return X, y, rng.uniform(0.1, 2.0, n)


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_a_file_and_copies_continue_bit_for_bit(estimator, tmp_path):
    X, y, w = data()
    est = clone(estimator).fit(X[:40], y[:40], w[:40])
    _ = est.predict(X[:1])
    est.save(tmp_path / "state.olsq", metadata={"rows": 40})
    others = [olsq.load(tmp_path / "state.olsq"), copy.copy(est), pickle.loads(pickle.dumps(est))]
    assert others[0].metadata_ == {"rows": 40}
    est.partial_fit(X[40:], y[40:], w[40:])
    for other in others:
        assert other.n_samples_seen_ == 40
        other.partial_fit(X[40:], y[40:], w[40:])
        np.testing.assert_array_equal(other.predict(X), est.predict(X))
    header, arrays = files.read(tmp_path / "state.olsq")
    for name in arrays:  # a state that is not what the parameters make is refused
        damaged = dict(arrays)
        damaged[name] = np.zeros((7, 7))
        files.write(tmp_path / "damaged.olsq", header, damaged)
        with pytest.raises(olsq.StateFileError):
            olsq.load(tmp_path / "damaged.olsq")


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_merging(estimator):
    X, y, w = data()
    first = clone(estimator).fit(X[:30], y[:30], w[:30])
    second = clone(estimator).fit(X[30:], y[30:], w[30:])
    if isinstance(estimator, olsq.KernelLeastSquares):
        with pytest.raises(ValueError, match="different dictionaries"):
            olsq.merge(first, second)
        return
    both = olsq.merge(first, second)
    assert both.n_samples_seen_ == 60
    if isinstance(estimator, olsq.RobustLeastSquares):  # with the weights that the rows got
        weights = w * np.concatenate([first.weights_, second.weights_])
        plain = olsq.RecursiveLeastSquares(forget=estimator.forget, method="sqrt")
        want = plain.fit(X, y, weights)
        np.testing.assert_allclose(both.coef_, want.coef_, rtol=1e-10)
        residuals = np.abs(np.concatenate([first.residual_, second.residual_]))
        assert both.scale_ == pytest.approx(np.median(residuals), rel=0.5)
    else:
        whole = clone(estimator).fit(X, y, w)
        np.testing.assert_allclose(both.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(both.intercept_, whole.intercept_, rtol=1e-8)
    both.partial_fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept differs"):
        olsq.merge(first, clone(estimator).set_params(fit_intercept=False).fit(X, y))


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_a_cut_a_hole_and_a_weight_of_zero_change_nothing(estimator):
    X, y, w = data()
    want = clone(estimator).fit(X, y, w).predict(X)
    holes, missing = np.insert(X, [10, 20], np.nan, axis=0), np.insert(y, [10, 20], 1.0)
    missing[30] = np.inf
    est = clone(estimator)
    est.partial_fit(np.full((2, 3), np.nan), [1.0, 2.0])  # as if it had not come
    predicted = est.partial_fit(holes, missing, np.insert(w, [10, 20], 1.0)).predict(X)
    less = clone(estimator).fit(np.delete(X, 28, 0), np.delete(y, 28), np.delete(w, 28))
    np.testing.assert_allclose(predicted, less.predict(X), rtol=1e-9, atol=1e-9)
    est = clone(estimator)
    for part in (slice(0, 1), slice(1, 25), slice(25, 25), slice(25, 60)):
        est.partial_fit(X[part], y[part], w[part])
        _ = est.predict(X[:1])  # the next solution starts here
    np.testing.assert_allclose(est.predict(X), want, rtol=1e-8, atol=1e-9)
    zero = clone(estimator).set_params(forget=1.0).fit(X, y, w)
    before = zero.predict(X)
    zero.partial_fit(1e3 * X, y, np.zeros(60))
    np.testing.assert_allclose(zero.predict(X), before, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="contains NaN"):
        clone(estimator).set_params(missing="raise").fit(holes, missing)


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_resets_half_lives_and_steps(estimator):
    X, y, _ = data()
    est = clone(estimator).fit(100 * X, y)
    est.partial_fit(X, y, forget=np.append(0.0, np.ones(59)))  # forgets all of it
    fresh = clone(estimator).set_params(forget=1.0)
    if "ridge" in fresh.get_params():
        fresh.set_params(ridge=0.0)
    if not isinstance(estimator, olsq.KernelLeastSquares):  # whose dictionary stays
        np.testing.assert_allclose(est.predict(X), fresh.fit(X, y).predict(X), rtol=1e-5, atol=1e-5)
    halved = clone(estimator).set_params(forget=1.0, half_life=20).fit(X, y)
    same = clone(estimator).set_params(forget=0.5 ** (1 / 20)).fit(X, y)
    np.testing.assert_allclose(halved.predict(X), same.predict(X), rtol=1e-12)
    in_time = clone(estimator).set_params(forget=1.0, half_life="20D")
    in_time.fit(X, y, times=pd.date_range("2024", periods=60))
    factors = np.append(1.0, np.full(59, 0.5 ** (1 / 20)))  # no time passes before the first row
    same = clone(estimator).partial_fit(X, y, forget=factors)
    np.testing.assert_allclose(in_time.predict(X), same.predict(X), rtol=1e-9)
    whole = clone(estimator).fit(X[:59], y[:59])
    prediction, residual = whole.step(X[59], y[59])
    assert prediction == pytest.approx(clone(estimator).fit(X[:59], y[:59]).predict(X[59:])[0])
    assert residual == pytest.approx(y[59] - prediction)


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_targets_float32_and_frames(estimator):
    X, y, _ = data()
    Y = np.column_stack([y, 3 - y])
    est = clone(estimator).fit(X, Y)
    assert est.predict(X).shape == (60, 2)
    single = clone(estimator).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict(X), clone(estimator).fit(X, y).predict(X), atol=1e-3)
    frame = pd.DataFrame(X, columns=list("abc"))
    named = clone(estimator).set_output(predict="input").fit(frame, pd.Series(y, name="t"))
    assert list(named.feature_names_in_) == list("abc")
    assert named.predict(frame).name == "t"


@pytest.mark.parametrize("estimator", VARIANTS, ids=repr)
def test_what_does_not_hold_is_not_there(estimator):
    X, y, _ = data()
    est = clone(estimator).fit(X, y)
    for name in ("coef_stderr_", "sigma2_", "summary", "predict_interval", "leverage", "t_test"):
        assert not hasattr(est, name)
        assert not hasattr(type(est), name)
        with pytest.raises(AttributeError, match="standard errors of least squares do not hold"):
            getattr(est, name)
    with pytest.raises(AttributeError, match="not fitted yet"):
        _ = clone(estimator).intercept_
    with pytest.raises(AttributeError, match="no attribute 'coefs'"):
        _ = est.coefs
    if est._walk is not None:
        assert np.isnan(clone(est).partial_fit_path(X, y).stderr).all()
    else:
        with pytest.raises(NotImplementedError, match="loop over the rows"):
            est.partial_fit_path(X, y)
    if not est.RESIDUALS:
        with pytest.raises(AttributeError, match=r"step\(x, y\) returns them"):
            _ = est.residual_
    with pytest.raises(ValueError, match="fit_intercept is"):
        est.set_params(fit_intercept=not est.fit_intercept).partial_fit(X, y)


def test_what_only_reading_depends_on_may_change_between_rows():
    X, y, w = data()
    for estimator, other in (
        (SPARSE, {"alpha": 0.3, "l1_ratio": 1.0}),
        (EQUALITY, {"equality": None, "bounds": (np.zeros(3), 0.4)}),
        (TOTAL, {"noise_ratio": 0.5}),
        (ROBUST, {"loss": "huber"}),
    ):
        est = clone(estimator).fit(X, y, w)
        _ = est.coef_
        est.set_params(**other)
        if estimator is not ROBUST:
            want = clone(estimator).set_params(**other).fit(X, y, w)
            np.testing.assert_allclose(est.coef_, want.coef_, rtol=1e-9, atol=1e-12)
        est.partial_fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (olsq.RobustLeastSquares(loss="tukey"), "loss must be one of"),
        (olsq.RobustLeastSquares(threshold=0), "threshold must be a number > 0"),
        (olsq.RobustLeastSquares(warm_up=-1), "warm_up must be None or"),
        (olsq.RobustLeastSquares(scale_window=3), "scale_window must be an integer >= 8"),
        (olsq.RobustLeastSquares(scale_window=10**15), "scale_window must be at most"),
        (olsq.RobustLeastSquares(max_run=10**22), "max_run must be at most"),
        (olsq.RobustLeastSquares(warm_up=10**22), "warm_up must be at most"),
        (olsq.RobustLeastSquares(missing="skip_target"), "missing must be one of"),
        (olsq.TotalLeastSquares(-1.0), "noise_ratio must be"),
        (olsq.TotalLeastSquares([1.0, 2.0]), "one number per feature"),
        (olsq.TotalLeastSquares(nongeneric="zero"), "nongeneric must be one of"),
        (olsq.KernelLeastSquares("cosine"), "kernel must be one of"),
        (olsq.KernelLeastSquares(threshold=0.0), "threshold must be"),
        (olsq.KernelLeastSquares(budget=0), "budget must be an integer"),
        (olsq.KernelLeastSquares(gamma=-1.0), "gamma must be"),
        (olsq.KernelLeastSquares(ridge=[1.0, 2.0, 3.0]), "ridge must be"),
        (olsq.OnlineElasticNet(forget=0.9, half_life=3), "cannot be combined"),
        (olsq.OnlineElasticNet(forget=1.1), "forget must lie in"),
    ],
    ids=repr,
)
def test_refusals(estimator, match):
    with pytest.raises(ValueError, match=match):
        estimator.fit(*data()[:2])
    assert not hasattr(estimator, "_engine")
