"""The systems ``(S_t + ridge_t) x_t = b_t`` of a block of queries, solved by conjugate gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEYS = 1024  # keys whose products are formed at once
ROUNDED = 2.0  # residual, in units of what rounding leaves, at which a solve is done


class System(NamedTuple):
    """The weights, keys and means that define a block's systems."""

    weights: NDArray  # (C, n), p
    keys: NDArray  # (n, d)
    mean: NDArray  # (C, d), kbar
    ridge: NDArray  # (C, 1)

    def centred_weights(self, x: NDArray) -> NDArray:
        """Compute ``p_ti (k_i - kbar_t) . x_t``, (C, n)."""
        along = x @ self.keys.T
        along -= dot(self.mean, x)
        along *= self.weights
        return along

    def product(self, x: NDArray) -> NDArray:
        """Compute ``(S_t + ridge_t) x_t``, (C, d)."""
        return self.centred_weights(x) @ self.keys + self.ridge * x

    def rows(self, which: NDArray) -> System:
        """Select the systems of some of the queries."""
        return System(self.weights[which], self.keys, self.mean[which], self.ridge[which])

    def inverses(self) -> NDArray:
        """Invert each query's own matrix, (C, d, d), exact up to rounding."""
        d = self.keys.shape[1]
        # About one of the means, lest the squares cancel: the smallest, because a later query may
        # see a key so large that nothing is left of the others' squares about its mean.
        centre = self.mean[dot(self.mean, self.mean).argmin()]
        keys, mean = self.keys - centre, self.mean - centre
        low, high = np.tril_indices(d)
        packed = np.zeros((len(mean), len(low)), keys.dtype)
        for i in range(0, len(keys), KEYS):
            part = keys[i : i + KEYS]
            packed += self.weights[:, i : i + KEYS] @ (part[:, low] * part[:, high])
        matrix = np.empty((len(mean), d, d), packed.dtype)
        matrix[:, low, high] = matrix[:, high, low] = packed
        matrix -= mean[:, :, None] * mean[:, None, :]
        # the guard keeps a matrix that is singular to rounding positive definite
        kinds = np.finfo(packed.dtype)
        size = np.maximum(np.trace(matrix, axis1=1, axis2=2)[:, None], 0) + self.ridge
        diagonal = self.ridge + 4 * d * kinds.eps * size + kinds.tiny
        matrix += diagonal[..., None] * np.eye(d, dtype=packed.dtype)
        return np.linalg.inv(matrix)


def dot(a: NDArray, b: NDArray) -> NDArray:
    """Compute inner products over the last axis, (C, 1)."""
    return np.einsum("td,td->t", a, b)[:, None]


def divide(a: NDArray, b: NDArray) -> NDArray:
    """Divide a by b where b > 0, else return 0."""
    return np.where(b > 0, a / np.where(b > 0, b, 1), 0)


def solve_system(
    system: System, b: NDArray, spread: NDArray, tol: float | None, max_steps: int, trial: int
) -> tuple[NDArray, NDArray]:
    """Solve for x (C, d), with the steps (C,) taken; ends by the same criterion as the JAX form.

    Queries that are done leave the block as soon as it has shrunk by half.  After ``trial`` steps
    without a preconditioner the matrices of the queries that are left are formed.
    """
    unit = np.abs(b).max(1, keepdims=True, initial=0)  # no overflow, no underflow
    unit = np.where(unit > 0, unit, 1)
    solution, steps = np.zeros_like(b), np.zeros(len(b), np.int32)
    place, b = np.arange(len(b)), b / unit
    eps, inverses = np.finfo(b.dtype).eps, None if trial else system.inverses()
    x, r = np.zeros_like(b), b

    def precondition(r: NDArray) -> NDArray:
        return r if inverses is None else np.einsum("tij,tj->ti", inverses, r)

    def unsolved(x: NDArray, r: NDArray) -> NDArray:
        norm = np.sqrt(dot(b, b))
        products = system.ridge * np.sqrt(dot(x, x)) + np.sqrt(spread * np.abs(dot(x, b)))
        goal = ROUNDED * eps * (norm + products)
        goal = goal if tol is None else np.maximum(tol * norm, goal)
        return np.sqrt(dot(r, r)) > goal

    z = precondition(r)
    p, rz, active = z, dot(r, z), unsolved(x, r)
    for step in range(max_steps):
        if not active.any():
            break
        form = step == trial > 0
        if form:
            r = b - system.product(x)
        if form or 2 * active.sum() < len(active):
            stay = active[:, 0]
            solution[place] = x
            place, system = place[stay], system.rows(stay)
            inverses = None if inverses is None else inverses[stay]
            b, spread, x, r, p, rz = (y[stay] for y in (b, spread, x, r, p, rz))
            active = active[stay]
        if form:
            inverses = system.inverses()
            p = precondition(r)
            rz = dot(r, p)
        along = system.product(p)
        # alpha = r.z / p.Mp, 0 for queries that are done
        alpha = divide(rz, np.where(active, dot(p, along), 0))
        x_new, r_new = x + alpha * p, r - alpha * along
        taken = (
            active & (alpha > 0) & np.isfinite(dot(r_new, r_new)) & np.isfinite(dot(x_new, x_new))
        )
        x, r = np.where(taken, x_new, x), np.where(taken, r_new, r)
        z = precondition(r)
        rz_new = dot(r, z)
        # p' = z' + (r'.z' / r.z) p
        p = np.where(taken, z + divide(rz_new, np.where(taken, rz, 0)) * p, p)
        rz = rz_new
        steps[place] += active[:, 0]
        active = taken & unsolved(x, r)
    solution[place] = x
    return solution * unit, steps
