"""Saving and loading an estimator: what a service pays between requests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .common import FORGET, RIDGE, need, regression


class Files:
    """``save`` and ``olsq.load`` of an estimator that has learned, and of a bank."""

    params = (["estimator, d 64", "bank of 1,000, d 4"],)
    param_names = ("state",)

    def setup(self, state: str) -> None:
        self.load, recursive, bank = need(
            "olsq.load", "olsq.RecursiveLeastSquares", "olsq.FilterBank"
        )
        if state.startswith("bank"):
            X, y = regression(1000, 4)
            self.learned = bank(1000, forget=FORGET).partial_fit(X, y)
        else:
            learned = recursive(forget=FORGET, ridge=RIDGE, fit_intercept=False)
            self.learned = learned.partial_fit(*regression(1000, 64))
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state.olsq"
        self.learned.save(self.path)

    def teardown(self, state: str) -> None:
        self.folder.cleanup()

    def time_save(self, state: str) -> None:
        self.learned.save(self.path)

    def time_load(self, state: str) -> None:
        self.load(self.path)
