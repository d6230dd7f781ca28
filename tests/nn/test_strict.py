"""Layers where dtypes are not promoted silently, and where batch and time have no size yet."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax import export
from nn_cases import DIM, ROWS, VARIANTS, case

from tests.tiers import leading


def run(made):
    def output(arrays, x):
        y = eqx.combine(arrays, made.static)(x)
        return y[0] if isinstance(y, tuple) else y

    return output


def total(f):
    def scored(arrays, x):
        y = f(arrays, x)
        return y.astype(jnp.float32).sum(), y

    return scored


@pytest.mark.slow
@leading(ROWS + VARIANTS)
def test_strict_dtype_promotion(row):
    made = case(row)
    with jax.numpy_dtype_promotion("strict"):
        for dtype in (jnp.float32, jnp.bfloat16):
            x = jax.ShapeDtypeStruct((2, 7, DIM), dtype)
            slope = jax.value_and_grad(total(run(made)), argnums=(0, 1), has_aux=True)
            (_, y), _ = jax.eval_shape(slope, made.arrays, x)
            assert y.dtype == dtype


@pytest.mark.slow
@leading(ROWS + VARIANTS)
def test_a_batch_of_any_size(row):
    (batch,) = export.symbolic_shape("b")
    made, x = case(row), jax.ShapeDtypeStruct((batch, 7, DIM), jnp.float32)
    assert jax.jit(run(made)).trace(made.arrays, x).out_info.shape == (batch, 7, DIM)


@pytest.mark.slow
@leading(ROWS + VARIANTS)
def test_a_time_axis_of_any_length(row):
    batch, length = export.symbolic_shape("b, t")
    made, x = case(row), jax.ShapeDtypeStruct((batch, length, DIM), jnp.float32)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), made.arrays)
    exported = export.export(jax.jit(run(made)))(shapes, x)
    assert exported.out_avals[0].shape == (batch, length, DIM)
