"""One table: every method, ridge mode, dtype and option, on ordinary and on breaking streams.

Each row of the table is checked against the dense oracle after every sample, which
``check_estimator_stream`` does only at the end; it holds the other properties: the ways of feeding
a stream (at once, row by row, in blocks, in two merged halves, saved and resumed) agree.  A new
method is one line in METHODS.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import olsq
from olsq.reference import regression as oracle
from olsq.testing import Regression, check_estimator_stream
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


@pytest.mark.full
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


@pytest.mark.slow
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize(("method", "ridge_mode", "dtype"), METHODS)
def test_every_property(method, ridge_mode, dtype, regressors):
    rows = {}
    for forgetting in streams.FORGETTING:
        X, y, gates, weights = streams.make(regressors, forgetting, m=2)
        rows[forgetting] = Regression("", X.astype(dtype), y.astype(dtype), weights, gates, 0.0)
    est = estimator(method, ridge_mode, 0.1, True)
    check_estimator_stream(est, streams=rows, tolerance=300, max_examples=0)


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
