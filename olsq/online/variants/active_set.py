"""Linear equations and bounds on coefficients, and the least squares minimiser under them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.variants.active_set_kernels import LOST, ROUNDING, UNIQUE, settle


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


def solve(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise ``|R x - z|`` (R triangular) under the constraints, from a feasible start (d,).

    Of several minimisers the answer is that of least norm.  It depends on the face alone.
    """
    x, minimum = np.array(start), np.empty(z.size)
    ended = settle(R, z, *constraints, x, minimum)
    if ended == LOST:
        raise ArithmeticError("the active set did not settle; this is a defect, please report it")
    return x if ended == UNIQUE else shortest(R, z, constraints, x, minimum)


def shortest(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    x: NDArray[np.float64],
    minimum: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Find the minimiser of least norm from any minimiser x; ``minimum`` has the same fit.

    All minimisers have one fit, so that the least norm is a problem of the same kind, with the fit
    as further equations.  Entries of R that are rounding errors of their columns do not count.  x
    is the answer where columns in very different units leave too few digits.
    """
    length = np.linalg.norm(R, axis=0)
    rows = np.where(np.abs(R) > ROUNDING * z.size * length, R, 0.0)
    same_fit = constraints._replace(
        A=np.vstack([constraints.A, rows]), b=np.concatenate([constraints.b, rows @ minimum])
    )
    y, origin = x.copy(), np.zeros(z.size)
    ended = settle(np.eye(z.size), origin, *same_fit, y, np.empty(z.size))
    allowed = 1e-10 * (np.linalg.norm(z) + np.linalg.norm(length * x))
    worse = np.linalg.norm(R @ y - z) - np.linalg.norm(R @ x - z)
    return y if ended == UNIQUE and worse <= allowed else x
