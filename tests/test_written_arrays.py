"""A caller may write the next sample into the array that it gave for this one.

JAX reads aligned NumPy arrays in place and when its program begins, which here waits for another.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
import olsq.icl
import olsq.icl.autoregressive
import olsq.linalg
import olsq.local
import olsq.nn
from olsq import attention, sequence
from olsq.nn.parts import check_segment_ids, check_stream, check_tokens

T, D = 6, 4


@jax.jit
def late(x):
    """Return ``x`` after a tenth of a second or more."""
    big = jax.lax.fori_loop(0, 8, lambda _, a: a @ a / 600, jnp.ones((600, 600), jnp.float32))
    return jnp.where(big[0, 0] < 2, x, 0 * x)


def aligned(x):
    """Return a copy that begins at a multiple of 64 bytes, as JAX reads in place."""
    x = np.asarray(x)
    memory = np.empty(x.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    out = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def draws(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


TOKENS = np.arange(12, dtype=np.int32).reshape(2, 6)


def solve(q, k, v):
    return olsq.online_lstsq(k, v, q, ridge=1.0, solver=olsq.Dense()).value


def update(gram, k, v):
    state = olsq.Moments(gram, jnp.zeros((D, D)))
    return sequence.update(state, k, v)


def check(_, x, tokens, ids):
    return (
        check_stream("x", x, 8),
        check_tokens(tokens, 16),
        check_segment_ids(ids, (2, 6)),
    )


# A function, what is ready late, and the arrays that are written into after the call.
HEADS, ROWS, SQUARE = draws(1, T, 1, D), draws(T, D), draws(D, D)
DOORS = {
    "rule": (attention.gla, HEADS, (HEADS + 1, HEADS + 2)),
    "step of a rule": (attention.gla_step, HEADS[:, 0], (HEADS[:, 1], HEADS[:, 2])),
    "solve": (solve, ROWS, (ROWS + 1, ROWS + 2)),
    "update": (update, SQUARE @ SQUARE.T, (ROWS[0], ROWS[1])),
    "cholesky_update": (
        lambda x, R: olsq.linalg.cholesky_update(R, x),
        ROWS[0],
        (np.eye(D, dtype=np.float32) + 1,),
    ),
    "attend": (
        lambda x, w: olsq.icl.attend(x, olsq.icl.from_products(w[0], w[1])),
        ROWS,
        (draws(2, D, D),),
    ),
    "augmented layer": (olsq.icl.autoregressive.augmented_layer, draws(T, 3), (draws(3, 3),) * 2),
    "arguments of layers": (check, ROWS, (draws(2, 6, 8), TOKENS, TOKENS)),
    "rows of a state": (olsq.nn.take_rows, draws(8, 4), (TOKENS[0],)),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_array_that_is_written_into_after_the_call(door):
    """It changes nothing: the result is that of arrays which nobody writes into."""
    function, first, others = DOORS[door]
    want = function(jnp.array(first), *map(jnp.array, others))
    jax.block_until_ready(function(late(jnp.array(first)), *map(aligned, others)))  # compiled
    given = [aligned(x) for x in others]
    found = function(late(jnp.array(first)), *given)
    for x in given:
        x[...] = 0
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_placed_batch_is_a_copy():
    """What ``shard_batch`` places on a device is the caller's array no more."""
    given = aligned(TOKENS)
    placed = olsq.nn.shard_batch(given, jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",)))
    given[...] = 0
    np.testing.assert_array_equal(placed, TOKENS)
