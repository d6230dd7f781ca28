"""Least squares under linear equations and bounds, by a primal active-set method on a factor.

Minimises ``|R x - z|`` subject to ``A x = b`` and ``lower <= x <= upper``.  Each step solves the
problem on the face of the free variables in an orthonormal basis of what the equations leave
(Lawson & Hanson 1974, ch. 20 to 23; Nocedal & Wright 2006, 16.5), so the condition number is that
of R.  Finite: the objective falls from face to face.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import null_space, solve_triangular

from olsq.online.forms.minimum_norm import row_space
from olsq.online.variants import active_set_kernels

EPS = float(np.finfo(np.float64).eps)
LOWER, FREE, UPPER = -1, 0, 1


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
    """Minimise as :func:`minimise`, by the compiled search where it decides; ``start`` is feasible.

    The answer depends on the face alone, whichever search found it.  R is triangular; where its
    pivots leave directions undetermined, the answer is the minimiser of least norm.
    """
    if not np.diagonal(R).all():
        return shortest(R, minimise(R, z, constraints, start), constraints)
    x = np.array(start)
    if active_set_kernels.settle(R, z, *constraints, x, True):
        return x
    minimum = minimise(R, z, constraints, start)
    again = minimum.copy()
    return again if active_set_kernels.settle(R, z, *constraints, again, False) else minimum


def minimise(
    R: NDArray[np.float64],
    z: NDArray[np.float64],
    constraints: Constraints,
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Find the minimiser x (d,); ``start`` (d,) satisfies the constraints.

    Where R leaves it undetermined it is one of them, in the rest as near to the start as the face
    allows.  O(d^3) a face; from the last solution of a stream usually one or two.
    """
    length = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0  # tolerances are those of columns of unit length
    R, limits = R / length, constraints.scaled(length)
    x = start * length
    at = np.where(x <= limits.lower, LOWER, np.where(x >= limits.upper, UPPER, FREE))
    for step in range(100 + 20 * z.size):
        p = _to_minimum(R, z, limits, x, at == FREE)
        blocked, share = _first_bound(x, p, limits, at)
        x = np.clip(x + share * p, limits.lower, limits.upper)  # rounding takes it past a bound
        if blocked >= 0:
            at[blocked] = UPPER if p[blocked] > 0 else LOWER
            x[blocked] = (limits.upper if p[blocked] > 0 else limits.lower)[blocked]
            continue
        if _is_corner(limits, at):
            direction = _descent_from_corner(R, z - R @ x, limits, at)
            if direction.any():
                moved, at_moved = _move_along(R, z, limits, x, direction, at)
                # A step within rounding errors only leads back here.
                if np.linalg.norm(R @ (moved - x)) > 64 * z.size * EPS * np.linalg.norm(z):
                    x, at = moved, at_moved
                    continue
            leaving = np.empty(0, np.intp)
        else:
            leaving = _leaving(R, z, limits, x, at, first=step > 10 * z.size)
        if not leaving.size:
            on_face = _on_face(R, z, limits, at)
            # On a singular face it may lie beyond a bound, where x does not.
            inside = (on_face >= limits.lower) & (on_face <= limits.upper)
            x = (on_face if inside.all() else x) / length
            x = np.where(
                at == LOWER, constraints.lower, np.where(at == UPPER, constraints.upper, x)
            )
            return np.clip(x, constraints.lower, constraints.upper)
        at[leaving] = FREE
    raise ArithmeticError("the active set did not settle; this is a defect, please report it")


def shortest(
    R: NDArray[np.float64], x: NDArray[np.float64], constraints: Constraints
) -> NDArray[np.float64]:
    """Find the point of least norm that satisfies the constraints and has the fit ``R x``.

    Directions that R has lost to forgetting, not to a pivot of 0, stay as they are in x.  So does
    all of x where columns in very different units leave too few digits for the search.
    """
    Q, _, length = row_space(R, np.diagonal(R) != 0)
    same_fit = Q.T * length
    limits = constraints._replace(
        A=np.vstack([constraints.A, same_fit]), b=np.concatenate([constraints.b, same_fit @ x])
    )
    try:
        minimum = minimise(np.eye(x.size), np.zeros(x.size), limits, x)
    except ArithmeticError:
        return x
    lost = np.linalg.norm(R @ (minimum - x))
    return minimum if lost <= 1e-10 * np.linalg.norm(R @ x) else x


