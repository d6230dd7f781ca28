"""Tokens of every hardness beside one another: each is as accurate as its own system allows."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sequence_cases import unit

import olsq
from olsq.reference import sequence as reference
from olsq.sequence.jax import online_lstsq
from tests.tiers import examples
from tests.versions import x64

pytestmark = pytest.mark.usefixtures("one_target")

T, D, M = 41, 5, 2  # with chunks of 16: two whole ones and a part
MULTIPLE = 20  # of condition number times eps: what "a small multiple" is here
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
GATES = (1.0, 0.9999, 0.99, 0.9, 0.5)


KINDS = ("scaled tokens", "one token", "some huge", "scaled features", "few tokens", "subspace")
SPECS = st.fixed_dictionaries(  # small and readable when one fails
    {
        "seed": st.integers(0, 2**32 - 1),
        "kind": st.sampled_from(KINDS),
        "decades": st.floats(0, 12),
        "start": st.integers(0, T - 1),
        "step": st.integers(1, 20),
        "gate": st.sampled_from(GATES),
        "reset": st.none() | st.integers(0, T - 1),
        "weighted": st.booleans(),
        "ridge": st.floats(-8, 1).map(lambda x: 10.0**x),
        "mode": st.sampled_from(("fixed", "discounted")),
        "ridge a token": st.booleans(),
    }
)


def build(spec, dtype):
    """Keys, values, queries, gates, weights and ridge; what is large differs by ``decades``."""
    rng = np.random.default_rng(spec["seed"])
    half, start, kind = spec["decades"] / 2, spec["start"], spec["kind"]
    keys = unit(rng.normal(size=(T, D)))
    if kind == "scaled tokens":
        keys *= 10.0 ** rng.uniform(-half, half, (T, 1))
    elif kind == "one token":
        keys[start:] = keys[0]
    elif kind == "some huge":
        keys[start :: spec["step"]] *= 10.0**half
    elif kind == "scaled features":
        keys *= 10.0 ** rng.uniform(-half, half, D)
    elif kind == "few tokens":
        keys = keys[rng.integers(0, 3, T)] * 10.0 ** rng.uniform(-half, half, (T, 1))
    else:
        keys[:, 0] *= 10.0**half
        keys[:start, 1:] = 0
    gates = np.full(T, spec["gate"])
    ridge = np.full((1, D), spec["ridge"])
    if spec["mode"] == "fixed":
        gates[[] if spec["reset"] is None else spec["reset"]] = 0
        if spec["ridge a token"]:
            ridge = ridge * 10.0 ** rng.uniform(-2, 2, (T, 1))
    weight = 10.0 ** rng.uniform(-half, 0, T) if spec["weighted"] else np.ones(T)
    ridge = ridge if ridge.shape[0] > 1 else ridge[0]
    values, queries = rng.normal(size=(T, M)), unit(rng.normal(size=(T, D)))
    return [x.astype(dtype) for x in (keys, values, queries, gates, weight, ridge)]


@cache
def solver(mode, adjoint="implicit"):
    """Compiled once for each shape of ridge."""

    def solve(keys, values, queries, gates, weight, ridge):
        return online_lstsq(
            keys, values, queries, forget=gates, weight=weight, ridge=ridge, ridge_mode=mode,
            solver=olsq.ChunkExact(chunk=16), adjoint=adjoint,
        )  # fmt: skip

    return jax.jit(solve)


def exact(mode, arrays):
    """Oracle, each token's condition number, |x| and |G|; None if float64 cannot tell either."""
    keys, values, queries, gates, weight, ridge = arrays
    try:
        path = reference.solve(
            keys, values, queries, forget=gates, weight=weight, ridge=ridge, ridge_mode=mode
        )
    except np.linalg.LinAlgError:
        return None
    eigenvalues = np.linalg.eigvalsh(path.systems)
    if not (eigenvalues[:, 0] > 1e-20 * eigenvalues[:, -1]).all():
        return None
    condition, size = eigenvalues[:, -1] / eigenvalues[:, 0], np.linalg.norm(path.solution, axis=1)
    return path, condition, size, np.linalg.norm(path.crosses[-T:], axis=(1, 2))


def judge(mode, arrays, dtype, solution):
    """Finite; within a small multiple of the token's own condition number; and within its bound."""
    value = np.asarray(solution.value, np.float64)
    assert np.isfinite(value).all()
    truth = exact(mode, [np.asarray(a, np.float64) for a in arrays])
    if truth is None:
        return
    path, condition, size, cross = truth
    wrong = np.linalg.norm(value - path.value, axis=1)
    eps = float(np.finfo(dtype).eps)
    told = condition * eps < 0.1  # beyond, no digit is promised, nor is the oracle right
    assert (wrong <= MULTIPLE * condition * eps * cross * size)[told].all()
    if dtype == np.float32:  # in float64 the oracle is no better
        assert (wrong <= solution.stats.value_bound)[told].all()


