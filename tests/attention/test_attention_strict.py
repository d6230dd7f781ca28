"""Rules where dtypes are not promoted silently, and where batch and time have no size yet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, arrays_of, call, timed, window
from jax import export

from olsq import attention
from tests.tiers import leading

DTYPES = (jnp.bfloat16, jnp.float64)  # a constant in single precision is refused beside either


def shapes(row, dtype, batch=2, token=False, length=9):
    arrays = window(row, arrays_of(row)[0], 9)
    names = timed(row, arrays)

    def shape(n, a):
        time = () if token else (length,)
        return (batch, *time, *a.shape[2:]) if n in names else a.shape

    return {n: jax.ShapeDtypeStruct(shape(n, a), dtype) for n, a in arrays.items()}


def total(f):
    return lambda a: f(a).astype(jnp.float32).sum()


@pytest.mark.slow
@leading(ROWS)
def test_strict_dtype_promotion(row):
    def whole(a):
        return call(row, a)[0]

    def tokens(a):
        _, state = call(row, a, step=True)
        return call(row, a, state, step=True)[0]

    with jax.numpy_dtype_promotion("strict"):
        for dtype in DTYPES:
            given = shapes(row, dtype)
            assert jax.eval_shape(whole, given).dtype == dtype
            jax.eval_shape(jax.value_and_grad(total(whole)), given)
            if row.causal:
                assert jax.eval_shape(tokens, shapes(row, dtype, token=True)).dtype == dtype
        # as layers have it: streams in half precision, gates and parameters in single
        mixed = {n: x if n in row.arrays else jax.ShapeDtypeStruct(x.shape, jnp.float32)
                 for n, x in shapes(row, jnp.bfloat16).items()}  # fmt: skip
        assert jax.eval_shape(whole, mixed).dtype == jnp.bfloat16


@pytest.mark.slow
@leading(ROWS)
def test_a_batch_of_any_size(row):
    (batch,) = export.symbolic_shape("b")
    given = shapes(row, jnp.float32, batch)
    f = jax.jit(lambda a: call(row, a)[0])
    out = f.trace(given).out_info.shape
    assert out[0] == batch
    jax.jit(jax.grad(total(f))).trace(given)
    if row.name in ("gla", "mesa"):  # and all the way
        exported = export.export(f)(given)
        rng = np.random.default_rng(0)
        for size in (1, 3):
            made = {n: rng.uniform(-1, 0, x.shape) if "log" in n else rng.uniform(0.5, 1, x.shape)
                    for n, x in shapes(row, jnp.float32, size).items()}  # fmt: skip
            made = {n: x.astype(np.float32) for n, x in made.items()}
            np.testing.assert_allclose(exported.call(made), f(made), rtol=2e-5)


# One rule for each way to go along time: they are run, too, for streams of several lengths.
RUN = {"gla", "mlstm log", "softmax", "local_linear window", "mesa", "mesa_window", "ttt_linear"}


@pytest.mark.slow
@leading(ROWS)
def test_a_time_axis_of_any_length(row):
    room = row.options.get("capacity") or row.mine.get("capacity")
    limits = [f"t <= {room}"] if room else []
    batch, length = export.symbolic_shape("b, t", constraints=limits)
    given = shapes(row, jnp.float32, batch, length=length)
    f = jax.jit(lambda a: call(row, a)[0])
    exported = export.export(f)(given)
    assert exported.out_avals[0].shape[:2] == (batch, length)
    rng = np.random.default_rng(0)
    for size in (1, 70) if row.name in RUN else ():
        made = {n: rng.uniform(-1, 0, x.shape) if "log" in n else rng.uniform(0.5, 1, x.shape)
                for n, x in shapes(row, jnp.float32, 2, length=size).items()}  # fmt: skip
        made = {n: x.astype(np.float32) for n, x in made.items()}
        np.testing.assert_allclose(exported.call(made), f(made), rtol=2e-4, atol=1e-5)


def test_a_capacity_that_the_time_axis_may_exceed_is_refused():
    length = export.symbolic_shape("b, t")[1]
    x = jax.ShapeDtypeStruct((2, length, 1, 4), jnp.float32)
    f = jax.jit(lambda x: attention.softmax(x, x, x, capacity=8)[0])
    with pytest.raises(ValueError, match=r"capacity=8 .* time axis .*constraints=\['t <= 8'\]"):
        export.export(f)(x)
