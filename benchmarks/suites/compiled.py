"""Filters inside the user's own compiled loop, beside the whole-array ``fit`` of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from .common import FORGET, RIDGE, dense, need, ratio, regression, relative_error

ROWS = 20_000


def loop() -> Callable[..., Any]:
    """A user's loop, compiled: learn rows X, y with a state."""
    (compiled,) = need("olsq.compiled")

    @njit(cache=False)
    def learn(state, X, y, forget):  # pragma: no cover - compiled
        for t in range(y.shape[0]):
            compiled.update(state, X[t], y[t], forget, 1.0)

    return learn


class UserLoop:
    """``olsq.compiled.update`` for each row of a user's Numba loop."""

    params = ([4, 16, 64],)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        (self.compiled,) = need("olsq.compiled")
        self.X, self.y = regression(ROWS, d)
        self.learn = loop()
        self.state = self.compiled.init(d, ridge=RIDGE)
        self.time_loop(d)

    def time_loop(self, d: int) -> None:
        self.learn(self.state, self.X, self.y, FORGET)

    def track_ratio(self, d: int) -> float:
        """Times the whole-array ``fit``: at most 1.5 wanted at d = 4 and 16."""
        (kind,) = need("olsq.RecursiveLeastSquares")
        est = kind(forget=FORGET, ridge=RIDGE, fit_intercept=False)
        return ratio(lambda: self.time_loop(d), lambda: est.fit(self.X, self.y))

    track_ratio.unit = "times fit"

    def track_error(self, d: int) -> float:
        """Largest relative error of the coefficients after the last row."""
        X, y = self.X[:2000], np.ascontiguousarray(self.y[:2000])
        state = self.compiled.init(d, ridge=RIDGE)
        self.learn(state, X, y, FORGET)
        return relative_error(self.compiled.coef(state), dense(X, y))

    track_error.unit = "relative"
