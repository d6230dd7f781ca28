"""Iterations over all tokens of a chunk at once: conjugate gradient and Chebyshev.

The steps are those of :mod:`olsq.sequence.jax.iterations`, which gives the reasons for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.products import chebyshev_step, conjugate_step

Product = Callable[[NDArray], NDArray]


def dot(a: NDArray, b: NDArray) -> NDArray:
    """Compute the inner product over the last axis, kept as an axis of size 1."""
    return np.einsum("...i,...i->...", a, b)[..., None]


def scaled(
    b: NDArray, solve: Callable[[NDArray], tuple[NDArray, NDArray]]
) -> tuple[NDArray, NDArray]:
    """Solve for b divided by its largest entry, token by token, so that nothing overflows or
    underflows.
    """
    size = np.abs(b).max(-1, keepdims=True, initial=0)
    size = np.where(size > 0, size, 1)
    x, steps = solve(b / size)
    return x * size, steps


def divide(a: NDArray, b: NDArray) -> NDArray:
    """Compute a / b where b > 0 and 0 elsewhere."""
    positive = b > 0
    return np.where(positive, a / np.where(positive, b, 1), 0)


def balanced(precondition: Product, b: NDArray) -> Product:
    """Rescale ``precondition`` to the units of b, token by token: a multiple, which iterates do not
    notice.
    """
    made, size = (np.abs(x).max(-1, keepdims=True) for x in (precondition(b), b))
    sound = np.isfinite(made) & (made > 0) & (size > 0)
    unit = np.where(sound, made / np.where(size > 0, size, 1), 1)
    return lambda r: np.where(sound, precondition(r) / unit, r)


def plain_conjugate_gradient(
    product: Product, b: NDArray, start: NDArray, *, tol: float, max_steps: int
) -> tuple[NDArray, NDArray]:
    """Run conjugate gradient; every token stops at ``|b - M x| <= tol |b|``."""
    goal = (tol * tol * dot(b, b))[..., 0]
    x = start.copy()
    r = b - product(x)
    p, size = r.copy(), dot(r, r)[..., 0]
    active, steps = size > goal, np.zeros(b.shape[:-1], np.int32)
    go_on = bool(active.any())
    for _ in range(max_steps):
        if not go_on:
            break
        go_on = conjugate_step(x, r, p, product(p), size, goal, active, steps)
    return x, steps


def preconditioned_conjugate_gradient(
    product: Product,
    precondition: Product,
    b: NDArray,
    *,
    tol: float,
    max_steps: int,
) -> tuple[NDArray, NDArray]:
    """Run preconditioned conjugate gradient from 0; every token stops at ``|b - M x| <= tol |b|``.

    A stopped token is frozen; a step that would overflow is not taken and ends its token.
    """
    goal = tol * tol * dot(b, b)
    x, r = np.zeros_like(b), b
    z = precondition(r)
    rz, left = dot(r, z), dot(r, r)
    p, active = z, left > goal
    steps = np.zeros(b.shape[:-1], np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_steps):
            if not active.any():
                break
            mp = product(p)
            alpha = divide(rz, np.where(active, dot(p, mp), 0))
            x_new, r_new = x + alpha * p, r - alpha * mp
            left, size = dot(r_new, r_new), dot(x_new, x_new)
            taken = active & np.isfinite(left) & np.isfinite(size)
            if not taken.all():
                x_new, r_new = np.where(taken, x_new, x), np.where(taken, r_new, r)
            x, r = x_new, r_new
            z = precondition(r)
            rz_new = dot(r, z)
            turn = divide(rz_new, np.where(taken, rz, 0))
            p_new = turn * p
            p_new += z
            p = p_new if taken.all() else np.where(taken, p_new, p)
            steps += active[..., 0]
            rz, active = rz_new, taken & (left > goal)
    return x, steps


def chebyshev(product: Product, b: NDArray, low: NDArray, high: NDArray, steps: int) -> NDArray:
    """Run ``steps`` Chebyshev steps after x = b / middle, for a spectrum in [low, high].

    The bounds are (B, C, 1) or (B, 1, 1); float64 is best for them.
    """
    middle = (high + low) / 2
    x = (b / middle).astype(b.dtype)
    change, r = x.copy(), b.copy()
    low, high = (np.array(np.broadcast_to(e[..., 0], b.shape[:-1]), float) for e in (low, high))
    rho = (high - low) / (high + low)
    for _ in range(steps):
        chebyshev_step(x, change, r, product(change), low, high, rho)
    return x
