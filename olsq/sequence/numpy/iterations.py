"""Iterations over all tokens of a chunk at once: conjugate gradient and Chebyshev.

The steps are those of :mod:`olsq.sequence.jax.iterations`, which gives the reasons for them.  The
vector updates of a step are one pass, in kernels that release the GIL.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel

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


@kernel()
def advance(iterate, product, limits, active, steps):
    """Take the first half of a conjugate-gradient step at every ``active`` token.

    ``iterate`` = x, r, p and r.z (B, C); ``limits`` (B, C) are those of |r|^2.  A step that would
    overflow is not taken and ends its token.  Returns whether any token is still active.
    """
    x, r, p, rz = iterate
    streams, count, d = x.shape
    number, go_on = x.dtype.type, False
    for b in range(streams):
        for t in range(count):
            if not active[b, t]:
                continue
            curvature = left = length = number(0)
            for j in range(d):
                curvature += p[b, t, j] * product[b, t, j]
            # alpha = r.z / p.Mp;  x += alpha p;  r -= alpha Mp
            alpha = rz[b, t] / curvature if curvature > 0 else number(0)
            for j in range(d):
                new = r[b, t, j] - alpha * product[b, t, j]
                left += new * new
                new = x[b, t, j] + alpha * p[b, t, j]
                length += new * new
            steps[b, t] += 1
            active[b, t] = math.isfinite(left) and math.isfinite(length)
            if not active[b, t]:
                continue
            for j in range(d):
                x[b, t, j] += alpha * p[b, t, j]
                r[b, t, j] -= alpha * product[b, t, j]
            active[b, t] = left > limits[b, t]
            go_on = go_on or active[b, t]
    return go_on


@kernel()
def turn(iterate, z, active):
    """Take the second half: the next direction p from the preconditioned residual z."""
    _, r, p, rz = iterate
    streams, count, d = p.shape
    number = p.dtype.type
    for b in range(streams):
        for t in range(count):
            if not active[b, t]:
                continue
            # p = z + (r'.z' / r.z) p
            new = number(0)
            for j in range(d):
                new += r[b, t, j] * z[b, t, j]
            ratio = new / rz[b, t] if rz[b, t] > 0 else number(0)
            for j in range(d):
                p[b, t, j] = z[b, t, j] + ratio * p[b, t, j]
            rz[b, t] = new


@kernel()
def chebyshev_step(x, change, r, product, low, high, rho):
    """Take one Chebyshev step at every token; low, high, rho (B, C)."""
    streams, count, d = x.shape
    number = x.dtype.type
    for b in range(streams):
        for t in range(count):
            middle, half = (high[b, t] + low[b, t]) / 2, (high[b, t] - low[b, t]) / 2
            # change <- rho' rho change + 2 rho' / half r,  rho' = half / (2 middle - half rho)
            factor = 1 / (2 * middle - half * rho[b, t])
            old, new = number(half * factor * rho[b, t]), number(2 * factor)
            rho[b, t] = half * factor
            for j in range(d):
                r[b, t, j] -= product[b, t, j]
                change[b, t, j] = old * change[b, t, j] + new * r[b, t, j]
                x[b, t, j] += change[b, t, j]


@kernel()
def neumann_step(x, q, product, scale):
    """Take one Neumann step ``x <- x + scale (q - M x)`` at every token; scale (B, C)."""
    streams, count, d = x.shape
    for b in range(streams):
        for t in range(count):
            for j in range(d):
                x[b, t, j] += scale[b, t] * (q[b, t, j] - product[b, t, j])
