"""``RollingLeastSquares``: rows that enter and leave a window."""

from __future__ import annotations

import numpy as np

from .common import FORGET, RIDGE, need, one_by_one, ratio, regression

SIZES = [4, 16, 64]


class Rolling:
    """A whole array through a window of max(100, 4 d) rows."""

    params = (SIZES,)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        (self.kind,) = need("olsq.RollingLeastSquares")
        self.X, self.y = regression(100_000 // d, d)
        self.time_fit(d)

    def time_fit(self, d: int) -> None:
        window = max(100, 4 * d)
        self.kind(window=window, fit_intercept=False).partial_fit(self.X, self.y).coef_  # noqa: B018

    def track_over_forgetting(self, d: int) -> float:
        """Over exponential forgetting of the same rows, which takes none out: 2 is fair."""
        (recursive,) = need("olsq.RecursiveLeastSquares")

        def theirs() -> None:
            est = recursive(forget=FORGET, ridge=RIDGE, fit_intercept=False)
            est.partial_fit(self.X, self.y).coef_  # noqa: B018

        return ratio(lambda: self.time_fit(d), theirs)

    track_over_forgetting.unit = "ratio of processor time"


class OneRow:
    """One row in, one out, and the coefficients read."""

    params = (SIZES,)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        (kind,) = need("olsq.RollingLeastSquares")
        X, y = regression(2000, d)
        self.est = kind(window=max(100, 4 * d), fit_intercept=False).partial_fit(X, y)
        self.rows = one_by_one(X, y)

    def time_row(self, d: int) -> None:
        self.est.partial_fit(*next(self.rows)).coef_  # noqa: B018


class Groups:
    """A row for each of 1,000 groups in one call, in full windows, and the coefficients read."""

    params = (SIZES,)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        (kind,) = need("olsq.GroupedRollingLeastSquares")
        X, y = regression(100_000, d)
        self.est = kind(window=100, fit_intercept=False)
        self.est.partial_fit(X, y, by=np.arange(100_000) % 1000)
        self.X, self.y, self.by = X[:1000], y[:1000], np.arange(1000)

    def time_row_each(self, d: int) -> None:
        self.est.partial_fit(self.X, self.y, by=self.by).coef_  # noqa: B018
