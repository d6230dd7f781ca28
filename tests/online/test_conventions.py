"""scikit-learn's conventions, checked by scikit-learn."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import olsq

ESTIMATORS = [
    olsq.RecursiveLeastSquares(),
    olsq.RecursiveLeastSquares(method="sqrt"),
    olsq.RecursiveLeastSquares(method="information", ridge_mode="fixed"),
    olsq.RecursiveLeastSquares(missing="raise", ridge=0.0),
    olsq.RollingLeastSquares(),
]


@pytest.mark.full
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_check_estimator(estimator):
    with warnings.catch_warnings():
        # The estimators follow the conventions without inheriting from BaseEstimator, because
        # importing it costs a second that users without scikit-learn's tools should not pay.
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        results = check_estimator(
            estimator, on_skip=None, on_fail=None,
            expected_failed_checks={"check_complex_data": "wants a refusal of what is learned"},
        )  # fmt: skip
    expected = [r["check_name"] for r in results if r["status"] == "xfail"]
    assert expected == ["check_complex_data"]
    bad = [r for r in results if r["status"] not in ("passed", "skipped", "xfail")]
    assert not bad, [(r["check_name"], r["exception"]) for r in bad]
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # needs SCIPY_ARRAY_API in the environment


def data(seed=0, n=120, d=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * [1, 10, 0.1, 3] + [5, -2, 0, 100]
    return X, X @ [1.0, -2.0, 3.0, 0.5] + 7 + rng.standard_normal(n)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 50.0])
def test_equals_ridge_without_forgetting(method, intercept, alpha):
    X, y = data()
    weight = np.random.default_rng(1).uniform(0.1, 3, len(y))
    ours = olsq.RecursiveLeastSquares(ridge=alpha, fit_intercept=intercept, method=method)
    ours.fit(X, y, weight)
    theirs = Ridge(alpha=alpha, fit_intercept=intercept, solver="svd").fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-9)


def test_equals_linear_regression_without_ridge_even_when_undetermined():
    X, y = data(d=4)
    for rows in (1, 2, 3, 4, 60):
        ours = olsq.RecursiveLeastSquares(ridge=0).fit(X[:rows], y[:rows])
        theirs = LinearRegression().fit(X[:rows], y[:rows])
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-7)
        assert ours.rank_ == min(rows, 5)
        assert ours.determined_.all() == (rows >= 5)


def test_standard_errors_are_those_of_ordinary_least_squares():
    import statsmodels.api as sm

    X, y = data()
    ours = olsq.RecursiveLeastSquares(ridge=0).fit(X, y)
    theirs = sm.OLS(y, sm.add_constant(X)).fit()
    np.testing.assert_allclose(ours.coef_stderr_, theirs.bse[1:], rtol=1e-9)
    np.testing.assert_allclose(ours.intercept_stderr_, theirs.bse[0], rtol=1e-9)
    np.testing.assert_allclose(ours.sigma2_, theirs.scale, rtol=1e-9)


def test_pipeline_and_search():
    X, y = data()
    pipe = make_pipeline(StandardScaler(), olsq.RecursiveLeastSquares(ridge=1.0))
    reference = make_pipeline(StandardScaler(), Ridge(alpha=1.0))
    np.testing.assert_allclose(pipe.fit(X, y).predict(X), reference.fit(X, y).predict(X), rtol=1e-9)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        search = GridSearchCV(olsq.RecursiveLeastSquares(), {"ridge": [1e-3, 1e3]}).fit(X, y)
    assert search.best_params_ == {"ridge": 1e-3}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_clone_pickle_and_not_fitted(estimator):
    X, y = data()
    fitted = clone(estimator).fit(X, y)
    copy = clone(fitted)
    assert copy.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert not hasattr(copy, "coef_")
    thawed = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(thawed.coef_, fitted.coef_)
    np.testing.assert_allclose(thawed.predict(X), fitted.predict(X), rtol=1e-14)


def test_data_frames_bring_their_names(tmp_path):
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcd"))
    est = olsq.RecursiveLeastSquares().fit(frame, pd.Series(y))
    assert list(est.feature_names_in_) == list("abcd")
    est.save(tmp_path / "s.olsq")
    loaded = olsq.load(tmp_path / "s.olsq")
    np.testing.assert_allclose(loaded.predict(frame), est.predict(X), rtol=1e-14)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[list("bacd")])
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.partial_fit(frame.rename(columns={"a": "z"}), y)


@pytest.mark.parametrize("m", [1, 3])
def test_many_targets_are_many_regressions(m):
    X, y = data()
    Y = np.stack([y * (k + 1) + k * X[:, 0] for k in range(m)], axis=1)
    for method in ("covariance", "sqrt", "information"):
        est = olsq.RecursiveLeastSquares(forget=0.97, method=method).fit(X, Y)
        assert est.coef_.shape == (m, 4)
        assert est.predict(X).shape == (120, m)
        for k in range(m):
            one = olsq.RecursiveLeastSquares(forget=0.97, method=method).fit(X, Y[:, k])
            np.testing.assert_allclose(est.coef_[k], one.coef_, rtol=1e-9)
            np.testing.assert_allclose(est.sigma2_[k], one.sigma2_, rtol=1e-7)
            np.testing.assert_allclose(est.coef_stderr_[k], one.coef_stderr_, rtol=1e-7)


def test_weights_reach_the_estimator_through_a_search():
    """scikit-learn's metadata routing, in a search and in a clone of it."""
    import sklearn
    from sklearn.linear_model import Ridge

    X, y = data()
    w = np.random.default_rng(0).uniform(0.1, 3, len(y))
    with pytest.raises(RuntimeError, match="enable_metadata_routing"):
        olsq.RecursiveLeastSquares().set_fit_request(sample_weight=True)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        asked = olsq.RecursiveLeastSquares().set_fit_request(sample_weight=True)
        asked = asked.set_score_request(sample_weight=False)
        search = GridSearchCV(asked, {"ridge": [1e-3, 1e3]})
        found = clone(search).fit(X, y, sample_weight=w).best_estimator_
        np.testing.assert_allclose(found.coef_, Ridge(alpha=1e-3).fit(X, y, w).coef_, rtol=1e-6)
        with pytest.raises(ValueError, match="not explicitly set as requested or not"):
            GridSearchCV(olsq.RecursiveLeastSquares(), {"ridge": [1.0]}).fit(X, y, sample_weight=w)
        with pytest.raises(TypeError):
            asked.set_fit_request(weights=True)
    thawed = pickle.loads(pickle.dumps(asked))
    assert thawed.get_metadata_routing().fit.requests == {"sample_weight": True, "times": None}
