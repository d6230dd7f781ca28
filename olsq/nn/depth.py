"""Run blocks in depth: repeated blocks are compiled once, as the body of one loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from olsq.nn.base import MixerState
from olsq.sequence.jax.control import scan

Remat = Literal["none", "dots", "full"]
# Fewest repeated blocks compiled as a loop: those that solve a regression, and others.
# Measured: a loop of 4 Mesa blocks took 2.15 times the step of gla, the blocks one by one 1.62
# times; a loop saves 4 s of compilation per block.
LEAST_SOLVING, LEAST = 6, 12
POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def run_blocks(
    blocks: Sequence[Any],
    x: Array,
    past: Sequence[MixerState | None],
    keys: Sequence[Array | None],
    segment_ids: Any,
    capacity: int | None,
    remat: Remat,
    keep: bool,
) -> tuple[Array, tuple[Any, ...]]:
    """Run all ``blocks``: the stream (B, T, dim) after them, and each one's state, None unless
    ``keep``.

    ``keys`` draw each block's dropout, None where nothing is dropped.

    While JAX traces, blocks that repeat are one :func:`jax.lax.scan` over their stacked arrays: the
    time to compile then does not grow with depth. The model itself keeps its blocks one after the
    other, for reading, changing and saving it.

    A loop stacks what the backward pass needs, which costs some time on every call. Blocks that
    solve a regression take seconds each to compile, and ``LEAST_SOLVING`` of them are a loop;
    others take a fraction of a second, and are one from ``LEAST`` blocks on.

    A single token goes through them one by one: stacking weights takes as long as reading them,
    which is what a token costs. So does a stream whose caches may have to grow.
    """
    after: list[Any] = []
    ids = None if segment_ids is None else jnp.asarray(segment_ids)
    settings = ids, None if capacity is None else int(capacity), remat, keep
    for at, period, times in _plan_loops(blocks, x, past, capacity):
        here = slice(at, at + period * times)
        if times > 1:
            turn = tuple(blocks[here]), x, tuple(past[here]), tuple(keys[here])
            x, left = _run_as_loop(*turn, period, settings)
        else:
            x, left = _run_one_by_one(blocks[here], x, past[here], keys[here], settings)
        after.extend(left)
    return x, tuple(after)


def _run_one_by_one(
    blocks: Any, x: Array, past: Any, keys: Any, settings: Any
) -> tuple[Array, tuple[Any, ...]]:
    """Run the blocks one after the other."""
    segment_ids, capacity, remat, keep = settings
    after = []
    for block, before, key in zip(blocks, past, keys, strict=True):
        call = block
        if remat != "none":
            call = eqx.filter_checkpoint(block, policy=POLICIES[remat])
        x, left = call(x, before, segment_ids, capacity, key)
        after.append(left if keep else None)
    return x, tuple(after)


@eqx.filter_jit  # so that a gradient taken outside of jit compiles the loop only once
def _run_as_loop(
    blocks: Any, x: Array, past: Any, keys: Any, period: int, settings: Any
) -> tuple[Array, tuple[Any, ...]]:
    """Run blocks, each like the one ``period`` before it, as a loop over the periods."""
    parts = [slice(i, i + period) for i in range(0, len(blocks), period)]
    turns = [(blocks[part], past[part], keys[part]) for part in parts]
    arrays, static = zip(*(eqx.partition(turn, _is_array) for turn in turns), strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)

    def step(x: Array, leaves: Any) -> tuple[Array, Any]:
        here, before, key = eqx.combine(leaves, static[0])
        return _run_one_by_one(here, x, before, key, settings)

    first = jax.tree.map(lambda leaf: leaf[0], stacked)
    if jax.eval_shape(lambda: step(x, first)[0]).dtype != x.dtype:
        # a loop cannot carry an array whose dtype changes
        return _run_one_by_one(blocks, x, past, keys, settings)
    x, after = scan(step, x, stacked)
    left = (jax.tree.map(lambda leaf, i=i: leaf[i], after) for i in range(len(turns)))
    return x, tuple(state for turn in left for state in turn)


def _plan_loops(
    blocks: Sequence[Any], x: Array, past: Sequence[Any], capacity: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yield (first, period, times) of the runs that make up all blocks, in order.

    Where ``times`` is 1 there is no loop.
    """
    count, at = len(blocks), 0
    grows = capacity is None and any(
        block.mixer.grows and before is not None for block, before in zip(blocks, past, strict=True)
    )
    if count < 2 or x.shape[1] == 1 or grows or not _traced((x, list(blocks), list(past))):
        yield 0, count, 1
        return
    looks = [_static_structure((block, before)) for block, before in zip(blocks, past, strict=True)]
    while at < count:
        best = 1, 1
        for period in range(1, (count - at) // 2 + 1):
            times = 1
            while looks[at : at + period] == looks[at + times * period : at + (times + 1) * period]:
                times += 1
            solving = times * sum(block.mixer.solves() for block in blocks[at : at + period])
            enough = solving >= LEAST_SOLVING or period * times >= LEAST
            if times > 1 and enough and period * times > best[0] * best[1]:
                best = period, times
        yield at, best[0], best[1]
        at += best[0] * best[1]


def _static_structure(tree: Any) -> Any:
    """Return all of a tree but the values of its arrays; equal for trees that one loop can run."""
    arrays, static = eqx.partition(tree, _is_array)
    leaves, structure = jax.tree.flatten(static)
    try:
        hash((structure, tuple(leaves)))
    except TypeError:  # jax.jit could not compare such a tree either
        return object()
    shapes = [(np.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(arrays)]
    return shapes, structure, leaves


def _is_array(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray))


def _traced(tree: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
