"""Rules for accelerators, read off their programs: exported for CUDA, ROCm and TPU on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, arrays_of, call
from jax import export

from olsq import ConjugateGradient, attention, local_lstsq
from olsq.sequence.jax.platform import Target, tuned_for
from tests.portable import check_portable, export_text, find_faults, single
from tests.tiers import leading
from tests.versions import x64

T = 72  # more than a chunk on any device
# One for each kind of program; the others of tiers.LEADING take a minute more.
LEADING = {"gla", "mlstm", "gated_delta", "mamba", "ttt_linear", "softmax", "mesa"}
SOLVES = {"mesa", "mesa_discounted", "mesa_channel", "mesa_window", "kalman", "intention"}


@pytest.mark.slow
@leading(ROWS, LEADING)
def test_a_rule_is_portable(row):
    arrays = single(arrays_of(row, T)[0])
    check_portable(lambda a: call(row, a), arrays, exact=row.rule in SOLVES)


@pytest.mark.slow
@leading([row for row in ROWS if row.causal], LEADING)
def test_a_step_is_portable(row):
    token = single(_token(row))
    with x64(True):
        state = single(jax.eval_shape(lambda a: call(row, a, step=True)[1], token))

    def step(token, state):
        return call(row, token, state, step=True)

    check_portable(step, token, state, exact=row.rule in SOLVES)


def _token(row):
    """Return the arguments of one token."""
    arrays, _ = arrays_of(row)
    fixed = row.fixed(np.random.default_rng(0))
    return {n: x if n in fixed else x[:, 0] for n, x in arrays.items()}


@pytest.mark.full
def test_local_least_squares_are_portable():
    x = jax.ShapeDtypeStruct((1, T, 4), jnp.float32)
    check_portable(lambda x: local_lstsq(x, x, x, ridge=1.0), x, exact=True)


def gla(x, gates):
    return attention.gla(x, x, x, forget=gates)[0]


def mesa(x, gates):
    return attention.mesa(x, x, x, forget=gates, ridge=1.0)[0]


def shapes(t=T, h=2, k=4):
    return (
        jax.ShapeDtypeStruct((1, t, h, k), jnp.float32),
        jax.ShapeDtypeStruct((1, t, h), jnp.float32),
    )


@pytest.mark.slow
@pytest.mark.parametrize("rule", [gla, mesa])
def test_chunks_are_those_of_the_platform_that_a_program_is_lowered_for(rule):
    """Scores of a chunk are (C, C): 32 tokens on a CPU, 64 on an accelerator, from any host."""
    for platform in ("cpu", "cuda", "tpu"):
        text = export_text(rule, *shapes(), platforms=[platform])
        assert ("64x64xf32" in text) == (platform != "cpu")
    with tuned_for(Target(cpu=True)):  # a choice that was made is not made again
        text = export_text(lambda *a: rule(*a), *shapes(), platforms=["cuda"])
    assert "64x64xf32" not in text


@pytest.mark.full
@pytest.mark.parametrize("rule", [gla, pytest.param(mesa, marks=pytest.mark.slow)])
@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "cuda", "tpu")])
def test_a_stored_export_runs_here_and_equals_jit(rule, platforms):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(1, T, 2, 4)), jnp.float32)
    gates = jnp.asarray(rng.uniform(0.8, 1, (1, T, 2)), jnp.float32)
    made = export.export(jax.jit(rule), platforms=platforms)(x, gates)
    stored = export.deserialize(made.serialize())
    assert (stored.call(x, gates) == jax.jit(rule)(x, gates)).all()


def mesa_of_many_chunks(x, gates):
    solver = ConjugateGradient(20, chunk=16)
    return attention.mesa(x, x, x, forget=gates, ridge=1.0, solver=solver)[0]


SLOWER = pytest.param(mesa_of_many_chunks, marks=pytest.mark.slow)


@pytest.mark.full
@pytest.mark.parametrize("rule", [gla, SLOWER])
def test_an_accelerators_program_computes_the_same(rule):
    """Run here as it would be there: longer chunks, one tile, states joined run by run."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(1, 300, 1, 4)), jnp.float32)
    gates = jnp.asarray(rng.uniform(0.8, 1, (1, 300, 1)), jnp.float32).at[:, 200].set(0)

    def both(x, gates):
        return jax.value_and_grad(lambda *a: (rule(*a) ** 2).mean(), argnums=(0, 1))(x, gates)

    ours = jax.jit(both)(x, gates)
    with tuned_for(Target(cpu=False, tile_bytes=4096)):  # of gla a tile of chunks, then the rest
        theirs = jax.jit(lambda *a: both(*a))(x, gates)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert abs(a - b).max() < 2e-5 * abs(a).max()


def test_faults_are_found():
    x = jnp.ones((4, 4), jnp.float32)
    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)

    def on_host(x):
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with x64(True):
        lowered = jax.jit(on_host).trace(shape).lower(lowering_platforms=("cpu",)).as_text()
        wide = export_text(lambda x: (x.astype(jnp.float64) @ x).astype(x.dtype), shape)
    assert any("calls" in fault for fault in find_faults(lowered))
    assert "computes in float64" in find_faults(wide)
    text = export_text(lambda x: x @ x, x)
    assert find_faults(text) == []
    assert find_faults(text, exact=True) == ["has products that are not full float32"]
    factor = jax.jit(jnp.linalg.cholesky).trace(shape).lower(lowering_platforms=("cpu",)).as_text()
    assert find_faults(factor) == ["calls lapack_spotrf_ffi"]
