"""Every solver on every stream, in JAX: one table, see sequence_cases.

``check_solver`` holds all properties.  What it does not have is here: derivatives of the final
state and of the steps, and float32, which shares the compiled runs of those.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import (
    EPS,
    IDS,
    LEADING,
    LED,
    PAIRS,
    D,
    M,
    T,
    claims,
    error,
    exact,
    for_checks,
    stack,
    start,
)

import olsq
from olsq.reference import sequence as oracle
from olsq.sequence.jax import online_lstsq  # whatever the arrays are
from olsq.testing import check_solver
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

NAMES = ("keys", "values", "queries", "forget", "weight", "ridge")


def call(row, mode, dtype, arrays, state=None, adjoint="implicit", **changes):
    a = {**arrays, **changes}
    ridge = None if mode == "discounted" and state is not None else a["ridge"]
    return online_lstsq(
        a["keys"],
        a["values"],
        a["queries"],
        forget=a["forget"],
        weight=a["weight"],
        ridge=ridge,
        ridge_mode=mode,
        state=state,
        solver=row.solver(dtype),
        adjoint=adjoint,
    )


@cache
def run(row, mode, dtype, adjoint="implicit"):
    """Jitted gradient of sum(upstream value) + sum(upstream_state state), and the solution.

    One compilation serves the oracle, causality, scale and transposition checks of a row.
    """

    def loss(arrays, state, upstream, upstream_state):
        sol = call(row, mode, dtype, arrays, olsq.Moments(*state), adjoint)
        parts = [(a * b).sum() for a, b in zip(sol.state, upstream_state, strict=True)]
        return (sol.value * upstream).sum() + sum(parts), sol

    return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))


def inputs(row, mode, dtype, group):
    """Arrays, initial state, and random upstream gradients of value and final state."""
    rng = np.random.default_rng(1)
    arrays, state = stack(group, dtype), start(group, dtype, mode)
    up = rng.normal(size=(len(group), T, M)).astype(dtype)
    return arrays, state, up, [rng.normal(size=s.shape).astype(dtype) for s in state]


def allowed(row, dtype, stream, path, base):
    """Tolerance: base, or what conditioning makes of rounding, or the rate a solver states."""
    kappa = np.linalg.cond(path.systems).max()
    tol = max(base, 30 * kappa * EPS[dtype])
    return max(tol, row.rate(path.systems, stream["ridge"])) if row.rate else tol


def cases():
    """Rows, implicit and unrolled, in both precisions; a quick run has one.

    Float32 of all but one direct and one carried solver is slow.  So is unrolled float32, one
    program in two precisions, and unrolled float64 of all but one iteration and one carried solver.
    """
    full, slow = pytest.mark.full, pytest.mark.slow
    for dtype, bits in ((np.float64, "f64"), (np.float32, "f32")):
        wide = bits == "f64"
        for pair, name in zip(PAIRS, IDS, strict=True):
            marks = full if wide or name in LEADING[::3] else slow
            if wide and name == "dense-fixed":
                marks = ()
            yield pytest.param(*pair, dtype, "implicit", id=f"{name}-{bits}", marks=marks)
            if pair[0].unrolls:
                marks = full if wide and name in LEADING[2:] else slow
                yield pytest.param(
                    *pair, dtype, "unrolled", id=f"{name}-unrolled-{bits}", marks=marks
                )


@pytest.mark.parametrize(("row", "mode"), PAIRS, ids=IDS)
def test_a_solver_has_the_value_and_the_state_of_the_oracle(row, mode):
    """What a quick run has of every solver; its gradients are below."""

    def values(arrays, state):
        return call(row, mode, np.float64, arrays, olsq.Moments(*state))

    solve = quick(values)
    for group in claims(row, mode):
        arrays, state, *_ = inputs(row, mode, np.float64, group)
        sol = solve(arrays, state)
        for i, name in enumerate(group):
            one = {n: a[i] for n, a in arrays.items()}
            path = exact(one, mode, [s[i] for s in state])
            assert error(sol.value[i], path.value) < allowed(row, np.float64, one, path, 1e-11), (
                name
            )
            assert error(sol.state.gram[i], path.grams[-1]) < 40 * EPS[np.float64], name
            assert error(sol.state.cross[i], path.crosses[-1]) < 40 * EPS[np.float64], name


def test_ridges_too_far_apart_for_corrections_are_solved_all_the_same():
    rng = np.random.default_rng(4)
    keys, queries, values = (rng.normal(size=(T, n)) for n in (D, D, M))
    keys *= 0.3  # small beside the ridges, which decide how many there are
    solve = quick(lambda *a, ridge: online_lstsq(*a, ridge=ridge))
    for spread in (0.6, 1.0):  # at 0.3 there are 29 corrections, at 0.6 too many
        ridge = 10.0 ** rng.uniform(-spread, spread, (T, D))
        sol = solve(keys, values, queries, ridge=ridge)
        want = oracle.solve(keys, values, queries, ridge=ridge).value
        assert error(sol.value, want) < 1e-12
        assert sol.stats.steps.max() < 10  # conjugate gradient's


@pytest.mark.parametrize(("row", "mode", "dtype", "adjoint"), list(cases()))
def test_solution_and_gradients_match_the_oracle(row, mode, dtype, adjoint):
    tight = dtype == np.float64
    for group in claims(row, mode):
        arrays, state, up, up_state = inputs(row, mode, dtype, group)
        (got, got_state), sol = run(row, mode, dtype, adjoint)(arrays, state, up, up_state)
        assert sol.value.dtype == dtype
        for i, name in enumerate(group):
            one = {n: a[i] for n, a in arrays.items()}
            begin = [s[i] for s in state]
            path = exact(one, mode, begin)
            tol = allowed(row, dtype, one, path, 1e-11 if tight else 1e-5)
            assert error(sol.value[i], path.value) < tol, name
            wrong = np.linalg.norm(sol.value[i] - path.value, axis=1)
            assert (wrong <= sol.stats.value_bound[i] * (1 + 1e-9)).all(), name
            assert error(sol.state.gram[i], path.grams[-1]) < 40 * EPS[dtype], name
            assert error(sol.state.cross[i], path.crosses[-1]) < 40 * EPS[dtype], name
            assert sol.stats.residual[i].max() < 10 * tol, name

            if adjoint == "implicit" and name in row.no_gradients:
                continue
            tol = allowed(row, dtype, one, path, 1e-9 if tight else 3e-5)
            if adjoint == "unrolled" and row.unrolled_error:
                tol = max(tol, row.unrolled_error(dtype))
            ridge = one.pop("ridge") if mode == "fixed" else one.pop("ridge") * np.nan
            want = oracle.gradients(
                one.pop("keys"),
                one.pop("values"),
                one.pop("queries"),
                up[i],
                **one,
                ridge=ridge,
                ridge_mode=mode,
                state=begin,
                upstream_state=[s[i] for s in up_state],
            )
            if mode == "fixed":
                assert error(got["ridge"][i], want["ridge"].sum(0)) < tol, (name, "ridge")
            for n in ("keys", "values", "queries", "forget", "weight"):
                assert error(got[n][i], want[n]) < tol, (name, n)
            grams = np.asarray(got_state[0][i]), want["gram"]
            if adjoint == "unrolled":  # of a symmetric matrix: factorisations read one half of it
                grams = tuple(x + x.T for x in grams)
            assert error(*grams) < tol, (name, "gram")
            assert error(got_state[1][i], want["cross"]) < tol, (name, "cross")


@pytest.mark.full
@pytest.mark.parametrize(("row", "mode"), LED)
def test_every_property(row, mode):
    group = {n: s for group in claims(row, mode) for n, s in group.items()}
    check_solver(
        row.solver(np.float64), backends=["jax"], ridge_modes=[mode], dtypes=[np.float64],
        streams=for_checks(group, row.no_gradients), error=row.rate, max_examples=3,
        skip=["causality of gradients"] if row.walks_back else [],
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("power", [-27, 27])
@pytest.mark.parametrize(("row", "mode"), LED)
def test_values_and_gradients_follow_the_scale(row, mode, power):
    s = np.float32(2.0**power)  # 1.3e8 and its inverse
    group = claims(row, mode)[0]
    arrays, state, up, _ = inputs(row, mode, np.float32, group)
    zero = [np.zeros_like(x) for x in state]
    fun = run(row, mode, np.float32)
    grads, sol = fun(arrays, state, up, zero)
    big = {
        **arrays,
        "keys": arrays["keys"] * s,
        "queries": arrays["queries"] * s,
        "ridge": arrays["ridge"] * s**2,
        "values": arrays["values"] * s,
    }
    big_state = [x * s**2 for x in state]
    grads_big, sol_big = fun(big, big_state, up, zero)
    grads_up = fun(arrays, state, up * s, zero)[0]
    paths = [
        exact({n: a[i] for n, a in arrays.items()}, mode, [x[i] for x in state])
        for i in range(len(group))
    ]
    powers = {"keys": 0, "values": 0, "queries": 0, "forget": 1, "weight": 1, "ridge": -1}
    for i, path in enumerate(paths):
        tol = allowed(row, np.float32, {n: a[i] for n, a in arrays.items()}, path, 1e-5)
        assert error(sol_big.value[i] / s, sol.value[i]) < tol
        for n, p in powers.items():
            if n == "ridge" and mode == "discounted":
                continue
            size = np.abs(grads[0][n][i]).max()
            assert np.abs(grads_up[0][n][i] / s - grads[0][n][i]).max() <= 3 * tol * size, n
            scaled = grads_big[0][n][i] / s**p
            assert np.abs(scaled - grads[0][n][i]).max() <= 3 * tol * size, n


@pytest.mark.full
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bf16", "f16"])
def test_half_precision_inputs_are_solved_in_float32(dtype):
    group = claims(PAIRS[0][0], "fixed")[0]
    arrays = {
        n: jnp.asarray(a, dtype) if n in ("keys", "values", "queries") else a
        for n, a in stack(group, np.float32).items()
    }
    sol = call(PAIRS[0][0], "fixed", np.float32, arrays)
    assert sol.value.dtype == dtype
    assert sol.state.gram.dtype == jnp.float32
    for i, name in enumerate(group):
        path = exact({n: np.asarray(a[i], np.float64) for n, a in arrays.items()}, "fixed")
        assert error(sol.value[i], path.value) < 2 * float(jnp.finfo(dtype).eps), name


def test_dimensions_are_as_stated():
    assert D != M
    assert T % 16 != 0
