"""Every mixer under ``jax.shard_map``: values and gradients of one device."""

from __future__ import annotations

import jax
import pytest

from olsq import nn
from tests.shard_map import on_two_devices

PROGRAM = """
import equinox as eqx
from nn_cases import DIM, ROWS, VARIANTS, case, draw

def layer(made):
    def run(a):
        x, weights = a
        y = eqx.combine(weights, made.static)(x)
        return y[0] if isinstance(y, tuple) else y
    return run

compiled = {"hawk", "sliding_window"}  # the others are traced
seen = set()
for row in ROWS + VARIANTS:
    made = case(row)
    specs = P("rows"), jax.tree.map(lambda _: P(), made.arrays)
    arrays = draw(4, 7, DIM), made.arrays
    check(str(row), layer(made), arrays, specs, tol=1e-3, compiled=str(row) in compiled)
    seen.add(row.mixer)
print(*sorted(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="jax.shard_map came with jax 0.6")
def test_rows_over_two_devices():
    assert on_two_devices(PROGRAM).split("\n")[-2].split() == sorted(nn.MIXERS)
