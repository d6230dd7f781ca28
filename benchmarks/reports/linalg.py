"""The tables of docs/measurements/rows.md: :mod:`olsq.linalg` beside SciPy and LAPACK.

    python -m benchmarks.reports.linalg            # prints the tables: minutes

Times are processor time, the least of several repetitions, taken in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from olsq.linalg import cholesky_downdate, cholesky_update, qr_delete, qr_insert

SIZES, COLUMNS = [8, 32, 128, 512], [1, 8, 64]
SHAPES = [(16, 8), (50, 8), (500, 8), (128, 64), (500, 64), (300, 256)]  # m, n


def factor(d: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gram matrix and its upper factor."""
    rows = np.random.default_rng(0).standard_normal((2 * d, d))
    A = rows.T @ rows
    return A, np.ascontiguousarray(scipy.linalg.cholesky(A))  # SciPy returns Fortran order


class Cholesky:
    """k columns into and out of a factor, and a fresh factorisation of the sum."""

    params = (SIZES, COLUMNS)
    param_names = ("d", "k")

    def setup(self, d: int, k: int) -> None:
        self.A, self.R = factor(d)
        self.x = np.random.default_rng(1).standard_normal((d, k))
        self.larger = cholesky_update(self.R, self.x)
        self.smaller = cholesky_downdate(self.larger, self.x)

    def time_update(self, d: int, k: int) -> None:
        cholesky_update(self.R, self.x)

    def time_downdate(self, d: int, k: int) -> None:
        cholesky_downdate(self.larger, self.x)

    def time_fresh(self, d: int, k: int) -> None:
        scipy.linalg.cholesky(self.A + self.x @ self.x.T)

    def time_lapack_tpqrt(self, d: int, k: int) -> None:
        scipy.linalg.lapack.dtpqrt(0, min(d, 32), self.R, self.x.T)

    def track_error(self, d: int, k: int) -> float:
        return float(np.abs(self.smaller - self.R).max() / np.abs(self.R).max())

    track_error.unit = "relative error of the factor after an update and its downdate"


class Orthogonal:
    """One row and one column in and out of an economic factorisation, and SciPy's functions."""

    params = (SHAPES, ["row", "col"])
    param_names = ("shape", "which")

    def setup(self, shape: tuple[int, int], which: str) -> None:
        rng = np.random.default_rng(0)
        self.Q, self.R = np.linalg.qr(rng.standard_normal(shape))
        self.u = rng.standard_normal(shape[1] if which == "row" else shape[0])
        self.k = min(shape) // 2
        self.time_insert(shape, which)
        self.time_delete(shape, which)

    def time_insert(self, shape: tuple[int, int], which: str) -> None:
        qr_insert(self.Q, self.R, self.u, self.k, which=which)

    def time_scipy_insert(self, shape: tuple[int, int], which: str) -> None:
        scipy.linalg.qr_insert(self.Q, self.R, self.u, self.k, which)

    def time_delete(self, shape: tuple[int, int], which: str) -> None:
        qr_delete(self.Q, self.R, self.k, which=which)

    def time_scipy_delete(self, shape: tuple[int, int], which: str) -> None:
        scipy.linalg.qr_delete(self.Q, self.R, self.k, 1, which)


class Batch:
    """A thousand small factors at once."""

    params = (["numpy", "jax"],)
    param_names = ("side",)

    def setup(self, side: str) -> None:
        rng = np.random.default_rng(0)
        A = rng.standard_normal((1000, 32, 16))
        self.A = A.swapaxes(-1, -2) @ A
        self.R = np.linalg.cholesky(self.A).swapaxes(-1, -2)
        self.x = rng.standard_normal((1000, 16))
        self.update, self.fresh = cholesky_update, np.linalg.cholesky
        if side == "jax":
            import jax
            import jax.numpy as jnp

            jax.config.update("jax_enable_x64", True)
            self.A, self.R, self.x = map(jnp.asarray, (self.A, self.R, self.x))
            update, fresh = jax.jit(cholesky_update), jax.jit(jnp.linalg.cholesky)
            self.update = lambda R, x: update(R, x).block_until_ready()
            self.fresh = lambda A: fresh(A).block_until_ready()
        self.time_update(side)
        self.time_fresh(side)

    def time_update(self, side: str) -> None:
        self.update(self.R, self.x)

    def time_fresh(self, side: str) -> None:
        self.fresh(self.A + self.x[:, :, None] * self.x[:, None, :])


def least(functions: list[Callable[[], Any]], seconds: float = 0.6) -> list[float]:
    """Least processor time of a call of each, in turn."""
    best, counts = [np.inf] * len(functions), []
    for function in functions:
        start = time.process_time()
        for _ in range(3):
            function()
        once = (time.process_time() - start) / 3
        counts.append(max(1, int(0.01 / max(once, 1e-7))))
    end = time.process_time() + seconds * len(functions)
    while time.process_time() < end:
        for i, (function, count) in enumerate(zip(functions, counts, strict=True)):
            start = time.process_time()
            for _ in range(count):
                function()
            best[i] = min(best[i], (time.process_time() - start) / count)
    return best


def main() -> None:
    print("| d | k | fresh / update | tpqrt / update | fresh / downdate |")
    print("|---|---|---|---|---|")
    for d in SIZES:
        for k in COLUMNS:
            case = Cholesky()
            case.setup(d, k)
            names = ("time_update", "time_downdate", "time_fresh", "time_lapack_tpqrt")
            calls = [lambda n=n, c=case, d=d, k=k: getattr(c, n)(d, k) for n in names]
            up, down, fresh, tpqrt = least(calls)
            print(f"| {d} | {k} | {fresh / up:.2f} | {tpqrt / up:.2f} | {fresh / down:.2f} |")
    print("\n| m, n | which | SciPy / qr_insert | SciPy / qr_delete |\n|---|---|---|---|")
    for shape in SHAPES:
        for which in ("row", "col"):
            case = Orthogonal()
            case.setup(shape, which)
            names = ("time_insert", "time_scipy_insert", "time_delete", "time_scipy_delete")
            calls = [lambda n=n, c=case, s=shape, w=which: getattr(c, n)(s, w) for n in names]
            one, other, out, theirs = least(calls)
            print(f"| {shape[0]}, {shape[1]} | {which} | {other / one:.2f} | {theirs / out:.2f} |")
    print("\n| 1000 factors, d = 16 | fresh / update |\n|---|---|")
    for side in ("numpy", "jax"):
        case = Batch()
        case.setup(side)
        names = ("time_update", "time_fresh")
        up, fresh = least([lambda n=n, c=case, s=side: getattr(c, n)(s) for n in names])
        print(f"| {side} | {fresh / up:.2f} |")


if __name__ == "__main__":
    main()
