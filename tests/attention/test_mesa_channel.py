"""Mesa with a gate per key dimension: what it is, and its solves on streams that are hard."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import attention
from olsq.attention.recurrences.vector_solve import solve_keys
from olsq.reference import attention_solved as solved
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

N, T, K = 24, 40, 6
MOST = 20.0  # error in units of a token's own condition number times eps


def hard_stream(seed):
    """Keys, gates, weights and ridge over many decades; repeats, absent and zero keys, resets."""
    rng = np.random.default_rng([7, seed])
    k = rng.normal(size=(T, K)) * 10 ** rng.uniform(-3, 3)
    kind = seed % 4
    if kind == 1:
        k = k[0] + 1e-3 * k  # nearly one key
    elif kind == 2:
        k = k[rng.integers(0, 3, T)] * 10 ** rng.uniform(-2, 2, (T, 1))
    elif kind == 3:
        k[rng.uniform(size=T) < 0.3] = 0
    gates = [
        np.ones((T, K)),
        np.broadcast_to(rng.uniform(0.9, 1, K), (T, K)),
        rng.uniform(0, 1, (T, K)),
        np.where(np.arange(K) < 3, 0.9999, 10 ** rng.uniform(-30, 0, (T, K))),
        rng.choice([0, 1, 1, 1, 1e-20], (T, K)),
        np.where(rng.uniform(size=(T, K)) < 0.05, 0, 0.9999),
    ][seed % 6]
    weight = 10 ** rng.uniform(-2, 2, T)
    weight[rng.uniform(size=T) < 0.2] = 0
    return k, gates, weight, 10 ** rng.uniform(-6, 2, K)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_token_is_solved_to_its_own_condition(dtype):
    drawn = zip(*(hard_stream(seed) for seed in range(N)), strict=True)
    k, gates, weight, ridge = (np.stack(x).astype(dtype) for x in drawn)
    roots = np.sqrt(gates)
    got, last = quick(solve_keys)(k, roots, weight, ridge, jnp.zeros((N, K, K), dtype))
    assert np.isfinite(got).all()
    assert got.dtype == dtype
    k, roots, weight, ridge = (np.asarray(x, np.float64) for x in (k, roots, weight, ridge))
    eps, asked = np.finfo(dtype).eps, 0
    gram = np.zeros((N, K, K))
    for t in range(T):
        own = k[:, t, :, None] * k[:, t, None, :] * weight[:, t, None, None]
        gram = roots[:, t, :, None] * gram * roots[:, t, None, :] + own
        system = gram + ridge[:, :, None] * np.eye(K)
        unit = np.sqrt(np.diagonal(system, axis1=1, axis2=2))
        balanced = system / unit[:, :, None] / unit[:, None, :]
        want = np.linalg.solve(balanced, (k[:, t] / unit)[..., None])[..., 0] / unit
        size, limit = np.linalg.norm(want, axis=-1), MOST * eps * np.linalg.cond(system)
        clear = limit < 1  # a digit is left
        off = np.linalg.norm(got[:, t] - want, axis=-1)
        assert (off <= limit * size)[clear].all(), t
        asked += clear.sum()
    assert asked > N * T / 3
    size = np.linalg.norm(gram, axis=(1, 2))
    assert (np.linalg.norm(last - gram, axis=(1, 2)) < 10 * T * eps * size).all()


def draw(t=20):
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(3, 1, t, 1, 4))
    return q, k, v, rng.uniform(0.1, 1, (1, t, 1))


@quick
def run(q, k, v, w, forget, ridge, state):
    return attention.mesa_channel(q, k, v, weight=w, forget=forget, ridge=ridge, state=state)


@pytest.mark.full
def test_without_gates_it_is_mesa_and_with_a_ridge_that_fades_the_estimator():
    q, k, v, w = draw()
    ridge = np.array([0.1, 1, 2, 0.5])
    empty = np.zeros((1, 1, 4, 4))
    want, (gram, _) = solved.mesa(
        q[0, :, 0], k[0, :, 0], v[0, :, 0], weight=w[0, :, 0], ridge=ridge
    )
    got, state = run(q, k, v, w, np.ones(k.shape), ridge, attention.MesaChannelState(empty, empty))
    np.testing.assert_allclose(got[0, :, 0], want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.gram[0, 0], gram, rtol=1e-13, atol=1e-13)

    factors = (1.0, 0.9, 0.6, 0.99)
    est = olsq.RecursiveLeastSquares(
        forget=olsq.forgetting.PerCoefficient(factors), ridge=0.5, fit_intercept=False
    )
    est.partial_fit(k[0, :, 0], v[0, :, 0], sample_weight=w[0, :, 0])
    # A ridge in the gram is forgotten as the estimator's is; the other one is next to none.
    state = attention.MesaChannelState(empty, 0.5 * np.eye(4)[None, None])
    gates = np.broadcast_to(factors, k.shape)
    _, state = run(q, k, v, w, gates, np.full(4, 1e-14), state)
    np.testing.assert_allclose(state.matrix[0, 0], est.coef_, rtol=1e-9, atol=1e-9)


@pytest.mark.full
def test_a_key_whose_square_overflows_is_lost_and_spoils_nothing_before_it():
    q, k, v, w = draw()
    empty = np.zeros((1, 1, 4, 4))
    given = np.full(k.shape, 0.9), np.ones(4), attention.MesaChannelState(empty, empty)
    clean, _ = run(q, k, v, w, *given)
    k = k.copy()  # JAX may still be reading the other
    k[:, 9] = 1e200
    o, _ = run(q, k, v, w, *given)
    np.testing.assert_array_equal(o[:, :9], clean[:, :9])
    assert np.isnan(o[:, 9:]).all()
    w[:, 9] = 0  # left out
    assert np.isfinite(run(q, k, v, w, *given)[0]).all()


def test_what_is_refused():
    q, k, v, _ = draw(3)
    with pytest.raises(ValueError, match="ridge must be > 0"):
        attention.mesa_channel(q, k, v, ridge=0.0)
    with pytest.raises(ValueError, match=r"forget has shape .*, which does not broadcast"):
        attention.mesa_channel(q, k, v, ridge=1.0, forget=np.full((1, 3, 1, 3), 0.5))
    with pytest.raises(TypeError, match="state must be a MesaChannelState"):
        attention.mesa_channel(q, k, v, ridge=1.0, state=attention.Memory(q))  # type: ignore[arg-type]
