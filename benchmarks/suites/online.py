"""Streams of rows: many rows at once, one at a time, many regressions side by side."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from .common import FORGET, RIDGE, need, one_by_one, ratio, regression, textbook, touch

SIZES = [4, 16, 64, 256]
METHODS = ["covariance", "sqrt", "information"]


def rows(d: int, m: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """About 100,000 entries, at least 4 d rows."""
    return regression(max(4 * d, 100_000 // d), d, m)


def estimator(method: str = "auto"):
    (kind,) = need("olsq.RecursiveLeastSquares")
    return kind(forget=FORGET, ridge=RIDGE, fit_intercept=False, method=method)


class WholeArray:
    """``partial_fit`` of many rows at once."""

    params = (SIZES, [1, 10], METHODS)
    param_names = ("d", "m", "method")

    def setup(self, d: int, m: int, method: str) -> None:
        self.X, self.y = rows(d, m)
        self.time_fit(d, m, method)

    def time_fit(self, d: int, m: int, method: str) -> None:
        estimator(method).partial_fit(self.X, self.y).coef_  # noqa: B018


class FixedRidge:
    """Residuals under a ridge that is not forgotten with the data."""

    params = ([4, 16, 64],)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        (kind,) = need("olsq.RecursiveLeastSquares")
        self.X, self.y = rows(d)
        self.est = kind(forget=FORGET, ridge=RIDGE, ridge_mode="fixed", fit_intercept=False)
        self.time_fit(d)

    def time_fit(self, d: int) -> None:
        self.est.fit(self.X, self.y)


class Ratios:
    """Many rows at once, beside a bound and beside the textbook's loop, in one process."""

    params = (SIZES, METHODS)
    param_names = ("d", "method")

    def setup(self, d: int, method: str) -> None:
        self.X, self.y = rows(d)
        self.fit = lambda: estimator(method).partial_fit(self.X, self.y).coef_
        self.fit()

    def track_over_traffic(self, d: int, method: str) -> float:
        """Over one pass through a triangle of P for each row: no update can do less."""
        P = np.ones(d * (d + 1) // 2)
        return ratio(self.fit, lambda: touch(P, len(self.X), 1.0))

    def track_over_textbook(self, d: int, method: str) -> float:
        """Over the textbook's recursion, compiled."""

        def theirs() -> None:
            textbook(self.X, self.y, np.eye(d) / RIDGE, np.zeros(d), FORGET)

        return ratio(self.fit, theirs)

    track_over_traffic.unit = track_over_textbook.unit = "ratio of processor time"


class OneRow:
    """``partial_fit``, ``step`` and ``predict`` of a single row: what Python costs."""

    params = ([4, 64], METHODS)
    param_names = ("d", "method")

    def setup(self, d: int, method: str) -> None:
        X, y = rows(d)
        self.est = estimator(method).partial_fit(X, y)
        self.rows = one_by_one(X, y)

    def time_partial_fit(self, d: int, method: str) -> None:
        self.est.partial_fit(*next(self.rows))

    def time_predict(self, d: int, method: str) -> None:
        self.est.predict(next(self.rows)[0])


class Step:
    """``step``: predict, then learn, one row."""

    params = ([4, 64],)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        need("olsq.RecursiveLeastSquares.step")
        X, y = rows(d)
        self.est = estimator().partial_fit(X, y)
        self.rows = itertools.cycle([(x, float(target)) for x, target in zip(X, y, strict=True)])
        self.time_step(d)

    def time_step(self, d: int) -> None:
        self.est.step(*next(self.rows))


class Bank:
    """A row for each of n regressions of 4 coefficients: a bank over a loop of estimators."""

    params = ([100, 10_000],)
    param_names = ("n",)

    def setup(self, n: int) -> None:
        (bank,) = need("olsq.FilterBank")
        rng = np.random.default_rng(0)
        self.X, self.y = rng.standard_normal((n, 4)), rng.standard_normal(n)
        self.bank = bank(n, forget=FORGET)
        self.bank.partial_fit(self.X, self.y)

    def time_rows(self, n: int) -> None:
        self.bank.partial_fit(self.X, self.y)

    def track_over_loop(self, n: int) -> float:
        """Per regression, over ``partial_fit`` of one estimator."""
        one = estimator().partial_fit(self.X, self.y)
        x, y = self.X[:1], self.y[:1]
        return ratio(lambda: self.time_rows(n), lambda: one.partial_fit(x, y)) / n

    track_over_loop.unit = "ratio of processor time"


class Bandit:
    """A turn of a bandit of n arms and 16 regressors, beside batched NumPy in one process.

    NumPy keeps the inverses P (n, d, d) and the coefficients (n, d): an update is the rank-one
    formula on views of one arm, ``P @ x`` its product of all arms with the context, and a draw
    factors all of P with ``np.linalg.cholesky``.
    """

    params = ([100, 1000],)
    param_names = ("n",)

    def setup(self, n: int) -> None:
        (kind,) = need("olsq.FilterBank")
        rng, d = np.random.default_rng(0), 16
        self.bank = kind(n, n_features=d, ridge=1.0, fit_intercept=False)
        self.x, self.rng = rng.standard_normal(d), rng
        self.P, self.theta = np.tile(np.eye(d), (n, 1, 1)), np.zeros((n, d))
        for _ in range(3):
            rows, y = rng.standard_normal((n, d)), rng.standard_normal(n)
            self.bank.partial_fit(rows, y)
            for i in range(n):
                self.numpy_update(i, rows[i], y[i])

    def numpy_update(self, i: int, x: np.ndarray, y: float) -> None:
        u = self.P[i] @ x
        gain = u / (1 + x @ u)
        self.theta[i] += gain * (y - x @ self.theta[i])
        self.P[i] -= np.outer(gain, u)

    def ours(self) -> np.ndarray:
        return self.bank.predict(self.x) + 0.5 * np.sqrt(self.bank.leverage(self.x))

    def theirs(self) -> np.ndarray:
        u = self.P @ self.x
        return self.theta @ self.x + 0.5 * np.sqrt((u * self.x).sum(axis=1))

    def time_update(self, n: int) -> None:
        self.bank.partial_fit(self.x, 1.0, which=3)

    def track_update(self, n: int) -> float:
        """Over NumPy's rank-one update."""
        own = lambda: self.bank.partial_fit(self.x, 1.0, which=3)  # noqa: E731
        return ratio(own, lambda: self.numpy_update(3, self.x, 1.0))

    def track_linucb(self, n: int) -> float:
        """A decision by upper confidence bounds, and an update."""

        def own() -> None:
            self.bank.partial_fit(self.x, 1.0, which=int(np.argmax(self.ours())))

        return ratio(own, lambda: self.numpy_update(int(np.argmax(self.theirs())), self.x, 1.0))

    def track_thompson(self, n: int) -> float:
        """A decision by draws of all coefficients, and an update."""

        def own() -> None:
            draws = self.bank.sample_coef(self.rng, sigma2=1.0)[0]
            self.bank.partial_fit(self.x, 1.0, which=int(np.argmax(draws @ self.x)))

        def theirs() -> None:
            u = self.rng.standard_normal((*self.theta.shape, 1))
            draws = self.theta + (np.linalg.cholesky(self.P) @ u)[..., 0]
            self.numpy_update(int(np.argmax(draws @ self.x)), self.x, 1.0)

        return ratio(own, theirs)

    track_update.unit = track_linucb.unit = track_thompson.unit = "ratio of processor time"


class ManyCoefficients:
    """Calls of 256 rows to a large state, beside LAPACK and the NumPy that people write by hand."""

    params = ([128, 512, 1024, 2048], ["covariance", "sqrt", "information"])
    param_names = ("d", "method")

    def setup(self, d: int, method: str) -> None:
        (kind,) = need("olsq.RecursiveLeastSquares")
        self.X, self.y = regression(256, d, 1)
        prior = np.zeros(d), np.full(d, 1 / (4 * d))
        self.est = kind(method=method, prior=prior, fit_intercept=False, residuals=False)
        self.call = lambda: self.est.partial_fit(self.X, self.y)
        self.call()
        (self.tpqrt,) = get_lapack_funcs(("tpqrt",), dtype=np.float64)
        (self.syrk,) = get_blas_funcs(("syrk",), dtype=np.float64)
        self.R, self.rows = np.asfortranarray(np.eye(d) * 50.0), np.asfortranarray(self.X)
        self.H, self.total = np.zeros((d, d)), np.zeros((d, d), order="F")

    def time_call(self, d: int, method: str) -> None:
        self.call()

    def track_over_tpqrt(self, d: int, method: str) -> float:
        return ratio(self.call, lambda: self.tpqrt(0, 32, self.R, self.rows, overwrite_a=True))

    def track_over_dsyrk(self, d: int, method: str) -> float:
        own = {"beta": 1.0, "c": self.total, "overwrite_c": True}
        return ratio(self.call, lambda: self.syrk(1.0, self.X.T, **own))

    def track_over_numpy(self, d: int, method: str) -> float:
        return ratio(self.call, self.accumulate)

    def accumulate(self) -> None:
        self.H += self.X.T @ self.X
