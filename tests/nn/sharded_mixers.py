"""Every mixer on eight devices along time: what the compiled program sends, values, gradients.

Run in a process of its own with eight CPU devices; prints one line a mixer.  Mixers named on the
command line, or all; values of those whose recurrence is another's are compared only if named.
"""

from __future__ import annotations

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import olsq
import olsq.nn

LENGTH, PIECES, DIM, HEADS = 512, 8, 8, 2
# Pass on, at most, of each token: values and a number; or keys, values and three numbers.
SIZE = DIM // HEADS
RING = dict.fromkeys(("softmax", "forgetting"), SIZE + 1)
RING |= dict.fromkeys(("local_linear", "parallax"), 2 * SIZE + 3)
SMALL = olsq.ChunkExact(chunk=8)  # compiles sooner
OPTIONS = {
    "sliding_window": {"window": 9}, "mesa_window": {"window": 9}, "intention": {"segments": 4},
    "ttt_linear": {"mini_batch": 8}, "ttt_mlp": {"mini_batch": 8},
    "log_linear_mamba2": {"levels": 3},
    "mesa": {"solver": SMALL}, "mesa_discounted": {"solver": SMALL},
}  # fmt: skip
# Recurrences that test_attention_pieces.py compares, or that delta and mesa have.
KIN = {
    "gated_delta", "gated_delta_product", "gated_delta2", "kda", "comba", "momentum_delta", "rwkv7",
    "preconditioned_delta", "preconditioned_gated_delta", "preconditioned_kda", "kalman_delta",
    "mesa_channel", "mesa_discounted", "gsa", "log_linear_mamba2",
}  # fmt: skip
KINDS = "all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter|collective-broadcast"


def collectives(text: str) -> list[tuple[str, int]]:
    """Kinds and numbers received, of each array in a compiled program."""
    found = []
    for types, kind in re.findall(rf"= (.*?) ({KINDS})(?:-start)?\(", text):
        for shape in re.findall(r"\b(?:pred|[a-z]+[0-9]+)\[([0-9,]*)\]", types):
            found.append((kind, int(np.prod([int(n) for n in shape.split(",") if n]))))
    return found


def longest(text: str) -> int:
    """The longest axis of any array in it."""
    shapes = re.findall(r"\b(?:pred|[a-z]+[0-9]+)\[([0-9,]+)\]", text)
    return max(int(n) for shape in shapes for n in shape.split(","))


def check(name: str, mesh: jax.sharding.Mesh, values: bool) -> None:
    """One program with gradients; against one device, gradients by a difference."""
    rng = np.random.default_rng(0)
    layer = olsq.nn.mixer(name, DIM, heads=HEADS, key=jax.random.key(0), **OPTIONS.get(name, {}))
    weights, rest = eqx.partition(layer, eqx.is_inexact_array)
    weights = jax.tree.map(lambda w: np.asarray(w, np.float64), weights)
    x = rng.normal(size=(1, LENGTH, DIM))
    segments = np.searchsorted([300, 301, 700], np.arange(LENGTH), "right")[None].astype(np.int32)

    def run(given, segments):
        weights, x = given
        y = eqx.combine(weights, rest)(x, segment_ids=segments)
        return jnp.sin(y).sum(), y

    placed = olsq.nn.shard(eqx.combine(weights, rest), mesh, sequence="time")
    split_weights, split_rest = eqx.partition(placed, eqx.is_inexact_array)
    inputs, ids = olsq.nn.shard_batch((x, segments), mesh, None, "time")

    def split_run(given, segments):
        weights, x = given
        y = eqx.combine(weights, split_rest)(x, segment_ids=segments)
        return jnp.sin(y).sum(), y

    both = jax.jit(jax.value_and_grad(split_run, has_aux=True))
    program = both.lower((split_weights, inputs), ids).compile()
    text = program.as_text()
    sent = collectives(text)
    assert sent
    assert longest(text) < LENGTH, f"an axis of {longest(text)}"
    tokens = HEADS * LENGTH // PIECES  # of one piece
    most = max(size for kind, size in sent)
    passed = max(size for kind, size in sent if kind == "collective-permute")
    rest_of = max(size for kind, size in sent if kind != "collective-permute")
    assert rest_of < 2 * LENGTH, sent  # no number of every head and token
    assert passed <= RING[name] * tokens if name in RING else passed < LENGTH, sent

    if not values:
        print(name, most, flush=True)
        return
    (_, y), grads = program((split_weights, inputs), ids)
    forward = jax.jit(run)
    want = forward((weights, x), segments)[1]
    error = np.abs(y - want).max() / np.abs(want).max()
    assert error < 1e-9, error
    way = jax.tree.map(lambda a: rng.normal(size=a.shape), (weights, x))
    step = 1e-7

    def moved(size):
        return forward(jax.tree.map(lambda a, d: a + size * d, (weights, x), way), segments)[0]

    along = [np.asarray(g) * d for g, d in zip(*map(jax.tree.leaves, (grads, way)), strict=True)]
    slope, scale = sum(a.sum() for a in along), sum(np.abs(a).sum() for a in along)
    difference = abs((moved(step) - moved(-step)) / (2 * step) - slope) / scale
    # Kalman's Chebyshev steps stop early; its gradient is that of the solution.
    assert difference < (1e-3 if name == "kalman" else 2e-6), difference
    print(name, most, f"{error:.0e} {difference:.0e}", flush=True)


if __name__ == "__main__":
    import sys

    jax.config.update("jax_enable_x64", True)
    assert jax.device_count() == PIECES
    line = jax.make_mesh((PIECES,), ("time",))  # its axes are explicit by default
    for chosen in sys.argv[1:] or olsq.nn.MIXERS:
        try:
            check(chosen, line, chosen in sys.argv or chosen not in KIN)
        except Exception as failure:
            failure.add_note(f"of {chosen}")
            raise
