"""Every NumPy path on small streams of every layout, for compilation with index checks.

With the argument "streams" only kernels that also run uncompiled, as Python, which checks indices.
"""

import itertools
import sys
import warnings
from functools import partial

import numba
import numpy as np

import olsq
from olsq import compiled
from olsq.online.many import group_fits
from tests.compiled.loops import learn

T, D, M = 21, 3, 2

SOLVERS = [
    None,
    *(olsq.ChunkExact(chunk=8, corrections=k) for k in (0, 2)),
    olsq.ConjugateGradient(3, 0.0, chunk=8),
    olsq.ConjugateGradient(3, 0.0, chunk=8, preconditioner="chunk"),
    olsq.Chebyshev(3, chunk=8),
    olsq.Chebyshev(3, chunk=8, eigenvalue_ratio=30.0),
    olsq.Neumann(3, chunk=8),
    olsq.Recursive(),
    olsq.Dense(),
]


def streams(rng, batch):
    """Keys, values, queries and the options of one layout after another."""
    data = [rng.normal(size=(*batch, T, n)) for n in (D, M, D)]
    gates = [None, 0.9, rng.uniform(0.5, 1, (*batch, T))]
    ridges = [0.1, np.array([0.1, 1, 2.0]), rng.uniform(0.5, 2, (*batch, T, D))]
    for forget, ridge in itertools.product(gates, ridges):
        yield data, {"forget": forget, "ridge": ridge}


def claimed(solver, mode, forget, ridge):
    """Test whether the solver takes the problem."""
    of_tokens = np.ndim(ridge) > 1
    if mode == "discounted":
        return not of_tokens and (solver is None or mode in solver.ridge_modes)
    return not isinstance(solver, olsq.Recursive) or (forget is None and not of_tokens)


def sequences(rng):
    for batch, solver in itertools.product([(), (2,)], SOLVERS):
        for data, options in streams(rng, batch):
            for mode in ("fixed", "discounted"):
                if not claimed(solver, mode, **options):
                    continue
                given = options | {"ridge_mode": mode, "solver": solver}
                fit = olsq.online_lstsq(*data, **given)
                assert np.isfinite(fit.value).all(), (solver, mode)
                olsq.online_lstsq_vjp(*data, np.ones_like(fit.value), **given)
                if mode == "discounted":
                    given["ridge"] = None  # the state holds it
                olsq.online_lstsq(*data, **given, state=fit.state)


def estimators(rng):
    for d, m in ((1, 1), (3, 2), (30, 1)):
        X, Y = rng.normal(size=(90, d)), rng.normal(size=(90, m))
        X[5], Y[7], X[40:45] = np.nan, np.nan, 0
        covariances, ridges = ("posterior", "sandwich"), (0, 0.1)
        if d > 3 and numba.config.DISABLE_JIT:  # wide rows take Python minutes
            covariances, ridges = ("sandwich",), (0.1,)
        options = itertools.product(
            ("covariance", "sqrt", "information"), (1.0, 0.9), covariances, ridges
        )
        for method, forget, cov, ridge in options:
            est = olsq.RecursiveLeastSquares(method=method, forget=forget, cov=cov, ridge=ridge)
            est.partial_fit_path(X[:50], Y[:50])
            est.partial_fit(X[50:], Y[50:], np.linspace(0, 1, 40))
            olsq.merge(est, est).predict(X)
            one = olsq.RecursiveLeastSquares(method=method, forget=forget, cov=cov, ridge=ridge)
            for x, y in zip(X[:9], Y[:9, 0], strict=True):
                if np.isfinite(x).all():
                    one.step(x, y)
            one.predict(X[:1])
        for of in ("samples", "positions"):
            est = olsq.RollingLeastSquares(window=12, window_of=of, ridge=0.1)
            est.partial_fit_path(X, Y)
            est.partial_fit(X, Y).predict(X)


