"""Eight devices, along rows and along rows and time: logits, loss and gradients of one device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
mixers = ("mesa", "softmax")
model = olsq.nn.LanguageModel(
    16, dim=8, blocks=2, heads=2, mixer=mixers, mlp_ratio=0, dtype="float64",
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
for mesh, weights, batch, sequence in (
    (everywhere, "data", "data", None),
    (grid, None, "data", "time"),
):
    placed = olsq.nn.shard(model, mesh, weights=weights, sequence=sequence)
    given = olsq.nn.shard_batch((inputs, targets), mesh, batch, sequence)
    assert given[0].addressable_shards[0].data.size == inputs.size // 8
    if weights:
        assert placed.embedding.addressable_shards[0].data.shape == (2, 8)
    if sequence:
        assert olsq.nn.mixers_of(placed)[0].solver.shards == mesh.shape["time"]
    leaves = zip(jax.tree.leaves(run(placed, *given)), jax.tree.leaves(want), strict=True)
    worst = max(np.abs(a - b).max() / (1e-3 + np.abs(b).max()) for a, b in leaves)
    assert worst < 1e-9, worst
print("equal")
"""


@pytest.mark.slow
def test_every_mixer_along_time():
    """Values, gradients and the compiled program's messages: see ``sharded_mixers.py``."""
    script = Path(__file__).with_name("sharded_mixers.py")
    lines = on_eight_devices(str(script)).splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(olsq.nn.MIXERS)


@pytest.mark.slow
def test_eight_devices():
    assert "equal" in on_eight_devices("-c", PROGRAM)


def on_eight_devices(*arguments):
    """Return the output of Python, run with these in a process with eight CPU devices."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    flags += f" {fast_flags()}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiling is most of what this does
    done = subprocess.run(
        [sys.executable, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
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
    with pytest.raises(ValueError, match=r"axes .*data.*, got 'time'"):
        olsq.nn.shard(olsq.nn.GLA(8, heads=1, key=jax.random.key(0)), mesh(), sequence="time")
    with pytest.raises(ValueError, match=r"axes .*rows.*, got 'data'"):
        olsq.nn.shard_batch(np.zeros((2, 2)), mesh(names=("rows",)))
    with pytest.raises(ValueError, match=r"axes \(batch, time, ...\), got \(3,\)"):
        olsq.nn.shard_batch(np.zeros(3), mesh())
    abstract = jax.sharding.AbstractMesh((4, 2), ("data", "time"))
    check = olsq.nn.sharding._check_even
    with pytest.raises(ValueError, match="6 rows cannot be split evenly over the 4 devices"):
        check((6, 4), abstract, "data", "time")
    with pytest.raises(ValueError, match="5 tokens cannot be split evenly over the 2 devices"):
        check((8, 5), abstract, "data", "time")
