"""Derivatives against autodiff of a dense oracle, in float64: both modes, two orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from local_cases import ARRAYS, ROWS

from olsq.local.jax.solve import local_lstsq
from olsq.testing.backends import fast_options

pytestmark = pytest.mark.usefixtures("small_blocks", "one_target")


def dense(row, made, segments):
    """Outputs (B, T, m) with every matrix written out."""
    k, v, q = made["keys"], made["values"], made["queries"]
    exponents = made["scale"][..., None] * (q @ jnp.swapaxes(k, 1, 2))
    t, i = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    seen = np.ones((q.shape[1], k.shape[1]), bool)
    if row.causal:
        seen = (i <= t) & (t - i < (row.window or 1000))
    if segments is not None:
        seen = seen & (segments[:, None] == segments)
    if "log_weight" in made:
        exponents = exponents + made["log_weight"][:, None]
    if "log_forget" in made:
        sums = jnp.cumsum(made["log_forget"], 1)
        exponents = exponents + sums[:, :, None] - sums[:, None]
    p = jax.nn.softmax(jnp.where(seen, exponents, -jnp.inf), axis=-1)
    kbar, vbar = p @ k, p @ v
    off_k, off_v = k[:, None] - kbar[:, :, None], v[:, None] - vbar[:, :, None]
    gram = jnp.einsum("bti,btid,btie->btde", p, off_k, off_k)
    cross = jnp.einsum("bti,btim,btie->btme", p, off_v, off_k)
    system = gram + made["ridge"][..., None, None] * jnp.eye(k.shape[-1])
    x = jnp.linalg.solve(system, (q - kbar)[..., None])
    return vbar + (cross @ x)[..., 0]


def ours(row, made, segments):
    given = dict(made)
    arrays = [given.pop(name) for name in ("keys", "values", "queries")]
    return local_lstsq(*arrays, segment_ids=segments, **row.options(), **given).value


def problem(row):
    """Arrays of two streams, segments, directions of all arrays, and a loss of a function."""
    made, segments = row.problem(hard=False)
    made = {name: jnp.asarray(made[name][:2]) for name in ARRAYS if name in made}
    rng = np.random.default_rng(5)
    directions = {name: jnp.asarray(rng.standard_normal(x.shape)) for name, x in made.items()}
    weights = jnp.asarray(rng.standard_normal((*made["queries"].shape[:2], 2)))

    def loss(solve):
        return lambda made: (jnp.sin(solve(row, made, segments)) * weights).sum()

    return made, segments, directions, loss


def check(found, wanted, names):
    for name in names:
        size = np.abs(wanted[name]).max()
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-9 * size, err_msg=name)


def compiled(function, *given):
    return jax.jit(function).lower(*given).compile(compiler_options=fast_options())(*given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [ROWS[3], ROWS[4], pytest.param(ROWS[1], marks=pytest.mark.slow)],
    ids=lambda row: row.name,
)
def test_gradients_and_their_derivatives(row):
    made, _, directions, loss = problem(row)

    def both(solve):  # forward mode over reverse mode
        return lambda made, along: jax.jvp(jax.grad(loss(solve)), (made,), (along,))

    found, wanted = compiled(both(ours), made, directions), jax.jit(both(dense))(made, directions)
    check(found[0], wanted[0], made)
    check(found[1], wanted[1], made)


@pytest.mark.full
def test_tangents():
    row = ROWS[3]
    made, segments, directions, _ = problem(row)

    def along(solve):
        return lambda made, d: jax.jvp(lambda x: solve(row, x, segments), (made,), (d,))[1]

    found, wanted = compiled(along(ours), made, directions), jax.jit(along(dense))(made, directions)
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.slow
def test_reverse_mode_over_reverse_mode():
    row = ROWS[3]
    made, _, directions, loss = problem(row)

    def twice(solve):
        def slope(made):
            gradient = jax.grad(loss(solve))(made)
            return sum(jnp.vdot(gradient[name], directions[name]) for name in made)

        return jax.grad(slope)

    check(compiled(twice(ours), made), jax.jit(twice(dense))(made), made)


@pytest.mark.full
def test_a_lost_sample_has_no_gradient_and_gives_none():
    row = ROWS[1]
    made, segments, _, _ = problem(row)
    made["keys"] = made["keys"].at[0, 20, 0].set(jnp.nan)
    made["values"] = made["values"].at[1, 30, 0].set(jnp.inf)

    def loss(made):
        value = ours(row, made, segments)
        return jnp.where(jnp.isfinite(value), value, 0).sum()

    for name, x in compiled(jax.grad(loss), made).items():
        assert np.isfinite(x).all(), name