def _to_minimum(
    R: NDArray, z: NDArray, limits: Constraints, x: NDArray, free: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Compute the step (d,) from x to the minimum over the free variables, onto the equations."""
    p, remainder = np.zeros_like(x), z - R @ x
    if not free.any():
        return p
    R, A = R[:, free], limits.A[:, free]
    if not limits.b.size:
        p[free] = _lstsq(R, remainder)
        return p
    Q, T, order = _pivoted(A.T)
    rank = _rank(T)
    onto = np.zeros(Q.shape[0])
    if rank:
        off = (limits.b - limits.A @ x)[order[:rank]]
        solved = solve_triangular(T[:rank, :rank], off, trans=1, check_finite=False)
        onto = Q[:, :rank] @ solved
    along = Q[:, rank:]
    if along.shape[1]:
        y = _lstsq(R @ along, remainder - R @ onto)
        onto = onto + along @ y
    p[free] = onto
    return p


def _pivoted(A: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Factorise ``A[:, order] = Q T``, Q square, with columns in the order of what they add."""
    Q, T, order = linalg.qr(A, pivoting=True, check_finite=False)  # type: ignore[misc]
    return np.asarray(Q), np.asarray(T), np.asarray(order)


def _lstsq(A: NDArray, b: NDArray) -> NDArray[np.float64]:
    """Return the x of minimum norm with ``A x`` nearest to b; A consists of parts of unit vectors.

    Singular values are compared with 1: all of A may be rounding error, where an equation leaves
    only the difference of two equal columns.
    """
    U, s, Vt = linalg.svd(A, full_matrices=False, check_finite=False)
    rank = int(np.count_nonzero(s > 8 * max(A.shape) * EPS))
    parts = U[:, :rank].T @ b
    return Vt[:rank].T @ (parts.T / s[:rank]).T


def _rank(T: NDArray) -> int:
    """Return the rank of a pivoted triangle whose columns are parts of vectors of unit length."""
    return int(np.count_nonzero(np.abs(np.diagonal(T)) > 64 * max(T.shape) * EPS))


def _rank_of(A: NDArray) -> int:
    """Return the rank of equations A (q, d) whose rows are parts of vectors of unit length."""
    if not A.size:
        return 0
    return _rank(_pivoted(A.T)[1])


def _first_bound(x: NDArray, p: NDArray, limits: Constraints, at: NDArray) -> tuple[int, float]:
    """Find the free variable that meets a bound first, or -1, and the share of the step to it."""
    share = np.full(x.size, np.inf)
    up, down = (at == FREE) & (x + p > limits.upper), (at == FREE) & (x + p < limits.lower)
    share[up] = (limits.upper - x)[up] / p[up]
    share[down] = (limits.lower - x)[down] / p[down]
    j = int(np.argmin(share))
    return (j, max(float(share[j]), 0.0)) if share[j] < np.inf else (-1, 1.0)


def _leaving(
    R: NDArray, z: NDArray, limits: Constraints, x: NDArray, at: NDArray, *, first: bool
) -> NDArray[np.intp]:
    """Find variables to take off their bounds, where the objective falls; none at the minimum.

    ``first`` takes the one of lowest index (Bland's rule: no cycles), else the steepest.  The slope
    along variable j is that of what its column has outside of the span of the free ones: the
    gradient's own entry loses its digits where that is little.
    """
    free, fixed = at == FREE, limits.lower == limits.upper
    held = np.flatnonzero(~free & ~fixed)
    remainder = z - R @ x
    if not held.size:
        return held
    C, span = R[:, held], R[:, free]
    length = np.linalg.norm(C, axis=0)  # of what is subtracted from, for rounding errors
    if limits.b.size:
        A, free_A = limits.A, limits.A[:, free]
        follow = span @ _lstsq(free_A, A[:, held])  # the equations hold on
        C, length = C - follow, length + np.linalg.norm(follow, axis=0)
        span = span @ null_space(free_A)
    if span.shape[1]:
        Q, T, _ = _pivoted(span)
        Q = Q[:, : _rank(T)]
        for _ in range(2):
            C = C - Q @ (Q.T @ C)
    error = np.linalg.norm(C, axis=0) * np.linalg.norm(z) + length * np.linalg.norm(remainder)
    falls = -at[held] * (C.T @ remainder)
    wrong = np.where(falls > 64 * z.size * EPS * error, falls, 0.0)
    if not wrong.any():
        return np.empty(0, np.intp)
    return held[[np.argmax(wrong > 0) if first else np.argmax(wrong)]]


def _is_corner(limits: Constraints, at: NDArray) -> bool:
    """Test whether the free variables alone cannot follow the equations (a degenerate corner)."""
    if not limits.b.size or (at == FREE).all():
        return False
    return _rank_of(limits.A[:, at == FREE]) < _rank_of(limits.A)


def _descent_from_corner(
    R: NDArray, remainder: NDArray, limits: Constraints, at: NDArray
) -> NDArray[np.float64]:
    """Compute the steepest feasible direction (d,) of descent from a corner; zeros at the minimum.

    The multipliers of a degenerate corner are not unique.  The part of the gradient outside of the
    cone of all multipliers is minus the steepest feasible direction (Moreau).
    """
    gradient, fixed = -(R.T @ remainder), limits.lower == limits.upper
    normals = [limits.A.T, -limits.A.T]
    for side in (LOWER, UPPER):
        normals.append(-side * np.eye(at.size)[:, (at == side) & ~fixed])
    both = np.eye(at.size)[:, (at != FREE) & fixed]
    cone = np.hstack([*normals, both, -both])
    from scipy.optimize import nnls  # see above

    direction = cone @ nnls(cone, gradient)[0] - gradient
    tolerance = 1024 * at.size * EPS * np.linalg.norm(R) * np.linalg.norm(remainder)  # nnls cancels
    return np.where(np.abs(direction) > tolerance, direction, 0.0)


def _move_along(
    R: NDArray, z: NDArray, limits: Constraints, x: NDArray, direction: NDArray, at: NDArray
) -> tuple[NDArray[np.float64], NDArray]:
    """Move from x along a direction of descent to the minimum on it or to the first bound.

    Freeing the variables that move is not enough: the minimum over them may lie beyond a bound of
    one of them, which is then held again at a step of length 0, and so on in a circle.  A step
    along the direction itself lowers the objective, so that no corner is met twice.
    """
    image = R @ direction
    square = float(image @ image)
    share = float(image @ (z - R @ x)) / square if square > 0 else np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(direction > 0, limits.upper - x, limits.lower - x) / direction
    room[direction == 0] = np.inf
    j = int(np.argmin(room))
    at = np.where(direction != 0, FREE, at)
    if room[j] <= share:
        share = max(float(room[j]), 0.0)
    x = np.clip(x + share * direction, limits.lower, limits.upper)
    if room[j] <= share:
        at[j] = UPPER if direction[j] > 0 else LOWER
        x[j] = (limits.upper if direction[j] > 0 else limits.lower)[j]
    return x, at


def _on_face(R: NDArray, z: NDArray, limits: Constraints, at: NDArray) -> NDArray[np.float64]:
    """Compute the minimum over a face, independent of the path that led there."""
    x = np.where(at == LOWER, limits.lower, np.where(at == UPPER, limits.upper, 0.0))
    for _ in range(2):  # the second refines the first
        x = x + _to_minimum(R, z, limits, x, at == FREE)
    return x
