"""Sander et al. (2024): formulas against sampled data, autodiff and the paper's own numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq.icl.autoregressive import (
    augmented_layer,
    augmented_tokens,
    augmented_weights,
    contexts,
    non_augmented,
    real_form,
    sequences,
)
from olsq.icl.autoregressive_losses import (
    augmented_loss,
    conditioning_matrix,
    heads_bound,
    non_augmented_loss,
    position_gradient,
    position_loss,
    row_loss,
)
from olsq.icl.autoregressive_optima import (
    best_step,
    rotation_optimum,
    scalar_flow,
    scalar_flow_limit,
    unitary_optimum,
)
from tests.versions import in_one_program, x64

pytestmark = pytest.mark.usefixtures("one_target")

augmented_layer, augmented_loss, non_augmented, non_augmented_loss = map(
    in_one_program, (augmented_layer, augmented_loss, non_augmented, non_augmented_loss)
)
position_gradient, position_loss, row_loss = map(
    in_one_program, (position_gradient, position_loss, row_loss)
)


@pytest.fixture(autouse=True)
def double_precision():
    with x64(True):
        yield


def near(samples, expected, *, errors=3.0):
    """The mean of samples is within that many of its standard errors."""
    samples = np.asarray(samples)
    standard = samples.std(ddof=1) / np.sqrt(len(samples))
    assert abs(samples.mean() - expected) < errors * standard, (samples.mean(), expected, standard)


def weights(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def squared_error(predicted, answer):
    """Summed over times and coordinates, for each sequence."""
    return (np.abs(np.asarray(predicted) - answer) ** 2).sum((-2, -1))


def augmented_predictions(lam, length, a, b, before):
    states = sequences(lam, length)
    start = lam.conj() if before == "inverse" else None
    tokens = augmented_tokens(states[:, :-1], start)
    out = augmented_layer(tokens, *augmented_weights(a, b, lam.shape[1]))
    return np.asarray(out[:, 1:, : lam.shape[1]]), states[:, 2:]


# Data


def test_contexts_and_sequences():
    lam = contexts(200, 3, dim=4, paired=True)
    assert np.allclose(np.abs(lam), 1.0)
    assert np.array_equal(lam[:, 1::2], lam[:, ::2].conj())
    states = sequences(lam, 6)
    assert states.shape == (200, 7, 4)
    assert np.allclose(states[:, 0], 1.0)
    assert np.abs(states[:, 1:] - lam[:, None] * states[:, :-1]).max() < 1e-12
    turns = np.angle(contexts(200, 3, mu=50.0))
    assert turns.min() >= 0.0
    assert 0.95 < turns.max() / (2 * np.pi / 50.0) <= 1.0


def test_real_form_is_a_rotation_with_conjugate_eigenvalues():
    rng = np.random.default_rng(0)
    unitary = np.linalg.qr(rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)))[0]
    real = real_form(unitary)
    assert np.abs(real @ real.T - np.eye(8)).max() < 1e-12
    assert np.isclose(np.linalg.det(real), 1.0)
    lam = np.linalg.eigvals(unitary)
    both = np.concatenate([lam, lam.conj()])
    found = np.linalg.eigvals(real)
    assert np.abs(found[:, None] - both).min(0).max() < 1e-12
    x = rng.normal(size=4) + 1j * rng.normal(size=4)
    image = real @ np.concatenate([x.real, x.imag])
    assert np.abs(image[:4] + 1j * image[4:] - unitary @ x).max() < 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contexts(1, 0, mu=0.5), "mu must be finite and >= 1"),
        (lambda: contexts(1, 0, dim=3, paired=True), "dim must be even"),
        (lambda: best_step(5, 2, before="one"), 'before must be "inverse" or "zero"'),
        (lambda: augmented_loss([0] * 4, [0] * 2, dim=2, length=3, before="one"), "before must be"),
        (lambda: unitary_optimum(3, 4, heads=2), "2 heads cannot reach zero loss"),
        (lambda: rotation_optimum(3, 4), "dim must be even"),
        (lambda: rotation_optimum(4, 4, previous=1.0, last=-1.0), "not zero"),
        (lambda: rotation_optimum(4, 4, last=np.nan), "last must be finite"),
        (lambda: best_step(1, 2), "length must be an integer >= 2"),
        (lambda: augmented_loss([0] * 4, [0] * 2, dim=2.5, length=3), "dim must be an integer"),
        (lambda: augmented_loss([0] * 4, 1.0, dim=2, length=3), r"b must have shape \(2,\)"),
        (lambda: augmented_weights([0] * 4, [1.0], 2), r"b must have shape \(2,\), got \(1,\)"),
        (lambda: augmented_layer(np.ones((4, 3)), np.ones((1, 3)), np.eye(3)), r"got \(1, 3\) and"),
        (lambda: non_augmented(*map(np.ones, [(4, 2), (3, 2), (1, 2), (3, 4)])), "with the same H"),
        (
            lambda: non_augmented(*map(np.ones, [(4, 2), (1, 2), (1, 2), (1, 4)])),
            r"p must have shape \(3, 4\), got \(1, 4\)",
        ),
        (lambda: non_augmented_loss(*map(np.ones, [(3, 2), (3, 1), (2, 3)])), "b must have shape"),
        (lambda: row_loss(np.eye(3), [0, 1, 2], rotations=True), "d must be even"),
        (lambda: row_loss(np.eye(2)[:, :1], [0, 1, 2]), "c must be square"),
        (lambda: row_loss(np.eye(2), [2.0]), "at least two tokens"),
        (lambda: position_loss(np.ones((3, 3)), 5.0), r"p must have shape \(L - 1, L\)"),
        (lambda: position_gradient(np.ones((2, 3)), 0.0), "mu must be finite and > 0"),
        (lambda: scalar_flow(1.0, 1.0, 1.0, steps=2.5), "steps must be an integer >= 0"),
        (lambda: scalar_flow_limit(1.0, -1.0, 1.0), "p a b must be > 0; got -1.0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Augmented tokens: propositions 1, 2 and 8 (A11)


def test_proposition_1_is_one_gradient_step():
    """Also for matrices that do not commute, and at every length."""
    rng = np.random.default_rng(1)
    w = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    states = [rng.normal(size=3)]
    for _ in range(8):
        states.append(w @ states[-1])
    s = np.array(states)
    step = 0.07
    a, b = augmented_weights([0, 0, 1, 0], [step, 0], 3)
    out = np.asarray(augmented_layer(augmented_tokens(s), a, b))[:, :3]

    for t in range(1, len(s)):
        # The gradient at W = 0 of sum of |s[t + 1] - W s[t]|^2 / 2 over the pairs seen so far.
        gradient = -s[1 : t + 1].T @ s[:t]
        assert np.abs(out[t] - -step * gradient @ s[t]).max() < 1e-12


@pytest.mark.full
@pytest.mark.parametrize("before", ["inverse", "zero"])
def test_augmented_loss_against_sampled_data(before):
    a, b = weights(2, 4, 2)
    found, answer = augmented_predictions(contexts(4000, 5, dim=3), 6, a, b, before)
    near(squared_error(found, answer), augmented_loss(a, b, dim=3, length=6, before=before))


@pytest.mark.parametrize("before", ["inverse", "zero"])
@pytest.mark.parametrize(("dim", "length"), [(1, 4), (2, 6), (5, 12)])
def test_proposition_8_no_other_product_helps(dim, length, before):
    """The eight products: a3 b1 decouples from the rest, whose quadratic form is positive."""
    from olsq.icl.autoregressive_losses import _augmented_form

    square, linear = _augmented_form(dim, length, before == "inverse")
    others = np.arange(8) != 4
    assert np.array_equal(square[4, others], np.zeros(7))
    assert np.array_equal(linear[others], np.zeros(7))
    assert np.linalg.eigvalsh(square).min() > -1e-9
    assert np.isclose(linear[4] / square[4, 4], best_step(length, dim, before=before), rtol=1e-13)


@pytest.mark.full
@pytest.mark.parametrize(
    ("length", "before", "expected"),
    [
        (50, "inverse", 0.026531),
        (50, "zero", 0.027027),
        (10, "inverse", 0.0900),
        (10, "zero", 0.0968),
    ],
)
def test_best_step_is_stationary_and_the_sampled_one(length, before, expected):
    step = best_step(length, 5, before=before)
    assert abs(step - expected) < (1e-6 if length == 50 else 5e-5)

    def loss(a, b):
        return augmented_loss(a, b, dim=5, length=length, before=before)

    at = jnp.array([0.0, 0.0, step, 0.0]), jnp.array([1.0, 0.0])
    for slope in jax.grad(loss, (0, 1))(*at):
        assert np.abs(slope).max() < 1e-8 * 5 * length**2
    # The sampled optimum: sum of <f, s> over sum of |f|^2 with f the output for step 1.
    found, answer = augmented_predictions(
        contexts(2000, 6, dim=5), length, [0, 0, 1, 0], [1, 0], before
    )
    product = (found.conj() * answer).real.sum((1, 2))
    size = (np.abs(found) ** 2).sum((1, 2))
    near((product - step * size) / size.mean(), 0.0)  # linearised ratio
    assert abs(product.sum() / size.sum() / step - 1.0) < 0.02


def test_the_step_tends_to_three_over_twice_the_length():
    for before in ("inverse", "zero"):
        ratios = [best_step(n, 5, before=before) / (1.5 / n) for n in (50, 500, 2000)]
        assert 0.99 < ratios[-1] < 1.0
        assert np.all(np.diff(np.abs(np.array(ratios) - 1.0)) < 0.0)


# Bare tokens: proposition 4 (A12)


def printed_row_loss(c, p):
    """Proposition 4 as printed: |p|^2 where |p|^2 - p[T-1]^2 is right."""
    return (
        (p**2).sum() * (c**2).sum()
        + p[-2] ** 2 * (c.T @ c).sum()
        - 2 * np.trace(c) * p[-1]
        + len(c)
    )


def one_length(lam, c, p):
    """Squared error at T = len(p) for each context, by lemma 2."""
    t = np.arange(1, len(p) + 1)
    powers = lam[:, None, :] ** (t - len(p) + 1)[:, None]  # (n, T, d)
    mapped = np.einsum("t,ij,ntj,nti->ni", p, c, powers, lam[:, None, :] ** (t - 1)[:, None])
    return (np.abs(mapped - lam ** len(p)) ** 2).sum(-1)


def test_proposition_4_printed_and_corrected():
    (c,) = weights(0, (3, 3))
    p = np.array([0.0, 0.0, 0.0, 2.0, 1.0])
    samples = one_length(contexts(20_000, 1, dim=3), c, p)
    near(samples, row_loss(c, p))
    standard = samples.std() / np.sqrt(len(samples))
    printed = printed_row_loss(c, p)
    assert abs(samples.mean() - printed) > 50 * standard
    assert np.isclose(printed - row_loss(c, p), p[-2] ** 2 * (c**2).sum(), rtol=1e-12)
    # They agree, and so do their minimisers, where p[T-1] = 0.
    p[-2] = 0.0
    assert np.isclose(printed_row_loss(c, p), row_loss(c, p), rtol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("length", [2, 3, 6])
def test_row_loss_against_sampled_data(length, paired):
    c, p = weights(length, (4, 4), length)
    lam = contexts(8000, 4, dim=4, paired=paired)
    near(one_length(lam, c, p), row_loss(c, p, rotations=paired))


@pytest.mark.full
@pytest.mark.parametrize("paired", [False, True])
def test_whole_loss_against_the_model_on_data(paired):
    """Equation (6) on sequences, lemma 2 and the sum over T of proposition 4 are one."""
    a, b, p = weights(7, (3, 4), (3, 4), (4, 5))
    states = sequences(contexts(8000, 8, dim=4, paired=paired), 5)
    found = non_augmented(states[:, :-1], a, b, p)
    near(squared_error(found, states[:, 2:]), non_augmented_loss(a, b, p, rotations=paired))
    rows = [row_loss(b.T @ a, p[t - 2, :t], rotations=paired) for t in range(2, 6)]
    assert np.isclose(non_augmented_loss(a, b, p, rotations=paired), sum(rows), rtol=1e-12)


def test_row_loss_of_rotations_is_that_of_the_sample_mean_over_a_grid():
    """Exact: polynomials of low degree are integrated exactly by a grid of angles."""
    c, p = weights(9, (4, 4), 5)
    grid = np.exp(2j * np.pi * np.arange(24) / 24)
    x, y = (z.ravel() for z in np.meshgrid(grid, grid))
    lam = np.stack([x, x.conj(), y, y.conj()], -1)
    assert np.isclose(one_length(lam, c, p).mean(), row_loss(c, p, rotations=True), rtol=1e-12)
    lam = np.stack([x, y], -1)
    c = c[:2, :2]
    assert np.isclose(one_length(lam, c, p).mean(), row_loss(c, p), rtol=1e-12)


def test_full_matrices_and_diagonals_are_the_same_heads():
    a, b, p = weights(10, (2, 3), (2, 3), (3, 4))
    states = sequences(contexts(4, 0, dim=3), 4)[:, :-1]
    full = [np.stack([np.diag(row) for row in x]) for x in (a, b)]
    assert np.allclose(non_augmented(states, a, b, p), non_augmented(states, *full, p))


# Propositions 3 and 6, lemma 3 (A13, A14)


@pytest.mark.full
def test_proposition_3():
    states = sequences(contexts(50, 2, dim=4), 9)
    for heads in (4, 6):
        found = np.asarray(non_augmented(states[:, :-1], *unitary_optimum(4, 9, heads=heads)))
        assert np.abs(found - states[:, 2:]).max() < 1e-10
    learned = states[:, :-2].conj() * states[:, 1:-1]  # conj(e[T - 1]) e[T] = lam
    assert np.abs(found - learned * states[:, 1:-1]).max() < 1e-10
    assert non_augmented_loss(*unitary_optimum(4, 9)) == 0.0


def test_proposition_3_and_nothing_else():
    """Zero loss asks for each condition: breaking one of them costs."""
    best = unitary_optimum(4, 9)
    for place in ((0, 0), (3, 1), (3, 4), (3, 3)):
        p = best.p.at[place].add(0.1)
        assert non_augmented_loss(best.a, best.b, p) > 1e-3, place
    assert non_augmented_loss(best.a.at[0, 1].add(0.1), best.b, best.p) > 1e-3
    # Up to a common scale.
    assert non_augmented_loss(best.a / 4.0, best.b, 4.0 * best.p) == 0.0


def descend(loss, start, rate, steps):
    slope = jax.grad(lambda w: loss(*w))

    def step(w, _):
        return jax.tree.map(lambda x, g: x - rate * g, w, slope(w)), None

    return jax.jit(lambda w: jax.lax.scan(step, w, None, length=steps)[0])(start)


@pytest.mark.full
def test_too_few_heads_converge_to_the_bound():
    dim, length = 4, 5
    for heads in (1, 3):
        shapes = (heads, dim), (heads, dim), (length - 1, length)
        start = tuple(0.1 * jnp.asarray(x) for x in weights(heads, *shapes))
        assert non_augmented_loss(*start) > heads_bound(dim, heads, length)
        end = non_augmented_loss(*descend(non_augmented_loss, start, 0.02, 8000))
        assert 0.0 <= end - heads_bound(dim, heads, length) + 1e-12 < 1e-10, (heads, end)
    assert heads_bound(4, 5, 5) == 0.0


def test_lemma_3():
    best = rotation_optimum(6, 9)
    assert best.a.shape == (3, 6)
    states = sequences(contexts(50, 2, dim=6, paired=True), 9)
    found = np.asarray(non_augmented(states[:, :-1], *best))
    assert np.abs(found - states[:, 2:]).max() < 1e-12
    assert non_augmented_loss(*best, rotations=True) < 1e-12
    # lam^2 e[T-1] is the mapping, 2 cos(angle) R(angle) - I = R(2 angle) the formula.
    assert np.abs(found - states[:, 2:3] * states[:, :-2]).max() < 1e-12
    c = np.asarray(best.b.T @ best.a)
    assert np.array_equal(c, np.kron(np.eye(3), np.full((2, 2), 0.5)))
    assert np.linalg.matrix_rank(c) == 3
    # Independent eigenvalues are not predicted.
    assert non_augmented_loss(*best) > 1.0


@pytest.mark.full
@pytest.mark.parametrize(("previous", "last"), [(-1, 2), (0, 1), (0.7, 1.3), (-3, 1), (-0.2, -1.5)])
def test_proposition_6(previous, last):
    best = rotation_optimum(4, 6, previous=previous, last=last)
    assert non_augmented_loss(*best, rotations=True) < 1e-12
    c, p = np.asarray(best.b.T @ best.a), np.asarray(best.p[-1])
    assert np.allclose(np.diag(c) * p[-1], 1.0)
    assert np.allclose(p[-1] * c[0, 1] + (c[0, 0] + c[0, 1]) * p[-2], 0.0)
    assert np.linalg.matrix_rank(c) == (2 if previous == -last / 2 else 4)
    worse = best.a.at[0, 1].add(0.1)
    assert non_augmented_loss(worse, best.b, best.p, rotations=True) > 1e-4


def test_rotations_have_a_second_way_to_zero_at_infinity():
    """With d / 2 + 1 heads: C grows, P[T - 1, T] falls.  Descent from some seeds takes it."""
    dim, length = 4, 6
    losses = []
    for size in (1e1, 1e3, 1e5):
        planes = np.kron(np.eye(dim // 2), [[1.0, -1.0]])
        a = np.concatenate([planes, np.ones((1, dim))])
        b = np.concatenate([size * planes, np.ones((1, dim))])
        p = np.eye(length - 1, length) / dim + np.eye(length - 1, length, 1) / size
        losses.append(float(non_augmented_loss(a, b, p, rotations=True)) / (length - 1))
    assert np.linalg.matrix_rank(b.T @ a) == dim // 2 + 1
    assert losses[-1] < 1e-8
    assert np.all(np.array(losses) * [1e2, 1e6, 1e10] < 2.0 * dim**2)  # as 1 / size^2


# Proposition 7 (A15) and positions only


EIGENVALUES = {50: (12.42, 11.02), 100: (21.48, 7.82), 200: (27.29, 2.66), 300: (28.74, 1.25)}


@pytest.mark.parametrize("mu", EIGENVALUES)
def test_proposition_7_eigenvalues(mu):
    found = np.linalg.eigvalsh(conditioning_matrix(30, mu))[::-1]
    assert np.abs(found[:2] - EIGENVALUES[mu]).max() < 0.006
    assert np.isclose(found.sum(), 30.0)
    assert found[-1] > -1e-12


def test_proposition_7_limit():
    found = np.linalg.eigvalsh(conditioning_matrix(30, 1e5))
    assert 30.0 - found[-1] < 1e-3
    assert np.abs(found[:-1]).max() < 1e-3


def test_proposition_7_is_half_the_hessian():
    """The Hessian of loss (7), by a quadrature exact to rounding, and of `position_loss`."""
    mu, length = 50.0, 7
    nodes, heights = np.polynomial.legendre.leggauss(40)
    lam = np.exp(1j * np.pi / mu * (nodes + 1.0))
    t = np.arange(1, length + 1)
    basis = lam[:, None] ** (2 * t - length)

    def loss(p):
        return (heights / 2.0 * jnp.abs(basis @ p - lam**length) ** 2).sum()

    (p,) = weights(11, length)
    h = conditioning_matrix(length, mu)
    assert np.abs(jax.jit(jax.hessian(loss))(jnp.asarray(p)) - 2.0 * h).max() < 1e-8
    error = p - np.eye(length)[-1]
    assert np.isclose(loss(p), error @ h @ error, rtol=1e-10)
    # Off the diagonal it is the formula as printed.
    lag = t[None, :] - t[:, None] + np.eye(length)
    printed = mu / (4 * np.pi * lag) * np.sin(4 * lag * np.pi / mu)
    off = ~np.eye(length, dtype=bool)
    assert np.abs((h - printed)[off]).max() < 1e-14


def test_position_loss_and_gradient():
    (p,) = weights(12, (5, 6))
    slope = jax.grad(position_loss)(jnp.asarray(p), 20.0)
    assert np.abs(slope - position_gradient(p, 20.0)).max() < 1e-12
    lam = contexts(20_000, 3, mu=20.0)
    states = sequences(lam, 6)
    found = np.asarray(non_augmented(states[:, :-1], np.ones((1, 1)), np.ones((1, 1)), p))
    near(squared_error(found, states[:, 2:]) / 5.0, position_loss(p, 20.0))


def test_positions_over_the_whole_circle_are_proposition_4():
    """mu = 1 is one independent eigenvalue: d = 1, C = 1."""
    (p,) = weights(13, (5, 6))
    one = np.ones((1, 1))
    assert np.isclose(position_loss(p, 1.0) * 5.0, non_augmented_loss(one, one, p), rtol=1e-12)


# Proposition 5 (A16)


@pytest.mark.full
def test_scalar_flow_converges():
    rng = np.random.default_rng(14)
    start = rng.normal(size=(400, 3))
    residual = start.prod(1) - 1.0
    start = start[np.abs(residual) < 0.98][:100].T
    assert start.shape == (3, 100)
    end = np.array(scalar_flow(*start, step=0.005, steps=12_000))
    assert np.abs(end.prod(0) - 1.0).max() < 1e-8
    # It conserves the differences of squares and the signs, and ends where the formula says.
    assert np.abs((end[0] ** 2 - end[1] ** 2) - (start[0] ** 2 - start[1] ** 2)).max() < 1e-6
    assert np.array_equal(np.sign(end), np.sign(start))
    assert np.abs(end - np.array(scalar_flow_limit(*start))).max() < 1e-6


@pytest.mark.full
def test_scalar_flow_is_as_fast_as_its_bound_and_needs_only_the_sign():
    start = np.array([[0.6, 1.5], [0.7, 1.4], [0.8, 1.9]])  # the second has |pab - 1| = 2.99
    product = start.prod(0)
    for steps in (0, 20, 100):
        left = np.abs(np.array(scalar_flow(*start, step=0.002, steps=steps)).prod(0) - 1.0)
        bound = np.exp(-6.0 * 0.002 * steps * np.minimum(product, 1.0) ** (4 / 3))
        assert np.all(left <= np.abs(product - 1.0) * bound * (1 + 1e-12))
    end = np.array(scalar_flow(*start, step=0.001, steps=8000))
    assert np.abs(end.prod(0) - 1.0).max() < 1e-8
    limit = np.array(scalar_flow_limit(*start))
    assert np.abs(end - limit).max() < 1e-8
    assert np.abs(limit.prod(0) - 1.0).max() < 1e-12


@pytest.mark.parametrize("start", [(1e9, 1e9, 1e9), (3e9, -2e7, -1e8), (1e4, 1e9, 1e-3)])
def test_the_limit_of_large_starts_has_its_digits(start):
    end = np.array(scalar_flow_limit(*start))
    assert abs(end.prod() - 1.0) < 1e-12
    assert (np.sign(end) == np.sign(start)).all()
