"""The elastic net on a triangular factor: signs by coordinate descent, values by factorisation.

Minimises ``|R x - z|^2 / 2 + sum_j l1_j |x_j| + sum_j l2_j x_j^2 / 2``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.kernels import kernel

EPS = float(np.finfo(np.float64).eps)
SWEEPS = 10  # between two computations of the duality gap


class Penalty(NamedTuple):
    """Penalties of each coefficient: l1 (d,) on its size, l2 (d,) on half its square."""

    l1: NDArray[np.float64]
    l2: NDArray[np.float64]


def solve(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    penalty: Penalty,
    start: NDArray[np.float64],
    max_sweeps: int,
) -> tuple[NDArray[np.float64], float, int]:
    """Find the minimiser x (d,) from ``start`` (d,); return it, its duality gap and the sweeps.

    The minimum over the signs of the start is tried first.  Where the optimality conditions fail,
    sweeps of coordinate descent change the signs, and the minimum over these is next.  The
    objective falls from one set of signs to another, so it ends; after ``max_sweeps`` with the best
    there is.
    """
    length = np.linalg.norm(R, axis=0)
    present = length > 0
    length[~present] = 1.0  # rounding is judged in columns of unit length
    R, penalty = R / length, Penalty(penalty.l1 / length, penalty.l2 / length**2)
    rounding = 64 * z.size * EPS * float(np.linalg.norm(z))
    x, sweeps = np.where(present, start * length, 0.0), 0
    gram = cross = None
    while True:
        x = minimum_over_signs(R, z, penalty, x, present)
        slope = np.abs(R.T @ (z - R @ x))[x == 0]
        if sweeps >= max_sweeps or (slope <= penalty.l1[x == 0] + rounding).all():
            return x / length, duality_gap(R, z, penalty, x), sweeps
        if gram is None or cross is None:
            gram, cross = R.T @ R, R.T @ z
        count = min(SWEEPS, max_sweeps - sweeps)
        descend(gram, cross, penalty.l1, penalty.l2, x, count)
        sweeps += count


@kernel()
def descend(gram, cross, l1, l2, x, sweeps):
    """Run coordinate descent on ``x . gram x / 2 - cross . x`` plus the penalty, in place."""
    d = x.shape[0]
    if gram.shape != (d, d) or cross.shape != (d,) or l1.shape != (d,) or l2.shape != (d,):
        raise ValueError("the shapes of moments, penalties and coefficients do not fit together")
    rest = cross.copy()  # minus the gradient of the squares
    for i in range(d):
        if x[i] != 0:
            row = gram[i]
            for k in range(d):
                rest[k] -= x[i] * row[k]
    for _ in range(sweeps):
        for j in range(d):
            row = gram[j]
            curvature = row[j] + l2[j]
            if curvature <= 0:
                continue
            toward = rest[j] + row[j] * x[j]
            size = abs(toward) - l1[j]
            new = 0.0
            if size > 0:
                new = size / curvature if toward > 0 else -size / curvature
            change = new - x[j]
            if change != 0:
                x[j] = new
                for k in range(d):
                    rest[k] -= change * row[k]


def minimum_over_signs(
    R: NDArray, z: NDArray, penalty: Penalty, x: NDArray, present: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Minimise over the points with x's signs or zeros, passing no sign change on the way.

    Where a coefficient would change its sign on the straight way there, it stays 0, and the way
    goes on from that point without it (the line search of Lee et al. 2007).  Where columns depend
    on each other the way is along their dependence, on which the squares stay what they are.
    """
    x = x.copy()
    while True:
        support = np.flatnonzero(np.where(penalty.l1 > 0, x != 0, present))
        if not support.size:
            return x
        signs, l1 = np.sign(x[support]), penalty.l1[support]
        rows = np.vstack([R[:, support], np.diag(np.sqrt(penalty.l2[support]))])
        way = _way_to_minimum(rows, np.append(z, np.zeros(support.size)), l1, signs, x[support])
        meets = (l1 > 0) & (signs * (x[support] + way) <= 0)
        shares = np.where(meets, -x[support] / np.where(meets, way, 1.0), np.inf)
        j = int(np.argmin(shares))
        x[support] += min(shares[j], 1.0) * way
        if not meets.any():
            return x
        x[support[j]] = 0.0


def _way_to_minimum(
    A: NDArray, b: NDArray, l1: NDArray, signs: NDArray, x: NDArray
) -> NDArray[np.float64]:
    """Compute the step from x (k,) to the minimum of ``|A x - b|^2 / 2 + (l1 signs) . x``."""
    Q, T = np.linalg.qr(A)
    pivots = np.abs(np.diagonal(T))
    if pivots.min() > 8 * len(b) * EPS:
        pull = solve_triangular(T, l1 * signs, trans=1, check_finite=False)
        return solve_triangular(T, Q.T @ b - pull, check_finite=False) - x
    if not l1.any():
        return np.linalg.lstsq(A, b - A @ x, rcond=8 * len(b) * EPS)[0]
    free = np.linalg.svd(A)[2][-1]
    if free @ (l1 * signs) > 0:
        free = -free
    meets = signs * free < 0  # one of them at least, as all have a penalty
    return free * (-x[meets] / free[meets]).min()


def duality_gap(R: NDArray, z: NDArray, penalty: Penalty, x: NDArray) -> float:
    """Bound how far the objective at x is above its minimum.

    The dual point is the residual of the problem with ``sqrt(l2)`` as further rows, shrunk until
    it is feasible (Kim et al. 2007); directions without a penalty must have no slope left.
    """
    rest = z - R @ x
    slope = np.abs(R.T @ rest - penalty.l2 * x)
    penalised = penalty.l1 > 0
    worst = float((slope[penalised] / penalty.l1[penalised]).max(initial=0.0))
    share = 1.0 / max(worst, 1.0)
    squares = float(rest @ rest + penalty.l2 @ x**2)
    gap = 0.5 * (1.0 + share**2) * squares + float(penalty.l1 @ np.abs(x))
    return max(gap - share * float(rest @ z), 0.0)
