"""Every rule under ``jax.shard_map``: values and gradients of one device."""

from __future__ import annotations

import jax
import pytest

from olsq.attention.registry import RULES
from tests.shard_map import on_two_devices

PROGRAM = """
from attention_cases import ROWS, arrays_of, call, timed, window
jax.config.update("jax_enable_x64", True)
# One of each way to walk a stream and to use a parameter; the others are traced, which is where
# types that do not fit are found.
compiled = {"retention", "mamba", "softmax"}
seen = set()
for row in ROWS:
    arrays = window(row, arrays_of(row)[0], 9)
    specs = {n: P("rows") if n in timed(row, arrays) else P() for n in arrays}
    check(row.name, lambda a: call(row, a)[0], arrays, specs, compiled=row.name in compiled)
    seen.add(row.rule)
print(*sorted(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="jax.shard_map came with jax 0.6")
def test_rows_over_two_devices():
    assert on_two_devices(PROGRAM).split("\n")[-2].split() == sorted(r.name for r in RULES)