def ways_of_forgetting(d):
    return [
        olsq.forgetting.RandomWalk(0.01), olsq.forgetting.ResetOnBreak(),
        olsq.forgetting.Variable(20), olsq.forgetting.BoundedTrace(0.9, 100.0),
        olsq.forgetting.PerCoefficient([0.9] * (d + 1)), olsq.forgetting.Directional(0.9),
    ]  # fmt: skip


def other_engines(rng):
    for d, m in ((1, 1), (3, 2), (5, 1)):
        X, Y = rng.normal(size=(90, d)), rng.normal(size=(90, m))
        X[5], Y[7], X[40:45] = np.nan, np.nan, 0
        for forget, ridge in itertools.product(ways_of_forgetting(d), (0.0, 0.1)):
            est = olsq.RecursiveLeastSquares(forget=forget, ridge=ridge)
            est.partial_fit_path(X[:50], Y[:50])
            est.partial_fit(X[50:], Y[50:])
        for of, forget, window in itertools.product(("samples", "positions"), (1, 0.9), (12, 2)):
            ridge = 0.1 if window > 2 else 0.0
            est = olsq.RollingLeastSquares(window, window_of=of, ridge=ridge, forget=forget)
            est.partial_fit_path(X, Y)
            est.partial_fit(X, Y).predict(X)
        bank, rows = olsq.FilterBank(2), np.stack([X[:3], X[10:13]])
        bank.partial_fit(np.stack([X] * 2), np.stack([Y] * 2))
        bank.predict(rows)
        bank.leverage(rows)
        olsq.RobustLeastSquares().partial_fit(X, Y)


def compiled_loops(rng):
    for d, ridge in itertools.product((1, 3, 30), (0.0, 0.1)):
        X, y = rng.normal(size=(90, d)), rng.normal(size=90)
        X[5, 0], y[7], X[40:60] = np.nan, np.inf, 0
        gates, weights = rng.uniform(0.5, 1, 90), rng.uniform(0, 2, 90)
        gates[30], gates[70] = 0.0, 1e-7
        states = compiled.init(d, ridge=ridge, n=2)
        for state in (compiled.init(d, ridge=ridge), compiled.state_at(states, 1)):
            coef, _, _ = learn(state, X, y, gates, weights)
            assert np.isfinite(coef).all()
            for length in (0, d - 1, d + 1, 10 * d):  # nothing is read or written beyond x
                wrong = np.ones((2, length))
                if length != d:
                    assert np.isnan(residuals(state, wrong)).all()
        assert np.isfinite(compiled.coef(states)).all()


@numba.njit
def residuals(state, X):
    return [compiled.update(state, x, 1.0, 0.9, 1.0) for x in X]


def groups(rng):
    """Groups of rows: estimators, paths without statistics, and fits from moments."""
    for d in (1, 3):
        X, y, weights = rng.normal(size=(40, d)), rng.normal(size=40), rng.uniform(size=40)
        X[5] = np.nan
        lengths = np.array([1, 0, 30, 9])
        by = np.repeat(np.arange(4), lengths)
        options = itertools.product((False, True), (0.0, 0.1), (None, weights))
        for intercept, ridge, given in options:
            same = {"fit_intercept": intercept, "ridge": ridge}
            for more in ({}, {"window": 5}, {"cov": "sandwich"}):
                olsq.coefficient_path(X, y, by=by, statistics=False, **same, **more)
            same |= {"missing": "skip", "cov": "posterior", "noise_variance": None}
            fits = group_fits.fit_groups(X, y, lengths, given, same)
            group_fits.predict_groups(X, lengths, fits.coef, intercept)
        kinds = olsq.GroupedLeastSquares, partial(olsq.GroupedRollingLeastSquares, window=5)
        for kind, intercept in itertools.product(kinds, (False, True)):
            est = kind(fit_intercept=intercept)
            est.partial_fit(X, y, by=np.full(40, None))  # no row has a label yet
            est.partial_fit(X, y, by=by).predict(X, by=by)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    estimators(rng)
    other_engines(rng)
    groups(rng)
    if sys.argv[1:] != ["streams"]:
        sequences(rng)
        compiled_loops(rng)
    print("done")
