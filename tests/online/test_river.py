"""The regressor for river: river's own checks, features that come and go."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from river import checks

import olsq
from olsq.online.estimators.growing import with_features
from olsq.river import RecursiveLeastSquares


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "sqrt"])
def test_passes_rivers_checks(method):
    checks.check_estimator(RecursiveLeastSquares(method=method, forget=0.999))


def rows(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[: n // 3, 2] = 0
    X[: 2 * n // 3, 3] = 0
    return X, X @ [1.0, -2.0, 3.0, 0.5] + 1 + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("forget", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_a_feature_that_comes_late_was_zero_before(method, forget):
    X, y = rows()
    whole = olsq.RecursiveLeastSquares(forget=forget, method=method).fit(X[:40], y[:40])
    grown = olsq.RecursiveLeastSquares(forget=forget, method=method).fit(X[:20, :2], y[:20])
    grown = with_features(grown, 3).partial_fit(X[20:40, :3], y[20:40])
    grown = with_features(grown, 4)
    for _ in range(3):
        np.testing.assert_allclose(grown.coef_, whole.coef_, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(grown.sigma2_, whole.sigma2_, rtol=1e-6)
        for est in (grown, whole):
            est.partial_fit(X[40:], y[40:])


def test_dictionaries_are_rows():
    X, y = rows()
    names = list("abcd")
    model = RecursiveLeastSquares(forget=0.95)
    assert model.predict_one({"a": 1.0}) == 0.0
    for t, (row, target) in enumerate(zip(X, y, strict=True)):
        x = {name: value for name, value in zip(names, row, strict=True) if value != 0}
        model.learn_one(x, target, w=2.0 if t % 7 == 0 else 1.0)
    w = np.where(np.arange(60) % 7 == 0, 2.0, 1.0)
    whole = olsq.RecursiveLeastSquares(forget=0.95).fit(X, y, w)
    order = [names.index(name) for name in model.features]
    np.testing.assert_allclose([*model.weights.values()], whole.coef_[order], rtol=1e-8)
    assert model.predict_one({"b": 1.0, "unseen": 9.0}) == pytest.approx(
        whole.coef_[1] + whole.intercept_
    )
    with pytest.raises(ValueError, match=r"x\['a'\] must be a number"):
        model.learn_one({"a": "red"}, 1.0)
    assert model.features == ["a", "b", "c", "d"]


NOT_NUMBERS = {
    "text": "1.5",
    "a date": datetime.date(2024, 1, 1),
    "a NumPy date": np.datetime64("2024-01-01"),
    "a stamp": pd.Timestamp("2024-01-01"),
    "a duration": np.timedelta64(1, "s"),
    "a complex number": 1j,
}


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_what_is_no_number_is_refused(kind):
    value, model = NOT_NUMBERS[kind], RecursiveLeastSquares()
    model.learn_one({"a": 1.0, "b": 2.0}, 3.0)
    before = model.weights
    frame, y = pd.DataFrame({"a": [1.0, 2.0], "b": [value] * 2}), pd.Series([1.0, 2.0])
    for match, call in {
        r"x\['a'\] must be a number": lambda: model.learn_one({"a": value}, 1.0),
        r"x\['b'\] must be a number": lambda: model.predict_one({"b": value}),
        r"y must be a number": lambda: model.learn_one({"a": 1.0}, value),
        r"sample_weight must": lambda: model.learn_one({"a": 1.0}, 1.0, w=value),
        r"X must": lambda: model.learn_many(frame, y),
        r"X\['b'\] must": lambda: model.predict_many(frame),
        r"y must": lambda: model.learn_many(frame[["a"]], frame["b"]),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()
    assert model.weights == before


def test_targets_that_are_not_there_and_names_that_are_there_twice():
    model = RecursiveLeastSquares()
    with pytest.raises(ValueError, match="y must be a number, got None"):
        model.learn_one({"a": 1.0}, None)
    twice = pd.DataFrame(np.ones((2, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="y must hold a number for each row of X, got None"):
        model.learn_many(twice, None)
    with pytest.raises(ValueError, match="X must have one column of each name"):
        model.learn_many(twice, pd.Series([1.0, 2.0]))
    model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(ValueError, match="X must have one column of each name"):
        model.predict_many(twice)
    model.learn_one({"a": None}, 1.0)  # a missing value, as elsewhere
    assert model.estimator.n_samples_seen_ == 1


def test_frames_are_many_rows():
    X, y = rows()
    model = RecursiveLeastSquares()
    model.learn_many(pd.DataFrame(X[:20, :2], columns=list("ab")), pd.Series(y[:20]))
    model.learn_many(pd.DataFrame(X[20:], columns=list("abcd")), pd.Series(y[20:]))
    whole = olsq.RecursiveLeastSquares().fit(X, y)
    frame = pd.DataFrame(X[:, [3, 0, 1, 2]], columns=list("dabc"), index=range(100, 160))
    found = model.predict_many(frame)
    np.testing.assert_allclose(found, whole.predict(X), rtol=1e-8)
    assert list(found.index) == list(frame.index)


def test_half_lives_may_be_lengths_of_time():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(rng.integers(0, 5, 40)), "D")
    model = RecursiveLeastSquares(half_life="9D", time="when")
    for row, target, day in zip(X[:20], y[:20], days[:20], strict=True):
        x = {"a": row[0], "when": day} if day < days[8] else {"a": row[0], "b": row[1], "when": day}
        model.learn_one(x, target)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(when=days)
    model.learn_many(frame[20:], pd.Series(y[20:], frame.index[20:]))
    X[days < days[8], 1] = 0.0
    est = olsq.RecursiveLeastSquares(half_life="9D").partial_fit(X, y, times=days)
    np.testing.assert_allclose(list(model.weights.values()), est.coef_, rtol=1e-9)
    assert model.features == ["a", "b"]
    asked = {"a": 1.0, "b": 2.0, "when": days[-1]}
    assert model.predict_one(asked) == pytest.approx(est.predict([[1.0, 2.0]])[0])
    before = model.weights
    with pytest.raises(ValueError, match="no time under the key 'when'"):
        model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(ValueError, match="times must not go back"):
        model.learn_one({"a": 1.0, "when": days[0]}, 1.0)
    assert model.weights == before
