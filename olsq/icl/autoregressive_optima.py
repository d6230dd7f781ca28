"""Optimal weights of the models of `olsq.icl.autoregressive`, in closed form.

Source: M. Sander et al., "How do Transformers perform in-context autoregressive learning?" (ICML
2024), propositions 2, 3, 5, 6 and lemma 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_integer, check_number, check_sizes, refuse
from olsq.icl.weights import shaped

__all__ = [
    "Heads",
    "best_step",
    "rotation_optimum",
    "scalar_flow",
    "scalar_flow_limit",
    "unitary_optimum",
]


class Heads(NamedTuple):
    """Weights of the non-augmented model with diagonal heads (assumption 3 of the paper).

    Attributes
    ----------
    a, b : array (H, d)
        The diagonals of ``A_h = W_K_h^T W_Q_h`` and ``B_h = W_O_h W_V_h``, a head per row.
    p : array (L - 1, L)
        Positional encoding: row T - 2 weighs the tokens 1 to T that predict token T + 1.
    """

    a: jax.Array
    b: jax.Array
    p: jax.Array


def best_step(length: int, dim: int, *, before: str = "inverse") -> float:
    """Return the best ``a3 b1`` of the augmented model: its gradient step (propositions 2 and 8).

    ``sum of T / sum of (T^2 + (d - 1) T)`` over T = 2 to L, close to ``3 / (2 L)`` for large L.

    Parameters
    ----------
    length : int
        L, the longest context.
    dim : int
        d.
    before : {"inverse", "zero"}
        What the first token carries as ``s[0]``: ``W^-1 s[1]``, as the paper's proof assumes, or
        zeros, as its code has it.  Zeros leave T - 1 pairs to learn from: T - 1 replaces T.

    Examples
    --------
    >>> from olsq.icl.autoregressive_optima import best_step
    >>> round(best_step(50, 5), 6), round(best_step(50, 5, before="zero"), 6)
    (0.026531, 0.027027)
    """
    check_integer("length", length, 2, bits=31)
    check_integer("dim", dim, 1, bits=31)
    pairs = np.arange(2.0, length + 1.0) - (0.0 if inverse_start(before) else 1.0)
    return float(pairs.sum() / (pairs**2 + (dim - 1.0) * pairs).sum())


def inverse_start(before: str) -> bool:
    """Test whether ``s[0] = W^-1 s[1]``; the other convention is zeros."""
    if before not in ("inverse", "zero"):
        raise ValueError(f'before must be "inverse" or "zero", got {before!r}')
    return before == "inverse"


def unitary_optimum(dim: int, length: int, *, heads: int | None = None) -> Heads:
    """Return weights of zero loss for independent eigenvalues (proposition 3).

    ``B^T A = I`` and ``P[T - 1, t] = (t == T)``: the model is ``conj(e[T - 1]) * e[T] * e[T]``.
    Heads beyond d are zero.

    Raises
    ------
    ValueError
        If there are fewer than d heads, which cannot reach zero.

    Examples
    --------
    >>> from olsq.icl.autoregressive_optima import unitary_optimum
    >>> unitary_optimum(2, 3, heads=3).p.tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    heads = dim if heads is None else heads
    check_sizes(dim=dim, heads=heads, length=length)
    if heads < dim:
        raise ValueError(f"{heads} heads cannot reach zero loss in dimension {dim}")
    return Heads(jnp.eye(heads, dim), jnp.eye(heads, dim), jnp.eye(length - 1, length, 1))


