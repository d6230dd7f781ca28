"""Solvers where dtypes are not promoted silently, and where batch and time have no size yet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import olsq
from tests.sequence.sequence_cases import LED, PAIRS, D, M

T = 9
DTYPES = (jnp.bfloat16, jnp.float64)  # a constant in single precision is refused beside either
WIDTHS = {"keys": (T, D), "values": (T, M), "queries": (T, D), "forget": (T,), "weight": (T,)}


def shapes(batch, dtype, length=T):
    streams = {n: jax.ShapeDtypeStruct((batch, length, *s[1:]), dtype) for n, s in WIDTHS.items()}
    return streams | {"ridge": jax.ShapeDtypeStruct((D,), dtype)}


def run(row, mode, adjoint="implicit"):
    def value(a):
        arrays = dict(a)
        kvq = [arrays.pop(n) for n in ("keys", "values", "queries")]
        solver = row.solver(np.float64)
        options = {"ridge_mode": mode, "solver": solver, "adjoint": adjoint}
        return olsq.online_lstsq(*kvq, **arrays, **options).value

    return value


def total(f):
    return lambda a: f(a).astype(jnp.float32).sum()


@pytest.mark.full
@pytest.mark.parametrize(("row", "mode"), LED)
def test_strict_dtype_promotion(row, mode):
    with jax.numpy_dtype_promotion("strict"):
        for dtype in DTYPES:
            for adjoint in ("implicit", "unrolled"):
                if adjoint == "unrolled" and (row.name == "neumann" or not row.unrolls):
                    continue  # 4000 steps of the table; refused
                f = run(row, mode, adjoint)
                assert jax.eval_shape(f, shapes(2, dtype)).dtype == dtype
                jax.eval_shape(jax.value_and_grad(total(f)), shapes(2, dtype))
        mixed = shapes(2, jnp.bfloat16) | {"ridge": shapes(2, jnp.float32)["ridge"]}
        assert jax.eval_shape(run(row, mode), mixed).dtype == jnp.bfloat16


@pytest.mark.full
def test_strict_dtype_promotion_of_decoding():
    def two(a):
        state = olsq.Moments(jnp.eye(D, dtype=a["key"].dtype), a["cross"])
        out = []
        for start in (state, olsq.sequence.start_decoding(state, ridge=a["ridge"])):
            ridge = a["ridge"] if start is state else None
            after = olsq.update(start, a["key"], a["value"], forget=a["gate"], weight=a["gate"])
            out.append(olsq.query(after, a["key"], ridge=ridge).astype(jnp.float32).sum())
        return sum(out)

    with jax.numpy_dtype_promotion("strict"):
        for dtype in DTYPES:
            sizes = {"key": (D,), "value": (M,), "cross": (M, D), "ridge": (D,), "gate": ()}
            given = {n: jax.ShapeDtypeStruct(s, dtype) for n, s in sizes.items()}
            jax.eval_shape(jax.value_and_grad(two), given)


@pytest.mark.full
@pytest.mark.parametrize(("row", "mode"), LED)
def test_a_batch_of_any_size(row, mode):
    (batch,) = export.symbolic_shape("b")
    f = jax.jit(run(row, mode))
    assert f.trace(shapes(batch, jnp.float32)).out_info.shape == (batch, T, M)
    jax.jit(jax.grad(total(f))).trace(shapes(batch, jnp.float32))


@pytest.mark.slow
def test_an_exported_solver_serves_every_batch():
    (batch,) = export.symbolic_shape("b")
    plain = jax.jit(run(PAIRS[0][0], "fixed"))
    exported = export.export(plain)(shapes(batch, jnp.float32))
    rng = np.random.default_rng(0)
    for size in (1, 3):
        given = {n: rng.uniform(0.5, 1, x.shape).astype(np.float32)
                 for n, x in shapes(size, jnp.float32).items()}  # fmt: skip
        np.testing.assert_allclose(exported.call(given), plain(given), rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "mode"), LED)
def test_a_time_axis_of_any_length(row, mode):
    batch, length = export.symbolic_shape("b, t")
    exported = export.export(jax.jit(run(row, mode)))(shapes(batch, jnp.float32, length))
    assert exported.out_avals[0].shape == (batch, length, M)


@pytest.mark.full
@pytest.mark.parametrize("gates", [{"forget": 0.9}, {"log_forget": -0.1}], ids=str)
def test_one_gate_along_a_time_axis_of_any_length(gates):
    batch, length = export.symbolic_shape("b, t")
    x = jax.ShapeDtypeStruct((batch, length, D), jnp.float32)
    for solver in (None, olsq.ConjugateGradient(), olsq.ChunkExact(corrections=64)):
        f = jax.jit(
            lambda x, s=solver: olsq.online_lstsq(x, x, x, ridge=1.0, solver=s, **gates).value
        )
        assert export.export(f)(x).out_avals[0].shape == (batch, length, D)
    rough = olsq.ChunkExact(corrections=1, chunk=64)
    f = jax.jit(lambda x: olsq.online_lstsq(x, x, x, ridge=1.0, solver=rough, **gates).value)
    with pytest.warns(RuntimeWarning, match="within a chunk of 64"):
        export.export(f)(x)


@pytest.mark.full
def test_local_regression_of_any_length():
    batch, length = export.symbolic_shape("b, t")
    x = jax.ShapeDtypeStruct((batch, length, D), jnp.float32)
    for options in ({}, {"window": 5}, {"causal": False}, {"forget": 0.9}):
        f = jax.jit(lambda x, o=options: olsq.local_lstsq(x, x, x, ridge=1.0, **o).value)
        assert export.export(f)(x).out_avals[0].shape == (batch, length, D)
