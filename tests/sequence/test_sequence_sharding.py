"""Eight devices along time: same values and gradients, and only boundary moments cross."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import olsq

devices = 8
assert jax.device_count() == devices
mesh = Mesh(np.array(jax.devices()), ("time",))
rng = np.random.default_rng(0)
b, t, d, m = 2, 1024, 12, 7
k, q = rng.normal(size=(2, b, t, d)).astype(np.float32) / np.sqrt(d)
v = rng.normal(size=(b, t, m)).astype(np.float32)
gates = rng.uniform(0.99, 1, (b, t)).astype(np.float32)

def value(k, v, q, g, shards):
    sol = olsq.online_lstsq(k, v, q, forget=g, ridge=0.5,
                            solver=olsq.ChunkExact(chunk=32, shards=shards, corrections=2))
    return sol.value

def loss(k, v, q, g, shards):
    return jnp.sin(value(k, v, q, g, shards)).sum()

def place(x):
    spec = P(None, "time", None) if x.ndim == 3 else P(None, "time")
    return jax.device_put(x, NamedSharding(mesh, spec))

args = [place(x) for x in (k, v, q, gates)]
both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)), static_argnums=4)
want, want_grads = both(k, v, q, gates, 1)
got, got_grads = both(*args, devices)
np.testing.assert_allclose(got, want, rtol=1e-4)
for a, b_ in zip(got_grads, want_grads):
    np.testing.assert_allclose(a, b_, atol=2e-5 * np.abs(b_).max())

def crossing(fun, args):
    text = fun.lower(*args, devices).compile().as_text()
    sizes = []
    for line in text.splitlines():
        found = re.search(r"= (.*?) (all-gather|all-reduce|collective-permute|all-to-all)\\(", line)
        if found:
            for shape in re.findall(r"[fsupred]+[0-9]*\\[([0-9,]*)\\]", found.group(1)):
                sizes.append(int(np.prod([int(n) for n in shape.split(",") if n], dtype=int)))
    return sorted(sizes)

longer = [place(np.concatenate([x, x], 1)) for x in (k, v, q, gates)]
sizes = crossing(both, args)
print("collectives", sizes)
# one summary (d, d) or (m, d) of each device and stream, whatever the length of time
assert sizes and max(sizes) <= devices * b * d * d, sizes
assert crossing(both, longer) == sizes
"""


@pytest.mark.slow
def test_time_sharded_over_eight_devices():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "collectives" in done.stdout
