"""Gates given as logs: powers of two, which shrink a memory without rounding, and a shift.

A factor near 1 keeps 24 bits of a gate of 1 - 1e-5, so a product of many is off by as many
roundings. Their logs add up without that loss. With L_t the sum of the logs up to token t::

    L_t = log(2) n_t + shift_t,    |shift_t| <= log(2) / 2,    n_t whole

the product of gates i+1 .. t is ``2^(n_t - n_i) exp(shift_t) / exp(shift_i)``.  So a memory that is
written with values divided by exp(shift_i), forgotten by ``2^(n_t - n_{t-1})``, and read as it is,
gives outputs divided by exp(shift_t).  Only shifts are rounded, once a token, however many tokens
follow.  With a gate per key dimension the keys and queries take the shifts instead.

Derivatives are those of the products of gates: a power has its gate's, and shifts are constant.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import Tokens
from olsq.sequence.jax.pieces import delay, pieces_of, scan_time

LOG2 = log(2)
RUN = 32  # tokens whose logs one product sums; a scan along time sums those of the runs


def split_gates(tokens: Tokens) -> tuple[Any, Any]:
    """Return the powers and shifts of the gates of ``tokens``; shifts are None without logs."""
    if tokens.log_forget is None:
        return tokens.forget, None
    return split_logs(tokens.log_forget)


def split_logs(logs: Array) -> tuple[Array, Array]:
    """Split logs (N, T) or (N, T, K) into powers of two and shifts.

    A log whose exponential is 0 has a power of 0: a reset, as -inf is.  Masks use finite logs such
    as -1e12, next to which the other logs of a sum would lose all their digits.
    """
    if not logs.shape[1]:
        return logs, logs
    reset = jnp.exp(jax.lax.stop_gradient(logs)) == 0
    logs = jnp.where(reset, 0, logs)  # tokens on both sides are in no product together
    plain = jax.lax.stop_gradient(logs)
    exponent = jnp.round(plain / LOG2)
    part = plain - LOG2 * exponent
    shift = _wrapped_sums(part if part.ndim == 3 else part[..., None]).reshape(part.shape)
    carried = jnp.round((part - shift + shifts_before(shift)) / LOG2)
    # 2^(n_t - n_{t-1}); the second factor is 1 and has the derivative of a gate in its log
    powers = jnp.exp2(exponent + carried) * jnp.exp(logs - plain)
    return jnp.where(reset, 0, powers), shift


def _wrapped_sums(part: Array) -> Array:
    """Sum (N, T, K) along time, up to a multiple of log(2): at most log(2) / 2."""
    n, length, width = part.shape
    size = RUN if pieces_of(length) == 1 else 1  # a run of tokens stays within a piece
    count = -(-length // size)
    runs = jnp.pad(part, ((0, 0), (0, count * size - length), (0, 0)))
    runs = runs.reshape(n, count, size, width)
    lower = jnp.tri(size, dtype=part.dtype)
    within = jnp.einsum("ij,nrjk->nrik", lower, runs, precision="highest")
    totals = jnp.swapaxes(_wrap(within[:, :, -1]), 1, 2).reshape(n * width, count)
    totals = scan_time(lambda a, b: _wrap(a + b), totals, 0.0).reshape(n, width, count)
    before = shifts_before(jnp.swapaxes(totals, 1, 2))
    return _wrap(within + before[:, :, None]).reshape(n, count * size, width)[:, :length]


def _wrap(x: Array) -> Array:
    return x - LOG2 * jnp.round(x / LOG2)


def shifts_before(shift: Array) -> Array:
    """Return the shift of the token before each; 0 before the first."""
    return delay(shift, jnp.zeros_like(shift, shape=(shift.shape[0], 1, *shift.shape[2:])))


def in_shifted_units(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step of :func:`scan_chunks` whose streams have a "shift" (N, C), or None.

    Values "v" are divided by its exponentials, and outputs multiplied by them: the first, where a
    step returns a pair.
    """

    def shifted(memory: Any, x: Any) -> tuple[Any, Any]:
        if x["shift"] is None:
            return step(memory, x)
        scale = jnp.exp(x["shift"])[..., None]
        memory, out = step(memory, {**x, "v": x["v"] / scale})
        return memory, (scale * out[0], *out[1:]) if isinstance(out, tuple) else scale * out

    return shifted


def leave_units(memory: Array, shift: Array | None) -> Array:
    """Multiply the last memory (N, ...) by the exponentials of the last shift, (N, T), or (N, T, K)
    for its last axis.
    """
    if shift is None or not shift.shape[1]:
        return memory
    last = shift[:, -1]
    last = last.reshape(last.shape[0], *[1] * (memory.ndim - last.ndim), *last.shape[1:])
    return memory + memory * jnp.expm1(last)  # a factor near 1 would be rounded, this is not
