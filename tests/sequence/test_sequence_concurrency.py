"""Independent solves in one program finish: LAPACK's batched Cholesky in JAX may wait for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("one_target")

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, olsq
rng = np.random.default_rng(0)
k, q = rng.normal(size=(2, 4, 8, 512, 32)).astype(np.float32) / 6
v = rng.normal(size=(4, 8, 512, 4)).astype(np.float32)

@jax.jit
def many(k, v, q):
    return [olsq.online_lstsq(k[i], v[i], q[i], ridge=1.0).value for i in range(4)]

for _ in range(20):
    jax.block_until_ready(many(k, v, q))
"""


@pytest.mark.full
def test_four_solves_in_one_program_finish():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
