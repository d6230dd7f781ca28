"""One row at a time: the short way is the general way, and only usual rows go it."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import olsq
from olsq.online.calls import one_row


def stream(kind, n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kind == "collinear":
        X[:, 2] = X[:, 0] + X[:, 1]
    if kind == "zeros":
        X[50:300] = 0
    if kind == "scales":
        X *= 10.0 ** rng.uniform(-6, 6, d)
    if kind == "missing":
        X[10:20, 1], X[30, 0] = np.nan, np.inf
    y = X @ np.arange(1.0, d + 1) + 3 + 0.1 * rng.standard_normal(n)
    if kind == "missing":
        y[40:45] = np.nan
    return X, y


def rows(X, y):
    return ((X[t : t + 1], y[t : t + 1]) for t in range(len(X)))


KINDS = ["plain", "collinear", "zeros", "scales", "missing"]
OPTIONS = [
    {}, {"forget": 0.98}, {"half_life": 20.0, "ridge": 0.0},
    {"fit_intercept": False, "ridge": 10.0}, {"method": "sqrt"}, {"method": "information"},
    {"cov": "sandwich"}, {"residuals": False},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_row_by_row_is_the_general_way(kind, options):
    X, y = stream(kind)
    short, general = (olsq.RecursiveLeastSquares(**options) for _ in range(2))
    one = np.ones(1)  # weights go the general way
    for a, b in rows(X, y):
        if not hasattr(short, "coef_") and not np.isfinite([*a[0], *b]).all():
            continue
        short.partial_fit(a, b)
        general.partial_fit(a, b, one)
        np.testing.assert_allclose(
            short.predict(a), general.predict(list(a)), rtol=1e-7, atol=1e-9 * np.abs(y[0])
        )
    scale = np.abs(general.coef_).max()
    np.testing.assert_allclose(short.coef_, general.coef_, rtol=1e-6, atol=1e-9 * scale)
    np.testing.assert_allclose(short.sigma2_, general.sigma2_, rtol=1e-6)
    np.testing.assert_allclose(short.coef_stderr_, general.coef_stderr_, rtol=1e-6)
    assert short.n_samples_seen_ == general.n_samples_seen_
    assert short._engine.form.name == general._engine.form.name


@pytest.mark.parametrize("kind", KINDS)
def test_step_is_predict_and_then_learn(kind):
    X, y = stream(kind)
    est, other = (olsq.RecursiveLeastSquares(forget=0.99) for _ in range(2))
    assert est.step(X[0], y[0]) == (0.0, y[0])
    other.fit(X[:1], y[:1])
    for a, b in rows(X[1:], y[1:]):
        expected = other.predict(a)[0]
        other.partial_fit(a, b)
        prediction, residual = est.step(a[0], b[0])
        np.testing.assert_allclose(prediction, expected, rtol=1e-9, atol=1e-12 * np.abs(y[0]))
        np.testing.assert_array_equal(residual, other.residual_[0])
        assert np.isnan(residual) == (not np.isfinite([*a[0], *b]).all())
    np.testing.assert_array_equal(est.coef_, other.coef_)


def test_step_of_every_estimator_and_shape():
    X, y = stream("plain")
    Y = np.column_stack([y, -y])
    for make in (olsq.RecursiveLeastSquares, lambda: olsq.RollingLeastSquares(window=20)):
        est = make()
        for t in range(30):
            prediction, residual = est.step(list(X[t]), Y[t])
            assert prediction.shape == residual.shape == (2,)
            np.testing.assert_allclose(prediction + residual, Y[t])
        np.testing.assert_allclose(est.coef_, make().fit(X[:30], Y[:30]).coef_, rtol=1e-8)
    est = olsq.RecursiveLeastSquares()
    for t in range(30):
        est.step(X[t : t + 1], y[t : t + 1])
    np.testing.assert_allclose(est.coef_, olsq.RecursiveLeastSquares().fit(X[:30], y[:30]).coef_)
    fixed = {"ridge_mode": "fixed", "ridge": 1.0, "forget": 0.9}
    blind, seeing = (olsq.RecursiveLeastSquares(residuals=kept, **fixed) for kept in (False, True))
    for t in range(30):
        prediction, residual = blind.step(X[t], y[t])
        np.testing.assert_allclose(prediction + residual, y[t], rtol=1e-12)
        seeing.step(X[t], y[t])
    np.testing.assert_array_equal(blind.coef_, seeing.coef_)
    with pytest.raises(ValueError, match="step takes one row, got x of shape"):
        est.step(X[:2], y[:2])
    with pytest.raises(ValueError, match="2 features"):
        est.step(X[0, :2], 1.0)


ESTIMATORS = {
    "prior": lambda mean: olsq.RecursiveLeastSquares(prior=(mean, np.eye(4))),
    "random walk": lambda _: olsq.RecursiveLeastSquares(forget=olsq.forgetting.RandomWalk(0.01)),
    "random walk from a prior": lambda mean: olsq.RecursiveLeastSquares(
        forget=olsq.forgetting.RandomWalk(0.01), prior=(mean, np.eye(4))
    ),
    "ridges": lambda _: olsq.RecursiveLeastSquares(ridge=np.array([1.0, 2.0, 0.5]), forget=0.99),
    "rolling": lambda _: olsq.RollingLeastSquares(30, min_samples=5),
    "window of few rows": lambda _: olsq.RollingLeastSquares(3),
    "constrained": lambda _: olsq.ConstrainedLeastSquares(bounds=(np.zeros(3), np.full(3, 2.0))),
    "robust": lambda _: olsq.RobustLeastSquares(forget=0.99),
    "sandwich": lambda _: olsq.RecursiveLeastSquares(cov="sandwich"),
    "complex": lambda _: olsq.RecursiveLeastSquares(forget=0.99),
    "complex window": lambda _: olsq.RollingLeastSquares(30),
}


@pytest.mark.full
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimators_rows_go_the_short_way(name, several, monkeypatch):
    """Compared with predict and partial_fit of lists, which go the general way."""
    X, y = stream("plain", n=120)
    if name.startswith("complex"):
        X, y = X + 1j * X[::-1], y - 2j * y
    y = np.column_stack([y, -y]) if several else y
    mean = np.ones((2, 4) if several else 4)
    short, general = ESTIMATORS[name](mean), ESTIMATORS[name](mean)
    taken, learn = [], one_row.learn

    def count(estimator, *args, **options):
        found = learn(estimator, *args, **options)
        if estimator is short:
            taken.append(found is not None)
        return found

    monkeypatch.setattr(one_row, "learn", count)
    for t in range(len(X)):
        x, target = X[t : t + 1], y[t : t + 1]
        expected = general.predict(x.tolist())[0] if t >= 5 else None
        general.partial_fit(x.tolist(), target.tolist())
        prediction, residual = short.step(X[t], y[t])
        if t >= 5:
            np.testing.assert_allclose(prediction, expected, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(residual, y[t] - expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(short.coef_, general.coef_, rtol=1e-9, atol=1e-12)
    assert short.n_samples_seen_ == general.n_samples_seen_ == len(X)
    assert all(taken[-40:])
    if name == "robust":
        np.testing.assert_allclose(short.weights_, general.weights_, rtol=1e-7)


def test_parameters_that_change_in_place_are_read_anew_on_the_short_way():
    X, y = stream("plain")
    mean, upper = np.zeros(4), np.full(3, 5.0)
    est = olsq.RecursiveLeastSquares(prior=(mean, np.eye(4))).fit(X[:50], y[:50])
    est.step(X[50], y[50])
    mean[0] = 1.0
    with pytest.raises(ValueError, match="prior is"):
        est.step(X[51], y[51])
    mean[0] = 0.0
    est.step(X[51], y[51])
    bounded = olsq.ConstrainedLeastSquares(bounds=(np.zeros(3), upper)).fit(X[:50], y[:50])
    bounded.step(X[50], y[50])
    upper[:] = 0.5
    prediction, _ = bounded.step(X[51], y[51])
    assert (bounded.coef_ <= 0.5).all()
    other = olsq.ConstrainedLeastSquares(bounds=(np.zeros(3), upper)).fit(X[:51], y[:51])
    assert prediction == pytest.approx(other.predict(X[51:52])[0])
    upper[:] = -1.0
    with pytest.raises(ValueError, match="bounds"):
        bounded.step(X[52], y[52])
    assert bounded.n_samples_seen_ == 52


def test_step_takes_a_weight():
    """As ``partial_fit`` does; a missing one is a missing value."""
    X, y = stream("plain", n=40)
    w = np.random.default_rng(1).uniform(0.1, 3.0, 40)
    w[7] = np.nan
    walk = olsq.forgetting.RandomWalk(0.1)
    for make in (
        lambda: olsq.RecursiveLeastSquares(forget=0.9),
        lambda: olsq.RecursiveLeastSquares(forget=walk, prior=(np.zeros(4), np.eye(4))),
        lambda: olsq.RecursiveLeastSquares(method="information", cov="sandwich"),
        lambda: olsq.RollingLeastSquares(10),
        lambda: olsq.RobustLeastSquares(forget=0.9),
        lambda: olsq.ConstrainedLeastSquares(bounds=(0, 1)),
        lambda: olsq.FilterBank(1, forget=0.9),
    ):
        stepped, learned = make(), make()
        one = {"which": 0} if isinstance(stepped, olsq.FilterBank) else {}
        for t in range(40):
            before, residual = stepped.step(X[t], y[t], sample_weight=w[t], **one)
            assert np.isnan(residual) if t == 7 else np.isclose(residual, y[t] - before)
            if one:
                learned.partial_fit(X[t], y[t], w[t], **one)
            else:
                learned.partial_fit(X[t : t + 1], y[t : t + 1], w[t : t + 1])
        np.testing.assert_array_equal(stepped.coef_, learned.coef_)
        if isinstance(stepped, olsq.RecursiveLeastSquares):
            np.testing.assert_array_equal(stepped.coef_stderr_, learned.coef_stderr_)
        if not one:
            assert stepped.n_samples_seen_ == learned.n_samples_seen_
            assert one_row.learn(stepped, X[:1], y[:1], 0.5) is not None
            stepped.step(X[1], y[1])  # forgets the logarithms of the weights before it
            learned.partial_fit(X[:2], y[:2], np.array([0.5, 1.0]))
            sums = stepped._log_weight_sums(), learned._log_weight_sums()
            np.testing.assert_allclose(*sums, rtol=1e-12)
            assert stepped.coef_ == pytest.approx(learned.coef_, rel=1e-12)
    est = olsq.RecursiveLeastSquares()
    assert np.isnan(est.step(X[0], y[0], sample_weight=np.nan)[1])
    assert est.n_samples_seen_ == 0
    for wrong in (-1.0, np.inf, [1.0, 2.0]):
        with pytest.raises(ValueError, match="sample_weight must be"):
            est.step(X[0], y[0], sample_weight=wrong)


def test_only_usual_rows_go_the_short_way():
    X, y = stream("plain")
    est = olsq.RecursiveLeastSquares().fit(X[:50], y[:50])
    usual = X[50:51], y[50:51]
    assert one_row.learn(est, *usual) is not None
    for a, b in (
        (X[50:52], y[50:52]), (list(X[50:51]), y[50:51]), (X[50:51], y[50:51, None]),
        (np.asfortranarray(X)[50:51], y[50:51]), (X[50:51].astype(np.float32), y[50:51]),
        (X[50:51], [1.0]), (X[50:51, :2], y[50:51]), (np.full((1, 3), np.nan), y[50:51]),
        (np.full((1, 3), 1e200), y[50:51]), (X[50:51], np.array([np.inf])),
        (np.ma.masked_array(X[50:51]), y[50:51]),
    ):  # fmt: skip
        before = {k: v.copy() for k, v in est._engine.arrays().items()}
        assert one_row.learn(est, a, b) is None
        for name, array in est._engine.arrays().items():
            np.testing.assert_array_equal(array, before[name])
    still = X[50:51].copy()
    still.flags.writeable = False
    assert one_row.learn(est, still, y[50:51]) is None


def test_a_parameter_that_may_not_change_is_refused_on_the_short_way_too():
    X, y = stream("plain")
    est = olsq.RecursiveLeastSquares().fit(X[:50], y[:50])
    est.partial_fit(X[50:51], y[50:51])
    est.set_params(ridge=5.0)
    for call in (est.partial_fit, lambda a, b: est.step(a[0], b[0])):
        with pytest.raises(ValueError, match=r"ridge is 5\.0 now"):
            call(X[51:52], y[51:52])
    est.set_params(ridge=0.0, forget=1.5)
    with pytest.raises(ValueError, match="forget"):
        est.partial_fit(X[51:52], y[51:52])
    assert est.n_samples_seen_ == 51
    est.set_params(forget=0.5).partial_fit(X[51:52], y[51:52])  # which may change between rows
    other = olsq.RecursiveLeastSquares().fit(X[:51], y[:51]).set_params(forget=0.5)
    other.partial_fit(X[51:52], y[51:52], np.ones(1))
    np.testing.assert_allclose(est.coef_, other.coef_, rtol=1e-12)


def test_forget_in_an_array_is_read_anew():
    X, y = stream("plain")
    forget = np.array(1.0)
    est = olsq.RecursiveLeastSquares(forget=forget).fit(X[:50], y[:50])
    est.partial_fit(X[50:51], y[50:51])
    forget[...] = 0.5
    est.partial_fit(X[51:52], y[51:52])
    other = olsq.RecursiveLeastSquares().fit(X[:51], y[:51])
    other.partial_fit(X[51:52], y[51:52], forget=0.5)
    np.testing.assert_allclose(est.coef_, other.coef_, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_rows_with_factors_of_their_own_do_not_use_the_estimators(n):
    """The next call without factors of its own takes the estimator's."""
    X, y = stream("plain")
    options = {"method": "covariance", "ridge_mode": "fixed", "ridge": 1.0}
    est = olsq.RecursiveLeastSquares(**options).fit(X[:50], y[:50])
    other = olsq.RecursiveLeastSquares(**options).fit(X[:50], y[:50])
    est.set_params(forget=0.9)
    for model in (est, other):
        for t in range(50, 50 + 2 * n, n):
            model.partial_fit(X[t : t + n], y[t : t + n], forget=np.ones(n))
    assert est.n_samples_seen_ == 50 + 2 * n
    np.testing.assert_array_equal(est.coef_, other.coef_)
    est.partial_fit(X[:1], y[:1])
    est.step(X[1], y[1])
    other.partial_fit(X[:2], y[:2], forget=0.9)
    assert est.n_samples_seen_ == 52 + 2 * n
    np.testing.assert_array_equal(est.coef_, other.coef_)


