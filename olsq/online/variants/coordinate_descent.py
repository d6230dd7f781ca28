"""The elastic net on a triangular factor: signs by coordinate descent, values by factorisation.

Minimises ``|R x - z|^2 / 2 + sum_j l1_j |x_j| + sum_j l2_j x_j^2 / 2``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from olsq.kernel import kernel

EPS = float(np.finfo(np.float64).eps)
SWEEPS = 10  # between two looks at the duality gap


class Penalty(NamedTuple):
    """Of each coefficient: l1 (d,) of its size, l2 (d,) of half its square."""

    l1: NDArray[np.float64]
    l2: NDArray[np.float64]


def solve(
    R: NDArray[np.float64], z: NDArray[np.float64], penalty: Penalty, start: NDArray[np.float64],
    enough: float, rounding: float, max_sweeps: int,
) -> tuple[NDArray[np.float64], float, int]:  # fmt: skip
    """The minimiser x (d,), its duality gap, and the sweeps that it took; from ``start`` (d,).

    The support and signs of the start are tried as they are; where the optimality conditions
    fail, sweeps of coordinate descent change them, and the new ones are tried.  It ends when the
    conditions hold; else where the gap is down to ``rounding``, or to ``enough`` if the columns of
    the support depend on each other, or with the best there is after ``max_sweeps``.
    """
    length = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0  # rounding is judged in columns of unit length
    R, penalty = R / length, Penalty(penalty.l1 / length, penalty.l2 / length**2)
    present = np.abs(R).max(axis=0, initial=0.0) > 0
    x, sweeps, signs, goal = np.where(present, start * length, 0.0), 0, None, rounding
    best, least = x, np.inf
    gram = cross = None
    while True:
        now = np.where(penalty.l1 > 0, np.sign(x), present).astype(np.int8)
        if signs is None or (now != signs).any():  # not tried yet
            signs = now
            exact = _on_support(R, z, penalty, signs)
            goal = rounding if exact is not None else enough
            if exact is not None and _optimal(R, z, penalty, exact, signs):
                return exact / length, duality_gap(R, z, penalty, exact), sweeps
        gap = duality_gap(R, z, penalty, x)
        if gap < least:
            best, least = x.copy(), gap
        if sweeps >= max_sweeps or (sweeps > 0 and gap <= goal):
            return best / length, least, sweeps
        if gram is None or cross is None:
            gram, cross = R.T @ R, R.T @ z
        count = min(SWEEPS, max_sweeps - sweeps)
        x = x.copy()
        descend(gram, cross, penalty.l1, penalty.l2, x, count)
        sweeps += count


@kernel()
def descend(gram, cross, l1, l2, x, sweeps):
    """Sweeps of coordinate descent on ``x . gram x / 2 - cross . x`` and the penalty, in place."""
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


def _on_support(
    R: NDArray, z: NDArray, penalty: Penalty, signs: NDArray
) -> NDArray[np.float64] | None:
    """The minimum (d,) over coefficients of these signs, wherever it is; None if there is none."""
    support = np.flatnonzero(signs)
    x = np.zeros(z.size)
    if not support.size:
        return x
    root = np.diag(np.sqrt(penalty.l2[support]))
    Q, T = np.linalg.qr(np.vstack([R[:, support], root]))
    pivots = np.abs(np.diagonal(T))
    if pivots.min() <= 8 * z.size * EPS:
        if penalty.l1[support].any():
            return None  # dependent columns: several answers, and coordinate descent's is one
        x[support] = lstsq(np.vstack([R[:, support], root]), np.append(z, np.zeros(len(root))))[0]
        return x
    pull = np.linalg.solve(T.T, penalty.l1[support] * signs[support])
    x[support] = np.linalg.solve(T, Q[: z.size].T @ z - pull)
    return x


def _optimal(R: NDArray, z: NDArray, penalty: Penalty, x: NDArray, signs: NDArray) -> bool:
    """Whether the optimality conditions hold to rounding, where x is the minimum on its support."""
    penalised = penalty.l1 > 0
    if (penalised & (x * signs < 0)).any():
        return False
    rounding = 64 * z.size * EPS * float(np.linalg.norm(z))
    slope = np.abs(R.T @ (z - R @ x))[signs == 0]
    return bool((slope <= penalty.l1[signs == 0] + rounding).all())


def duality_gap(R: NDArray, z: NDArray, penalty: Penalty, x: NDArray) -> float:
    """A bound on how far the objective at x is above its minimum.

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
