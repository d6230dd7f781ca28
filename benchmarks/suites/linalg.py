"""``olsq.linalg``: columns into and out of a Cholesky factor, rows and columns of a QR."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from .common import need, ratio, relative_error


class Cholesky:
    """k columns into and out of a factor, over a fresh factorisation of the sum."""

    params = ([8, 64, 256], [1, 8])
    param_names = ("d", "k")

    def setup(self, d: int, k: int) -> None:
        names = ("olsq.linalg.cholesky_update", "olsq.linalg.cholesky_downdate")
        self.update, self.downdate = need(*names)
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((2 * d, d))
        self.A = rows.T @ rows
        self.R = np.ascontiguousarray(scipy.linalg.cholesky(self.A))
        self.x = rng.standard_normal((d, k))
        self.larger = self.update(self.R, self.x)

    def fresh(self) -> None:
        scipy.linalg.cholesky(self.A + self.x @ self.x.T)

    def track_update_over_fresh(self, d: int, k: int) -> float:
        return ratio(lambda: self.update(self.R, self.x), self.fresh)

    def track_downdate_over_fresh(self, d: int, k: int) -> float:
        return ratio(lambda: self.downdate(self.larger, self.x), self.fresh)

    def track_error(self, d: int, k: int) -> float:
        """Of the factor, after an update and its downdate."""
        return relative_error(self.downdate(self.larger, self.x), self.R)

    track_update_over_fresh.unit = track_downdate_over_fresh.unit = "ratio of processor time"
    track_error.unit = "relative error of the factor"


class Orthogonal:
    """One row and one column into and out of an economic QR, over SciPy's functions."""

    params = ([(500, 8), (500, 64)], ["row", "col"])
    param_names = ("shape", "which")

    def setup(self, shape: tuple[int, int], which: str) -> None:
        self.insert, self.delete = need("olsq.linalg.qr_insert", "olsq.linalg.qr_delete")
        rng = np.random.default_rng(0)
        self.Q, self.R = np.linalg.qr(rng.standard_normal(shape))
        self.u = rng.standard_normal(shape[1] if which == "row" else shape[0])
        self.k = min(shape) // 2

    def track_insert_over_scipy(self, shape: tuple[int, int], which: str) -> float:
        args = (self.Q, self.R, self.u, self.k)
        return ratio(
            lambda: self.insert(*args, which=which), lambda: scipy.linalg.qr_insert(*args, which)
        )

    def track_delete_over_scipy(self, shape: tuple[int, int], which: str) -> float:
        args = (self.Q, self.R, self.k)
        return ratio(
            lambda: self.delete(*args, which=which),
            lambda: scipy.linalg.qr_delete(*args, 1, which),
        )

    track_insert_over_scipy.unit = track_delete_over_scipy.unit = "ratio of processor time"
