"""Propositions 1 to 3 and GD++: layers against gradient descent on weights, in NumPy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from olsq import icl
from olsq.tasks import few_shot_regression

pytestmark = pytest.mark.usefixtures("one_target")


def in_numpy(function):
    """The function with NumPy's output: slices of it compile nothing."""
    return lambda *given, **options: np.asarray(function(*given, **options))


attend = in_numpy(icl.attend)
run_layers = in_numpy(icl.run_layers)
descend = in_numpy(icl.descend)
RNG = np.random.default_rng(2)
N, D, M, Q = 7, 4, 2, 3
X, Y = RNG.normal(size=(N, D)), RNG.normal(size=(N, M))
QUERY, W0 = RNG.normal(size=(Q, D)), RNG.normal(size=(M, D))
ZERO = np.zeros((M, D))
ONE_HEAD = icl.from_products(np.eye(2), np.eye(2))


def slope(w, x, y):
    """Gradient of ``1/(2N) sum |W x - y|^2``."""
    return sum(np.outer(w @ a - b, a) for a, b in zip(x, y, strict=True)) / len(x)


def test_proposition_1_is_one_gradient_step():
    change = -0.3 * slope(W0, X, Y)
    tokens = icl.regression_tokens(X, Y, QUERY, w0=W0)
    after = attend(tokens, icl.gd_weights(W0, 0.3, samples=N), context=N)
    np.testing.assert_allclose(-after[N:, D:], QUERY @ (W0 + change).T, atol=1e-12)
    np.testing.assert_allclose(after[:N, D:], Y - X @ change.T, atol=1e-12)
    np.testing.assert_array_equal(after[:, :D], tokens[:, :D])


def test_from_zero_the_query_may_be_a_key():
    tokens = icl.regression_tokens(X, Y, QUERY)
    layer = icl.gd_weights(ZERO, 0.3, samples=N)
    with_it, without = attend(tokens, layer), attend(tokens, layer, context=N)
    np.testing.assert_allclose(with_it, without, atol=1e-12)


def test_layers_are_gradient_steps():
    rates, w = [0.3, 0.2, 0.1, 0.05], W0
    layers = [icl.gd_weights(W0, rate, samples=N) for rate in rates]
    trace = run_layers(icl.regression_tokens(X, Y, QUERY, w0=W0), layers, context=N)
    closed = descend(X, Y, QUERY, rates=rates, w0=W0)
    for step, rate in enumerate(rates):
        w = w - rate * slope(w, X, Y)
        np.testing.assert_allclose(-trace[step + 1, N:, D:], QUERY @ w.T, atol=1e-12)
        np.testing.assert_allclose(closed[step + 1], QUERY @ w.T, atol=1e-12)
    np.testing.assert_allclose(closed[0], QUERY @ W0.T, atol=1e-12)


def test_gdpp_is_a_gradient_step_and_a_transformation():
    tokens = icl.regression_tokens(X, Y, QUERY, w0=W0)
    after = attend(tokens, icl.gdpp_weights(W0, 0.3, 0.02, samples=N), context=N)
    moved = np.eye(D) - 0.02 * X.T @ X
    np.testing.assert_allclose(after[:N, :D], X @ moved, atol=1e-12)
    np.testing.assert_allclose(after[N:, :D], QUERY @ moved, atol=1e-12)
    w = W0 - 0.3 * slope(W0, X, Y)
    np.testing.assert_allclose(-after[N:, D:], QUERY @ w.T, atol=1e-12)


def test_gdpp_layers_are_descent_on_moving_data():
    rates, gammas = [0.3, 0.2], [0.02, 0.05]
    layers = [icl.gdpp_weights(ZERO, *pair, samples=N) for pair in zip(rates, gammas, strict=True)]
    trace = run_layers(icl.regression_tokens(X, Y, QUERY), layers, context=N)
    x, y, query, answer = X, Y, QUERY, 0 * QUERY[:, :M]
    for rate, gamma in zip(rates, gammas, strict=True):
        change, moved = -rate * slope(ZERO, x, y), np.eye(D) - gamma * x.T @ x
        y, answer = y - x @ change.T, answer + query @ change.T
        x, query = x @ moved, query @ moved
    np.testing.assert_allclose(-trace[-1, N:, D:], answer, atol=1e-12)
    closed = descend(X, Y, QUERY, rates=rates, gammas=gammas)
    np.testing.assert_allclose(closed[-1], answer, atol=1e-12)


def test_proposition_2_is_regression_with_a_kernel():
    up, down = RNG.normal(size=(9, D)), RNG.normal(size=(D, 9))

    def m(x):
        return x + jnp.tanh(x @ up.T) @ down.T

    tokens = icl.embed_inputs(icl.regression_tokens(X, Y, QUERY), m, D)
    after = attend(tokens, icl.gd_weights(ZERO, 0.3, samples=N), context=N)
    kernel = np.array([[float(m(a) @ m(b)) for b in X] for a in QUERY])
    np.testing.assert_allclose(-after[N:, D:], 0.3 / N * kernel @ Y, atol=1e-12)


