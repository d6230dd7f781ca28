"""Check the arguments of the JAX functions once: shapes, dtypes and, where concrete, values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import (
    check_forget,
    check_real,
    check_streams,
    check_weight,
    sequence_ridge_axes,
    shape_error,
)
from olsq.arrays.questions import ask
from olsq.problem import Moments
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.triangular import inverse_cholesky


class Stream(NamedTuple):
    """A checked problem: one flat batch axis B, one float dtype, every argument broadcast.

    ``gates`` and ``logs`` are both None when nothing is forgotten, ``weight`` is None when
    every sample counts once: the solvers then skip the work that gates cost.
    """

    keys: jax.Array  # (B, T, d)
    values: jax.Array  # (B, T, m)
    queries: jax.Array  # (B, T, d)
    gates: jax.Array | None  # (B, T)
    logs: jax.Array | None  # (B, T), never differentiated: gradients go through gates
    weight: jax.Array | None  # (B, T)
    ridge: jax.Array | None  # (B, 1, d) or (B, T, d); None in the discounted problem
    state: Moments[Array]  # gram (B, d, d) and cross (B, m, d); a discounted gram holds its ridge
    floor: jax.Array | None  # (B,) at most the least eigenvalue of a discounted gram; else None


def promoted(*arrays: Any) -> jnp.dtype:
    """Return the common dtype of arrays, whatever ``jax_numpy_dtype_promotion`` is set to."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


def output_dtype(*arrays: Any) -> jnp.dtype:
    """Return the dtype of outputs: that which arrays promote to if it is a float, else float32."""
    dtype = promoted(*arrays)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.dtype(jnp.float32)


def working_dtype(*arrays: Any) -> jnp.dtype:
    """Return float64 if any array has it (and x64 is on), else float32.

    Half precision is widened.
    """
    dtype = promoted(*arrays, jnp.float32)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"keys, values and queries must be real, got {dtype}; split complex data")
    return dtype


def flatten(
    name: str, x: Any, batch: tuple[int, ...], tail: tuple[int, ...], dtype: jnp.dtype, meaning: str
) -> jax.Array:
    """Broadcast ``x`` to (*batch, *tail) and flatten its batch axes, or raise an error that names
    the shape it should have.
    """
    check_real(name, x)
    x = jnp.asarray(x, dtype)
    try:
        x = jnp.broadcast_to(x, (*batch, *tail))
    except ValueError:
        raise shape_error(name, x.shape, (*batch, *tail), meaning) from None
    return x.reshape(math.prod(batch), *tail)  # also of symbolic sizes


def all_ones(x: Any) -> bool:
    """Test whether every entry of ``x`` is known to be 1; False while it is traced."""
    return bool(ask(x, lambda values: bool((values == 1).all())))


def check_gates(
    forget: Any, log_forget: Any, batch: tuple[int, ...], length: int, dtype: jnp.dtype
) -> tuple[jax.Array | None, jax.Array | None]:
    """Return (forget, log_forget), flat over the batch, or (None, None) when all gates are 1."""
    check_forget(forget, log_forget)
    if log_forget is not None:
        logs = flatten("log_forget", log_forget, batch, (length,), dtype, "batch and time")
        return jnp.exp(logs), jax.lax.stop_gradient(logs)
    if forget is None:
        return None, None
    gates = flatten("forget", forget, batch, (length,), dtype, "batch and time")
    if all_ones(forget):
        return None, None
    # log(0) and its derivative are never formed: a gate of 0 gets log 0 here and a mask where it is
    # used.
    kept = jax.lax.stop_gradient(gates)
    return gates, jnp.log(jnp.where(kept == 0, 1, kept))


def check_ridge(
    ridge: Any,
    ridge_mode: str,
    has_state: bool,
    batch: tuple[int, ...],
    length: int,
    d: int,
    dtype: jnp.dtype,
) -> jax.Array | None:
    """Return the ridge as (B, 1, d) or (B, T, d), or None where the state already holds it."""
    axes = sequence_ridge_axes(ridge, ridge_mode, has_state, batch, length, d)
    if axes is None:
        return None
    checked = flatten("ridge", ridge, batch, axes[0][len(batch) :], dtype, axes[1])
    return checked if checked.ndim == 3 else checked[:, None]


def check_moments(state: Any) -> None:
    """Raise if the parts of a state are not real numbers."""
    for name, part in zip(Moments._fields, state, strict=True):
        check_real(f"state.{name}", part)


def check_state(
    state: Any,
    ridge: jax.Array | None,
    batch: tuple[int, ...],
    d: int,
    m: int,
    dtype: jnp.dtype,
    discounted: bool,
) -> Moments[Array]:
    """Return the initial moments (B, d, d) and (B, m, d)."""
    if state is not None:
        gram = flatten("state.gram", state[0], batch, (d, d), dtype, "batch, d, d")
        return Moments(gram, flatten("state.cross", state[1], batch, (m, d), dtype, "batch, m, d"))
    count = math.prod(batch)
    gram = jnp.zeros((count, d, d), dtype)
    if discounted and ridge is not None:
        gram = ridge[:, 0, :, None] * jnp.eye(d, dtype=dtype)
    return Moments(gram, jnp.zeros((count, m, d), dtype))


def check(
    keys: Any,
    values: Any,
    queries: Any,
    forget: Any,
    log_forget: Any,
    weight: Any,
    ridge: Any,
    ridge_mode: str,
    state: Any,
) -> tuple[Stream, tuple[int, ...], jnp.dtype]:
    """Check every argument; return the stream, the batch shape and the dtype of the outputs."""
    for name, x in (("keys", keys), ("values", values), ("queries", queries)):
        check_real(name, x)
    keys, values, queries = (jnp.asarray(a) for a in (keys, values, queries))
    if state is not None:
        check_moments(state)
        state = Moments(*map(jnp.asarray, state))
    batch, length, d, m = check_streams(keys, values, queries)
    dtype = working_dtype(keys, values, queries, *([] if state is None else state))
    gates = check_gates(forget, log_forget, batch, length, dtype)
    check_weight(weight)
    if weight is not None:
        ones = all_ones(weight)
        weight = flatten("weight", weight, batch, (length,), dtype, "batch and time")
        weight = None if ones else weight
    ridge = check_ridge(ridge, ridge_mode, state is not None, batch, length, d, dtype)
    discounted = ridge_mode == "discounted"
    start = check_state(state, ridge, batch, d, m, dtype, discounted)
    named = {"keys": keys, "values": values, "queries": queries}
    k, v, q = (flatten(n, x, batch, x.shape[-2:], dtype, "batch, T, d") for n, x in named.items())
    floor = None
    if discounted:
        floor = inverse_norm(start.gram) if ridge is None else ridge.min((1, 2))
        ridge = None
    stream = Stream(k, v, q, *gates, weight, ridge, start, floor)
    return stream, batch, output_dtype(keys, values, queries)


@compile_once
def inverse_norm(gram: jax.Array) -> jax.Array:
    """Compute ``1 / trace(gram^-1)``, a lower bound of the eigenvalues.

    The bound is 0 where there is no inverse.
    """
    half = inverse_cholesky(jax.lax.stop_gradient(gram))
    total = (half**2).sum((-2, -1))
    return jnp.where(jnp.isfinite(total), 1 / total, 0)