@pytest.mark.parametrize("kind", [list, tuple, pd.Series, pl.Series])
@pytest.mark.parametrize("n", [3, 30])
def test_factors_of_rows_come_in_any_kind_of_array(kind, n):
    X, y = stream("plain")
    factors = np.linspace(0.8, 1.0, n)
    for make in (
        lambda forget: olsq.RecursiveLeastSquares(forget=forget),
        lambda forget: olsq.RollingLeastSquares(20, forget=forget),
        lambda forget: olsq.RobustLeastSquares(forget=forget),
    ):
        est, other = make(kind(factors)), make(factors)
        for t in range(0, 4 * n, n):
            est.partial_fit(X[t : t + n], y[t : t + n])
            other.partial_fit(X[t : t + n], y[t : t + n])
        np.testing.assert_array_equal(est.coef_, other.coef_)


def test_times_change_what_a_number_of_half_life_means_between_calls():
    """A plain number counts rows until there are times, and is a length of time from then on."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8, 6)), rng.standard_normal(8)
    mean = np.zeros(7), np.eye(7)
    est, other = (olsq.RecursiveLeastSquares(half_life=4, prior=mean) for _ in range(2))
    nothing = np.full((1, 6), np.nan), np.ones(1)
    for model in (est, other):
        model.partial_fit(*nothing)
    for t in range(4):
        est.partial_fit(X[t : t + 1], y[t : t + 1], times=[10.0 * t])
    other.partial_fit(X[:4], y[:4], times=np.arange(4) * 10.0)
    np.testing.assert_allclose(est.coef_, other.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="times"):
        est.partial_fit(X[4:5], y[4:5])


def test_saved_in_between_goes_on_with_the_same_bits(tmp_path):
    X, y = stream("zeros")
    est = olsq.RecursiveLeastSquares(forget=0.97)
    for t, (a, b) in enumerate(rows(X, y)):
        est.partial_fit(a, b)
        if t == 200:
            est.save(tmp_path / "s.olsq")
            other = olsq.load(tmp_path / "s.olsq")
        if t > 200:
            other.partial_fit(a, b)
            np.testing.assert_array_equal(other.predict(a), est.predict(a))
    for name, array in est._engine.arrays().items():
        assert array.tobytes() == other._engine.arrays()[name].tobytes(), name
