"""Certificates of a solution: error bounds, ``check``, and warnings where possible."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sequence_cases import D, M, T, unit

import olsq
from olsq.reference import sequence as reference
from olsq.sequence.jax import online_lstsq
from tests.versions import x64

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(3)
K, Q = unit(RNG.normal(size=(2, T, D))).astype(np.float32)
V = RNG.normal(size=(T, M)).astype(np.float32)
GATES = np.full(T, 0.95, np.float32)
SIDES = pytest.mark.parametrize("solve", [olsq.online_lstsq, online_lstsq], ids=["numpy", "jax"])
MODES = pytest.mark.parametrize("mode", ["fixed", "discounted"])


@SIDES
@MODES
def test_bounds_hold_and_are_not_idle(solve, mode):
    fit = solve(K, V, Q, forget=GATES, ridge=0.3, ridge_mode=mode)
    want = reference.solve(K, V, Q, forget=0.95, ridge=0.3, ridge_mode=mode)
    wrong = np.linalg.norm(fit.value - want.value, axis=1)
    assert (wrong <= fit.stats.value_bound).all()
    assert (np.asarray(fit.stats.value_bound) < 0.1).all()
    assert fit.check(0.1) is fit


@SIDES
@MODES
def test_dense_answers_beyond_the_condition_number_of_float32(solve, mode):
    # A ridge of 1e-9 beside keys of length 1: until they span the space, the systems are definite,
    # but not to rounding.
    data = {"forget": 0.95, "ridge": np.full(D, 1e-9, np.float32), "ridge_mode": mode}
    fit = solve(K, V, Q, solver=olsq.Dense(chunk=16), **data)
    want = reference.solve(K, V, Q, **data)
    assert np.linalg.cond(want.systems).max() > 1e8
    assert np.isfinite(fit.value).all()
    assert np.isfinite(fit.stats.value_bound).all()
    wrong = np.linalg.norm(fit.value - want.value, axis=1)
    assert (wrong <= fit.stats.value_bound).all()


@SIDES
@MODES
@pytest.mark.parametrize(("low", "high"), [(-17, 17), (-17, 0), (0, 18)])
def test_dense_answers_whatever_the_units_of_the_coordinates(solve, mode, low, high):
    size = np.logspace(low, high, D).astype(np.float32)
    data = {"forget": 0.95, "ridge_mode": mode}
    fit = solve(K * size, V, Q * size, ridge=0.1 * size**2, solver=olsq.Dense(chunk=16), **data)
    want = reference.solve(K, V, Q, ridge=0.1, **data).value
    np.testing.assert_allclose(fit.value, want, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("adjoint", ["implicit", "unrolled"])
def test_derivatives_of_dense_beyond_float32_are_finite_and_else_exact(mode, adjoint):
    def loss(ridge):
        def of(keys, values, queries):
            fit = online_lstsq(
                keys, values, queries, forget=0.95, ridge=ridge, ridge_mode=mode,
                solver=olsq.Dense(chunk=16), adjoint=adjoint,
            )  # fmt: skip
            return (fit.value * V).sum()

        return of

    for derivative in jax.grad(loss(np.float32(1e-9)), (0, 1, 2))(K, V, Q):
        assert np.isfinite(derivative).all()
    # Keys in other units by powers of ten: the same problem, with the derivatives in other units.
    size = np.logspace(-8, 4, D).astype(np.float32)
    got = jax.grad(loss(0.3 * size**2), (0, 1, 2))(K * size, V, Q * size)
    want = jax.grad(loss(0.3 * np.ones(D, np.float32)), (0, 1, 2))(K, V, Q)
    for ours, theirs, unit_ in zip(got, want, (size, 1, size), strict=True):
        largest = np.abs(theirs).max()
        np.testing.assert_allclose(ours * unit_, theirs, atol=1e-4 * largest, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_solver_that_stops_early_is_told_by_its_bound(steps):
    fit = online_lstsq(
        K, V, Q, forget=0.95, ridge=0.3, solver=olsq.ConjugateGradient(steps, start="query")
    )
    want = reference.solve(K, V, Q, forget=0.95, ridge=0.3)
    wrong = np.linalg.norm(fit.value - want.value, axis=1)
    assert (wrong <= fit.stats.value_bound).all()
    with pytest.raises(olsq.AccuracyError, match="allow more steps"):
        fit.check(1e-3)


@SIDES
def test_residuals_are_relative_to_queries_of_any_size(solve):
    queries = Q * 10.0 ** np.arange(-19, T - 19)[:, None].clip(-9, 9).astype(np.float32)
    queries[7] = 0
    first = olsq.ConjugateGradient(0, start="query")  # answers with the query itself
    stats = solve(K, V, queries, forget=0.95, ridge=0.3, solver=first).stats
    systems = reference.solve(K, V, queries, forget=0.95, ridge=0.3).systems
    left = np.linalg.norm(queries - (systems @ queries[..., None])[..., 0], axis=1)
    size = np.linalg.norm(queries, axis=1)
    want = np.divide(left, size, out=np.zeros(T), where=size > 0)
    np.testing.assert_allclose(stats.residual, want, rtol=1e-5)
    np.testing.assert_allclose(stats.bound, left / 0.3, rtol=1e-3)


@SIDES
def test_bounds_are_infinite_where_nothing_is_known(solve):
    keys = K.copy()
    keys[20] = np.nan
    fit = solve(keys, V, Q, forget=GATES, ridge=0.3)
    assert np.isinf(fit.stats.bound[20:]).all()
    assert np.isfinite(fit.stats.bound[:20]).all()
    with pytest.raises(olsq.AccuracyError, match="token 20 is not finite"):
        fit.check()
    assert np.isinf(solve(K, V, Q, forget=GATES, ridge=0.0).stats.value_bound).all()
    gates = np.where(np.arange(T) == 9, 0, 1).astype(np.float32)
    reset = solve(K, V, Q, forget=gates, ridge=0.3, ridge_mode="discounted").stats.bound
    np.testing.assert_array_equal(np.isinf(reset), np.arange(T) >= 9)


@SIDES
def test_a_discounted_state_gives_the_bound_that_its_ridge_has_left(solve):
    discounted = {"ridge_mode": "discounted"}
    first = solve(K, V, Q, forget=GATES, ridge=0.3, **discounted)
    fit = solve(K, V, Q, forget=GATES, state=first.state, **discounted)
    twice = [np.concatenate([a, a]) for a in (K, V, Q)]
    want = reference.solve(*twice, forget=0.95, ridge=0.3, **discounted).value[T:]
    assert (np.linalg.norm(fit.value - want, axis=1) <= fit.stats.value_bound).all()
    assert np.isfinite(fit.stats.value_bound).all()


def test_the_message_names_the_worst_token_of_a_batch_and_what_to_do():
    keys = np.stack([K, K])
    keys[1, 7] *= 1e6
    fit = olsq.online_lstsq(keys, np.stack([V, V]), np.stack([Q, Q]), ridge=1e-3)
    with pytest.raises(olsq.AccuracyError, match=r"of stream \(1,\) .*float64 or a larger ridge"):
        fit.check(1e-3)


def test_check_needs_numbers():
    with pytest.raises(TypeError, match="outside"):
        jax.jit(lambda k: online_lstsq(k, V, Q, ridge=1.0).check().value)(K)


@pytest.mark.full
@pytest.mark.parametrize("corrections", [1, 2])
def test_too_few_corrections_warn_where_gates_are_seen_and_tell_where_they_are_not(corrections):
    solver = olsq.ChunkExact(corrections=corrections)
    with pytest.warns(RuntimeWarning, match="corrections=None"):
        seen = online_lstsq(K, V, Q, forget=0.9, ridge=1.0, solver=solver)
    want = reference.solve(K, V, Q, forget=0.9, ridge=1.0).value
    traced = jax.jit(lambda g: online_lstsq(K, V, Q, forget=g, ridge=1.0, solver=solver))(0.9)
    for fit in (seen, traced):
        wrong = np.linalg.norm(fit.value - want, axis=1)
        assert wrong.max() > 0.02
        assert (wrong <= fit.stats.value_bound).all()
    online_lstsq(K, V, Q, forget=0.9999, ridge=1.0, solver=solver)  # and no word where they serve


@pytest.mark.parametrize(
    "solver",
    [olsq.ChunkExact(corrections=2), olsq.ConjugateGradient(preconditioner="chunk")],
    ids=["corrections", "preconditioner"],
)
def test_iterations_that_start_from_factors_are_not_unrolled(solver):
    with pytest.raises(ValueError, match='adjoint="implicit"'):
        online_lstsq(K, V, Q, forget=0.9999, ridge=1.0, solver=solver, adjoint="unrolled")


@pytest.mark.full
def test_shards_keep_the_digits_of_log_forget():
    logs = np.full(4096, -3e-8, np.float32)
    keys = np.ones((4096, 1), np.float32)
    arrays = keys, keys, keys
    fit = online_lstsq(
        *arrays, log_forget=logs, ridge=1.0, solver=olsq.ChunkExact(shards=4)
    ).state.gram
    want = np.exp(-3e-8 * np.arange(4096.0)).sum()
    assert abs(fit[0, 0] - want) < 4e-6 * want


def test_float64_arrays_are_not_rounded_in_silence():
    wide = [a.astype(np.float64) for a in (K, V, Q)]
    with x64(False):
        exact = olsq.online_lstsq(*wide, ridge=1.0)
        for choice in ({"solver": olsq.Dense()}, {"adjoint": "unrolled"}):
            fit = olsq.online_lstsq(*wide, ridge=1.0, **choice)
            assert fit.value.dtype == np.float64
            assert np.abs(fit.value - exact.value).max() < 1e-12
        single = olsq.online_lstsq(K, V, Q, ridge=1.0, solver=olsq.Dense())
        assert single.value.dtype == np.float32
