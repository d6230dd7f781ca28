"""RevAlg-1 and RevAlg-d, and the way between a trained layer and a construction."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from olsq import icl
from olsq.tasks import linear_dynamics

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(5)
D, T = 3, 6
STATES = RNG.normal(size=(2, T, D))
BLOCKS = icl.Blocks(RNG.normal(size=(2, 3, 3)), RNG.normal(size=(2, 3, 3)))
ZERO = np.zeros((D, D))


def test_blocks_make_a_layer_and_come_back():
    layer = icl.from_blocks(BLOCKS, D)
    kq, pv = icl.products(layer)
    np.testing.assert_allclose(kq[1, D : 2 * D, :D], BLOCKS.key_query[1, 1, 0] * np.eye(D))
    np.testing.assert_allclose(pv[0, :D, 2 * D :], BLOCKS.projected_value[0, 0, 2] * np.eye(D))
    for got, want in zip(icl.extract_blocks(layer, D), BLOCKS, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-15)


def test_extraction_is_the_mean_diagonal():
    weights = icl.random_attention(jax.random.key(0), 4 * D, heads=2, key_size=5, scale=1.0)
    blocks = icl.Blocks(*map(np.asarray, icl.extract_blocks(weights, D)))
    weights = icl.AttentionWeights(*map(np.asarray, weights))
    for h, row, column in np.ndindex(2, 4, 4):
        part = np.s_[row * D : (row + 1) * D, column * D : (column + 1) * D]
        kq = weights.key[h].T @ weights.query[h]
        pv = weights.projection[h] @ weights.value[h]
        np.testing.assert_allclose(blocks.key_query[h, row, column], np.diag(kq[part]).mean())
        np.testing.assert_allclose(blocks.projected_value[h, row, column], np.diag(pv[part]).mean())


def test_eight_numbers_are_the_layer():
    layer = icl.from_blocks(BLOCKS, D)
    added = icl.attention_update(icl.dynamics_tokens(STATES), layer, causal=True)
    coefficients = np.asarray(icl.revalg1_coefficients(BLOCKS))
    np.testing.assert_allclose(icl.revalg1(STATES, coefficients), added[..., :D], atol=1e-12)
    s = np.concatenate([np.zeros((1, D)), STATES[0]])
    for t in range(1, T + 1):
        a, b = (
            sum(
                c[0] * np.outer(s[i], s[i])
                + c[1] * np.outer(s[i - 1], s[i])
                + c[2] * np.outer(s[i], s[i - 1])
                + c[3] * np.outer(s[i - 1], s[i - 1])
                for i in range(1, t + 1)
            )
            for c in coefficients
        )
        np.testing.assert_allclose(added[0, t - 1, :D], a @ s[t] + b @ s[t - 1], atol=1e-11)


def test_coefficients_by_the_corrected_indices():
    kq, pv = BLOCKS
    found = icl.revalg1_coefficients(BLOCKS)
    # lambda_A3 belongs to s_i s_{i-1}^T s_t: the key is s_{i-1} (row 2), the query s_t (column 1).
    a3 = sum(kq[h, 2, 1] * pv[h, 0, 1] for h in range(2))
    as_printed = sum(kq[h, 1, 2] * pv[h, 0, 1] for h in range(2))
    assert found[0, 2] == pytest.approx(a3, rel=1e-12)
    assert abs(a3 - as_printed) > 1e-3


def test_two_coefficients_are_a_gradient_step():
    rate, start = 0.1, 0.4
    layer = icl.mesa_gd_weights(start * np.eye(D), rate)
    coefficients = icl.revalg1_coefficients(icl.extract_blocks(layer, D))
    expected = np.zeros((2, 4))
    expected[0, 2:] = -rate, rate * start
    np.testing.assert_allclose(coefficients, expected, atol=1e-15)
    tokens = icl.dynamics_tokens(STATES, w0=start * np.eye(D))
    prediction = -icl.attend(tokens, layer, causal=True)[..., :D]
    np.testing.assert_allclose(
        start * STATES - icl.revalg1(STATES, coefficients), prediction, atol=1e-12
    )


def columns_of(states):
    return np.moveaxis(icl.revalg1_terms(states), -1, -3).reshape(-1, 8)


@pytest.mark.full
@pytest.mark.parametrize("kept", [range(8), [2, 3, 5]])
def test_fit_is_least_squares_in_the_coefficients(kept):
    states, targets = RNG.normal(size=(2, 4, T, D))
    keep = np.isin(np.arange(8), kept).reshape(2, 4)
    expected = np.zeros(8)
    expected[keep.ravel()] = np.linalg.lstsq(columns_of(states)[:, keep.ravel()], targets.ravel())[
        0
    ]
    found = icl.fit_revalg1(states, targets, keep=keep)
    np.testing.assert_allclose(np.ravel(found), expected, atol=1e-10)


@pytest.mark.full
def test_the_papers_losses():
    data = linear_dynamics(2000, 0)
    columns, target = columns_of(data.inputs), data.labels.ravel()

    def fit(*kept):
        out = np.zeros(8)
        gram = columns[:, kept].T @ columns[:, kept]
        out[list(kept)] = np.linalg.solve(gram, columns[:, kept].T @ target)
        return out

    def loss(coefficients):
        return 10 / 2 * ((columns @ coefficients - target) ** 2).mean()

    step, reduced, full = fit(2), fit(2, 3), fit(*range(8))
    assert step[2] == pytest.approx(0.0321, rel=0.03)
    assert 0.87 < loss(full) < loss(reduced) <= loss(step) < 0.92
    assert loss(reduced) < 1.02 * loss(full)
    assert loss(np.where(np.isin(np.arange(8), [2, 3]), 0, full)) > 1.6


def trained(scale):
    """A gradient step's weights, as training leaves them: mixed, scaled, and noisy off it."""
    gd = icl.gd_weights(np.zeros((1, D)), 0.5, samples=4)
    mix = RNG.normal(size=(D + 1, D + 1))
    return icl.AttentionWeights(
        key=mix @ gd.key[0][None] * scale,
        query=np.linalg.inv(mix).T @ gd.query[0][None],
        value=mix @ gd.value[0][None],
        projection=gd.projection[0][None] @ np.linalg.inv(mix) / scale,
    ), gd