def alternating(samples=3, d=4, m=2):
    x, y, query = RNG.normal(size=(samples, d)), RNG.normal(size=(samples, m)), RNG.normal(size=d)
    padded = np.concatenate([np.zeros((samples, d - m)), y], 1)
    contents = np.stack([x, padded], 1).reshape(2 * samples, d)
    return x, y, query, np.concatenate([contents, query[None], np.zeros((1, d))])


@pytest.mark.parametrize("softmax", [False, True])
def test_proposition_3_puts_the_next_token_beside_each(softmax):
    *_, contents = alternating()
    layer = icl.merge_weights(4, 8, sharpness=50.0 if softmax else 1.0)
    merged = attend(icl.with_positions(contents), layer, softmax=softmax)
    np.testing.assert_allclose(merged[:-1, :4], contents[:-1], atol=1e-12)
    np.testing.assert_allclose(merged[:-1, 4:8], contents[1:], atol=1e-12)
    np.testing.assert_allclose(merged[:-1, 8:], 0, atol=1e-12)


def test_softmax_copies_as_sharply_as_it_is_told():
    *_, contents = alternating()
    for sharpness in (2.0, 5.0, 10.0):
        layer = icl.merge_weights(4, 8, sharpness=sharpness)
        merged = attend(icl.with_positions(contents), layer, softmax=True)
        error = abs(merged[:-1, 4:8] - contents[1:]).max()
        assert 0 < error < 8 * np.exp(-sharpness) * 2 * abs(contents).max()


def test_the_shift_that_the_text_names_copies_the_token_before():
    # W_Q = I_off^T and W_V with -I_off as printed, and I_off with ones below the diagonal.
    *_, contents = alternating()
    none, off = np.zeros((4, 12)), np.eye(8, k=-1)
    place = np.eye(8, 4)
    kq = np.block([[none], [np.zeros((8, 4)), off.T]])
    pv = np.block([[none], [place, -off]])
    merged = attend(icl.with_positions(contents), icl.from_products(kq, pv))
    np.testing.assert_allclose(merged[1:, 4:8], contents[:-1], atol=1e-12)


@pytest.mark.full
def test_merged_tokens_can_be_regressed_on():
    x, y, query, contents = alternating()
    tokens = attend(icl.with_positions(contents), icl.merge_weights(4, 8, clear=True))
    np.testing.assert_allclose(tokens[1::2], 0, atol=1e-12)
    after = attend(tokens[..., :8], icl.gd_weights(np.zeros((4, 4)), 0.3, samples=3))
    w = -0.3 * slope(np.zeros((2, 4)), x, y)
    np.testing.assert_allclose(-after[6, 6:], w @ query, atol=1e-12)


def test_every_task_may_have_a_start_of_its_own():
    x, y, query, w0 = (RNG.normal(size=(2, 2, 2)) for _ in range(4))
    tokens = icl.regression_tokens(x, y, query, w0=w0)
    predictions = icl.descend(x, y, query, rates=[0.1], w0=w0)
    states = icl.dynamics_tokens(x, w0=w0)
    for i in range(2):
        np.testing.assert_array_equal(
            tokens[i], icl.regression_tokens(x[i], y[i], query[i], w0=w0[i])
        )
        alone = icl.descend(x[i], y[i], query[i], rates=[0.1], w0=w0[i])
        np.testing.assert_allclose(predictions[:, i], alone, atol=1e-14)
        np.testing.assert_array_equal(states[i], icl.dynamics_tokens(x[i], w0=w0[i]))


@pytest.mark.parametrize(
    "call",
    [
        lambda two: icl.gd_weights(W0, two, 3),
        lambda two: icl.gdpp_weights(W0, 0.1, two, 3),
        lambda two: icl.merge_weights(1, 2, sharpness=two),
        lambda two: icl.mesa_gd_weights(np.eye(2), two),
        lambda two: icl.online_gd_weights(np.eye(2), two),
        lambda two: icl.neumann_weights(2, 3, ridge=two, scale=1.0),
        lambda two: icl.neumann_weights(2, 3, ridge=1.0, scale=two),
        lambda two: icl.neumann_scale(np.ones((2, 2)), two),
        lambda two: icl.gdpp_hessian(np.ones((2, 2)), two),
        lambda two: icl.attend(np.ones((2, 2)), ONE_HEAD, damping=two),
        lambda two: icl.run_layers(np.ones((2, 2)), [ONE_HEAD], clip=two),
        lambda two: icl.interpolate(ONE_HEAD, ONE_HEAD, two),
    ],
)
def test_numbers_of_constructions_are_single(call):
    with pytest.raises(ValueError, match="must be one number, got an array of shape"):
        call(np.ones(2))


