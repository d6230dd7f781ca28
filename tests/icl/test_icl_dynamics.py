"""Causal layers on a sequence: one gradient step, online gradient descent, preconditioning."""

from __future__ import annotations

import numpy as np
import pytest

from olsq import icl
from tests.versions import x64


def in_numpy(function):
    """The function with NumPy's output: slices of it compile nothing."""
    return lambda *given, **options: np.asarray(function(*given, **options))


attend = in_numpy(icl.attend)
run_layers = in_numpy(icl.run_layers)
roll_out = in_numpy(icl.roll_out)
descend = in_numpy(icl.descend)
RNG = np.random.default_rng(3)
T, D = 9, 3
STATES = 0.5 * RNG.normal(size=(T, D))
W0 = 0.3 * RNG.normal(size=(D, D))
BEFORE = np.concatenate([np.zeros((1, D)), STATES[:-1]])


def slope(w, t, targets=STATES):
    """Gradient of ``1/2 sum |target_i - W s_{i-1}|^2`` over the pairs that token t has seen."""
    pairs = zip(targets[: t + 1], BEFORE[: t + 1], strict=True)
    return sum(np.outer(w @ a - b, a) for b, a in pairs)


def test_tokens():
    tokens = icl.dynamics_tokens(STATES, w0=W0, targets=True, positions=True)
    expected = np.concatenate([-STATES @ W0.T, STATES, STATES, BEFORE, np.eye(T)], 1)
    np.testing.assert_allclose(tokens, expected, atol=1e-15)


def test_one_gradient_step_at_every_time():
    tokens = icl.dynamics_tokens(STATES, w0=W0)
    after = attend(tokens, icl.mesa_gd_weights(W0, 0.1), causal=True)
    for t, state in enumerate(STATES):
        expected = (W0 - 0.1 * slope(W0, t)) @ state
        np.testing.assert_allclose(-after[t, :D], expected, atol=1e-12)
    np.testing.assert_array_equal(after[:, D:], tokens[:, D:])


def online(layers, rate):
    tokens = icl.dynamics_tokens(STATES, w0=W0, targets=True)
    return run_layers(tokens, [icl.online_gd_weights(W0, rate)] * layers, causal=True)


def test_causal_layers_move_every_target_by_its_own_gradient():
    trace, prediction, targets = online(4, 0.1), STATES @ W0.T, STATES
    for layer in range(5):
        np.testing.assert_allclose(-trace[layer, :, :D], prediction, atol=1e-12)
        np.testing.assert_allclose(trace[layer, :, D : 2 * D], targets, atol=1e-12)
        changes = [-0.1 * slope(W0, t, targets) for t in range(T)]
        prediction = prediction + np.stack([c @ s for c, s in zip(changes, STATES, strict=True)])
        targets = targets - np.stack([c @ s for c, s in zip(changes, BEFORE, strict=True)])


def test_causal_layers_are_not_batch_gradient_descent():
    trace = online(4, 0.1)
    gaps = []
    for t, state in enumerate(STATES):
        w = W0
        for _ in range(4):
            w = w - 0.1 * slope(w, t)
        gaps.append(abs(-trace[4, t, :D] - w @ state).max())
    np.testing.assert_allclose(gaps[:2], 0, atol=1e-12)  # one pair: its own gradient is all
    assert min(gaps[3:]) > 1e-3
    few_shot = descend(BEFORE, STATES, STATES[-1:], rates=[0.1 * T] * 4, w0=W0)
    np.testing.assert_allclose(few_shot[-1, 0], w @ state, atol=1e-12)


def test_many_causal_layers_are_normalised_least_mean_squares():
    rate = 1 / (STATES**2).sum(1).max()
    tokens = icl.dynamics_tokens(STATES, w0=W0, targets=True)
    last = roll_out(tokens, icl.online_gd_weights(W0, rate), 3000, causal=True)[-1]
    w = W0
    for t, state in enumerate(STATES):
        if t:
            w = w + np.outer(state - w @ BEFORE[t], BEFORE[t]) / (BEFORE[t] ** 2).sum()
        np.testing.assert_allclose(-last[t, :D], w @ state, atol=1e-10)


def test_neumann_layers_and_one_step_are_ridge_regression():
    ridge = 0.5
    scale = icl.neumann_scale(STATES, ridge)
    tokens = icl.dynamics_tokens(STATES, targets=True, positions=True)
    layer = icl.neumann_weights(D, T, ridge=ridge, scale=scale)
    solved = roll_out(tokens, layer, 200, causal=True)[-1]
    after = attend(solved, icl.preconditioned_weights(D, T), causal=True)
    for t, state in enumerate(STATES):
        x, y = BEFORE[: t + 1], STATES[: t + 1]
        inverse = np.linalg.inv(x.T @ x + ridge * np.eye(D))
        np.testing.assert_allclose(solved[t, D : 2 * D], inverse @ state, atol=1e-12)
        np.testing.assert_allclose(-after[t, :D], y.T @ x @ inverse @ state, atol=1e-12)
    np.testing.assert_allclose(solved[:, 2 * D :], tokens[:, 2 * D :], atol=1e-12)


def test_a_neumann_layer_is_the_printed_step_at_scale_1():
    tokens = icl.dynamics_tokens(STATES, targets=True, positions=True)
    layer = icl.neumann_weights(D, T, ridge=0.5, scale=1.0)
    z = attend(attend(tokens, layer, causal=True), layer, causal=True)[:, D : 2 * D]
    for t, s in enumerate(STATES):
        gram, expected = BEFORE[: t + 1].T @ BEFORE[: t + 1], s
        for _ in range(2):
            expected = s + (1 - 0.5) * expected - gram @ expected  # eq. 3.57
        np.testing.assert_allclose(z[t], expected, atol=1e-12)


def test_constructions_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"w0 must be square, got \(2, 3\)"):
        icl.mesa_gd_weights(W0[:2], 0.1)
    with pytest.raises(ValueError, match=r"w0 must be square, got \(2, 3\)"):
        icl.online_gd_weights(W0[:2], 0.1)
    with pytest.raises(ValueError, match=r"w0 must have shape \(\.\.\., 3, 3\)"):
        icl.dynamics_tokens(STATES, w0=W0[:2])
    with pytest.raises(ValueError, match=r"states must have shape \(\.\.\., T, d\)"):
        icl.dynamics_tokens(STATES[0])
    with pytest.raises(ValueError, match="dim must be an integer >= 1"):
        icl.neumann_weights(0, 4, ridge=1.0, scale=1.0)
    with pytest.raises(ValueError, match="length must be an integer >= 1"):
        icl.preconditioned_weights(2, 0)


@pytest.mark.full
def test_single_precision_stays_single():
    with x64(False):
        tokens = icl.dynamics_tokens(STATES, w0=W0, targets=True)
        after = attend(tokens, icl.online_gd_weights(W0, 0.1), causal=True)
    assert after.dtype == np.float32
