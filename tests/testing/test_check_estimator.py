"""``check_estimator_stream`` passes for the estimators, and fails for each way to be broken."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq import RecursiveLeastSquares, RollingLeastSquares
from olsq.testing import Problem, Regression, check_estimator_stream

ESTIMATORS = [
    RecursiveLeastSquares(method="covariance"),
    RecursiveLeastSquares(method="sqrt"),
    RecursiveLeastSquares(method="sqrt", ridge=0, fit_intercept=False),
    RecursiveLeastSquares(method="information"),
    RecursiveLeastSquares(ridge_mode="fixed", ridge=0.5, forget=0.9),
    RecursiveLeastSquares(missing="raise", half_life=20.0),
    RecursiveLeastSquares(missing="skip_target"),
    RollingLeastSquares(window=8, ridge=0.1),
    RollingLeastSquares(window=5),
    RollingLeastSquares(window=8, half_life=4.0),
]


@pytest.mark.full
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_estimators_have_every_property(estimator):
    check_estimator_stream(estimator, max_examples=10)
    assert not hasattr(estimator, "n_samples_seen_")  # a copy was fed


class Plain:
    """Least squares from its moments; without weights and gates."""

    def __init__(self, ridge=0.5):
        self.ridge = ridge

    def partial_fit(self, X, y):
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise ValueError("not finite")
        if not hasattr(self, "gram"):
            self.gram = np.zeros((X.shape[1],) * 2)
            self.cross = np.zeros((X.shape[1], y.shape[1]))
        self.learn(X, y)
        self.coef_ = np.linalg.solve(self.gram + self.ridge * np.eye(X.shape[1]), self.cross).T
        return self

    def learn(self, X, y):
        self.gram = self.gram + X.T @ X
        self.cross = self.cross + X.T @ y

    def __repr__(self):
        return f"{type(self).__name__}()"


class LearnsTwice(Plain):
    def learn(self, X, y):
        super().learn(X, y)
        super().learn(X, y)


class LosesARow(Plain):
    """The last of every call but of those with one row."""

    def learn(self, X, y):
        end = max(1, len(X) - 1)
        super().learn(X[:end], y[:end])


class ForgetsWhenCopied(Plain):
    def __getstate__(self):
        return {**self.__dict__, "gram": 0.9 * self.gram} if hasattr(self, "gram") else {
            "ridge": self.ridge
        }  # fmt: skip

    def __deepcopy__(self, memo):
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other


class HasUnits(Plain):
    def learn(self, X, y):
        super().learn(X, np.where(np.abs(y) < 0.02, 0, y))


class PrefersATarget(Plain):
    def learn(self, X, y):
        super().learn(X, y * np.array([1.0, 1.001]))


class LearnsTheLostRow(Plain):
    def partial_fit(self, X, y):
        return super().partial_fit(*(np.where(np.isfinite(a), a, 1.0) for a in (X, y)))


class SharesItsState(Plain):
    """A copy and its original learn into one array."""

    def learn(self, X, y):
        self.gram += X.T @ X
        self.cross += X.T @ y

    def __deepcopy__(self, memo):
        other = type(self)(self.ridge)
        other.__dict__.update(self.__dict__)
        return other

    @property
    def coef_(self):
        return np.linalg.solve(self.gram + self.ridge * np.eye(len(self.gram)), self.cross).T

    @coef_.setter
    def coef_(self, value):
        pass


class CountsWrongly(RecursiveLeastSquares):
    def partial_fit(self, X, y, sample_weight=None, *, forget=None):
        super().partial_fit(X, y, sample_weight, forget=forget)
        self.n_samples_seen_ += 1
        return self


class LearnsAbsentRows(RecursiveLeastSquares):
    def partial_fit(self, X, y, sample_weight=None, *, forget=None):
        return super().partial_fit(X, y, np.maximum(sample_weight, 0.01), forget=forget)


class LearnsLightRowsLess(RecursiveLeastSquares):
    def partial_fit(self, X, y, sample_weight=None, *, forget=None):
        weight = np.where(sample_weight < 1e-5, sample_weight / 2, sample_weight)
        weight = np.where(X[:, 0] > 0, weight, sample_weight)
        return super().partial_fit(X, y, weight, forget=forget)


@pytest.mark.full
def test_the_plain_estimator_is_sound():
    check_estimator_stream(Plain())


@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (LearnsTwice(), ("oracle",)),
        (LosesARow(), ("chunk invariance", "oracle")),
        (ForgetsWhenCopied(), ("resumption",)),
        (HasUnits(), ("scale equivariance",)),
        (LearnsLightRowsLess(), ("units of weights",)),
        (PrefersATarget(), ("permutation of targets",)),
        (LearnsTheLostRow(), ("causality",)),
        (SharesItsState(), ("prefix invariance",)),
        (CountsWrongly(), ("counting",)),
        (LearnsAbsentRows(), ("absent rows",)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_each_break_is_named(estimator, names):
    with pytest.raises(AssertionError) as caught:
        check_estimator_stream(estimator, max_examples=0)
    message = str(caught.value)
    assert message.startswith(f"check_estimator_stream: {type(estimator).__name__}(")
    for name in names:
        line = next(x for x in message.splitlines() if x.startswith(f"  {name}: "))
        assert "stream '" in line
        assert "error " in line
        assert "allowed " in line


def test_a_merge_that_loses_a_row():
    def merge(first, second):
        both = Plain(first.ridge)
        both.gram, both.cross = first.gram + second.gram, 0.99 * first.cross + second.cross
        both.coef_ = np.linalg.solve(both.gram + both.ridge * np.eye(3), both.cross).T
        return both

    with pytest.raises(AssertionError, match="  merging: stream 'ordinary'"):
        check_estimator_stream(Plain(), merge=merge, max_examples=0)


def test_streams_of_ones_own():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal((20, 3))
    ones = np.ones(20)
    mine = {d.__name__: Regression("", X.astype(d), y.astype(d), ones, ones, 0.0)
            for d in (np.float64, np.float32)}  # fmt: skip
    check_estimator_stream(RecursiveLeastSquares(), streams=mine, max_examples=0)
    del mine["float64"]
    with pytest.raises(AssertionError, match="  chunk invariance: stream 'float32'"):
        check_estimator_stream(LosesARow(), streams=mine, max_examples=0)


def test_a_file_that_is_not_the_estimator(monkeypatch):
    def load(path):
        return olsq.load(path).partial_fit(np.ones((1, 3)), np.ones((1, 2)))

    monkeypatch.setattr("olsq.testing.estimator_properties.load", load)
    with pytest.raises(AssertionError, match=r"resumption: .*, a file in the middle"):
        check_estimator_stream(RecursiveLeastSquares(), max_examples=0)


def test_an_objective_of_ones_own():
    class Halved(Plain):
        def partial_fit(self, X, y):
            super().partial_fit(X, y)
            self.coef_ = np.linalg.solve(self.gram / 2 + self.ridge * np.eye(len(self.gram)),
                                         self.cross / 2).T  # fmt: skip
            return self

    with pytest.raises(AssertionError, match="  oracle: "):
        check_estimator_stream(Halved(), max_examples=0)
    twice = Problem(ridge=1.0)  # half the squares and this ridge are the squares and twice of it
    check_estimator_stream(
        Halved(),
        objective=lambda e: twice,
        max_examples=0,
        skip=["scale equivariance", "resumption"],
    )


def test_what_fails_is_drawn_small():
    class LosesTheThird(Plain):
        def learn(self, X, y):
            keep = np.arange(len(X)) != 2
            super().learn(X[keep], y[keep])

    kinds = ["ordinary"]
    with pytest.raises(AssertionError, match="chunk invariance"):
        check_estimator_stream(LosesTheThird(), kinds=kinds, max_examples=20)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="kinds must be some of"):
        check_estimator_stream(olsq.RecursiveLeastSquares(), kinds=["non-finite"])
    with pytest.raises(ValueError, match="skip must be a collection of some of"):
        check_estimator_stream(olsq.RecursiveLeastSquares(), skip="oracle")
