"""Constraints on coefficients, and the minimiser under them where columns depend on each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from olsq.online.variants.active_set_kernels import settle

EPS = float(np.finfo(np.float64).eps)
SMALL_RIDGE = 1e-6  # times a column's length: its square is as faint as a nearly dependent column
MOST_STEPS = 60


class Constraints(NamedTuple):
    """``A x = b`` with A (q, d), b (q,), and bounds (d,), which may be infinite."""

    A: NDArray[np.float64]
    b: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def feasible(self) -> NDArray[np.float64] | None:
        """Find any x within the constraints; None where there is none."""
        if not self.b.size:
            return np.clip(0.0, self.lower, self.upper)
        bounds = np.column_stack([self.lower, self.upper])
        from scipy.optimize import linprog  # which takes a tenth of what importing olsq does

        result = linprog(np.zeros(self.lower.size), A_eq=self.A, b_eq=self.b, bounds=bounds)
        return None if result.x is None else np.clip(result.x, self.lower, self.upper)

    def independent(self) -> Constraints:
        """Return the constraints without equations that follow from others and from equal bounds.

        What x they leave is the same if there is any.
        """
        A = self.A[:, self.lower < self.upper]
        size = np.linalg.norm(self.A, axis=1)
        A = A / np.where(size > 0, size, 1.0)[:, None]
        if not A.size:
            return self._replace(A=self.A[:0], b=self.b[:0])
        _, T, order = linalg.qr(A.T, mode="economic", pivoting=True)  # type: ignore[misc]
        rank = np.count_nonzero(np.abs(np.diagonal(T)) > 64 * max(A.shape) * EPS)
        kept = np.sort(order[:rank])
        return self._replace(A=self.A[kept], b=self.b[kept])


def solve(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise ``|R x - z|`` from a feasible start, with R triangular and independent equations.

    The answer depends on the face alone.  Where pivots of 0 leave directions undetermined it is the
    minimiser of least norm; where columns are only nearly dependent it is, in what R does not tell
    apart, near the start.
    """
    x = np.array(start)
    if settle(R, z, *constraints, x, True):
        return x
    return by_proximal_points(R, z, constraints, start)


def by_proximal_points(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise as :func:`solve` where columns depend on each other.

    A small ridge about a centre makes them independent.  The minimiser is the next centre, so that
    the ridge's pull vanishes (Rockafellar 1976).
    """
    d, length = z.size, np.linalg.norm(R, axis=0)
    undetermined = not np.diagonal(R).all()
    units = np.full(d, length[length > 0].min(initial=np.inf))
    if not undetermined or not np.isfinite(units).all() or length.max() > 1e8 * units[0]:
        units = np.where(length > 0, length, 1.0)
    centre = np.zeros(d) if undetermined else np.array(start)
    Q, T = np.linalg.qr(np.vstack([R, np.diag(SMALL_RIDGE * units)]))
    x, fit = np.array(start), np.inf
    for _ in range(MOST_STEPS):
        target = Q.T @ np.concatenate([z, SMALL_RIDGE * units * centre])
        if not settle(T, target, *constraints, x, True):
            raise ArithmeticError("no face of the constraints was settled on; please report this")
        rest = float(np.linalg.norm(z - R @ x))
        if rest >= fit - 4 * d * EPS * np.linalg.norm(z):
            break
        fit, centre = rest, x.copy()
    return x
