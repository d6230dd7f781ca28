"""Chunk factorisation: an inverse for every token of a chunk from two Cholesky factors.

Before a chunk let H be the moments and ``zeta_t`` the product of the chunk's gates up to t.  With
a reference ``zeta_r`` and a ridge L::

    R = (zeta_r H + L)^{-1}       k~_i = sqrt(weight_i zeta_r / zeta_i) k_i
    S = I + K~ R K~^T = C C^T     N = C^{-1} K~ R
    P_t = f_t (R - sum_{i<=t} n_i n_i^T),   f_t = zeta_r / zeta_t

because the leading minors of S share C.  ``P_t^{-1} = H_t + L / f_t``: the system of token t with
a ridge of ``L / f_t`` in place of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from olsq.sequence.jax.control import cond, max_over_vmap, while_loop
from olsq.sequence.jax.solver import Chunks
from olsq.sequence.jax.triangular import (
    SMALLEST,
    SMALLEST_OF_FALLBACK,
    inverse_cholesky,
    inverse_from_factor,
)
from olsq.solvers.chunk_exact import FLOOR

FACTOR = "olsq factor"  # names what a backward pass keeps
ROUNDS = "usually_one_round"  # names a loop for those who count what a program does
SINGULAR = 0.02  # relative error of S or P beyond which a chunk needs care


_FACTORS = jax.checkpoint_policies.save_only_these_names(FACTOR)


def save_factors(primitive: Any, *avals: Any, **params: Any) -> Any:
    """Choose what a backward pass keeps of a tile: factors and solutions.

    The rest is recomputed.
    """
    return primitive.name == "custom_linear_solve" or _FACTORS(primitive, *avals, **params)


class Factor(NamedTuple):
    """P_t of every token: R (B, n, d, d), N (B, n, C, d), f (B, n, C, 1) or None where f is 1."""

    inverse: Array
    rows: Array
    scale: Any  # or None
    growth: Array  # (B, n): largest 1 + k~ R k~, how much R - sum n n^T may cancel


def sums_of_logs(chunks: Chunks) -> Array | None:
    """Sum the log gates within each chunk up to t (B, n, C), counting a gate of 0 as e^FLOOR."""
    if chunks.logs is None:
        return None
    return jnp.cumsum(jnp.where(chunks.gates == 0, FLOOR, jnp.maximum(chunks.logs, FLOOR)), -1)


def reference_ridge(chunks: Chunks) -> Array | None:
    """Return one ridge per chunk, (B, n or 1, 1, d): the geometric mean over its tokens."""
    if chunks.ridge is None or chunks.ridge.shape[2] == 1:
        return chunks.ridge
    tiny = jnp.finfo(chunks.ridge.dtype).tiny
    return jnp.exp(jnp.log(jnp.maximum(chunks.ridge, tiny)).mean(2, keepdims=True))


class Guard(NamedTuple):
    """Ridges that make singular systems definite."""

    ridge: Array  # (B, n, d); 0 elsewhere
    singular: Array  # (B, n) bool


def factorise(chunks: Chunks, sums: Any, centre: Any, ridge: Any, limit: float = jnp.inf) -> Factor:
    """Factorise every chunk at the reference ``zeta_r = exp(centre)``, centre (B, n).

    Keys are scaled up by at most ``sqrt(limit)``; tokens beyond that are not covered.  R, N and
    growth are computed from ``S = 1 + (K~ R) K~^T`` while that keeps its digits: the entries of S
    carry an error of ``|R| |k~|^2 eps``, and where that is not small, S may come out indefinite.
    Then a second round computes these chunks as :func:`factorise_roughly` does, with a ridge where
    the system is singular. Both rounds are one program.
    """
    system, keys, scale = _scale_to_reference(chunks, sums, centre, ridge, limit)

    def attempt(state: tuple[Array, Array, Guard, Any]) -> tuple[Array, Array, Guard, Any]:
        count, unsafe, guard, before = state
        first = count == 0
        half, inverse = _invert(system, guard, SMALLEST)
        plain, capped = partial(_plain, keys, inverse), partial(_capped, keys, half, guard)
        rows, minors, growth = cond(~first, capped, plain)
        parts = inverse, inverse_cholesky(minors, SMALLEST) @ rows, growth
        taken = (first | unsafe)[..., None, None]
        masks = taken, taken, first | unsafe
        parts = tuple(jnp.where(*three) for three in zip(masks, parts, before, strict=True))
        size = jnp.diagonal(inverse, axis1=-2, axis2=-1).max(-1) * (keys**2).sum((-2, -1))
        unsafe = first & ~(size * jnp.finfo(size.dtype).eps < SINGULAR)  # also where it is NaN
        find = partial(_find_singular, system, keys, half, ridge is not None)
        guard = cond(max_over_vmap(unsafe.any()), find, lambda: guard)
        return count + 1, unsafe, guard, parts

    def going(state: Any) -> Array:
        count, unsafe, *_ = state
        return (count == 0) | max_over_vmap(unsafe.any())

    no, unguarded = jnp.zeros(system.shape[:2], bool), jnp.zeros_like(keys[:, :, 0])
    parts = system, keys, keys[..., 0, 0]  # of these shapes; the first round replaces all
    with jax.named_scope(ROUNDS):
        parts = while_loop(going, attempt, (jnp.int32(0), no, Guard(unguarded, no), parts))[-1]
    return _factor(parts, scale)


def factorise_roughly(
    chunks: Chunks, sums: Any, centre: Any, ridge: Any, limit: float = jnp.inf
) -> Factor:
    """Compute :func:`factorise` as far as preconditioning needs it: half the work to compile."""
    system, keys, scale = _scale_to_reference(chunks, sums, centre, ridge, limit)
    diagonal, total = jnp.diagonal(system, axis1=-2, axis2=-1), (keys**2).sum(-2)
    unbounded = (total * jnp.finfo(system.dtype).eps > SINGULAR * diagonal).any(-1)
    guard = _guard(system, keys, jnp.ones_like(unbounded), unbounded)
    half, inverse = _invert(system, guard, SMALLEST_OF_FALLBACK)
    rows, minors, growth = _capped(keys, half, guard)
    return _factor((inverse, inverse_cholesky(minors, SMALLEST_OF_FALLBACK) @ rows, growth), scale)


def _scale_to_reference(
    chunks: Chunks, sums: Any, centre: Any, ridge: Any, limit: float
) -> tuple[Array, Array, Any]:
    """Return ``zeta_r H + L``, the keys k~ and f of every chunk; f is None where it is 1."""
    keys, system = chunks.keys, chunks.gram
    scale = None
    if sums is not None:
        system = jnp.exp(centre)[..., None, None] * system
        gap = centre[..., None] - sums
        scale = jnp.exp(gap)[..., None]
        # k~_i = sqrt(weight_i zeta_r / zeta_i) k_i
        keys = keys * jnp.exp(jnp.minimum(gap, jnp.log(limit)) / 2)[..., None]
    if chunks.weight is not None:
        keys = keys * jnp.sqrt(chunks.weight)[..., None]
    if ridge is not None:
        system = system + ridge * jnp.eye(keys.shape[-1], dtype=keys.dtype)
    return system, keys, scale


def _factor(parts: tuple[Array, ...], scale: Any) -> Factor:
    """Return the factor of R, N and growth, named for what a backward pass keeps."""
    inverse, rows, growth = (checkpoint_name(part, FACTOR) for part in parts)
    return Factor(inverse, rows, scale, growth)


def _invert(system: Array, guard: Guard, smallest: int) -> tuple[Array, Array]:
    """Compute X, lower triangular, with ``X (system + ridge) X^T = 1``, and ``R = X^T X``."""
    eye = jnp.eye(system.shape[-1], dtype=system.dtype)
    half = inverse_cholesky(system + guard.ridge[..., None] * eye, smallest)
    return half, inverse_from_factor(half)


def _plain(keys: Array, inverse: Array) -> tuple[Array, Array, Array]:
    """Compute ``K~ R``, ``S = 1 + (K~ R) K~^T``, and the growth of every chunk."""
    rows = keys @ inverse
    minors = jnp.einsum("bnti,bnsi->bnts", rows, keys) + jnp.eye(keys.shape[2], dtype=keys.dtype)
    return rows, minors, jnp.diagonal(minors, axis1=-2, axis2=-1).max(-1)


def _capped(keys: Array, half: Array, guard: Guard) -> tuple[Array, Array, Array]:
    """Compute the same for hard chunks: finite and definite whatever the keys are.

    With ``R = X^T X`` and ``Y = K~ X^T``, ``S = 1 + Y Y^T`` is definite in any arithmetic. P is
    still a difference, ``R - sum n n^T``, that cancels as many digits as the leverages ``|y|^2``
    have.  So a key whose leverage is above ``cap`` enters with the cap. P is exact at the tokens
    before it; at those after it, ``P M`` differs from 1 in that key's direction only: there, and
    where a ridge was added, it is a preconditioner.  Growth is infinite where one was.
    """
    c = keys.shape[2]
    y = keys @ jnp.swapaxes(half, -1, -2)
    leverage = (y**2).sum(-1)
    cap = SINGULAR / (c * jnp.finfo(y.dtype).eps)
    y = y * jax.lax.rsqrt(jnp.maximum(leverage / cap, 1))[..., None]
    minors = jnp.einsum("bnti,bnsi->bnts", y, y) + jnp.eye(c, dtype=y.dtype)
    return y @ half, minors, jnp.where(guard.singular, jnp.inf, 1 + leverage.max(-1))


def _find_singular(system: Array, keys: Array, half: Array, floor: bool) -> Guard:
    """Find the systems that are indefinite and those that are unbounded, from their inverse factors
    X.  ``floor`` says that all have a ridge.
    """
    info = jnp.finfo(half.dtype)
    leverage = ((keys @ jnp.swapaxes(half, -1, -2)) ** 2).sum(-1).max(-1)
    high = ~(leverage < (info.max if floor else SINGULAR / info.eps))
    indefinite = ~jnp.isfinite((half**2).sum((-2, -1)))
    return _guard(system, keys, indefinite, high & ~(indefinite & floor))


def _guard(system: Array, keys: Array, indefinite: Array, unbounded: Array) -> Guard:
    """Return ridges for systems that are singular.

    A system that is ``indefinite`` to rounding gets one in proportion to its diagonal, which a
    token notices only if its own condition number is beyond the dtype. Where the system is
    negligible compared with the keys (``unbounded``: the discounted problem soon after a gate of 0,
    leverages that overflow), it is in proportion to the keys.
    """
    d, eps = keys.shape[-1], jnp.finfo(system.dtype).eps
    diagonal, singular = jnp.diagonal(system, axis1=-2, axis2=-1), indefinite | unbounded
    ridge = jnp.where(indefinite[..., None], 4 * d * eps * diagonal, 0)
    ridge = ridge + jnp.where(unbounded[..., None], jnp.sqrt(eps) * (keys**2).sum(-2), 0)
    return Guard(jnp.where(singular[..., None] & ~(ridge > 0), 1, ridge), singular)


def apply_inverses(factor: Factor, x: Array) -> Array:
    """Compute P_t x_t for every token: causal linear attention with keys = values = n."""
    # P_t x_t = f_t (R x_t - sum_{i<=t} n_i (n_i . x_t))
    scores = jnp.tril(jnp.einsum("bnti,bnsi->bnts", x, factor.rows))
    y = jnp.einsum("bnti,bnji->bntj", x, factor.inverse) - scores @ factor.rows
    return y if factor.scale is None else factor.scale * y
