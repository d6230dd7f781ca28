"""Functions under ``jax.shard_map``, with the check of what varies over the mesh that it has on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETUP = """
import sys
sys.path[:0] = [".", "tests/attention", "tests/nn"]
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from tests.shard_map import check
"""


def on_two_devices(program: str) -> str:
    """Return the output of ``program``, after the set-up, in a process with two CPU devices."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # what compiles takes the time
    done = subprocess.run(
        [sys.executable, "-c", SETUP + program],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(name, f, arrays, specs, *, tol=1e-9, compiled=True):
    """``f``'s outputs and gradients of ``arrays``, placed by ``specs``, are those of one device.

    Not ``compiled``: it is only traced, which is where types that do not fit are found.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh

    from tests.versions import quick

    mesh = Mesh(np.array(jax.devices()), ("rows",))
    assert mesh.size == 2
    batched = jax.sharding.PartitionSpec("rows")
    mapped = jax.shard_map(f, mesh=mesh, in_specs=(specs,), out_specs=batched)

    def loss(f):
        return jax.value_and_grad(lambda x: jnp.sin(f(x)).sum())

    try:
        if not compiled:
            jax.eval_shape(loss(mapped), arrays)
        else:
            got = quick(loss(mapped))(arrays)
            want = quick(loss(f))(arrays)
            worst = 0.0
            pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
            for a, b in pairs:
                worst = max(worst, float(np.abs(a - b).max() / (1e-3 + np.abs(b).max())))
            assert worst < tol, worst
    except Exception as error:
        error.add_note(f"under shard_map: {name}")
        raise
    print("equal", name, flush=True)
