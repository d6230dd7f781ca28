"""Layers of flash-linear-attention, read and written, against its mathematics in NumPy."""

from __future__ import annotations

import equinox as eqx
import fla_reference as reference
import jax
import numpy as np
import pytest

import olsq.nn
from olsq.nn.names import named_arrays
from tests.versions import x64

NAMES = list(reference.LAYERS)


@pytest.fixture(autouse=True)
def double_precision():
    with x64(True):
        yield


def read(name, weights, **more):
    _, _, config = reference.LAYERS[name]
    kind = name.split(",")[0]
    return olsq.nn.from_fla(
        weights, config={"model_type": kind, "norm_eps": reference.EPS, **config, **more}
    )


@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_round_trip(name):
    rng = np.random.default_rng(NAMES.index(name))
    weights, x = reference.weights(name, rng), rng.normal(size=(2, 7, reference.DIM))
    layer = read(name, weights)
    want = np.stack([reference.output(name, row, weights) for row in x])
    np.testing.assert_allclose(eqx.filter_jit(layer)(x), want, rtol=1e-9, atol=1e-10)

    again, config = olsq.nn.to_fla(layer)
    assert again.keys() == weights.keys()
    for key, value in weights.items():
        np.testing.assert_array_equal(again[key], value, key)
    third = olsq.nn.from_fla(again, config=config)
    assert jax.tree.structure(third) == jax.tree.structure(layer)
    for key, value in named_arrays(layer).items():
        np.testing.assert_array_equal(named_arrays(third)[key], value, key)
