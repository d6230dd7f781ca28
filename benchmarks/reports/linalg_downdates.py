"""Three ways to downdate a Cholesky factor, and their errors.

    python -m benchmarks.reports.linalg_downdates

The row that is taken out has just been put in, ``size`` times as long as the others, so that the
exact answer is known and ``rho^2 = 1 / (1 + |R^-T x|^2)`` is as small as one likes.  Residuals are
``R'^T R' + x x^T - R^T R`` next to its diagonal, in extended precision.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from olsq.linalg import cholesky_downdate, cholesky_update

EPS, D, TRIALS = float(np.finfo(float).eps), 8, 200


def hyperbolic(R: NDArray, x: NDArray) -> NDArray:
    """Plain hyperbolic rotations, applied to both rows."""
    R, x = R.copy(), x.copy()
    for j in range(len(R)):
        length = np.sqrt((R[j, j] - x[j]) * (R[j, j] + x[j]))
        c, s = R[j, j] / length, x[j] / length
        R[j], x = c * R[j] - s * x, c * x - s * R[j]
    return np.triu(R)


def linpack(R: NDArray, x: NDArray) -> NDArray:
    """LINPACK's dchdd: a triangular solve, then orthogonal rotations from below."""
    p = scipy.linalg.solve_triangular(R, x, trans=1)
    size = np.linalg.norm(p)
    norm, R, out = np.sqrt((1 - size) * (1 + size)), R.copy(), np.zeros(len(R))
    for i in range(len(R) - 1, -1, -1):
        length = np.hypot(norm, p[i])
        c, s, norm = norm / length, p[i] / length, length
        R[i], out = c * R[i] - s * out, s * R[i] + c * out
    return np.triu(R)


def gram(*rows: NDArray) -> NDArray:
    stacked = np.vstack(rows).astype(np.longdouble)
    return stacked.T @ stacked


def main() -> None:
    ways = {"plain hyperbolic": hyperbolic, "LINPACK": linpack, "olsq": cholesky_downdate}
    print("| size | " + " | ".join(ways) + " |\n|---|" + "---|" * len(ways))
    for size in (1.0, 1e2, 1e4, 1e6):
        rng = np.random.default_rng(0)
        residuals: dict[str, list[float]] = {name: [] for name in ways}
        errors: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(TRIALS):
            before = cholesky_update(np.zeros((D, D)), rng.standard_normal((D, 20)))
            x = size * rng.standard_normal(D)
            R = cholesky_update(before, x)
            wanted, scale = gram(R), np.sqrt(np.diagonal(gram(R)))
            for name, way in ways.items():
                found = way(R, x)
                gap = np.abs(gram(found, x) - wanted) / scale / scale[:, None]
                residuals[name].append(float(gap.max()) / EPS)
                errors[name].append(np.linalg.norm(found - before) / np.linalg.norm(before))
        cells = [f"{max(residuals[n]):.1f}; {np.median(errors[n]):.0e}" for n in ways]
        print(f"| {size:g} | " + " | ".join(cells) + " |")
    print("\n| d | k | largest residual of an update, of its downdate |\n|---|---|---|")
    for d, k in ((50, 10), (300, 10), (300, 300)):
        rng = np.random.default_rng(0)
        R = np.linalg.qr(rng.standard_normal((2 * d, d)))[1]
        X = rng.standard_normal((k, d))
        updated = cholesky_update(R, X.T)
        smaller = cholesky_downdate(updated, X.T)
        cells = []
        for found, wanted in ((gram(updated), gram(R, X)), (gram(smaller, X), gram(updated))):
            scale = np.sqrt(np.diagonal(wanted))
            cells.append(float((np.abs(found - wanted) / scale / scale[:, None]).max()) / EPS)
        print(f"| {d} | {k} | {cells[0]:.1f}, {cells[1]:.1f} |")


if __name__ == "__main__":
    main()
