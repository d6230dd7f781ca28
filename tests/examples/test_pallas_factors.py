"""Factors in one kernel of Pallas: interpreted beside the package's, lowered for accelerators."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from olsq.sequence.jax.triangular import inverse_cholesky
from tests.portable import CALL
from tests.versions import x64

pytestmark = pytest.mark.sparse

example = importlib.import_module("pallas_factors")
fused = example.fused_inverse_cholesky


def definite(n, extra, batch=3, dtype=np.float32):
    """Return matrices (batch, n, n) that are the worse conditioned the smaller ``extra`` is."""
    half = np.random.default_rng(n).normal(size=(batch, n, n + extra))
    return (half @ half.swapaxes(-1, -2)).astype(dtype)


@pytest.mark.parametrize("extra", [2, 100])
@pytest.mark.parametrize("n", [1, 17, 64, 128])
def test_it_is_as_accurate_as_the_package(n, extra):
    a = definite(n, extra)
    want = np.linalg.inv(np.linalg.cholesky(a.astype(np.float64)))

    def error(x):
        x = np.asarray(x, np.float64)
        assert (x == np.tril(x)).all()
        return np.abs(x - want).max() / np.abs(want).max()

    # Rows are summed in another order: three times the package's error, or a rounding a row.
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


@pytest.mark.parametrize(
    ("platform", "call"),
    [
        ("cuda", "__gpu$xla.gpu.triton"),
        ("rocm", "__gpu$xla.gpu.triton"),
        ("tpu", "tpu_custom_call"),
    ],
)
def test_it_is_lowered_for_accelerators(platform, call):
    """By Triton or Mosaic: the one call outside of XLA, in full float32."""
    shape = jax.ShapeDtypeStruct((4, 128, 128), jnp.float32)
    allowed = [export.DisabledSafetyCheck.custom_call(call)]  # JAX does not promise to keep these
    with x64(True):
        lowered = export.export(jax.jit(fused), platforms=[platform], disabled_checks=allowed)
        text = lowered(shape).mlir_module()
    assert CALL.findall(text) == [call]


def test_it_prints_error_and_time_beside_the_package(capsys):
    assert list(example.main(n=16)) == ["package", "one kernel"]
    assert "one kernel: error" in capsys.readouterr().out
