"""The mesa layer's identities, from the thesis and from MesaNet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import icl

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(4)
T, D, M = 12, 4, 3
KEYS, VALUES = RNG.normal(size=(T, D)), RNG.normal(size=(T, M))
QUERIES, GATES = RNG.normal(size=(T, D)), RNG.uniform(0.6, 1.0, size=T)
RIDGE = 0.7


def zeta(t, gates):
    return np.array([np.prod(gates[i + 1 : t + 1]) for i in range(t + 1)])


def inverse(t, gates):
    """R_t of eq. 3.15."""
    weights = zeta(t, gates)
    gram = sum(w * np.outer(k, k) for w, k in zip(weights, KEYS, strict=False))
    return np.linalg.inv(gram + np.prod(gates[: t + 1]) * RIDGE * np.eye(D))


@pytest.mark.parametrize("gates", [np.ones(T), GATES], ids=["no forgetting", "forgetting"])
def test_recursions_forward_and_backward(gates):
    r = np.eye(D) / RIDGE
    for t in range(T):
        before, r = r, icl.next_covariance(r, KEYS[t], gates[t])
        np.testing.assert_allclose(r, inverse(t, gates), rtol=1e-10, atol=1e-10)
        back = icl.previous_covariance(inverse(t, gates), KEYS[t], gates[t])
        np.testing.assert_allclose(back, before, rtol=1e-10, atol=1e-10)
    for t in reversed(range(T)):
        r = icl.previous_covariance(r, KEYS[t], gates[t])
    np.testing.assert_allclose(r, np.eye(D) / RIDGE, rtol=1e-10, atol=1e-9)


def test_the_printed_gate_of_3_16_is_one_step_late():
    good, printed = np.eye(D) / RIDGE, np.eye(D) / RIDGE
    gates = np.concatenate([[1.0], GATES])  # gamma_0 = 1, as 3.16 would need
    for t in range(T):
        good = np.linalg.inv(gates[t + 1] * np.linalg.inv(good) + np.outer(KEYS[t], KEYS[t]))
        printed = np.linalg.inv(gates[t] * np.linalg.inv(printed) + np.outer(KEYS[t], KEYS[t]))
    np.testing.assert_allclose(good, inverse(T - 1, GATES), atol=1e-10)
    assert abs(printed - good).max() > 1e-3


@pytest.mark.full
def test_a_layer_is_a_regression_at_every_token():
    weights = icl.random_attention(jax.random.key(0), 5, heads=2, key_size=D, scale=1.0)
    tokens, gates = RNG.normal(size=(2, T, 5)), RNG.uniform(0.6, 1.0, size=(2, T, 2))
    ours = icl.mesa_update(tokens, weights, ridge=[0.5, 2.0], forget=gates)
    weights = icl.AttentionWeights(*(np.asarray(w) for w in weights))
    expected = np.zeros_like(tokens)
    for b, t, h in np.ndindex(2, T, 2):
        k, v = (tokens[b] @ w[h].T for w in (weights.key, weights.value))
        rows = np.sqrt(zeta(t, gates[b, :, h]))[:, None]
        shrink = np.sqrt(np.prod(gates[b, : t + 1, h]) * [0.5, 2.0][h]) * np.eye(D)
        left = np.concatenate([rows * k[: t + 1], shrink])
        right = np.concatenate([rows * v[: t + 1], np.zeros((D, D))])
        w = np.linalg.lstsq(left, right)[0].T
        expected[b, t] += weights.projection[h] @ w @ weights.query[h] @ tokens[b, t]
    np.testing.assert_allclose(ours, expected, atol=1e-10)


def test_gradient_without_stored_matrices():
    cotangent = RNG.normal(size=(5, D))

    def plain(keys, queries, gates, ridge):
        r, out = jnp.eye(D) / ridge, []
        for k, q, gamma in zip(keys, queries, gates, strict=True):
            r = jnp.linalg.inv(gamma * jnp.linalg.inv(r) + jnp.outer(k, k))
            out.append(r @ q)
        return jnp.stack(out)

    arguments = [jnp.asarray(x) for x in (KEYS[:5], QUERIES[:5], GATES[:5], RIDGE)]
    ours, pull = jax.vjp(icl.preconditioned_queries, *arguments)
    theirs, expected = jax.vjp(jax.jit(plain), *arguments)
    np.testing.assert_allclose(ours, theirs, atol=1e-10)
    for got, want in zip(pull(cotangent), expected(cotangent), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-8)


@pytest.mark.full
def test_mesa_is_online_newton():
    phi, h, out = np.zeros((M, D)), RIDGE * np.eye(D), []
    for k, v, q in zip(KEYS, VALUES, QUERIES, strict=True):
        h = h + np.outer(k, k)
        phi = phi - np.outer(phi @ k - v, k) @ np.linalg.inv(h)
        out.append(phi @ q)
    q, k, v = (x[None, :, None] for x in (QUERIES, KEYS, VALUES))
    options = {"forget": np.ones((1, T, 1)), "solver": olsq.ChunkExact(chunk=5)}
    ours, _ = olsq.attention.mesa(q, k, v, ridge=RIDGE, **options)
    np.testing.assert_allclose(ours[0, :, 0], out, atol=1e-10)


@pytest.mark.full
def test_no_steps_are_gated_linear_attention_and_d_steps_exact():
    q, k, v = (x[None, :, None] for x in (QUERIES, KEYS, VALUES))

    def mesa(solver):
        return olsq.attention.mesa(
            q, k, v, ridge=RIDGE, forget=GATES[None, :, None], solver=solver
        )[0][0, :, 0]

    g, h, gated, exact = np.zeros((M, D)), np.zeros((D, D)), [], []
    for t in range(T):
        g = GATES[t] * g + np.outer(VALUES[t], KEYS[t])
        h = GATES[t] * h + np.outer(KEYS[t], KEYS[t])
        gated.append(g @ QUERIES[t])
        exact.append(g @ np.linalg.solve(h + RIDGE * np.eye(D), QUERIES[t]))
    none = mesa(olsq.ConjugateGradient(max_steps=0, start="query"))
    np.testing.assert_allclose(none, gated, atol=1e-10)
    full = mesa(olsq.ConjugateGradient(max_steps=D, tol=0.0, chunk=5))
    np.testing.assert_allclose(full, exact, atol=1e-10)
    np.testing.assert_allclose(mesa(olsq.ChunkExact(chunk=5)), exact, atol=1e-10)


def test_neumann_series():
    scale = float(icl.neumann_scale(KEYS, RIDGE))
    largest = np.linalg.eigvalsh(KEYS.T @ KEYS)[-1] + RIDGE
    assert scale == pytest.approx(1 / largest, rel=1e-12)
    steps = 400
    trace = np.asarray(icl.neumann_queries(KEYS, QUERIES, steps, ridge=RIDGE, scale=scale))
    for t in range(T):
        x = scale * (KEYS[: t + 1].T @ KEYS[: t + 1] + RIDGE * np.eye(D))
        power, total = np.eye(D), np.zeros((D, D))
        for k in range(3):  # eq. 3.44
            total, power = total + power, power @ (np.eye(D) - x)
            np.testing.assert_allclose(trace[k, t], scale * total @ QUERIES[t], atol=1e-12)
        solved = scale * np.linalg.solve(x, QUERIES[t])
        errors = np.linalg.norm(trace[:, t] - solved, axis=-1)
        radius = np.abs(1 - np.linalg.eigvalsh(x)).max()
        late = (errors < 1e-3 * errors[0]) & (errors > 1e-10)
        ratio = np.polyfit(np.flatnonzero(late), np.log(errors[late]), 1)[0]
        assert ratio == pytest.approx(np.log(radius), rel=0.05)


def test_neumann_series_needs_its_scale():
    trace = icl.neumann_queries(KEYS, QUERIES, 30, ridge=RIDGE, scale=1.0)
    assert abs(trace[-1, -1]).max() > 1e6


def test_the_solver_of_the_package_is_the_same_series():
    scale = 1 / ((KEYS**2).sum() + RIDGE)  # the solver's bound for the last token: its trace
    theirs = olsq.online_lstsq(KEYS, VALUES, QUERIES, ridge=RIDGE, solver=olsq.Neumann(terms=6))
    ours = icl.neumann_queries(KEYS, QUERIES, 5, ridge=RIDGE, scale=scale)[-1, -1]
    np.testing.assert_allclose(theirs.value[-1], VALUES.T @ KEYS @ ours, atol=1e-12)


def test_mesa_functions_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"covariance must have shape \(\.\.\., 4, 4\)"):
        icl.next_covariance(np.eye(3), KEYS[0])
    with pytest.raises(ValueError, match=r"covariance must have shape \(\.\.\., 4, 4\)"):
        icl.previous_covariance(np.eye(3), KEYS[0])
    with pytest.raises(ValueError, match=r"queries must have shape \(\.\.\., 12, 4\)"):
        icl.neumann_queries(KEYS, QUERIES[:3], 2, ridge=1.0, scale=1.0)
    with pytest.raises(ValueError, match=r"tokens must have shape \(\.\.\., T, 2\)"):
        icl.mesa_update(KEYS, icl.from_products(np.eye(2), np.eye(2)), ridge=1.0)
    with pytest.raises(ValueError, match="ridge"):
        icl.mesa_update(KEYS, icl.from_products(np.eye(D), np.eye(D)), ridge=-1.0)
