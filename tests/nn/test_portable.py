"""Mixers for accelerators, read off their programs: exported for CUDA, ROCm and TPU on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from nn_cases import DIM, ROWS, VARIANTS, case

from tests.portable import check_portable, single
from tests.tiers import leading


@pytest.mark.full
@leading([*ROWS, *VARIANTS], {"gla", "hawk"})
def test_a_mixer_is_portable(row):
    made = case(row)
    x = jax.ShapeDtypeStruct((1, 40, DIM), jnp.float32)

    def run(arrays, x):
        return made.traced(arrays, x, None, None)[0]

    check_portable(run, single(made.arrays), x)
