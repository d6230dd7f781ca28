"""Edge cases of ``local_lstsq``: limits, sizes, dispatch, errors, memory."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq.local.jax.solve import local_lstsq as in_jax
from olsq.local.jax.solve import read_along

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(0)
K, Q = RNG.standard_normal((2, 3, 20, 5))
V = RNG.standard_normal((3, 20, 2))


def softmax(k, v, q, logs=0.0):
    """Causal softmax attention of (B, T, ...), with extra exponents."""
    scores = q @ k.swapaxes(-1, -2) * k.shape[-1] ** -0.5 + logs
    p = np.exp(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf))
    return p @ v / p.sum(-1, keepdims=True)


def test_a_large_ridge_is_softmax_attention():
    value = olsq.local_lstsq(K, V, Q, ridge=1e14).value
    np.testing.assert_allclose(value, softmax(K, V, Q), atol=1e-12)


def test_a_large_ridge_with_gates_is_forgetting_attention():
    gates = np.random.default_rng(1).uniform(0.3, 1, (3, 20))
    value = olsq.local_lstsq(K, V, Q, ridge=1e14, forget=gates).value
    for b in range(3):
        sums = np.cumsum(np.log(gates[b]))
        wanted = softmax(K[b], V[b], Q[b], sums[:, None] - sums)
        np.testing.assert_allclose(value[b], wanted, atol=1e-12)


def test_a_scale_of_0_is_ridge_regression_with_an_intercept():
    value = olsq.local_lstsq(K[0], V[0], Q[0], ridge=0.3, scale=0.0).value
    for t in range(20):
        seen = np.concatenate([np.ones((t + 1, 1)), K[0, : t + 1]], 1)
        penalty = 0.3 * (t + 1) * np.diag([0.0, 1, 1, 1, 1, 1])
        fit = np.linalg.solve(seen.T @ seen + penalty, seen.T @ V[0, : t + 1])
        np.testing.assert_allclose(value[t], np.r_[1, Q[0, t]] @ fit, atol=1e-11)


def test_a_linear_target_is_fitted_exactly_whatever_the_weights():
    slope = RNG.standard_normal((2, 5))
    grid = RNG.standard_normal((7, 5))
    fit = olsq.local_lstsq(K, K @ slope.T + 3, grid, ridge=0.0, scale=1.0, causal=False)
    np.testing.assert_allclose(fit.value, np.broadcast_to(grid @ slope.T + 3, (3, 7, 2)), atol=1e-9)
    assert np.isinf(fit.stats.bound).all()


def test_log_weights_make_a_gaussian_kernel():
    x = np.sort(RNG.uniform(0, 1, 60))
    y, grid, width = np.sin(5 * x), np.array([0.1, 0.45, 0.8]), 0.08
    sharp = width**-2
    fit = olsq.local_lstsq(
        x[:, None], y[:, None], grid[:, None], ridge=1e-9, scale=sharp,
        log_weight=-sharp / 2 * x**2, causal=False,
    )  # fmt: skip
    for value, at in zip(fit.value[:, 0], grid, strict=True):
        w = np.sqrt(np.exp(-((x - at) ** 2) / (2 * width**2)))
        a = np.linalg.lstsq(np.stack([w, w * (x - at)], 1), w * y, rcond=None)[0][0]
        assert abs(value - a) < 1e-6


def test_a_prefix_and_a_segment_are_streams_of_their_own():
    whole = olsq.local_lstsq(K, V, Q, ridge=0.1).value
    np.testing.assert_allclose(
        olsq.local_lstsq(K[:, :9], V[:, :9], Q[:, :9], ridge=0.1).value, whole[:, :9], atol=1e-12
    )
    packed = olsq.local_lstsq(K, V, Q, ridge=0.1, segment_ids=np.repeat([0, 3], [9, 11])).value
    alone = olsq.local_lstsq(K[:, 9:], V[:, 9:], Q[:, 9:], ridge=0.1).value
    np.testing.assert_allclose(packed[:, 9:], alone, atol=1e-12)
    forgot = np.ones(20)
    forgot[9] = 0
    found = olsq.local_lstsq(K, V, Q, ridge=0.1, forget=forgot).value
    np.testing.assert_allclose(found, packed, atol=1e-12)


def test_jax_takes_vmap_and_jit_and_gives_the_same():
    wanted = olsq.local_lstsq(K, V, Q, ridge=0.1, window=4)

    @jax.jit
    @jax.vmap
    def solve(k, v, q, ridge):
        fit = olsq.local_lstsq(k, v, q, ridge=ridge, window=4)
        return fit.value, fit.stats

    value, stats = solve(*map(jnp.asarray, (K, V, Q)), jnp.full(3, 0.1))
    np.testing.assert_allclose(value, wanted.value, atol=1e-12)
    # Bounds are of residuals, and those of solutions to rounding are rounding.
    np.testing.assert_allclose(stats.value_bound, wanted.stats.value_bound, rtol=0.1, atol=1e-12)


@pytest.mark.full
def test_streams_side_by_side_are_those_one_after_another(monkeypatch):
    """The code path of devices other than one CPU, run on this one."""
    wanted = olsq.local_lstsq(K[:2, :11], V[:2, :11], Q[:2, :11], ridge=0.1)
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    found = in_jax(K[:2, :11], V[:2, :11], Q[:2, :11], ridge=0.1)
    np.testing.assert_allclose(found.value, wanted.value, atol=1e-12)


@pytest.mark.full
def test_a_given_direction_is_read_along():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 20, 5))
    found = read_along(K, V, Q, x)
    scores = np.where(np.tril(np.ones((20, 20), bool)), Q @ K.swapaxes(1, 2) / 5**0.5, -np.inf)
    p = np.exp(scores)
    p /= p.sum(-1, keepdims=True)
    along = np.einsum("btd,bsd->bts", x, K)  # Parallax with r = -x: vbar (1 + E r.k) - E v (r.k)
    wanted = (p @ V) * (1 - (p * along).sum(-1, keepdims=True)) + (p * along) @ V
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    slope = jax.grad(lambda x: read_along(K, V, Q, x).sum())(jnp.asarray(x))
    spread = (p * V.sum(-1)[:, None]) @ K - (p @ V).sum(-1, keepdims=True) * (p @ K)
    np.testing.assert_allclose(slope, spread, atol=1e-12)


def test_ridge_and_scale_broadcast_over_leading_axes():
    per_head = olsq.local_lstsq(K, V, Q, ridge=[[0.1], [1.0], [10.0]], scale=[[0.1], [0.2], [0.3]])
    for b, (ridge, scale) in enumerate(((0.1, 0.1), (1.0, 0.2), (10.0, 0.3))):
        alone = olsq.local_lstsq(K[b], V[b], Q[b], ridge=ridge, scale=scale).value
        np.testing.assert_allclose(per_head.value[b], alone, atol=1e-12)
    shared = olsq.local_lstsq(K[0], V, Q[1], ridge=0.1).value
    assert shared.shape == (3, 20, 2)
    np.testing.assert_allclose(
        shared[2], olsq.local_lstsq(K[0], V[2], Q[1], ridge=0.1).value, atol=1e-12
    )


@pytest.mark.full
@pytest.mark.parametrize("solve", [olsq.local_lstsq, in_jax], ids=["numpy", "jax"])
def test_one_token_and_none(solve):
    fit = solve(K[0, :1], V[0, :1], Q[0, :1], ridge=0.1)
    np.testing.assert_array_equal(fit.value, V[0, :1])  # nothing to fit a slope to
    for shape in ((0, 4), (2, 0)):
        empty = solve(*(np.zeros((*shape, n)) for n in (3, 2, 3)), ridge=1.0)
        assert empty.value.shape == (*shape, 2)
        assert empty.stats.value_bound.shape == shape
    nothing = solve(np.zeros((0, 3)), np.zeros((0, 2)), np.ones((2, 3)), ridge=1.0, causal=False)
    assert np.isnan(nothing.value).all()


def test_check_raises_where_the_bound_is_too_large():
    fit = olsq.local_lstsq(K, V, Q, ridge=0.1)
    assert fit.check(1e-9) is fit
    with pytest.raises(olsq.AccuracyError, match="stopped early"):
        olsq.local_lstsq(K, V, Q, ridge=0.1, max_steps=0).check(1e-3)
    lost = K.copy()
    lost[1, 4] = np.nan
    with pytest.raises(olsq.AccuracyError, match="token 4 of stream"):
        olsq.local_lstsq(lost, V, Q, ridge=0.1).check()


@pytest.mark.full
@pytest.mark.parametrize("put", [np.asarray, jnp.asarray])
def test_no_bound_holds_where_exponents_round_by_tens(put):
    def bounds(size):
        fit = olsq.local_lstsq(put(size * K), put(V), put(size * Q), ridge=size**2 / 10)
        return fit.stats.value_bound, fit.stats.bound

    assert all(np.isfinite(x).all() for x in bounds(1e4))
    assert all(np.isinf(x).all() for x in bounds(1e9))  # exponents of 1e18, off by hundreds


def test_float32_of_numpy_stays_float32():
    fit = olsq.local_lstsq(*(x.astype(np.float32) for x in (K, V, Q)), ridge=0.1)
    assert {x.dtype for x in (fit.value, *fit.stats[1:])} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ridge": None}, "ridge is needed"),
        ({"ridge": -1.0}, "ridge must be finite and >= 0"),
        ({"ridge": np.ones(7)}, "ridge has shape"),
        ({"window": 0}, "window must be an integer >= 1"),
        ({"window": 2.0}, "window must be an integer >= 1"),
        ({"tol": -1.0}, "tol must be in"),
        ({"tol": np.ones(2) / 2}, "tol must be one number"),
        ({"scale": 10**400}, "scale must be finite; got an integer beyond every float"),
        ({"max_steps": -1}, "max_steps must be"),
        ({"forget": 1.5}, "forget must lie in"),
        ({"forget": 0.5, "log_forget": -1.0}, "not both"),
        ({"log_weight": np.inf}, "log_weight must be finite or -inf"),
        ({"scale": np.inf}, "scale must be finite"),
        ({"segment_ids": np.arange(20)[::-1]}, "segment_ids must not decrease"),
        ({"segment_ids": np.zeros(20)}, "whole numbers"),
        ({"segment_ids": np.zeros(7, int)}, "segment_ids has shape"),
        ({"segment_ids": np.zeros((5, 3, 20), int)}, "segment_ids has shape"),
        ({"causal": False, "window": 3}, "leave window out with causal=False"),
        ({"causal": False, "forget": 0.5}, "use log_weight"),
        ({"causal": False, "segment_ids": np.zeros(20, int)}, "leave segment_ids out"),
        ({"queries": Q[:, :7]}, "give causal=False"),
        ({"queries": Q[..., :2]}, "must have the width of keys"),
        ({"values": V[:, :7]}, "same length"),
        ({"keys": K[0, 0]}, "must have shape"),
        ({"values": V[:2]}, "do not broadcast"),
    ],
)
@pytest.mark.parametrize("solve", [olsq.local_lstsq, in_jax], ids=["numpy", "jax"])
def test_errors_name_the_argument(given, message, solve):
    arrays = {"keys": K, "values": V, "queries": Q, "ridge": 0.1} | given
    streams = [arrays.pop(name) for name in ("keys", "values", "queries")]
    with pytest.raises(ValueError, match=message):
        solve(*streams, **arrays)


def test_complex_keys_are_refused():
    with pytest.raises(TypeError, match="keys must be real"):
        olsq.local_lstsq(K + 1j, V, Q, ridge=0.1)


def test_numpy_arrays_do_not_import_jax():
    code = (
        "import sys, numpy as np, olsq; x = np.ones((4, 2)); "
        "olsq.local_lstsq(x, x, x, ridge=1.0); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.full
def test_memory_does_not_grow_with_the_square_of_the_length():
    length, d = 16_384, 64
    x = jax.ShapeDtypeStruct((length, d), jnp.float32)
    row = jax.ShapeDtypeStruct((length,), jnp.float32)

    def loss(k, v, q, ridge, logs):
        return olsq.local_lstsq(k, v, q, ridge=ridge, log_forget=logs).value.sum()

    compiled = jax.jit(jax.grad(loss, range(5))).lower(x, x, x, row, row).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**29  # T^2 scores would be 2**30
