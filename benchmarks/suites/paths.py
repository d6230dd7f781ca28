"""Coefficients after every row: by exponential forgetting and over rolling windows."""

from __future__ import annotations

import numpy as np

from .common import FORGET, RIDGE, library, need, ratio, regression

SIZES = [4, 16, 64]


def options_of(kind: str, d: int) -> dict:
    """Arguments of ``coefficient_path``."""
    if kind == "rolling":
        return {"window": max(100, 4 * d)}
    return {"forget": FORGET, "ridge": RIDGE}


class Path:
    """``coefficient_path`` of arrays."""

    params = (SIZES, [1, 10], ["forget", "rolling"])
    param_names = ("d", "m", "kind")

    def setup(self, d: int, m: int, kind: str) -> None:
        (self.path,) = need("olsq.coefficient_path")
        self.X, self.y = regression(100_000 // d, d, m)
        self.options = options_of(kind, d)
        self.time_path(d, m, kind)

    def time_path(self, d: int, m: int, kind: str) -> None:
        self.path(self.X, self.y, **self.options)


class Bare:
    """``coefficient_path`` without noise variances and standard errors."""

    params = (SIZES, ["forget", "rolling"])
    param_names = ("d", "kind")

    def setup(self, d: int, kind: str) -> None:
        (self.path,) = need("olsq.coefficient_path")
        self.X, self.y = regression(max(100_000 // d, 8 * max(100, 4 * d)), d)
        self.options = options_of(kind, d)
        try:
            self.time_path(d, kind)
        except TypeError as error:
            raise NotImplementedError(f"this commit has no statistics=False: {error}") from error

    def time_path(self, d: int, kind: str) -> None:
        self.path(self.X, self.y, statistics=False, **self.options)


class Dependent:
    """``coefficient_path`` where four dummies stand beside an intercept: no row determines all."""

    params = (["stream", "groups", "rolling"],)
    param_names = ("kind",)

    def setup(self, kind: str) -> None:
        (self.path,) = need("olsq.coefficient_path")
        X, self.y = regression(4_000, 1)
        self.X = np.column_stack([np.eye(4)[np.arange(4_000) * 7 % 11 % 4], X])
        options = {"rolling": {"window": 60}, "groups": {"by": np.arange(4_000) // 400}}
        self.options = {"fit_intercept": True, "ridge": 0.0} | options.get(kind, {})
        self.time_path(kind)

    def time_path(self, kind: str) -> None:
        self.path(self.X, self.y, **self.options)


class Ratios:
    """A whole path over learning the same rows and reading the last coefficients only."""

    params = (SIZES, ["forget", "rolling"])
    param_names = ("d", "kind")

    def setup(self, d: int, kind: str) -> None:
        path, recursive, rolling = need(
            "olsq.coefficient_path", "olsq.RecursiveLeastSquares", "olsq.RollingLeastSquares"
        )
        self.X, self.y = X, y = regression(50_000 // d, d)
        options = options_of(kind, d)
        kinds = {"forget": recursive, "rolling": rolling}
        self.path = lambda: path(X, y, **options)
        self.last = lambda: kinds[kind](**options, fit_intercept=False).partial_fit(X, y).coef_

    def track_over_last(self, d: int, kind: str) -> float:
        return ratio(self.path, self.last)

    track_over_last.unit = "ratio of processor time"


class Frame:
    """A window of 30 days over uneven times, on a pandas frame, all rows and by ten groups."""

    params = ([False, True],)
    param_names = ("by groups",)

    def setup(self, groups: bool) -> None:
        pandas = library("pandas")
        (self.path,) = need("olsq.coefficient_path")
        X, y = regression(5000, 4)
        hours = np.cumsum(np.random.default_rng(1).integers(1, 24, 5000))
        times = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(hours, unit="h")
        self.X = pandas.DataFrame(X, index=times, columns=list("abcd"))
        self.y = pandas.Series(y, index=times)
        self.options = {"window": "30D", "by": np.arange(5000) % 10 if groups else None}
        try:
            self.time_path(groups)
        except TypeError as error:
            raise NotImplementedError(f"this commit reads no windows of time: {error}") from error

    def time_path(self, groups: bool) -> None:
        self.path(self.X, self.y, **self.options)
