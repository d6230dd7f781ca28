"""After a gate of 0 the discounted problem has no ridge: NaN while no fit is unique, then exact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import EPS, D, M, T, error, streams, unit

import olsq
from olsq.reference import sequence as reference
from olsq.reference.regression import row_weights
from olsq.sequence.jax import online_lstsq

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(11)
KEYS, QUERIES = unit(RNG.normal(size=(2, T, D)))
VALUES, WEIGHT = RNG.normal(size=(T, M)), RNG.uniform(0.5, 1, T)
RESETS = (7, 16, 30)  # inside a chunk, at a boundary, and soon before the next one
GATES = np.where(np.isin(np.arange(T), RESETS), 0.0, 0.98)
ABSENT = 18  # a sample of weight 0 does not count
WEIGHT[ABSENT] = 0
RIDGE = 0.3

SOLVERS = [
    olsq.ChunkExact(chunk=16),
    olsq.ChunkExact(chunk=8, shards=2),
    olsq.Dense(chunk=16),
    olsq.ConjugateGradient(100, 1e-14, chunk=16),
]


def oracle():
    """Outputs (T, M) by dense least squares, NaN where a reset left fewer than D samples."""
    out = np.full((T, M), np.nan)
    for t in range(T):
        w = row_weights(GATES, WEIGHT, t, None)
        ridge = RIDGE * np.prod(GATES[: t + 1])
        if ridge > 0 or np.count_nonzero(w) >= D:
            A = np.vstack([np.sqrt(w)[:, None] * KEYS[: t + 1], np.sqrt(ridge) * np.eye(D)])
            B = np.vstack([np.sqrt(w)[:, None] * VALUES[: t + 1], np.zeros((D, M))])
            out[t] = QUERIES[t] @ np.linalg.lstsq(A, B, rcond=None)[0]
    return out


def solve(solver, dtype=np.float64, queries=QUERIES, keys=KEYS):
    arrays = [jnp.asarray(a, dtype) for a in (keys, VALUES, queries, GATES, WEIGHT)]
    return online_lstsq(
        *arrays[:3], forget=arrays[3], weight=arrays[4], ridge=RIDGE, ridge_mode="discounted",
        solver=solver,
    )  # fmt: skip


def well_determined():
    """Tokens at which a sample or two more than needed bound the condition number."""
    out = np.zeros(T, bool)
    for t in range(T):
        w = row_weights(GATES, WEIGHT, t, None)
        gram = (w * KEYS[: t + 1].T) @ KEYS[: t + 1] + RIDGE * np.prod(GATES[: t + 1]) * np.eye(D)
        out[t] = np.linalg.cond(gram) < 1e3
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "dtype"), [(SOLVERS[0], np.float32), *((s, np.float64) for s in SOLVERS)]
)
def test_nan_until_d_samples_came_and_exact_from_then_on(solver, dtype):
    sol, want = solve(solver, dtype), oracle()
    np.testing.assert_array_equal(np.isnan(sol.value), np.isnan(want))
    assert np.isnan(want).any(1).sum() == 3 * (D - 1) + 1
    # From the D-th sample on, as well as the condition number then allows.
    assert error(sol.value[~np.isnan(want)], want[~np.isnan(want)]) < 1e6 * EPS[dtype]
    good = well_determined()
    assert all(good[t + D - 1 : t + D + 4].any() for t in RESETS)
    assert error(sol.value[good], want[good]) < 2e4 * EPS[dtype]
    assert sol.stats.steps.max() <= 100
    gram = sum(
        w * np.outer(k, k)
        for w, k in zip(row_weights(GATES, WEIGHT, T - 1, None), KEYS, strict=True)
    )
    np.testing.assert_allclose(sol.state.gram, gram, atol=30 * EPS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("solver", [SOLVERS[0], SOLVERS[2]])
def test_gradients_are_those_of_the_tokens_that_have_a_fit(solver):
    good = jnp.asarray(well_determined())[:, None]

    def loss(keys):
        value = solve(solver, keys=keys).value
        return (jnp.where(good, value, 0) ** 2).sum()

    gradient = jax.grad(loss)(jnp.asarray(KEYS))
    direction = RNG.normal(size=KEYS.shape)
    step = 1e-6
    change = (loss(KEYS + step * direction) - loss(KEYS - step * direction)) / (2 * step)
    np.testing.assert_allclose((gradient * direction).sum(), change, rtol=1e-6)


@pytest.mark.full
def test_the_fixed_problem_keeps_its_ridge():
    sol = online_lstsq(KEYS, VALUES, QUERIES, forget=GATES, weight=WEIGHT, ridge=RIDGE)
    assert np.isfinite(sol.value).all()


@pytest.mark.slow
@pytest.mark.parametrize("gate", [0.5, 0.05])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ridges_that_decay_like_the_data_are_no_nan(gate, dtype):
    """One ridge per token, orders of magnitude apart within a chunk: each token has its own fit."""
    forget = np.full(T, gate).astype(dtype)
    ridge = (0.5 * np.maximum(gate ** np.arange(1.0, T + 1), 1e-30))[:, None] * np.ones(D)
    arrays = [x.astype(dtype) for x in (KEYS, VALUES, QUERIES, ridge)]
    keys, values, queries, ridge = arrays
    preconditioned = olsq.ConjugateGradient(400, float(EPS[dtype]), preconditioner="chunk")
    want = reference.solve(keys, values, queries, forget=forget, ridge=ridge)
    scale = np.sqrt(np.diagonal(want.systems, axis1=1, axis2=2))
    condition = np.linalg.cond(want.systems / scale[:, :, None] / scale[:, None])
    bound = np.maximum(1e-11 if dtype == np.float64 else 1e-5, 30 * condition * EPS[dtype])
    for solver in olsq.ChunkExact(), preconditioned:
        given = {"forget": forget, "solver": solver}
        in_jax = online_lstsq(*map(jnp.asarray, arrays[:3]), ridge=jnp.asarray(ridge), **given)
        in_numpy = olsq.online_lstsq(*arrays[:3], ridge=ridge, **given)
        for fit in in_jax, in_numpy:
            error = np.abs(fit.value - want.value).max(1)
            assert (error <= bound * np.abs(want.value).max(1)).all(), solver


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["half .9", "strong .7", "any gate", "mixed gates", "small ridge .9"]
)
def test_the_discounted_problem_under_harsh_gates(name, dtype):
    s = {n: x.astype(dtype) for n, x in streams()[1][name].items()}
    kept = {n: s[n] for n in ("forget", "weight", "ridge")}
    arrays = (s["keys"], s["values"], s["queries"])
    want = reference.solve(*arrays, **kept, ridge_mode="discounted")
    scale = np.sqrt(np.diagonal(want.systems, axis1=1, axis2=2))
    condition = np.linalg.cond(want.systems / scale[:, :, None] / scale[:, None])
    bound = np.maximum(1e-11 if dtype == np.float64 else 1e-5, 30 * condition * EPS[dtype])
    # The condition bounds the error of x, not that of G x where it cancels: an output that is near
    # zero by chance is held to a twentieth of the largest.
    size = np.maximum(np.abs(want.value).max(1), np.abs(want.value).max() / 20)
    for solver in SOLVERS[0], SOLVERS[2]:
        fit = online_lstsq(
            *map(jnp.asarray, arrays), **kept, ridge_mode="discounted", solver=solver
        )
        wrong = np.abs(fit.value - want.value).max(1)
        assert (wrong <= bound * size).all()


@pytest.mark.slow
@pytest.mark.parametrize("gate", [0.9, 0.5, 0.05])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ridges_far_apart_by_key_keep_every_digit_under_harsh_gates(gate, dtype):
    """Key entries in the units of their ridge, from 0 over 1e-3 to 1e9."""
    ridge = np.concatenate([[0.0, 1e9], 10.0 ** RNG.uniform(-3, 3, D - 2)])
    forget = np.where(np.arange(T) % 16 == 9, gate**8, gate)
    kept = {"forget": forget.astype(dtype), "ridge": ridge.astype(dtype)}
    arrays = [x.astype(dtype) for x in (KEYS, VALUES, QUERIES)]
    want = reference.solve(*arrays, **kept)
    scale = np.sqrt(np.diagonal(want.systems, axis1=1, axis2=2))
    condition = np.linalg.cond(want.systems / scale[:, :, None] / scale[:, None])
    fit = online_lstsq(*map(jnp.asarray, arrays), **kept)
    wrong = np.abs(fit.value - want.value).max(1)
    bound = np.maximum(1e-11 if dtype == np.float64 else 1e-5, 30 * condition * EPS[dtype])
    size = np.maximum(np.abs(want.value).max(1), np.abs(want.value).max() / 20)
    assert (wrong <= bound * size).all()


EVERY = (*SOLVERS[:1], *SOLVERS[2:], olsq.Neumann(40), olsq.Chebyshev())


CASES = [*((solver, "numpy") for solver in EVERY), (EVERY[0], "jax")]
CASES += [pytest.param(solver, "jax", marks=pytest.mark.full) for solver in EVERY[1:]]


@pytest.mark.parametrize(("solver", "backend"), CASES)
def test_a_reset_forgets_moments_near_the_largest_number(solver, backend):
    """A read of the moments overflows, and is multiplied by the gate of 0."""
    largest = float(np.finfo(np.float32).max) / 2
    arrays = [a[:24].astype(np.float32) for a in (KEYS, VALUES, QUERIES, GATES)]
    keys, values, queries, gates = arrays if backend == "numpy" else map(jnp.asarray, arrays)

    def after_the_reset(size):
        state = olsq.Moments(np.full((D, D), size, np.float32), np.full((M, D), size, np.float32))
        options = {"forget": gates, "ridge": RIDGE, "state": state, "solver": solver}
        return np.asarray(olsq.online_lstsq(keys, values, queries, **options).value)[RESETS[0] :]

    # JAX takes the careful way for large moments: other last digits.
    np.testing.assert_allclose(after_the_reset(largest), after_the_reset(0.0), 1e-5, 1e-6)