def test_numbers_of_constructions_have_their_range():
    with pytest.raises(ValueError, match="ridge must be finite and >= 0"):
        icl.neumann_scale(X, -1.0)
    with pytest.raises(ValueError, match="clip must be finite and >= 0"):
        icl.run_layers(np.ones((2, 2)), [ONE_HEAD], clip=-1.0)
    with pytest.raises(ValueError, match="beta must not be 0"):
        icl.rescale(icl.from_products(np.eye(2, k=1), np.eye(2)), ONE_HEAD)
    with pytest.raises(TypeError, match="x must be real, got complex128"):
        icl.descend(X * 1j, Y, QUERY, rates=[0.1])
    with pytest.raises(TypeError, match="x has masked entries"):
        icl.descend(np.ma.masked_greater(X, 0), Y, QUERY, rates=[0.1])


def test_constructions_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"y must have shape \(\.\.\., 7, m\), got \(6, 2\)"):
        icl.regression_tokens(X, Y[:-1], QUERY)
    with pytest.raises(ValueError, match=r"w0 must have shape \(\.\.\., 2, 4\)"):
        icl.regression_tokens(X, Y, QUERY, w0=W0.T)
    with pytest.raises(ValueError, match=r"w0 must be a matrix, got shape \(4,\)"):
        icl.gd_weights(W0[0], 0.1, samples=N)
    with pytest.raises(ValueError, match="samples must be an integer >= 1"):
        icl.gd_weights(W0, 0.1, samples=0)
    with pytest.raises(ValueError, match="inputs must be less than the tokens' width"):
        icl.embed_inputs(X, lambda x: x, D)
    with pytest.raises(ValueError, match="length must be at least the width 4"):
        icl.merge_weights(4, 3)
    with pytest.raises(ValueError, match="clear needs a linear layer"):
        icl.merge_weights(4, 8, sharpness=2.0, clear=True)


def test_spectrum_of_gdpp():
    gamma, eigenvalues = 0.05, np.linalg.eigvalsh(X.T @ X)
    moved = np.sort(icl.gdpp_spectrum(eigenvalues, gamma))
    np.testing.assert_allclose(moved, np.linalg.eigvalsh(icl.gdpp_hessian(X, gamma)), atol=1e-10)
    cubic = eigenvalues - 2 * gamma * eigenvalues**2 + gamma**2 * eigenvalues**3
    np.testing.assert_allclose(np.sort(cubic), moved, atol=1e-10)
    condition = icl.gdpp_condition(eigenvalues, gamma)
    np.testing.assert_allclose(condition, moved[-1] / moved[0], rtol=1e-10)
    np.testing.assert_allclose(
        icl.gdpp_condition(eigenvalues, 0.0), eigenvalues[-1] / eigenvalues[0], rtol=1e-10
    )


@pytest.mark.parametrize("gamma", [0.029, 0.179, 2.0])
def test_peak_and_roots_of_gdpp(gamma):
    where, value = icl.gdpp_peak(gamma)
    cubic = np.polynomial.Polynomial([0, 1, -2 * gamma, gamma**2])
    stationary = np.sort(cubic.deriv().roots())
    np.testing.assert_allclose(where, stationary[0], rtol=1e-10)
    np.testing.assert_allclose(where, 1 / (3 * gamma), rtol=1e-10)
    np.testing.assert_allclose(value, cubic(stationary[0]), rtol=1e-10)
    np.testing.assert_allclose(icl.gdpp_roots(gamma), [0, 1 / gamma], rtol=1e-10)
    np.testing.assert_allclose(cubic(np.array(icl.gdpp_roots(gamma))), 0, atol=1e-10)
    # Beyond 4/(3 gamma) the peak is no longer the largest value.
    assert icl.gdpp_spectrum(1.33 / gamma, gamma) < value < icl.gdpp_spectrum(1.34 / gamma, gamma)


@pytest.mark.full
def test_best_rate_of_the_papers_task():
    data = few_shot_regression(4000, 0)
    x, y = data.x[:, :-1], data.y[:, :-1]
    query, target = data.x[:, -1:], data.y[:, -1:]

    def loss(rate):
        return 0.5 * float(((descend(x, y, query, rates=[rate])[1] - target) ** 2).mean())

    rate = float(icl.best_rate(x, y, query, target))
    assert rate == pytest.approx(6.01, rel=0.03)
    assert loss(rate) == pytest.approx(0.2112, rel=0.06)
    assert loss(rate) < min(loss(0.99 * rate), loss(1.01 * rate))


def test_descent_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"rates must have shape \(K,\), got \(\)"):
        descend(X, Y, QUERY, rates=0.1)
    with pytest.raises(ValueError, match=r"gammas must be a number or have shape \(2,\)"):
        descend(X, Y, QUERY, rates=[0.1, 0.1], gammas=[0.1])
    with pytest.raises(ValueError, match=r"query must have shape \(\.\.\., Q, 4\)"):
        descend(X, Y, Y, rates=[0.1])
    with pytest.raises(ValueError, match=r"target must have shape \(3, 2\)"):
        icl.best_rate(X, Y, QUERY, Y)
