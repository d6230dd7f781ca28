"""Eight devices, along rows, along time and both: logits, loss and gradients of one device."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import olsq
import olsq.nn
from tests.versions import fast_flags

PROGRAM = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh
import olsq, olsq.nn

jax.config.update("jax_enable_x64", True)
assert jax.device_count() == 8
mixers = ("mesa", "gla", "gated_delta", "softmax", "hawk")
model = olsq.nn.LanguageModel(
    16, dim=8, blocks=5, heads=2, mixer=mixers, mlp_ratio=0, dtype="float64",
    key=jax.random.key(0),
)
tokens = np.random.default_rng(0).integers(0, 16, (8, 33), np.int32)
inputs, targets = tokens[:, :-1], tokens[:, 1:]

@eqx.filter_jit
def run(model, inputs, targets):
    def loss(model):
        logits = model(inputs)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return each.mean(), logits
    return eqx.filter_value_and_grad(loss, has_aux=True)(model)

want = run(model, inputs, targets)
everywhere = Mesh(np.array(jax.devices()), ("data",))
grid = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "time"))
line = jax.make_mesh((8,), ("time",))  # its axes are explicit by default
for mesh, weights, batch, sequence in (
    (everywhere, "data", "data", None),
    (line, None, None, "time"),
    (grid, None, "data", "time"),
):
    placed = olsq.nn.shard(model, mesh, weights=weights, sequence=sequence)
    given = olsq.nn.shard_batch((inputs, targets), mesh, batch, sequence)
    assert given[0].addressable_shards[0].data.size == inputs.size // 8
    if weights:
        assert placed.embedding.addressable_shards[0].data.shape == (2, 8)
    if sequence:
        assert olsq.nn.mixers_of(placed)[0].solver.shards == mesh.shape["time"]
    if batch:
        got, wanted = run(placed, *given), want
    else:  # gradients along time are those of the last mesh
        got, wanted = eqx.filter_jit(lambda m, t: m(t))(placed, given[0]), want[0][1]
    leaves = zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
    worst = max(np.abs(a - b).max() / (1e-3 + np.abs(b).max()) for a, b in leaves)
    assert worst < 1e-9, worst
print("equal")
"""


SENT = """
import re
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import olsq.nn

# Scalar gates and running maxima, gates per entry, products of matrices; channels, differentiated.
mesh, length = jax.make_mesh((8,), ("time",)), 1024
tokens, _ = olsq.nn.shard_batch((np.ones((1, length), np.int32),) * 2, mesh, None, "time")
segments, _ = olsq.nn.shard_batch((np.arange(length)[None] // 300,) * 2, mesh, None, "time")

def largest(text):
    kinds = "all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter"
    sent = re.findall(rf"= (.*?) (?:{kinds})(?:-start)?\\(", text)
    shapes = re.findall(r"[a-z]+[0-9]+\\[([0-9,]*)\\]|pred\\[([0-9,]*)\\]", " ".join(sent))
    return max(int(np.prod([int(n) for n in (a or b).split(",") if n])) for a, b in shapes)

def program(mixers, differentiate):
    model = olsq.nn.LanguageModel(
        4, dim=4, blocks=len(mixers), heads=1, mixer=mixers, mlp_ratio=0, key=jax.random.key(0)
    )
    model = olsq.nn.shard(model, mesh, sequence="time")
    def loss(model, tokens, segments):
        return jnp.sin(model(tokens, segment_ids=segments)).sum()
    run = eqx.filter_jit(eqx.filter_grad(loss) if differentiate else loss)
    return run.lower(model, tokens, segments).compile().compiled.as_text()

for mixers, differentiate in (
    (("mlstm", "mamba", "gated_delta"), False), (("hawk",), True),
):
    sent = largest(program(mixers, differentiate))
    print(mixers, sent, flush=True)
    assert sent < length // 2, sent
"""


def test_what_crosses_does_not_grow_with_time():
    assert on_eight_devices(SENT).count("(") == 2


def test_eight_devices():
    assert "equal" in on_eight_devices(PROGRAM)


def on_eight_devices(program):
    """What ``program`` prints in a process with eight CPU devices."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    flags += f" {fast_flags()}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mesh(shape=(1,), names=("data",)):
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(shape), names)


def test_other_solvers_and_rules_are_left_alone():
    cheap = olsq.ConjugateGradient(max_steps=3)
    for layer in (
        olsq.nn.Mesa(8, heads=1, solver=cheap, key=jax.random.key(0)),
        olsq.nn.Mesa(8, heads=1, signed=True, key=jax.random.key(0)),
        olsq.nn.GLA(8, heads=1, key=jax.random.key(0)),
    ):
        placed = olsq.nn.shard(layer, mesh(), weights="data", sequence="data")
        assert jax.tree.structure(placed) == jax.tree.structure(layer)
    coarse = olsq.nn.Mesa(8, heads=1, solver=olsq.ChunkExact(chunk=8), key=jax.random.key(0))
    placed = olsq.nn.shard(coarse, mesh(), sequence="data")
    assert placed.solver == olsq.ChunkExact(chunk=8, shards=1)


def test_bad_meshes_and_batches():
    with pytest.raises(ValueError, match=r"axes .*data.*, not 'time'"):
        olsq.nn.shard(olsq.nn.GLA(8, heads=1, key=jax.random.key(0)), mesh(), sequence="time")
    with pytest.raises(ValueError, match=r"axes .*rows.*, not 'data'"):
        olsq.nn.shard_batch(np.zeros((2, 2)), mesh(names=("rows",)))
    with pytest.raises(ValueError, match=r"axes \(batch, time, ...\), got \(3,\)"):
        olsq.nn.shard_batch(np.zeros(3), mesh())
    abstract = jax.sharding.AbstractMesh((4, 2), ("data", "time"))
    check = olsq.nn.sharding._check_even
    with pytest.raises(ValueError, match="6 rows cannot be split evenly over the 4 devices"):
        check((6, 4), abstract, "data", "time")
    with pytest.raises(ValueError, match="5 tokens cannot be split evenly over the 2 devices"):
        check((8, 5), abstract, "data", "time")
