"""Layers where dtypes are not promoted silently, and where the batch has no size yet."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import export
from nn_cases import DIM, ROWS, VARIANTS, case

from tests.tiers import leading


def run(made):
    def output(arrays, x):
        y = eqx.combine(arrays, made.static)(x)
        return y[0] if isinstance(y, tuple) else y

    return output


def total(f):
    return lambda arrays, x: f(arrays, x).astype(jnp.float32).sum()


@leading(ROWS + VARIANTS)
def test_strict_dtype_promotion(row):
    made = case(row)
    with jax.numpy_dtype_promotion("strict"):
        for dtype in (jnp.float32, jnp.bfloat16):
            x = jax.ShapeDtypeStruct((2, 7, DIM), dtype)
            assert jax.eval_shape(run(made), made.arrays, x).dtype == dtype
            jax.eval_shape(jax.value_and_grad(total(run(made)), argnums=(0, 1)), made.arrays, x)


@leading(ROWS + VARIANTS)
def test_a_batch_of_any_size(row):
    (batch,) = export.symbolic_shape("b")
    made, x = case(row), jax.ShapeDtypeStruct((batch, 7, DIM), jnp.float32)
    assert jax.jit(run(made)).trace(made.arrays, x).out_info.shape == (batch, 7, DIM)