def rotation_optimum(dim: int, length: int, *, previous: float = -1.0, last: float = 2.0) -> Heads:
    """Return weights of zero loss for rotations (lemma 3 and proposition 6).

    ``P[T - 1]`` is zero except for ``previous`` at T - 1 and ``last`` at T, and ``C = B^T A`` has
    blocks ``[[x, y], [y, x]]`` with ``x = 1 / last`` and ``(x + y) previous + y last = 0``.

    Parameters
    ----------
    dim, length : int
        d, even, and L.
    previous, last : float
        The default is lemma 3's, and up to scale the only choice that d / 2 heads can do: C has
        rank d / 2, and each head turns one plane by ``2 cos(angle) R(angle) - I = R(2 angle)``.
        Others have d heads.

    Raises
    ------
    ValueError
        If d is odd, or ``last`` or ``previous + last`` is zero.

    Examples
    --------
    >>> from olsq.icl.autoregressive_optima import rotation_optimum
    >>> a, b, p = rotation_optimum(4, 3)
    >>> a.shape, (b.T @ a)[0].tolist(), p.tolist()
    ((2, 4), [0.5, 0.5, 0.0, 0.0], [[-1.0, 2.0, 0.0], [0.0, -1.0, 2.0]])
    """
    check_sizes(dim=dim, length=length)
    previous = check_number("previous", previous)
    last = check_number("last", last)
    if dim % 2 or last == 0.0 or previous + last == 0.0:
        raise ValueError("dim must be even, last and previous + last not zero")
    p = previous * jnp.eye(length - 1, length) + last * jnp.eye(length - 1, length, 1)
    x, y = 1.0 / last, -previous / (last * (previous + last))
    planes: Any = jnp.eye(dim // 2)
    if 2.0 * previous == -last:
        a = jnp.kron(planes, jnp.ones((1, 2)))
        return Heads(a, x * a, p)
    return Heads(jnp.kron(planes, jnp.array([[x, y], [y, x]])), jnp.eye(dim), p)


def scalar_flow(
    a: ArrayLike, b: ArrayLike, p: ArrayLike, *, step: float = 0.01, steps: int = 4000
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Follow the gradient flow of ``(p a b - 1)^2`` for a time ``step * steps`` (proposition 5).

    Classical Runge-Kutta of order 4; inputs broadcast, and each output has their shape.

    Notes
    -----
    The residual ``r = p a b - 1`` obeys ``r' = -2 r (a^2 b^2 + b^2 p^2 + p^2 a^2)``, and the
    bracket is at least ``3 |p a b|^(4/3)``.  So ``p a b > 0`` suffices, where the proposition asks
    for ``|p a b - 1| < 1``, and ``|r(t)| <= |r(0)| exp(-6 t min(p a b, 1)^(4/3))`` with the product
    at the start.  The steps are stable while twice the bracket times ``step`` is below 2.7.

    Examples
    --------
    >>> from olsq.icl.autoregressive_optima import scalar_flow
    >>> a, b, p = scalar_flow(1.0, -0.5, -0.1)
    >>> abs(float(a * b * p) - 1.0) < 1e-5
    True
    """
    check_integer("steps", steps, 0, bits=31)
    step = check_number("step", step, above=0)
    start = _broadcast(a, b, p)

    def slope(x: jax.Array) -> jax.Array:
        pair_products = jnp.stack([x[1] * x[2], x[2] * x[0], x[0] * x[1]])
        return -2.0 * (x[0] * pair_products[0] - 1.0) * pair_products

    def advance(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        k1 = slope(x)
        k2 = slope(x + 0.5 * step * k1)
        k3 = slope(x + 0.5 * step * k2)
        k4 = slope(x + step * k3)
        return x + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

    end, _ = jax.lax.scan(advance, start, None, length=steps)
    return end[0], end[1], end[2]


def scalar_flow_limit(
    a: ArrayLike, b: ArrayLike, p: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the limit of the gradient flow of ``(p a b - 1)^2`` for ``p a b > 0`` (proposition 5).

    All three squares grow by the same amount w, and no sign changes, so that the end is
    ``sign(x) sqrt(x^2 + w)`` with the one w that makes the product 1: found by bisection.

    Raises
    ------
    ValueError
        If p a b is not above 0.

    Examples
    --------
    >>> from olsq.icl.autoregressive_optima import scalar_flow_limit
    >>> [round(float(x), 3) for x in scalar_flow_limit(1.0, -0.5, -0.1)]
    [1.287, -0.952, -0.816]
    """
    start = _broadcast(a, b, p)
    refuse("p a b", start.prod(0), lambda product: ~(product > 0), "be > 0")
    squares = start**2
    above_least = squares - squares.min(0)
    # The least square at the end: at 0 the product is 0, at 1 it is at least 1.  To look for w
    # itself would lose the digits of 1 + w where the squares are large.
    low, high = jnp.zeros_like(squares[0]), jnp.ones_like(squares[0])

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        above = jnp.prod(above_least + middle, axis=0) > 1.0
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = jax.lax.fori_loop(0, 200, halve, (low, high))
    end = jnp.sign(start) * jnp.sqrt(above_least + 0.5 * (low + high))
    return end[0], end[1], end[2]


def numbers(name: str, x: ArrayLike, shape: tuple[int | str, ...]) -> jax.Array:
    """Convert an argument of that shape to a real array of the default precision."""
    return shaped(name, x, shape, leading=False).astype(float)


def _broadcast(a: ArrayLike, b: ArrayLike, p: ArrayLike) -> jax.Array:
    """Stack the three numbers of `scalar_flow`: (3, ...)."""
    parts = (shaped(name, x, ()).astype(float) for name, x in (("a", a), ("b", b), ("p", p)))
    return jnp.stack(jnp.broadcast_arrays(*parts))
