"""Local linear attention and Parallax: their limits, and what they have of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import attention
from tests.versions import InOneProgram, in_one_program, quick

pytestmark = pytest.mark.usefixtures("one_target")

B, T, H, K, V = 1, 11, 2, 3, 2

compiled = InOneProgram(attention)
RULES = {
    "local_linear": lambda q, k, v, x, **more: compiled.local_linear(
        q, k, v, ridge=0.1 + x[..., 0] ** 2, **more
    ),
    "parallax": lambda q, k, v, x, **more: compiled.parallax(q, k, v, direction=x, **more),
}
each = pytest.mark.parametrize("name", RULES)


@pytest.fixture
def given():
    rng = np.random.default_rng(0)
    q, k, x = rng.normal(size=(3, B, T, H, K))
    return q, k, rng.normal(size=(B, T, H, V)), x


def close(got, want, tol):
    np.testing.assert_allclose(got, want, rtol=0, atol=tol * np.abs(want).max())


@pytest.mark.slow
def test_without_slopes_they_are_softmax_attention(given):
    q, k, v, _ = given
    for options, soft in (
        ({}, compiled.softmax(q, k, v)[0]),
        ({"window": 4}, compiled.sliding_window(q, k, v, window=4)[0]),
    ):
        flat = compiled.local_linear(q, k, v, ridge=1e14, **options)[0]
        close(flat, soft, 1e-12)
        still = compiled.parallax(q, k, v, direction=np.zeros_like(q), **options)[0]
        close(still, soft, 1e-13)


def test_with_equal_weights_it_is_ridge_regression_with_an_intercept(given):
    q, k, v, _ = given
    o = compiled.local_linear(q, k, v, ridge=0.3, scale=0.0)[0]
    for t in (0, 4, T - 1):
        x, y = k[0, : t + 1, 0], v[0, : t + 1, 0]
        centred = x - x.mean(0)
        # the objective has mean squares, so the ridge of the sums is (t + 1) times as large
        gram = centred.T @ centred + 0.3 * (t + 1) * np.eye(K)
        slope = np.linalg.solve(gram, centred.T @ (y - y.mean(0)))
        close(o[0, t, 0], y.mean(0) + (q[0, t, 0] - x.mean(0)) @ slope, 1e-12)


@pytest.mark.full
def test_parallax_along_the_solution_is_the_exact_rule(given):
    q, k, v, _ = given
    exact = compiled.local_linear(q, k, v, ridge=0.2, scale=0.9)[0]
    directions = np.zeros_like(q)
    for t in range(T):
        for h in range(H):
            p = np.exp(0.9 * k[0, : t + 1, h] @ q[0, t, h])
            p = p / p.sum()
            mean = p @ k[0, : t + 1, h]
            off = k[0, : t + 1, h] - mean
            system = (off * p[:, None]).T @ off + 0.2 * np.eye(K)
            directions[0, t, h] = -np.linalg.solve(system, q[0, t, h] - mean)
    close(compiled.parallax(q, k, v, direction=directions, scale=0.9)[0], exact, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 4])
@each
def test_pieces_of_any_length_are_the_whole(name, window, given):
    """Prompts after prompts, a token alone, a cache that is grown, and one with room to spare."""
    whole = RULES[name](*given, window=window)[0]
    state, outputs = None, []
    for start, stop in ((0, 4), (4, 5), (5, T)):
        part = [a[:, start:stop] for a in given]
        if state is not None and window is None:
            state = state.grown(stop + 3)
        o, state = RULES[name](*part, window=window, state=state)
        outputs.append(o)
    close(np.concatenate(outputs, 1), whole, 1e-12)


@pytest.mark.full
@each
def test_what_is_lost_with_a_row_of_its_own(name, given):
    q, k, v, x = given
    x = x.copy()
    x[0, 3, 0, 0] = np.nan
    o = RULES[name](q, k, v, x)[0]
    lost = np.zeros((T, H), bool)
    lost[3, 0] = True
    np.testing.assert_array_equal(np.isnan(o[0]).all(-1), lost)
    large = k.astype(np.float32)
    large[0, 5, 1] = 1e30  # its square is not finite
    o = RULES[name](*(a.astype(np.float32) for a in (q, large, v, given[3])), window=3)[0]
    lost[:] = False
    lost[5:8, 1] = True
    np.testing.assert_array_equal(np.isnan(o[0]).all(-1), lost)


@pytest.mark.slow
@each
def test_second_derivatives(name, given):
    rng = np.random.default_rng(1)
    way = [rng.normal(size=a.shape) for a in given]

    def slope(given):
        return jax.grad(lambda g: jnp.sin(RULES[name](*g)[0]).sum())(given)

    twice = quick(lambda given: jax.jvp(slope, (given,), (way,))[1])(list(given))
    h = 1e-5
    once = quick(slope)
    ahead, behind = (
        once([a + s * h * w for a, w in zip(given, way, strict=True)]) for s in (1, -1)
    )
    for a, b, c in zip(ahead, behind, twice, strict=True):
        close(c, (a - b) / (2 * h), 1e-7)


@pytest.mark.full
def test_no_scale_of_the_values_matters(given):
    q, k, v, x = given
    for rule in RULES.values():
        close(rule(q, k, 1e200 * v, x)[0], 1e200 * rule(q, k, v, x)[0], 1e-13)
    # keys and queries in other units, with the ridge and the scale in theirs
    small = compiled.local_linear(1e-6 * q, 1e-6 * k, v, ridge=1e-13, scale=1e12)[0]
    close(small, compiled.local_linear(q, k, v, ridge=0.1, scale=1.0)[0], 1e-9)


@pytest.mark.full
def test_it_is_local_lstsq(given):
    q, k, v, _ = given
    ids, local_lstsq = np.array([[0] * 4 + [1] * 7]), in_one_program(olsq.local_lstsq)
    o = compiled.local_linear(q, k, v, ridge=np.array([0.1, 0.5]), segment_ids=ids)[0]
    for h, ridge in enumerate((0.1, 0.5)):
        one = (a[0, :, h] for a in (k, v, q))
        want = local_lstsq(*one, ridge=ridge, segment_ids=ids[0]).value
        close(o[0, :, h], want, 1e-12)


def test_what_is_refused(given):
    q, k, v, x = given
    rule = attention.local_linear
    with pytest.raises(ValueError, match="window must be an integer >= 1"):
        rule(q, k, v, ridge=1.0, window=0)
    with pytest.raises(ValueError, match="scale must be finite"):
        rule(q, k, v, ridge=1.0, scale=np.inf)
    with pytest.raises(ValueError, match="ridge must be > 0"):
        rule(q, k, v, ridge=0.0)
    with pytest.raises(ValueError, match=r"direction has shape.*\(batch, time, heads, dim\)"):
        attention.parallax(q, k, v, direction=x[..., :2])
    _, full = rule(q, k, v, ridge=1.0)
    _, windowed = jax.eval_shape(lambda: rule(q, k, v, ridge=1.0, window=4))
    with pytest.raises(ValueError, match="state is full"):
        rule(q, k, v, ridge=1.0, state=full)
    for window, state in ((4, full), (None, windowed)):
        with pytest.raises(TypeError, match="state must be a"):
            rule(q, k, v, ridge=1.0, window=window, state=state)
    step = jax.jit(lambda q, state: rule(q, k, v, ridge=1.0, state=state)[0])
    assert np.isnan(step(q, full)).all()
