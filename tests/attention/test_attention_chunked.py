"""Programs for an accelerator, where all chunks of a tile are prepared at once, run on the CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_attention_overflow as overflow
from attention_cases import ROWS, B, arrays_of, begin, call
from jax import export

from olsq import attention
from olsq.attention.recurrences.delta import unit_inverse
from olsq.sequence.jax.platform import Target, tuned_for
from tests.tiers import leading
from tests.versions import quick, x64

pytestmark = pytest.mark.full

CPU = Target(cpu=True)
ACCELERATOR = Target(cpu=False, tile_bytes=2**14)  # some chunks a tile, and several tiles
T = 330  # five chunks and some tokens; several spans of a memory with a factor for each entry
CHUNKED = {
    "delta", "gated_delta", "gated_delta signed", "gated_delta_product", "comba", "kda",
    "preconditioned_delta", "momentum_delta", "kalman_delta", "rwkv7", "gsa",
    "hgrn2", "hgrn2 log", "rwkv6", "gla vector", "longhorn", "mamba", "rg_lru", "hawk",
    "linear", "gla", "gla signed", "mlstm", "log_linear_mamba2", "ttt_linear",
    "ttt_linear query factor", "ttt_mlp",
}  # fmt: skip
# One rule for each way to prepare the chunks of a tile.
LEADING = {"gated_delta", "momentum_delta", "kda", "mamba", "gla", "log_linear_mamba2"}
each_rule = leading([row for row in ROWS if row.name in CHUNKED], LEADING)
diverging = leading([row for row in ROWS if row.name in overflow.DIVERGING], {"gated_delta", "kda"})


def gradient(row, arrays):
    """The gradient, and the outputs and the state."""

    def loss(arrays):
        found = call(row, arrays)
        return (jnp.nan_to_num(found[0]) ** 2).sum(), found

    return jax.grad(loss, has_aux=True)(arrays)


def curvature(row, arrays):
    """The derivative of the gradient along the arrays themselves."""
    return jax.jvp(lambda arrays: gradient(row, arrays)[0], (arrays,), (arrays,))[1]


def compare_targets(f, row):
    """Compute ``f`` of a rule in the programs for both targets, and compare all that it returns."""
    arrays = arrays_of(row, T)[0]
    found = []
    with x64(True):
        for target in (CPU, ACCELERATOR):
            with tuned_for(target):
                found.append(quick(lambda arrays: f(row, arrays))(arrays))
    for want, got in zip(*map(jax.tree.leaves, found), strict=True):
        want, got = np.asarray(want), np.asarray(got)
        assert (np.isfinite(want) == np.isfinite(got)).all()
        want, got = np.nan_to_num(want), np.nan_to_num(got)
        assert np.abs(got - want).max() <= 1e-9 * max(1, np.abs(want).max())


@pytest.mark.parametrize("row", [row for row in ROWS if row.rule == "ttt_linear"], ids=str)
@pytest.mark.parametrize("segments", [False, True])
def test_mini_batches_that_begin_anywhere_on_an_accelerator(row, segments):
    """A state within a mini-batch, and segments, whose tokens are taken one by one."""
    arrays = arrays_of(row, 40)[0]
    ids = np.broadcast_to(np.arange(40) // 7, (B, 40)) if segments else None
    with x64(True):
        state = begin(row, arrays_of(row, 5)[1])
        found = []
        for target in (CPU, ACCELERATOR):
            with tuned_for(target):
                run = quick(lambda arrays, state: call(row, arrays, state, ids))
                found.append(run(arrays, state))
    for want, got in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


@each_rule
def test_an_accelerator_computes_the_same_outputs_and_gradients(row):
    compare_targets(gradient, row)


@pytest.mark.slow
@each_rule
def test_an_accelerator_computes_the_same_second_derivatives(row):
    compare_targets(curvature, row)


@diverging
def test_divergence_on_an_accelerator(row):
    with tuned_for(ACCELERATOR):
        overflow.test_a_rule_that_diverges_is_right_until_it_overflows(row)


def test_a_gate_of_0_ends_a_divergence_on_an_accelerator():
    with tuned_for(ACCELERATOR):
        overflow.test_a_gate_of_0_ends_a_divergence()


@pytest.mark.slow
@each_rule
def test_an_accelerator_keeps_overflow_from_earlier_tokens(row, monkeypatch):
    monkeypatch.setattr(overflow, "program", overflow.program.__wrapped__)
    with tuned_for(ACCELERATOR):
        overflow.test_what_overflows_later_reaches_neither_outputs_nor_gradients(row, 69)


def outputs_of_equal_keys(target, key, values, forget, memory):
    """Outputs of one stream of equal keys from a memory, in the program for a target."""
    n = len(values)
    k = jnp.full((1, n, 1, 3), key, jnp.float32)
    v, forget = (jnp.asarray(x, jnp.float32).reshape(1, n, 1) for x in (values, forget))
    state = attention.Memory(jnp.full((1, 1, 1, 3), memory, jnp.float32))

    def run(k, v, forget, state):
        # Queries are small, so that what they read from the memory does not overflow.
        return attention.gated_delta(k / 1e3, k, v[..., None], forget=forget, state=state)[0]

    with tuned_for(target):
        return np.asarray(quick(lambda *x: run(*x))(k, v, forget, state))[0, :, 0, 0]


def test_errors_of_a_small_memory_are_finite_where_those_of_any_memory_overflow():
    """Every error is 899 times the one before: the memory's stay below 1e16, a unit's do not."""
    n, keys = 100, 16
    forget = np.ones(n)
    forget[keys] = 0
    want, out = (
        outputs_of_equal_keys(target, 30 / 3**0.5, np.zeros(n), forget, 1e-34)
        for target in (CPU, ACCELERATOR)
    )
    np.testing.assert_allclose(out, want, rtol=1e-3)
    assert np.isfinite(out).all()
    assert np.abs(out[keys - 1]) > 1e7
    assert (out[keys:] == 0).all()


def test_a_reset_ends_errors_that_overflow_with_the_memory_alone():
    n, reset = 100, 20
    values, forget = np.ones(n), np.ones(n)
    forget[reset] = 0
    out = outputs_of_equal_keys(ACCELERATOR, 3**-0.5, values, forget, 3e38)
    assert np.isnan(out[:reset]).all()
    assert np.abs(1e3 * out[reset:] - 1).max() < 1e-5


def test_a_batch_of_any_size_is_exported_for_an_accelerator():
    (b,) = export.symbolic_shape("b")
    x, gates = (jax.ShapeDtypeStruct((b, 200, *s), jnp.float32) for s in ((2, 4), (2,)))

    def both(x, gates):
        forget = jnp.broadcast_to(gates[..., None], x.shape)
        return attention.gated_delta(x, x, x, forget=gates), attention.kda(x, x, x, forget=forget)

    assert export.export(jax.jit(both), platforms=["cuda"])(x, gates).platforms == ("cuda",)


@pytest.mark.parametrize("width", [1, 5, 8, 24, 40, 64])
def test_blocks_inverted_together_are_the_same(width):
    below = np.tril(np.random.default_rng(0).normal(size=(3, width, width)), -1)
    below = jnp.asarray(0.3 * below, jnp.float32)
    apart, together = unit_inverse(below), unit_inverse(below, together=True)
    assert (apart == together).all()
    eye = np.eye(width)
    inside = np.abs(np.asarray(together) @ (eye + np.asarray(below)) - eye)
    assert inside.max() < 1e-4 * max(1, np.abs(np.asarray(together)).max())
