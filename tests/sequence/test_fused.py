"""Factors in one kernel of Pallas: interpreted beside the default, lowered for accelerators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import olsq
from olsq.sequence.jax import triangular
from olsq.sequence.jax.fused import fused_inverse_cholesky
from olsq.sequence.jax.platform import Target, tuned_for
from olsq.sequence.jax.triangular import inverse_cholesky
from olsq.testing import check_solver
from tests.portable import CALL
from tests.versions import x64

pytestmark = pytest.mark.sparse

FUSED = Target(cpu=False, fused=True)


def definite(n, extra, batch=3, dtype=np.float32):
    """Return matrices (batch, n, n) that are the worse conditioned the smaller ``extra`` is."""
    half = np.random.default_rng(n).normal(size=(batch, n, n + extra))
    return (half @ half.swapaxes(-1, -2)).astype(dtype)


def fused(a):
    with tuned_for(FUSED):
        return inverse_cholesky(a)


@pytest.mark.parametrize("extra", [2, 100])
@pytest.mark.parametrize("n", [1, 17, 64, 128, 130])
def test_it_is_as_accurate_as_the_default(n, extra):
    a = definite(n, extra)
    want = np.linalg.inv(np.linalg.cholesky(a.astype(np.float64)))

    def error(x):
        x = np.asarray(x, np.float64)
        assert (x == np.tril(x)).all()
        return np.abs(x - want).max() / np.abs(want).max()

    # Rows are summed in another order: three times the default's error, or a rounding a row.
    assert error(fused(a)) <= 3 * error(inverse_cholesky(a)) + n * np.finfo(np.float32).eps


def test_of_a_batch_only_what_is_not_definite_is_nan():
    a = definite(20, 30)
    a[1] -= 100 * np.eye(20, dtype=np.float32)
    x = np.asarray(fused(a))
    assert not np.isfinite(x[1]).all()
    np.testing.assert_array_equal(x[[0, 2]], np.asarray(fused(a[[0, 2]])))


def test_vmap_jit_and_derivatives():
    a, tangent = definite(20, 30), definite(20, 1) - 20.0  # not definite, but symmetric
    once = fused(a)
    np.testing.assert_array_equal(jax.vmap(jax.jit(fused))(a), once)
    ours = jax.jvp(fused, (jnp.asarray(a),), (jnp.asarray(tangent),))[1]
    theirs = jax.jvp(inverse_cholesky, (jnp.asarray(a),), (jnp.asarray(tangent),))[1]
    assert abs(ours - theirs).max() < 1e-4 * abs(theirs).max()

    def total(f):
        return lambda x: (f(x) ** 2).sum()

    ours, theirs = (jax.grad(total(f))(a) for f in (fused, inverse_cholesky))
    ours, theirs = (x + x.swapaxes(-1, -2) for x in (ours, theirs))  # a is symmetric
    assert abs(ours - theirs).max() < 1e-4 * abs(theirs).max()


def test_other_dtypes_and_empty_batches_take_the_default():
    with x64(True):
        a = jnp.asarray(definite(20, 30, dtype=np.float64))
        np.testing.assert_array_equal(fused(a), inverse_cholesky(a))
    assert fused(np.zeros((0, 4, 4), np.float32)).shape == (0, 4, 4)


@pytest.mark.parametrize(
    ("platform", "call"),
    [
        ("cuda", "__gpu$xla.gpu.triton"), ("rocm", "__gpu$xla.gpu.triton"),
        ("tpu", "tpu_custom_call"),
    ],
)  # fmt: skip
def test_it_is_lowered_for_accelerators_where_it_is_switched_on(platform, call):
    """By Triton or Mosaic: the one call outside of XLA, in full float32."""
    shape = jax.ShapeDtypeStruct((4, 128, 128), jnp.float32)
    allowed = [export.DisabledSafetyCheck.custom_call(call)]  # JAX does not promise to keep these
    with x64(True):
        lowered = export.export(jax.jit(fused), platforms=[platform], disabled_checks=allowed)
        text = lowered(shape).mlir_module()
        plain = export.export(jax.jit(lambda a: inverse_cholesky(a)), platforms=[platform])
    assert CALL.findall(text) == [call]
    assert not CALL.findall(plain(shape).mlir_module())


@pytest.mark.parametrize("forget", [pytest.param(0.99, marks=pytest.mark.slow), 0.1])
def test_a_sequence_is_solved_with_it(forget):
    rng = np.random.default_rng(0)
    k, v, q = rng.normal(size=(3, 1, 40, 8)).astype(np.float32)

    def solve(k, solver):
        return olsq.online_lstsq(k, v, q, forget=forget, ridge=0.1, solver=solver).value

    with tuned_for(FUSED):
        found, pull = jax.vjp(lambda k: solve(k, olsq.ChunkExact()), k)
        gradient = pull(found)[0]
    want, pull = jax.vjp(lambda k: solve(k, olsq.Dense()), k)
    assert abs(found - want).max() < 1e-4 * abs(want).max()
    theirs = pull(want)[0]
    assert abs(gradient - theirs).max() < 1e-3 * abs(theirs).max()


def test_a_target_set_later_changes_the_program(monkeypatch):
    """A program traced before for the same shapes and solver, but another target, is not taken."""
    k, v, q = np.random.default_rng(1).normal(size=(3, 1, 24, 8)).astype(np.float32)
    traced = []

    def spied(a):
        traced.append(a.shape)
        return fused_inverse_cholesky(a)

    monkeypatch.setattr(triangular, "fused_inverse_cholesky", spied)

    def solve():
        olsq.online_lstsq(jnp.asarray(k), v, q, ridge=0.1).value.block_until_ready()

    solve()
    assert not traced
    with tuned_for(Target(cpu=True, fused=True)):
        solve()
    assert traced


@pytest.mark.slow
def test_the_default_solver_has_every_property_with_it():
    with tuned_for(FUSED):
        check_solver(olsq.ChunkExact())