def test_interpolation_corrects_the_scale():
    tokens = RNG.normal(size=(5, D + 1))
    ours, gd = trained(3.0)
    update = icl.attention_update(tokens, gd)
    for fraction in (0.0, 0.5, 1.0):
        between = icl.interpolate(ours, gd, fraction)
        np.testing.assert_allclose(icl.attention_update(tokens, between), update, atol=1e-12)
    plain = icl.interpolate(ours, gd, correct=False)
    assert abs(icl.attention_update(tokens, plain) - update).max() > 0.1


@pytest.mark.full
def test_the_scale_is_the_papers():
    weights = icl.random_attention(jax.random.key(1), D + 1, key_size=D, scale=1.0)
    gd = icl.gd_weights(np.zeros((1, D)), 0.5, samples=4)
    before, after = icl.products(weights), icl.rescale(weights, gd)
    beta = np.diag(before.key_query[0])[:D].mean()
    np.testing.assert_allclose(after.key_query, before.key_query / beta, rtol=1e-12)
    np.testing.assert_allclose(after.projected_value, before.projected_value * beta, rtol=1e-12)


def test_reverse_engineering_refuses_what_does_not_fit():
    layer = icl.from_blocks(BLOCKS, D)
    with pytest.raises(ValueError, match="dim must divide the tokens' width 9, got 2"):
        icl.extract_blocks(layer, 2)
    with pytest.raises(ValueError, match=r"key_query must have shape \(\.\.\., H, C, C\)"):
        icl.from_blocks(icl.Blocks(np.ones(3), np.ones((1, 3, 3))), D)
    with pytest.raises(ValueError, match=r"coefficients must have shape \(2, 4\), got \(8,\)"):
        icl.revalg1(STATES, np.zeros(8))
    with pytest.raises(ValueError, match=r"keep must have shape \(2, 4\)"):
        icl.fit_revalg1(STATES, STATES, keep=np.ones(8, bool))
    with pytest.raises(ValueError, match=r"targets must have shape \(\.\.\., 2, 6, 3\)"):
        icl.fit_revalg1(STATES, STATES[0])
    for call in (icl.rescale, icl.interpolate):
        with pytest.raises(ValueError, match="must have the same heads and width"):
            call(layer, icl.mesa_gd_weights(ZERO, 0.1))
    with pytest.raises(ValueError, match="weights and reference must have the same heads"):
        icl.interpolate(layer, icl.mesa_gd_weights(ZERO, 0.1), correct=False)