@pytest.mark.slow
@DTYPES
def test_each_token_is_as_accurate_as_its_own_system_allows(dtype):
    @settings(max_examples=examples(150), deadline=None, derandomize=True)
    @given(SPECS)
    def check(spec):
        arrays = build(spec, dtype)
        with x64(dtype == np.float64):
            judge(spec["mode"], arrays, dtype, solver(spec["mode"])(*arrays))

    check()


@pytest.mark.full
@DTYPES
def test_numpy_too(dtype):
    @settings(max_examples=examples(150), deadline=None, derandomize=True)
    @given(SPECS)
    def check(spec):
        arrays = keys, values, queries, gates, weight, ridge = build(spec, dtype)
        fit = olsq.online_lstsq(
            keys, values, queries, forget=gates, weight=weight, ridge=ridge, ridge_mode=spec["mode"]
        )
        judge(spec["mode"], arrays, dtype, fit)

    check()


@pytest.mark.full
@pytest.mark.parametrize(
    "dtype",
    [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)],  # the same program
    ids=["f32", "f64"],
)
def test_gradients_of_well_conditioned_tokens_do_not_see_the_hard_ones(dtype):
    def loss(cotangent, *arrays):
        return (solver("fixed")(*arrays).value * cotangent).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(1, 2, 3, 4, 5, 6)))

    @settings(max_examples=examples(40), deadline=None, derandomize=True)
    @given(SPECS)
    def check(spec):
        arrays = build({**spec, "mode": "fixed"}, dtype)
        wide = [a.astype(np.float64) for a in arrays]
        truth = exact("fixed", wide)
        if truth is None:
            return
        soft = truth[1] < 1e3
        cotangent = np.where(soft[:, None], np.random.default_rng(0).normal(size=(T, M)), 0)
        with x64(dtype == np.float64):
            got = gradient(cotangent.astype(dtype), *arrays)
        want = reference.gradients(
            *wide[:3], cotangent, forget=wide[3], weight=wide[4], ridge=wide[5]
        )
        names = ("keys", "values", "queries", "forget", "weight", "ridge")
        for name, have in zip(names, got, strict=True):
            expected = want[name].sum(0) if have.ndim == 1 < want[name].ndim else want[name]
            have = np.asarray(have, np.float64)
            assert np.isfinite(have).all(), name
            size = np.abs(expected).max()
            assert np.abs(have - expected).max() <= 1e5 * np.finfo(dtype).eps * size, name

    check()


@pytest.mark.full
def test_a_huge_key_leaves_the_tokens_before_it_alone():
    keys = np.array([[1, 0], [0, 1e4], [0, 1e4]], np.float32)
    for solve, rule in product((online_lstsq, olsq.online_lstsq), (keys, jnp.asarray(keys))):
        value = solve(rule, np.ones((3, 1), np.float32), rule, ridge=1.0).value
        np.testing.assert_allclose(np.ravel(value), [0.5, 1, 1], rtol=1e-6)


@pytest.mark.full
def test_one_token_for_ever_at_a_tiny_ridge():
    rng = np.random.default_rng(0)
    keys = unit(rng.normal(size=(64, 16))).astype(np.float32)
    keys[40:] = keys[40]
    values = rng.normal(size=(64, 2)).astype(np.float32)
    value = online_lstsq(keys, values, keys, ridge=1e-6).value
    want = reference.solve(keys, values, keys, ridge=1e-6).value
    assert np.abs(value - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.slow
def test_the_attention_rules_too():
    rng = np.random.default_rng(1)
    keys = unit(rng.normal(size=(1, 40, 1, 8)))
    keys[:, 30] *= 1e5
    q, k, v = (
        jnp.asarray(x, jnp.float32) for x in (keys[:, ::-1], keys, rng.normal(size=keys.shape))
    )
    want = reference.solve(k[0, :, 0], v[0, :, 0], q[0, :, 0], ridge=1.0).value
    rules = olsq.attention
    whole = partial(rules.mesa_window, window=40)
    for rule in (rules.mesa, rules.mesa_discounted, whole):
        o = rule(q, k, v, ridge=1.0)[0][0, :, 0]
        assert np.isfinite(o).all()
        np.testing.assert_allclose(o[:30], want[:30], rtol=1e-4, atol=1e-5)
