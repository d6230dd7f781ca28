"""Linear dynamics and few-shot regression: definitions, and published losses of simple solvers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from olsq.tasks.dynamics import (
    few_shot_regression,
    interleave,
    linear_dynamics,
    random_orthogonal,
)


def one_step_ridge(tokens, labels, ridge):
    """Half the squared error at each t of ridge regression on all earlier (s[t-1], s[t])."""
    n, length, dim = tokens.shape
    gram, cross = np.zeros((n, dim, dim)), np.zeros((n, dim, dim))
    loss = np.empty(length)
    for t in range(length):
        if t > 0:
            gram += tokens[:, t - 1, :, None] * tokens[:, t - 1, None, :]
            cross += tokens[:, t - 1, :, None] * tokens[:, t, None, :]
        weights = np.linalg.solve(gram + ridge * np.eye(dim), cross)
        error = labels[:, t] - np.einsum("nij,ni->nj", weights, tokens[:, t])
        loss[t] = 0.5 * (error**2).sum(-1).mean()
    return loss


# --- linear dynamics


def test_random_orthogonal_is_haar():
    w = random_orthogonal(4000, 3, 0)
    np.testing.assert_allclose(w @ w.swapaxes(-1, -2), np.tile(np.eye(3), (4000, 1, 1)), atol=1e-12)
    # of a plain QR the mean trace would be -0.5 and the determinant always 1
    trace = np.trace(w, axis1=-2, axis2=-1)
    assert abs(trace.mean()) < 0.06
    assert abs((trace**2).mean() - 1.0) < 0.1
    assert abs(np.linalg.det(w).mean()) < 0.06


def test_fully_observed_sequences_follow_their_transition():
    data = linear_dynamics(400, 0)
    assert data.inputs.shape == data.labels.shape == (400, 50, 10)
    np.testing.assert_array_equal(data.inputs[:, 1:], data.labels[:, :-1])
    np.testing.assert_array_equal(data.inputs, data.hidden[:, :-1])
    np.testing.assert_array_equal(data.observation, np.tile(np.eye(10), (400, 1, 1)))
    step = np.einsum("nij,ntj->nti", data.transition, data.inputs)
    residual = data.labels - step
    assert residual.std() == pytest.approx(0.01, rel=0.01)
    assert abs((residual[:, 1:] * residual[:, :-1]).mean()) < 1e-6  # white
    first = data.inputs[:, 0]
    assert np.abs(first).max() < 1.0
    assert first.var() == pytest.approx(1 / 3, rel=0.05)


def test_partially_observed_sequences():
    data = linear_dynamics(300, 1, dim=15, observed=10, observation_noise=0.1)
    assert data.observation.shape == (300, 10, 15)
    assert data.observation.std() == pytest.approx(0.5, rel=0.02)
    residual = data.inputs - np.einsum("npd,ntd->ntp", data.observation, data.hidden[:, :-1])
    assert residual.std() == pytest.approx(0.1, rel=0.02)
    np.testing.assert_array_equal(data.inputs[:, 1:], data.labels[:, :-1])


@pytest.mark.full
def test_published_losses_on_linear_dynamics():
    data = linear_dynamics(8000, 0)
    assert 0.5 * (data.labels**2).sum(-1).mean() == pytest.approx(10 / 3 / 2, rel=0.02)

    # one gradient step from zero on all earlier pairs, with the best step size
    scores = np.tril(data.inputs @ data.inputs.swapaxes(-1, -2), k=-1)
    gradient = scores @ data.labels
    eta = (gradient * data.labels).mean() / (gradient**2).mean()
    assert eta == pytest.approx(0.0321, rel=0.03)
    loss = 0.5 * ((data.labels - eta * gradient) ** 2).sum(-1).mean(0)
    assert 0.89 < loss.mean() < 0.92  # standard error 0.005
    assert 30 < loss.argmin() < 41  # more context than that makes one step worse again
    assert loss[-1] == pytest.approx(0.80, rel=0.03)

    loss = one_step_ridge(data.inputs[:2000], data.labels[:2000], 1e-3)
    assert loss.mean() == pytest.approx(0.1853, rel=0.02)
    published = [1.675, 0.0044, 0.0030, 0.0012, 0.0009, 0.0006]
    np.testing.assert_allclose(loss[[0, 10, 11, 15, 20, 49]], published, rtol=0.15, atol=1e-4)


# --- few-shot regression


def test_few_shot_pairs_follow_their_weights():
    data = few_shot_regression(3000, 3)
    np.testing.assert_allclose(data.y, np.einsum("nmd,ntd->ntm", data.weights, data.x), atol=1e-12)
    assert np.abs(data.x).max() < 0.5
    assert data.x.var() == pytest.approx(1 / 12, rel=0.02)
    assert data.weights.std() == pytest.approx(1.0, rel=0.02)
    noisy = few_shot_regression(3000, 3, targets=2, inputs="normal", scale=2.0, noise=0.3)
    residual = noisy.y - np.einsum("nmd,ntd->ntm", noisy.weights, noisy.x)
    assert residual.std() == pytest.approx(0.3, rel=0.02)
    assert noisy.x.std() == pytest.approx(2.0, rel=0.02)


def test_published_loss_of_one_gradient_step():
    data = few_shot_regression(40_000, 4)
    x, y, query = data.x[:, :-1], data.y[:, :-1, 0], data.x[:, -1]
    target = data.y[:, -1, 0]
    assert 0.5 * (target**2).mean() == pytest.approx(0.417, rel=0.02)
    step = np.einsum("ntd,nt,nd->n", x, y, query) / 10
    eta = (step * target).mean() / (step**2).mean()
    assert eta == pytest.approx(6.01, rel=0.03)
    assert 0.5 * ((target - eta * step) ** 2).mean() == pytest.approx(0.2112, rel=0.03)


def test_published_losses_on_interleaved_pairs():
    data = few_shot_regression(1000, 5, pairs=26, targets=None, inputs="normal")
    tokens = interleave(data)
    np.testing.assert_array_equal(tokens[:, ::2], data.x)
    np.testing.assert_array_equal(tokens[:, 1::2], data.y)
    # the control reads the pairs (y, x) as well, which makes it worse before it makes it better
    loss = one_step_ridge(tokens[:, :-1], tokens[:, 1:], 1.0)[::2]
    published = [5.03, 5.25, 5.53, 6.04, 6.19, 4.71, 3.61, 3.21, 2.47, 2.29]
    np.testing.assert_allclose(loss[[0, 1, 2, 4, 6, 9, 12, 15, 19, 24]], published, rtol=0.08)


def test_separator_follows_every_pair():
    data = few_shot_regression(2, 6, pairs=4, dim=3, targets=None)
    tokens = interleave(data, separator=[7.0, 8.0, 9.0])
    np.testing.assert_array_equal(tokens[:, ::3], data.x)
    np.testing.assert_array_equal(tokens[:, 1::3], data.y)
    assert (tokens[:, 2::3] == [7.0, 8.0, 9.0]).all()


# --- arguments


@pytest.mark.parametrize("draw", [linear_dynamics, few_shot_regression])
def test_seeds(draw):
    a, b, c = draw(3, 0), draw(3, np.random.default_rng(0)), draw(3, 1)
    for first, same in zip(a, b, strict=True):
        np.testing.assert_array_equal(first, same)
        assert first.dtype == np.float64
    assert not np.array_equal(a[0], c[0])
    rng = np.random.default_rng(0)
    assert not np.array_equal(draw(3, rng)[0], draw(3, rng)[0])
    assert len(draw(0, 0)[0]) == 0


@pytest.mark.parametrize(
    "options",
    [{"length": 0}, {"dim": 0}, {"observed": 0}, {"noise": -1.0}, {"start": np.nan}],
)
def test_dynamics_arguments_out_of_range(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        linear_dynamics(2, 0, **options)


@pytest.mark.parametrize(
    "options",
    [{"pairs": 0}, {"dim": 0}, {"targets": 0}, {"inputs": "cauchy"}, {"scale": -1.0}],
)
def test_few_shot_arguments_out_of_range(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        few_shot_regression(2, 0, **options)


def test_tasks_need_numpy_only():
    code = """
import sys
import olsq.tasks
print([m for m in ("jax", "numba", "scipy", "matplotlib", "dask") if m in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_interleave_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="same shape"):
        interleave(few_shot_regression(2, 0))
    with pytest.raises(ValueError, match="separator"):
        interleave(few_shot_regression(2, 0, targets=None), separator=[0.0])
