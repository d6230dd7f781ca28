"""Iterations over all tokens of a chunk at once: conjugate gradient and Chebyshev.

The steps are those of :mod:`olsq.sequence.jax.iterations`, which gives the reasons for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.products import advance, chebyshev_step, turn

Product = Callable[[NDArray], NDArray]


def largest_entry(b: NDArray) -> NDArray:
    """Return the largest absolute entry of the last axis, kept as an axis of size 1; 1 where all
    are 0.
    """
    size = np.abs(b).max(-1, keepdims=True, initial=0)
    return np.where(size > 0, size, 1)


def divide(a: NDArray, b: NDArray) -> NDArray:
    """Compute a / b where b > 0 and 0 elsewhere."""
    positive = b > 0
    return np.where(positive, a / np.where(positive, b, 1), 0)


def balanced(precondition: Product, b: NDArray) -> Product:
    """Rescale ``precondition`` to the units of b, token by token: a multiple, which iterates do not
    notice.
    """
    unit = np.abs(precondition(b / largest_entry(b))).max(-1, keepdims=True)
    sound = np.isfinite(unit) & (unit > 0)
    unit = np.where(sound, unit, 1)
    return lambda r: np.where(sound, precondition(r) / unit, r)


def conjugate_gradient(
    product: Product,
    b: NDArray,
    *,
    start: NDArray | None = None,
    precondition: Product | None = None,
    tol: float,
    max_steps: int,
) -> tuple[NDArray, NDArray]:
    """Run conjugate gradient from ``start`` or 0; every token stops at ``|b - M x| <= tol |b|``.

    All is divided by the largest entry of b, token by token, so that nothing overflows or
    underflows.
    """
    size = largest_entry(b)
    b = b / size
    goal = tol * tol * np.einsum("...i,...i->...", b, b)
    x = np.zeros_like(b) if start is None else start / size
    r = b.copy() if start is None else b - product(x)
    p = r.copy() if precondition is None else precondition(r)
    active = np.einsum("...i,...i->...", r, r) > goal
    steps = np.zeros(b.shape[:-1], np.int32)
    iterate = x, r, p, np.einsum("...i,...i->...", r, p)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_steps if active.any() else 0):
            if not advance(iterate, product(p), goal, active, steps):
                break
            turn(iterate, r if precondition is None else precondition(r), active)
    return x * size, steps


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
