"""Minimum-norm coefficients, after removing the rounding error of dependent columns.

A dependent column is a combination of few others; its remaining coefficients should be 0, but are
rounding errors.  In the columns' own units these can be large: beside a column 1e10 times fainter,
an error of 1e-16 looks like a dependence of 1e-6.  The norm uses those units too, so the solution
of least norm would be far off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms.lapack import inverse_of_triangle
from olsq.online.forms.triangular_kernels import inverse_diagonal

FAR = 1e8  # how many times longer a column is whose rounding errors may pass for another column


@kernel(forceinline=True, strict=True)
def length(x):
    """Compute the Euclidean norm of x, whose squares may overflow."""
    largest, total = 0.0, 0.0
    for k in range(x.shape[0]):
        largest = max(largest, abs(x[k]))
    if largest == 0.0:
        return 0.0
    for k in range(x.shape[0]):
        total += (x[k] / largest) ** 2
    return largest * math.sqrt(total)


@kernel()
def take_out_rounding(T, F, noise):
    """Remove rounding error from columns F (r, f) that depend on those of the triangle T.

    Column j is ``T b``.  An error of ``noise`` times the column's length makes errors of
    ``noise |F_j| |row i of T^-1|`` in b_i: what is smaller is not told from zero.  Below the last
    row where b is more, F is zero, whatever subtracting would leave of it.
    """
    r, f = F.shape
    inverse, diagonal = np.zeros((r, r)), np.empty(r)
    inverse_diagonal(T, inverse, diagonal)
    B, found = np.zeros((r, f)), False
    columns, after = np.empty(f), np.zeros(f, np.int64)
    for j in range(f):
        columns[j] = length(F[:, j])
    for i in range(r):
        for k in range(i, r):
            factor = inverse[i, k]
            for j in range(f):
                B[i, j] += factor * F[k, j]
        allowed = length(inverse[i])
        for j in range(f):
            small = abs(B[i, j]) <= noise * (allowed * columns[j])
            found = found or (small and B[i, j] != 0)
            if not small:
                B[i, j], after[j] = 0.0, i + 1
    if found:
        for i in range(r):
            for k in range(i, r):
                for j in range(f):
                    F[i, j] -= T[i, k] * B[k, j]
        for j in range(f):
            F[after[j] :, j] = 0.0


@kernel(called=True)
def clean_dependent_columns(R, noise):
    """Remove rounding error, in place, from the columns of R (d, d) whose pivot is zero.

    A column that is constant, beside an intercept, is left with zeros below the intercept's row.
    """
    d, r = R.shape[0], 0
    for k in range(d):
        r += 1 if R[k, k] != 0 else 0
    if r == 0 or r == d:
        return
    T, F = np.empty((r, r)), np.empty((r, d - r))
    i = 0
    for row in range(d):
        if R[row, row] == 0:
            continue
        p = f = 0
        for k in range(d):
            if R[k, k] != 0:
                T[i, p] = R[row, k]
                p += 1
            else:
                F[i, f] = R[row, k]
                f += 1
        i += 1
    take_out_rounding(T, F, noise)
    i = 0
    for row in range(d):
        if R[row, row] == 0:
            continue
        f = 0
        for k in range(d):
            if R[k, k] == 0:
                R[row, k] = F[i, f]
                f += 1
        i += 1


@kernel()
def to_triangle(T, F, tau):
    """Apply Householder reflections from the right that leave ``[T 0]`` of ``[T F]``, bottom row
    first.

    Row i of F receives what is left of the i-th reflection ``1 - tau_i (1, v)^T (1, v)`` (Golub &
    Van Loan 2013, 5.4.6, on a factor that is upper trapezoidal already).
    """
    r, f = F.shape
    for i in range(r - 1, -1, -1):
        tail = length(F[i])
        if tail == 0.0:
            tau[i] = 0.0
            continue
        pivot = T[i, i]
        size = max(abs(pivot), tail)
        small = min(abs(pivot), tail) / size
        T[i, i] = -math.copysign(size * math.sqrt(1.0 + small * small), pivot)
        tau[i] = (T[i, i] - pivot) / T[i, i]
        for j in range(f):
            F[i, j] /= pivot - T[i, i]
        for k in range(i):
            total = T[k, i]
            for j in range(f):
                total += F[k, j] * F[i, j]
            total *= tau[i]
            T[k, i] -= total
            for j in range(f):
                F[k, j] -= total * F[i, j]


@kernel()
def add_solution(T, V, tau, rest, u, g):
    """Add to u (r,) and g (f,) the shortest solution for ``rest`` (r,), which is destroyed.

    T, V and tau are what :func:`to_triangle` leaves.
    """
    r, f = V.shape
    for i in range(r - 1, -1, -1):
        rest[i] /= T[i, i]
        for k in range(i):
            rest[k] -= T[k, i] * rest[i]
    shift = np.zeros(f)
    for i in range(r):
        total = rest[i]
        for j in range(f):
            total += V[i, j] * shift[j]
        total *= tau[i]
        u[i] += rest[i] - total
        for j in range(f):
            shift[j] -= total * V[i, j]
    for j in range(f):
        g[j] += shift[j]


@kernel()
def minimum_norm(R, z, known, noise, first, theta):
    """Solve ``R theta = z`` with minimum norm, for each R (b, d, d), z and theta (b, m, d).

    ``known`` (d,) says which pivots are not zero, ``noise`` (b,) is the relative rounding error.
    With ``first`` = 1 coefficient 0, which must be known, is an intercept: no part of the norm.
    """
    (b, d, _), m = R.shape, z.shape[1]
    if (
        R.shape != (b, d, d)
        or z.shape != (b, m, d)
        or theta.shape != z.shape
        or known.shape != (d,)
        or noise.shape != (b,)
    ):
        raise ValueError("the shapes of factors, targets and coefficients do not fit together")
    if not 0 <= first <= 1 or (first == 1 and not (d > 0 and known[0])):
        raise ValueError("first must be 0, or 1 in states whose shape and pivots begin with it")
    r = 0
    for k in range(d):
        r += 1 if known[k] else 0
    pivots, free = np.empty(r, np.int64), np.empty(d - r, np.int64)
    i = 0
    for k in range(d):
        if known[k]:
            pivots[i] = k
            i += 1
        else:
            free[k - i] = k
    f, s = d - r, r - first
    T, F, tau = np.empty((r, r)), np.empty((r, f)), np.empty(s)
    D, V = np.empty((s, s)), np.empty((s, f))
    rest, u, g = np.empty(s), np.empty(s), np.empty(f)
    for one in range(b):
        for i in range(r):
            for k in range(r):
                T[i, k] = R[one, pivots[i], pivots[k]]
            for k in range(f):
                F[i, k] = R[one, pivots[i], free[k]]
        if r > 0 and f > 0:
            take_out_rounding(T, F, noise[one])
        for i in range(s):
            for k in range(s):
                D[i, k] = T[first + i, first + k]
            for k in range(f):
                V[i, k] = F[first + i, k]
        to_triangle(D, V, tau)
        for target in range(m):
            for i in range(s):
                u[i] = 0.0
                rest[i] = z[one, target, pivots[first + i]]
            for k in range(f):
                g[k] = 0.0
            add_solution(D, V, tau, rest, u, g)
            for i in range(s):  # one refinement, since mixed units cost digits in the reflections
                total = z[one, target, pivots[first + i]]
                for k in range(i, s):
                    total -= T[first + i, first + k] * u[k]
                for k in range(f):
                    total -= F[first + i, k] * g[k]
                rest[i] = total
            add_solution(D, V, tau, rest, u, g)
            for i in range(s):
                theta[one, target, pivots[first + i]] = u[i]
            for k in range(f):
                theta[one, target, free[k]] = g[k]
            if first > 0:
                total = z[one, target, 0]
                for i in range(s):
                    total -= T[0, first + i] * u[i]
                for k in range(f):
                    total -= F[0, k] * g[k]
                theta[one, target, 0] = total / T[0, 0]


def solution(
    R: NDArray, z: NDArray, known: NDArray[np.bool_], noise: Any, intercept: bool
) -> NDArray[np.float64]:
    """Solve ``R theta = z`` for theta (..., m, d) of minimum norm (intercept aside).

    R (..., d, d) and z (..., m, d) may be many at once, all with the same pivots ``known`` (d,);
    ``noise`` (...) is the relative rounding error of each.
    """
    (m, d), first = z.shape[-2:], int(intercept and known[0])
    count = z.size // (m * d) if z.size else 0
    factors = np.ascontiguousarray(R).reshape(count, d, d)
    targets = np.ascontiguousarray(z).reshape(count, m, d)
    noises = np.full(z.shape[:-2], noise, np.float64).reshape(count)
    theta = np.empty_like(targets)
    minimum_norm(factors, targets, known, noises, first, theta)
    size = np.abs(factors).max(axis=1)
    far = size.max(axis=1) > FAR * size.min(axis=1, initial=np.inf, where=size > 0)
    for one in np.flatnonzero(far):
        theta[one] = _solution_by_length(factors[one], targets[one], known, noises[one], first)
    return theta.reshape(z.shape)


def _solution_by_length(
    R: NDArray, z: NDArray, known: NDArray[np.bool_], noise: float, first: int
) -> NDArray[np.float64]:
    """Solve as :func:`minimum_norm` does one R (d, d), z (m, d), with the longest columns first.

    A column of R has errors of its length in all rows.  In the row of a column far shorter they
    look like a large multiple of that one, which they are not: rows of shorter columns come last,
    where a longer column has nothing.
    """
    d, length = R.shape[0], np.abs(R).max(axis=0)
    length[length == 0] = 1.0
    noise += 8 * d * float(np.finfo(np.float64).eps)
    by_length = np.argsort(-length, kind="stable")
    if first:
        by_length = np.append(0, by_length[by_length != 0])
    pivots_first = np.append(by_length[known[by_length]], by_length[~known[by_length]])
    for order, least in ((by_length, noise), (pivots_first, 0.0)):
        T, target = triangularise((R / length)[known][:, order], z[:, known].T, least)
        pivots = np.diagonal(T) != 0
        if pivots.sum() == known.sum():
            break
    theta = np.empty((1, *z.shape))
    minimum_norm((T * length[order])[None], target[None], pivots, np.full(1, noise), first, theta)
    return theta[0][:, np.argsort(order)]


def triangularise(X: NDArray, Y: NDArray, noise: float) -> tuple[NDArray, NDArray]:
    """Triangularise observations X (r, d), Y (r, m) to R (d, d), z (m, d) by Householder
    reflections.

    X has columns of unit length.  A column with no more than ``noise`` left of it depends on those
    before it, and what is left is error.  (Rotating the rows in one at a time, as a stream does,
    would have to judge each row for itself.)
    """
    d, m = X.shape[1], Y.shape[1]
    R, rest = np.zeros((d, d + m)), np.hstack([X, Y])
    for j in range(d):
        size = np.linalg.norm(rest[:, j])
        if not size > noise:
            rest[:, j] = 0.0
            continue
        mirror = rest[:, j].copy()
        mirror[0] += np.copysign(size, mirror[0])
        rest -= np.outer(mirror, mirror @ rest) * (2.0 / (mirror @ mirror))
        R[j] = rest[0] if rest[0, j] > 0 else -rest[0]
        R[j, :j] = 0.0
        rest = rest[1:]
    return R[:, :d], np.ascontiguousarray(R[:, d:].T)


def inverse_root(R: NDArray, known: NDArray[np.bool_]) -> NDArray:
    """Compute B (..., d, rank) with ``B B^T`` a generalised inverse of ``R^T R``.

    It is the inverse at full rank.  ``known`` (d,) masks the nonzero pivots.
    """
    if known.all():
        return inverse_of_triangle(R)[0]
    Q, L, length = row_space(R, known)
    return Q @ _transposed(inverse_of_triangle(L)[0]) / length[..., None]


def row_space(R: NDArray, known: NDArray[np.bool_]) -> tuple[NDArray, NDArray, NDArray]:
    """Compute Q (..., d, rank) orthonormal, L and the lengths with ``R_known = (Q L)^T length``."""
    length = np.linalg.norm(R, axis=-2)  # columns to unit length first
    length[length == 0] = 1.0
    Q, L = np.linalg.qr(_transposed(R[..., known, :] / length[..., None, :]))
    return Q, L, length


def variances(R: NDArray, root: NDArray) -> NDArray:
    """Compute the diagonal (..., d) of the inverse information from its root, inf if unknown."""
    variance = (root**2).sum(-1)
    if root.shape[-1] < R.shape[-1]:
        # e_j is estimable iff it lies in the row space of R, on which R^T R B B^T is 1.
        fit = ((_transposed(R) @ (R @ root)) * root).sum(-1)
        variance[np.abs(fit - 1.0) >= 1e-8] = np.inf
    return variance


def sandwich_of(spread: NDArray, root: NDArray) -> tuple[NDArray, NDArray]:
    """Compute the diagonal (..., d) of ``P S P`` and ``tr(P S)`` (...), ``S = spread^T spread``.

    ``root`` is that of P, of :func:`inverse_root`.
    """
    half = spread.astype(np.float64) @ root
    return ((half @ _transposed(root)) ** 2).sum(-2), (half**2).sum((-2, -1))


def _transposed(matrices: NDArray) -> NDArray:
    return np.swapaxes(matrices, -1, -2)
