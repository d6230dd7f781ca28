"""Least squares under linear equations and bounds, on a factor.

Minimises ``|R x - z|`` subject to ``A x = b`` and ``lower <= x <= upper``: by the compiled search
of :mod:`olsq.online.variants.active_set_kernels`, and by least distance programming where that
stops, because R, or the equations on a face, leave directions undetermined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space, solve_triangular

from olsq.online.variants.active_set_kernels import EPS, settle

SINGULAR = 1e-10  # a smallest singular value, of columns of unit length, below which R is singular
FLOOR = 1e-7  # penalty on the norm, with which a singular R is none


class Constraints(NamedTuple):
    """``A x = b`` with A (q, d), b (q,), and bounds (d,), which may be infinite."""

    A: NDArray[np.float64]
    b: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def scaled(self, length: NDArray[np.float64]) -> Constraints:
        """Return the constraints of ``length * x``."""
        A = self.A / length
        size = np.linalg.norm(A, axis=1)
        size[size == 0] = 1.0
        return Constraints(
            A / size[:, None], self.b / size, self.lower * length, self.upper * length
        )

    def feasible(self) -> NDArray[np.float64] | None:
        """Find any x within the constraints; None where there is none."""
        if not self.b.size:
            return np.clip(0.0, self.lower, self.upper)
        bounds = np.column_stack([self.lower, self.upper])
        from scipy.optimize import linprog  # which takes a tenth of what importing olsq does

        result = linprog(np.zeros(self.lower.size), A_eq=self.A, b_eq=self.b, bounds=bounds)
        return None if result.x is None else np.clip(result.x, self.lower, self.upper)


def solve(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Find the minimiser x (d,); R is triangular, and ``start`` (d,) satisfies the constraints.

    Where R leaves directions undetermined, the answer is the minimiser of least norm.
    """
    x = np.array(start)
    if np.diagonal(R).all() and settle(R, z, *constraints, x, True):
        return x
    return nearest(R, z, constraints, start)


def nearest(
    R: NDArray[np.float64], z: NDArray[np.float64], limits: Constraints, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Minimise as :func:`solve` by least distance programming (Lawson & Hanson 1974, ch. 23).

    What the equations leave free has an orthonormal basis N: ``x = start + N w``.  With the factors
    ``Q T`` of ``R N``, ``v = T w - Q^T (z - R start)`` is as short as the bounds allow, which are
    inequalities ``G v >= h``.  Their multipliers, nonnegative least squares, say which bounds hold.
    """
    from scipy.optimize import nnls  # which takes a tenth of what importing olsq does

    d, units = z.size, np.linalg.norm(R, axis=0)
    units[units == 0] = 1.0
    scaled, y = limits.scaled(units), start * units
    N = null_space(scaled.A) if limits.b.size else np.eye(d)
    rows, rest = R / units @ N, z - R @ start
    is_singular = bool(N.size) and np.linalg.svd(rows, compute_uv=False)[-1] < SINGULAR
    if is_singular:
        rows, rest = np.vstack([rows, FLOOR * N]), np.append(rest, -FLOOR * y)
    Q, T = np.linalg.qr(rows)
    goal = Q.T @ rest
    if not goal.any():
        return start
    to_x = solve_triangular(T, N.T, trans=1, check_finite=False).T
    free = y + to_x @ goal
    moves = np.linalg.norm(N, axis=1) > SINGULAR
    below, above = moves & np.isfinite(scaled.lower), moves & np.isfinite(scaled.upper)
    G = np.vstack([to_x[below], -to_x[above]])
    h = np.append((scaled.lower - free)[below], (free - scaled.upper)[above])
    h = np.minimum(h, -G @ goal)  # start is feasible
    v, multipliers = goal, h
    # SciPy 1.17 crashes without bounds.  The next v has its digits in units of the last one.
    for _ in range(3 if h.size else 0):
        unit = float(np.linalg.norm(v)) or 1.0
        sides = np.column_stack([G, h / unit])
        sides /= np.abs(sides).max(axis=1, keepdims=True) + np.finfo(np.float64).tiny
        sides /= np.linalg.norm(sides, axis=1, keepdims=True) + np.finfo(np.float64).tiny
        one = np.append(np.zeros(goal.size), 1.0)
        multipliers = nnls(sides.T, one, maxiter=100 + 20 * h.size)[0]
        *way, left = sides.T @ multipliers
        if 1.0 - left <= EPS:
            return start  # alone feasible, to rounding
        v = unit * np.array(way) / (1.0 - left)
    y = free + to_x @ v if h.size else free
    at, lowest = np.zeros(d), np.count_nonzero(below)
    at[below] -= multipliers[:lowest] > 0
    at[above] += multipliers[lowest:] > 0
    x = _refined(R, z, limits, y / units, at, units)
    if not is_singular:
        return x
    _, values, basis = np.linalg.svd(R / units)
    same_fit = basis[values > SINGULAR] * units
    limits = limits._replace(A=np.vstack([limits.A, same_fit]), b=np.append(limits.b, same_fit @ x))
    return nearest(np.eye(d), np.zeros(d), limits, x)


def _refined(
    R: NDArray, z: NDArray, limits: Constraints, x: NDArray, at: NDArray, units: NDArray
) -> NDArray[np.float64]:
    """Return the minimum over the face that x is on, or x where rounding puts that outside."""
    free, scaled = at == 0, limits.scaled(units)
    y = np.where(at < 0, scaled.lower, np.where(at > 0, scaled.upper, 0.0))
    A, columns = scaled.A[:, free], (R / units)[:, free]
    onto = np.linalg.pinv(A, rcond=SINGULAR)
    along = null_space(A, rcond=SINGULAR) if A.size else np.eye(A.shape[1])
    for _ in range(2):  # the second refines the first
        step = onto @ (scaled.b - scaled.A @ y)
        rest = z - R @ (y / units) - columns @ step
        step += along @ np.linalg.lstsq(columns @ along, rest, rcond=8 * z.size * EPS)[0]
        y[free] += step
    inside = np.clip(y / units, limits.lower, limits.upper)
    if np.linalg.norm(inside * units - y) > 1e-9 * np.linalg.norm(y):
        inside = np.clip(x, limits.lower, limits.upper)
    near = 64 * EPS * (np.abs(inside) + np.linalg.norm(y) / units)
    at = np.where(inside - limits.lower <= near, -1, np.where(limits.upper - inside <= near, 1, at))
    return np.where(at < 0, limits.lower, np.where(at > 0, limits.upper, inside))
