"""Sampling options: their order, random keys, and where a continuation stops."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.arrays.checks import check_number, is_integer


class Sampling(eqx.Module):
    """Options of :func:`draw`; numbers are arrays, so that others need no compilation."""

    temperature: Any
    top_p: Any
    min_p: Any
    penalty: Any
    top_k: int | None = eqx.field(static=True)
    greedy: bool = eqx.field(static=True)

    @classmethod
    def checked(
        cls, temperature: Any, top_k: Any, top_p: Any, min_p: Any, penalty: Any, vocab_size: int
    ) -> Self:
        """Check the options; ValueError, naming the option, if one is out of range."""
        check_number("temperature", temperature, least=0)
        for name, x in {"top_p": top_p, "min_p": min_p, "repetition_penalty": penalty}.items():
            if x is not None:
                check_number(name, x)
        if top_k is not None:
            top_k = check_whole("top_k", top_k, 1, vocab_size)
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {top_p}")
        if min_p is not None and not 0 <= min_p <= 1:
            raise ValueError(f"min_p must lie in [0, 1], got {min_p}")
        if penalty is not None and not penalty > 0:
            raise ValueError(
                f"repetition_penalty must be a positive number (1: none), got {penalty}"
            )

        def number(x: Any, nothing: float) -> Any:
            return None if x is None or x == nothing else np.asarray(x, float)

        greedy = bool(temperature == 0)
        return cls(
            np.asarray(1.0 if greedy else temperature, float),
            number(top_p, 1),
            number(min_p, 0),
            number(penalty, 1),
            top_k,
            greedy,
        )


def check_whole(name: str, x: Any, least: int, most: int = 2**31 - 1) -> int:
    """Check and convert a whole number of Python, NumPy or JAX in [least, most]."""
    try:
        number = operator.index(x)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {x!r}") from None
    if isinstance(x, bool) or not least <= number <= most:
        is_open = most == 2**31 - 1 and number < least
        range_ = f"be at least {least}" if is_open else f"lie in [{least}, {most}]"
        raise ValueError(f"{name} must {range_}, got {x!r}")
    return number


def row_keys(key: Any, rows: int, samples: int) -> Array:
    """Derive keys (rows * samples,), with the samples of a row beside one another.

    A row's key depends on its place and on nothing else of the batch: one key is folded with the
    place, keys (rows,) are those of the rows.
    """
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        seed = key if np.ndim(key) < 2 and not isinstance(key, (bool, str)) else None
        array = np.asarray(np.nan if seed is None else seed)
        if array.ndim == 0 and array.dtype.kind in "iu":
            key = jax.random.key(int(array))
        elif array.shape == (2,) and array.dtype == np.uint32:  # of jax.random.PRNGKey
            key = jax.random.wrap_key_data(jnp.asarray(array))
        else:
            raise ValueError(
                f"key must be a jax.random.key, one per prompt, or a seed, got {key!r}"
            )
    if key.shape not in ((), (rows,)):
        raise ValueError(
            f"key must be one key, or {rows}, one per prompt; got an array of shape {key.shape}"
        )
    return _fold_keys(key, rows, samples)


@partial(jax.jit, static_argnums=(1, 2))
def _fold_keys(key: Array, rows: int, samples: int) -> Array:
    fold = jax.random.fold_in
    if key.ndim == 0:
        key = jax.vmap(fold, (None, 0))(key, jnp.arange(rows))
    many = jax.vmap(jax.vmap(fold, (None, 0)), (0, None))(key, jnp.arange(samples))
    return many.reshape(rows * samples)


def read_stops(stop: Any, vocab_size: int) -> Any:
    """Convert stop sequences to a table (S, L), right-aligned, with -1 before; None: none.

    ``stop`` is a token, or a list of tokens and sequences of tokens.
    """
    if stop is None:
        return None
    items = [stop] if _is_token(stop) else stop
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise ValueError(f"stop must be a token, or a list of tokens or sequences, got {stop!r}")
    rows: list[Any] = [[item] if _is_token(item) else item for item in items]
    for row in rows:
        is_sequence = not isinstance(row, (str, bytes)) and isinstance(row, Iterable)
        if not is_sequence or not len(row := list(row)) or not all(map(_is_token, row)):
            raise ValueError(f"stop: a sequence must hold at least one token, got {row!r}")
        if bad := [t for t in map(int, row) if not 0 <= t < vocab_size]:
            raise ValueError(f"stop must lie in [0, {vocab_size}), got {bad[0]}")
    if not rows:
        return None
    table = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for line, row in zip(table, rows, strict=True):
        line[len(line) - len(row) :] = row
    return table


def _is_token(x: Any) -> bool:
    if isinstance(x, (np.ndarray, jax.Array)):
        return x.ndim == 0 and x.dtype.kind in "iu"
    return is_integer(x)


def draw(
    logits: Array, keys: Array, place: Any, sampling: Sampling, occurred: Array | None
) -> Array:
    """Draw tokens (R,) from logits (R, V), with the keys folded with this place.

    ``occurred`` is (R, V).
    """
    if sampling.penalty is not None and occurred is not None:
        penalty = jnp.asarray(sampling.penalty, logits.dtype)
        weaker = jnp.where(logits > 0, logits / penalty, logits * penalty)
        logits = jnp.where(occurred, weaker, logits)
    if sampling.greedy:
        return jnp.argmax(logits, -1).astype(jnp.int32)
    scaled = logits / jnp.asarray(sampling.temperature, logits.dtype)
    kept = truncate(scaled, sampling.top_k, sampling.top_p, sampling.min_p)
    now = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
    return jax.vmap(jax.random.categorical)(now, kept).astype(jnp.int32)


def truncate(logits: Array, top_k: int | None, top_p: Any, min_p: Any = None) -> Array:
    """Set logits (B, V) to -inf where a token is not among the likeliest.

    Each bound applies to the distribution that those before it left.
    """
    if top_k is not None:
        least = jax.lax.top_k(logits, top_k)[0][:, -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if top_p is not None:
        order = jnp.argsort(-logits, -1)
        sorted_p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1), -1)
        before = jnp.cumsum(sorted_p, -1) - sorted_p
        # At 1 nothing is dropped; rounding of the sum would drop the least likely tokens.
        dropped = jnp.take_along_axis(before >= top_p, jnp.argsort(order, -1), -1) & (top_p < 1)
        logits = jnp.where(dropped, -jnp.inf, logits)
    if min_p is not None:
        least = logits.max(-1, keepdims=True) + jnp.log(min_p)
        logits = jnp.where(logits < least, -jnp.inf, logits)
    return logits
