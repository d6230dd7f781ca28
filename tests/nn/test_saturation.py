"""Rates and biases far beyond what training should reach: gates saturate, and nothing is NaN."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import DIM, HEADS, ROWS

from olsq import nn
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

ROW_OF = {row.mixer: row for row in reversed(ROWS)}
each_mixer = pytest.mark.parametrize("row", ROW_OF.values(), ids=str)
PLAIN = ("bias", "speed", "rate", "raw")  # parts of the names of what gates are made from


def enlarged(layer, value):
    """The layer with each of its biases, rates and speeds set to ``value``."""

    def at(path, x):
        named = any(part in str(path[-1]) for part in PLAIN)
        return jnp.full_like(x, value) if eqx.is_inexact_array(x) and named else x

    return jax.tree_util.tree_map_with_path(at, layer)


@pytest.mark.slow
@each_mixer
def test_gates_saturate(row):
    layer = nn.mixer(row.mixer, DIM, heads=HEADS, key=jax.random.key(0), **row.options)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 20, DIM)), jnp.float32)
    moving, rest = eqx.partition(layer, eqx.is_inexact_array)

    @quick
    def both(moving, x):
        def loss(moving, x):
            return (eqx.combine(moving, rest)(x)[0] ** 2).sum()

        return jax.value_and_grad(loss, argnums=(0, 1))(moving, x)

    for value in (60.0, 300.0, -60.0, -300.0):
        results = both(enlarged(moving, value), x)
        for path, a in jax.tree_util.tree_leaves_with_path(results):
            assert np.isfinite(a).all(), (value, path)
