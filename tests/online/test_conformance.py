"""One table: every method, ridge mode, dtype and option, on ordinary and on breaking streams.

Each row of the table is checked against the dense oracle after every sample, and the five ways of
feeding a stream (at once, row by row, in blocks, in two merged halves, saved and resumed) must
agree.  A new method is one line in METHODS.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import olsq
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.judge import check_optimal, coefficient_error, tolerance

#          method         ridge_mode    dtype
METHODS = [
    ("covariance", "discounted", np.float64),
    ("covariance", "discounted", np.float32),
    ("sqrt", "discounted", np.float64),
    ("sqrt", "discounted", np.float32),
    ("information", "discounted", np.float64),
    ("information", "discounted", np.float32),
    ("information", "fixed", np.float64),
    ("information", "fixed", np.float32),
]  # fmt: skip

#          ridge              intercept  targets
OPTIONS = [
    (0.0, False, 1),
    (0.0, True, 1),
    (0.3, False, 2),
    (0.3, True, 1),
    ([0.1, 0.0, 2.0], True, 2),
]

CASES = [
    pytest.param(*method, *option, regressors, forgetting, id="-".join(map(str, (
        method[0], method[1], method[2].__name__, option[0], "bias" if option[1] else "no bias",
        option[2], regressors, forgetting))))
    for number, (method, option, regressors, forgetting) in enumerate(
        itertools.product(METHODS, OPTIONS, streams.REGRESSORS, streams.FORGETTING)
    )
    if number % 3 == 0 or regressors == "white"  # every pair of columns, a third of the triples
]  # fmt: skip


def estimator(method, ridge_mode, ridge, intercept, forget=1.0):
    return olsq.RecursiveLeastSquares(
        forget=forget, ridge=ridge, ridge_mode=ridge_mode, fit_intercept=intercept, method=method
    )


@pytest.mark.parametrize(
    ("method", "ridge_mode", "dtype", "ridge", "intercept", "targets", "regressors", "forgetting"),
    CASES,
)
def test_agrees_with_oracle_after_every_sample(
    method, ridge_mode, dtype, ridge, intercept, targets, regressors, forgetting
):
    stream = streams.make(regressors, forgetting, m=targets)
    X, Y = stream.X.astype(dtype), stream.y.astype(dtype)
    path = estimator(method, ridge_mode, ridge, intercept).partial_fit_path(
        X, Y, stream.weights, forget=stream.gates
    )
    assert all(np.isfinite(a).all() for a in (path.coef, path.intercept, path.residual))
    assert path.coef.dtype == dtype
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    ridge = np.broadcast_to(np.asarray(ridge, float), X.shape[1])
    truth = oracle.coefficient_path(
        X, Y, gates=stream.gates, weights=stream.weights, ridge=ridge, ridge_mode=ridge_mode,
        fit_intercept=intercept,
    )  # fmt: skip
    eps = float(np.finfo(dtype).eps)
    for t in range(X.shape[0]):
        decay = np.prod(stream.gates[: t + 1]) if ridge_mode == "discounted" else 1.0
        weights = oracle.row_weights(stream.gates, stream.weights, t, None)
        check_optimal(
            X[: t + 1], Y[: t + 1], weights, decay * ridge, intercept,
            path.coef[t].astype(float), path.intercept[t].astype(float), eps,
        )  # fmt: skip
        size = np.sqrt(weights @ Y[: t + 1] ** 2).max()
        rho = np.sqrt(truth.loss[t].max()) / size if size > 0 else 0.0
        allowed = tolerance(method, eps, truth.condition[t], rho)
        if allowed < 1e-2:
            error = coefficient_error(path.coef[t], truth.coef[t], X[: t + 1], Y[: t + 1])
            assert error <= allowed


@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("forgetting", streams.FORGETTING)
@pytest.mark.parametrize(("method", "ridge_mode", "dtype"), METHODS)
def test_ways_of_feeding_agree(method, ridge_mode, dtype, regressors, forgetting, tmp_path):
    stream = streams.make(regressors, forgetting)
    X, y = stream.X.astype(dtype), stream.y[:, 0].astype(dtype)
    n = X.shape[0]

    def feed(est, start, stop, size):
        for i in range(start, stop, size):
            part = slice(i, min(i + size, stop))
            est.partial_fit(X[part], y[part], stream.weights[part], forget=stream.gates[part])
        return est

    def fresh():
        return estimator(method, ridge_mode, 0.1, True)

    whole = feed(fresh(), 0, n, n)
    resumed = feed(fresh(), 0, 20, 20)
    resumed.save(tmp_path / "state.olsq")
    resumed = feed(olsq.load(tmp_path / "state.olsq"), 20, n, n)
    others = {
        "rows": feed(fresh(), 0, n, 1),
        "blocks": feed(fresh(), 0, n, 7),
        "resumed": resumed,
        "merged": olsq.merge(feed(fresh(), 0, 20, 20), feed(fresh(), 20, n, n)),
    }
    X64, Y64 = X.astype(float), y.astype(float)[:, None]
    weights = oracle.row_weights(stream.gates, stream.weights, n - 1, None)
    decay = np.prod(stream.gates) if ridge_mode == "discounted" else 1.0
    ridge = np.full(X.shape[1], 0.1 * decay)
    condition = oracle.solve(X64, Y64, weights, ridge, True)[-1]
    eps = float(np.finfo(dtype).eps)
    for name, est in others.items():
        assert est.n_samples_seen_ == np.count_nonzero(stream.weights)
        check_optimal(
            X64, Y64, weights, ridge, True, est.coef_[None].astype(float),
            np.array([est.intercept_], float), eps,
        )  # fmt: skip
        allowed = tolerance(method, eps, condition, 1.0)
        if allowed < 1e-2:
            error = coefficient_error(est.coef_[None], whole.coef_[None], X64, Y64)
            assert error <= allowed, name
            np.testing.assert_allclose(est.sigma2_, whole.sigma2_, rtol=max(allowed, 1e-9))


@pytest.mark.parametrize(("method", "ridge_mode", "dtype"), METHODS)
@pytest.mark.parametrize("forgetting", ["gates .95", "resets"])
def test_resuming_is_bit_for_bit(method, ridge_mode, dtype, forgetting, tmp_path):
    stream = streams.make("tokens", forgetting, n=200)
    X, y = stream.X.astype(dtype), stream.y[:, 0].astype(dtype)
    est = estimator(method, ridge_mode, 1e-3, True)
    est.partial_fit(X[:90], y[:90], forget=stream.gates[:90])
    est.save(tmp_path / "state.olsq")
    resumed = olsq.load(tmp_path / "state.olsq")
    for e in (est, resumed):
        for i in range(90, 200, 11):
            e.partial_fit(X[i : i + 11], y[i : i + 11], forget=stream.gates[i : i + 11])
    for name, array in est._engine.arrays().items():
        assert array.tobytes() == resumed._engine.arrays()[name].tobytes(), name
    assert est.get_params() == resumed.get_params()
    np.testing.assert_array_equal(est.coef_, resumed.coef_)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize(("method", "ridge_mode", "dtype"), METHODS)
def test_units_do_not_matter(method, ridge_mode, dtype, scale):
    stream = streams.make("ar1", "gates vary")
    X, y = stream.X.astype(dtype), stream.y[:, 0].astype(dtype)
    one = estimator(method, ridge_mode, 0.5, False)
    one.partial_fit(X, y, forget=stream.gates)
    two = estimator(method, ridge_mode, 0.5 * scale**2, False)
    two.partial_fit(X * dtype(scale), y * dtype(7), forget=stream.gates)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(two.coef_ * (scale / 7), one.coef_, rtol=2e4 * eps)


@pytest.mark.parametrize("forgetting", ["gates 1", "gates .95", "gates vary"])
def test_square_root_form_does_not_square_the_condition_number(forgetting):
    """Without noise the square-root form keeps 16 - log10(kappa) digits, others half that."""
    stream = streams.make("white", forgetting, n=400)
    X = stream.X.copy()
    X[:, 2] = X[:, 0] + 1e-7 * X[:, 2]  # kappa about 1e7
    y = X @ [1.0, 2.0, 3.0]
    est = olsq.RecursiveLeastSquares(ridge=0, fit_intercept=False, method="sqrt")
    est.partial_fit(X, y, stream.weights, forget=stream.gates)
    np.testing.assert_allclose(est.coef_, [1.0, 2.0, 3.0], rtol=1e-7)
