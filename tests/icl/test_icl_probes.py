"""Probes, against the normal equations and on sequences they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from olsq import icl

RNG = np.random.default_rng(6)
N, T, WIDTH, M = 40, 3, 4, 2
X = RNG.normal(size=(N, T, WIDTH))
MAP, SHIFT = RNG.normal(size=(T, M, WIDTH)), RNG.normal(size=(T, M))
EXACT = np.einsum("tmd,ntd->ntm", MAP, X) + SHIFT


@pytest.mark.slow
def test_what_is_linear_is_decoded():
    probe = icl.linear_probe(X, EXACT)
    np.testing.assert_allclose(probe.coef, MAP, atol=1e-12)
    np.testing.assert_allclose(probe.intercept, SHIFT, atol=1e-12)
    np.testing.assert_allclose(probe.test_error, np.zeros(T), atol=1e-20)
    np.testing.assert_allclose(probe.explained, 1, atol=1e-12)
    np.testing.assert_allclose(probe(X), EXACT, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("each_token", [True, False])
def test_ridge_is_the_normal_equations(each_token):
    noisy = EXACT + RNG.normal(size=EXACT.shape)
    probe = icl.linear_probe(X, noisy, ridge=0.1, train=0.75, each_token=each_token)
    for t in range(T):
        part = np.s_[:, t] if each_token else np.s_[:]
        x, y = X[:30][part].reshape(-1, WIDTH), noisy[:30][part].reshape(-1, M)
        x_mean, y_mean = x.mean(0), y.mean(0)
        gram = (x - x_mean).T @ (x - x_mean) / len(x) + 0.1 * np.eye(WIDTH)
        coef = ((y - y_mean).T @ (x - x_mean) / len(x)) @ np.linalg.inv(gram)
        decoded = X[:, t] @ coef.T + y_mean - coef @ x_mean
        error = ((decoded - noisy[:, t]) ** 2).sum(-1) / 2
        np.testing.assert_allclose(probe.train_error[t], error[:30].mean(), rtol=1e-10)
        np.testing.assert_allclose(probe.test_error[t], error[30:].mean(), rtol=1e-10)
        np.testing.assert_allclose(probe(X)[:, t], decoded, atol=1e-10)


@pytest.mark.full
def test_noise_is_fitted_but_not_decoded():
    noise = RNG.normal(size=(N, T, 15))
    probe = icl.linear_probe(noise, EXACT)
    assert probe.train_error.sum() < 0.5 * probe.test_error.sum()
    assert probe.explained < 0


STATES = RNG.normal(size=(2, 8, 3))


def test_inverse_targets_and_what_they_predict():
    targets = np.asarray(icl.inverse_targets(STATES, ridge=0.1))
    predictions = np.asarray(icl.implicit_predictions(STATES, targets))
    for b, t in np.ndindex(2, 8):
        seen = STATES[b, :t]
        solved = np.linalg.solve(seen.T @ seen + 0.1 * np.eye(3), STATES[b, t])
        np.testing.assert_allclose(targets[b, t], solved, atol=1e-10)
        w = STATES[b, 1 : t + 1].T @ seen
        np.testing.assert_allclose(predictions[b, t], w @ solved, atol=1e-10)


def test_undecoded_states_predict_as_one_gradient_step():
    layer = icl.mesa_gd_weights(np.zeros((3, 3)), 0.2)
    step = -icl.attend(icl.dynamics_tokens(STATES), layer, causal=True)[..., :3]
    np.testing.assert_allclose(icl.implicit_predictions(STATES, 0.2 * STATES), step, atol=1e-12)


@pytest.mark.full
def test_a_probe_finds_what_neumann_layers_compute():
    states = 0.5 * RNG.normal(size=(30, 6, 2))
    tokens = icl.dynamics_tokens(states, targets=True, positions=True)
    scale = icl.neumann_scale(states, 0.5).min()
    layer = icl.neumann_weights(2, 6, ridge=0.5, scale=scale)
    targets = icl.inverse_targets(states, ridge=0.5)
    trace = np.asarray(icl.roll_out(tokens, layer, 100, causal=True))
    explained = [float(icl.linear_probe(trace[i], targets).explained) for i in (0, 4, 100)]
    assert explained[0] < explained[1] < explained[2]
    assert explained[2] == pytest.approx(1, abs=1e-4)


def test_probes_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"activations must have shape \(n, T, D\)"):
        icl.linear_probe(X[0], EXACT[0])
    with pytest.raises(ValueError, match=r"targets must have shape \(40, 3, m\)"):
        icl.linear_probe(X, EXACT[:, :2])
    with pytest.raises(ValueError, match="ridge must be finite and >= 0"):
        icl.linear_probe(X, EXACT, ridge=-1.0)
    for ridge in (0.0, -1.0, np.ones(3)):
        with pytest.raises(ValueError, match="ridge must be"):
            icl.inverse_targets(X[0], ridge=ridge)
    for train in (0.0, 1.0, 0.001):
        with pytest.raises(ValueError, match="train must leave sequences on both sides"):
            icl.linear_probe(X, EXACT, train=train)
    with pytest.raises(ValueError, match=r"decoded must have shape \(\.\.\., 8, 3\)"):
        icl.implicit_predictions(STATES, STATES[:, :4])
