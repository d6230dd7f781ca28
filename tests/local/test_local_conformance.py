"""Every kind of problem, in NumPy and in JAX, against a dense float64 regression per query."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from local_cases import ROWS, T

import olsq
from olsq.local.jax import solve as in_jax
from olsq.reference import local as oracle

pytestmark = pytest.mark.usefixtures("small_blocks", "one_target")
SOLVES = {"numpy": olsq.local_lstsq, "jax": in_jax.local_lstsq}
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
backends = pytest.mark.parametrize("backend", SOLVES)


def run(backend, row, made, segments, **more):
    """A solution with NumPy arrays."""
    given = dict(made)
    arrays = [given.pop(name) for name in ("keys", "values", "queries")]
    found = SOLVES[backend](*arrays, segment_ids=segments, **row.options(), **given, **more)
    return jax.tree.map(np.asarray, found)


def dense(row, made, segments):
    """Outputs (B, T, m) of the oracle."""
    out = []
    for b in range(len(made["keys"])):
        one = {name: np.asarray(x[b], np.float64) for name, x in made.items()}
        arrays = [one.pop(name) for name in ("keys", "values", "queries")]
        if one["scale"].shape == (1,):
            one["scale"] = one["scale"][0]
        out.append(oracle.solve(*arrays, segment_ids=segments, **row.options(), **one)[0])
    return np.stack(out)


def tolerance(made, eps):
    """Bound the rounding error, (B, 1), by the condition number of the systems."""
    key = (made["keys"] ** 2).sum(-1).max(-1, keepdims=True)
    ridge = made["ridge"].min(-1, keepdims=True)
    exponent = np.abs(made["scale"]).max(-1, keepdims=True) * key
    value = np.abs(made["values"]).max((-2, -1), keepdims=True)[..., 0]
    return 100 * eps * (1 + exponent) * (1 + key / ridge) * value


@pytest.mark.full
@rows
@backends
def test_outputs_are_those_of_dense_regressions_and_within_their_bound(row, backend):
    made, segments = row.problem()
    found, wanted = run(backend, row, made, segments), dense(row, made, segments)
    assert (np.isnan(found.value) == np.isnan(wanted)).all()
    error = np.nan_to_num(np.linalg.norm(found.value - wanted, axis=-1))
    assert (error <= tolerance(made, 2.2e-16)).all()
    stats = found.stats
    assert (error <= stats.value_bound).all()
    assert (stats.bound[~np.isnan(wanted[..., 0])] < 1e-3).all()
    assert np.isinf(stats.value_bound[np.isnan(wanted[..., 0])]).all()


@pytest.mark.slow
@pytest.mark.parametrize("tol", [0.3, 1e-3])
@backends
def test_the_bounds_cover_a_solve_that_stops_early(backend, tol):
    row = ROWS[0]
    made, segments = row.problem(hard=False)
    found, wanted = run(backend, row, made, segments, tol=tol), dense(row, made, segments)
    error = np.linalg.norm(found.value - wanted, axis=-1)
    assert (error <= found.stats.value_bound).all()
    assert (found.stats.residual <= tol).all()
    assert error.max() > 1e-8
    exact = run(backend, row, made, segments)
    assert found.stats.steps.sum() < exact.stats.steps.sum()


@backends
def test_no_steps_are_softmax_attention(backend):
    row = ROWS[0]
    made, segments = row.problem(hard=False)
    found = run(backend, row, made, segments, max_steps=0)
    made["ridge"] = np.full_like(made["ridge"], 1e15)
    np.testing.assert_allclose(found.value, dense(row, made, segments), atol=1e-12)
    assert (found.stats.steps == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@backends
def test_low_precision(backend, dtype):
    row = ROWS[3]
    made, segments = row.problem()
    made = {name: np.asarray(jnp.asarray(x, dtype)) for name, x in made.items()}
    found = run(backend, row, made, segments)
    assert found.value.dtype == made["keys"].dtype
    assert found.stats.bound.dtype == np.float32
    wide = {name: x.astype(np.float64) for name, x in made.items()}
    wanted = dense(row, wide, segments)
    assert (np.isnan(found.value) == np.isnan(wanted)).all()
    value = np.nan_to_num(found.value.astype(np.float64))
    error = np.linalg.norm(value - np.nan_to_num(wanted), axis=-1)
    last = 1.2e-7 if dtype == "float32" else 2**-7
    assert (error <= tolerance(wide, 1.2e-7) + last * np.linalg.norm(value, axis=-1)).all()
    assert (error <= found.stats.value_bound).all()


@pytest.mark.full
@rows
@backends
def test_a_lost_sample_reaches_the_outputs_that_see_it_only(row, backend):
    made, segments = row.problem(hard=False)
    clean = run(backend, row, made, segments).value
    bad_keys, bad_queries = [11, 24], [7, 20]
    made["keys"][0, 11, 1] = np.nan
    made["values"][1, 24, 0] = np.inf
    made["keys"][2, 24] = 1e200  # too large to square
    made["queries"][0, 7] = -np.inf
    made["ridge"][1, 20] = np.nan
    found = run(backend, row, made, segments).value
    lost = np.zeros(found.shape[:2], bool)
    for b, i in ((0, bad_keys[0]), (1, bad_keys[1]), (2, bad_keys[1])):
        for t in range(found.shape[1]):
            sees = not row.causal or (i <= t and (row.window is None or t - i < row.window))
            lost[b, t] |= sees and (segments is None or segments[i] == segments[t])
    lost[0, bad_queries[0]] = lost[1, bad_queries[1]] = True
    assert (np.isnan(found) == lost[..., None]).all()
    np.testing.assert_allclose(found[~lost], clean[~lost], atol=1e-11)


@backends
def test_a_key_of_weight_0_is_left_out_even_if_it_is_not_finite(backend):
    row = ROWS[4]
    made, segments = row.problem(hard=False)
    made["log_weight"][:, 5] = -np.inf
    found = run(backend, row, made, segments).value
    made["keys"][:, 5] = np.nan
    np.testing.assert_array_equal(run(backend, row, made, segments).value, found)
    made["log_weight"][0, 5] = np.nan
    assert np.isnan(run(backend, row, made, segments).value[0]).all()


@pytest.mark.full
@pytest.mark.parametrize("row", [r for r in ROWS if r.causal], ids=lambda row: row.name)
@backends
def test_the_future_changes_nothing(row, backend):
    made, segments = row.problem(hard=False)
    before = run(backend, row, made, segments).value
    for x in made.values():
        if x.shape[1] == T:
            x[:, 21:] = np.random.default_rng(9).permuted(x[:, 21:], axis=1)
    after = run(backend, row, made, segments).value
    np.testing.assert_allclose(after[:, :21], before[:, :21], rtol=0, atol=1e-12)
    assert not np.allclose(after[:, 21:], before[:, 21:])


@pytest.mark.full
@rows
@backends
def test_units_change_nothing(row, backend):
    made, segments = row.problem(hard=False)
    plain = run(backend, row, made, segments)
    unit = 2.0**40
    made |= {"keys": made["keys"] * unit, "queries": made["queries"] * unit}
    made |= {"ridge": made["ridge"] * unit**2, "scale": made["scale"] / unit**2}
    made["values"] = made["values"] * 2.0**-30
    found = run(backend, row, made, segments)
    np.testing.assert_allclose(found.value * 2.0**30, plain.value, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.stats.steps, plain.stats.steps)
