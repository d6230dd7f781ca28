"""Converting an estimator to moments and back in the middle of a stream, and judging the result."""

from __future__ import annotations

import itertools

import numpy as np

import olsq
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.judge import check_optimal, coefficient_error, tolerance

RLS = olsq.RecursiveLeastSquares
EPS = {np.float64: 1.1e-16, np.float32: 6e-8}
METHODS = ["covariance", "sqrt", "information"]
MODES = [*itertools.product(METHODS, ["discounted"]), ("information", "fixed")]
STEADY = [("covariance", "fixed"), ("sqrt", "fixed")]  # with forget=1 only

N, CUT = streams.N, 30


def weights_at(gates, weights, t):
    return oracle.row_weights(gates[:t], weights[:t], t - 1, None)


def split_fit(parameters, X, y, gates, weights, cut=CUT, dtype=None):
    """Learn to ``cut``, convert (in ``dtype``, if given), learn the rest; also the first part."""
    y = y[:, 0] if y.shape[1:] == (1,) else y  # which is what one target becomes
    first = RLS(**parameters).partial_fit(X[:cut], y[:cut], weights[:cut], forget=gates[:cut])
    moments = first.moments()
    if dtype is not None:
        moments = olsq.Moments(*(s.astype(dtype) for s in moments))
    est = RLS.from_moments(moments, **parameters)
    at_once = est.coef_, est.intercept_
    est.partial_fit(X[cut:], y[cut:], weights[cut:], forget=gates[cut:])
    return est, first, at_once


def check_against_oracle(est, X, Y, gates, weights, ridge, t, dtype):
    """est after t rows: optimal, and as accurate as moments allow (they square the condition)."""
    X, Y = X[:t].astype(np.float64), Y.reshape(len(Y), -1)[:t].astype(np.float64)
    w = weights_at(gates, weights, t)
    ridge = np.full(X.shape[1], ridge)
    if est.ridge_mode == "discounted":
        ridge = ridge * np.prod(gates[:t])
    coef = np.atleast_2d(est.coef_).astype(np.float64)
    intercept = np.atleast_1d(est.intercept_).astype(np.float64)
    best, bias, _, _, condition = oracle.solve(X, Y, w, ridge, est.fit_intercept)
    allowed = tolerance("information", EPS[dtype], condition, 1.0)
    check_optimal(X, Y, w, ridge, est.fit_intercept, coef, intercept, 10 * EPS[dtype])
    if allowed < 0.1:  # else the optimum is flat
        assert coefficient_error(coef, best, X, Y) < allowed
        assert np.abs(intercept - bias).max() < allowed * max(np.abs(Y).max(), 1e-300)
    return condition
