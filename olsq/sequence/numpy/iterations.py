"""Iterations over all tokens of a chunk at once: conjugate gradient and Chebyshev.

The steps are those of :mod:`olsq.sequence.jax.iterations`, which gives the reasons for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.products import advance, chebyshev_step, turn

Product = Callable[[NDArray], NDArray]


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
    preconditioned, size = (np.abs(x).max(-1, keepdims=True) for x in (precondition(b), b))
    sound = np.isfinite(preconditioned) & (preconditioned > 0) & (size > 0)
    unit = np.where(sound, preconditioned / np.where(size > 0, size, 1), 1)
    return lambda r: np.where(sound, precondition(r) / unit, r)


def conjugate_gradient(
    product: Product,
    precondition: Product,
    b: NDArray,
    start: NDArray | None,
    *,
    tol: float,
    max_steps: int,
) -> tuple[NDArray, NDArray]:
    """Run conjugate gradient from ``start`` or 0; every token stops at ``|b - M x| <= tol |b|``."""
    goal = tol * tol * np.einsum("...i,...i->...", b, b)
    x = np.zeros_like(b) if start is None else start.copy()
    r = b.copy() if start is None else b - product(x)
    p = precondition(r).copy()
    active = np.einsum("...i,...i->...", r, r) > goal
    steps = np.zeros(b.shape[:-1], np.int32)
    iterate = x, r, p, np.einsum("...i,...i->...", r, p)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_steps if active.any() else 0):
            if not advance(iterate, product(p), goal, active, steps):
                break
            turn(iterate, precondition(r), active)
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
