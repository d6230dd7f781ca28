"""Finite tokens whose products overflow, and rules that diverge: nothing before them notices.

Every rule of the table, in float32: outputs and gradients of the tokens before, in the middle of a
chunk and at its boundary.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, arrays_of, begin, call, exact, quick, timed
from attention_draws import B, H, T
from scipy.linalg import solve_triangular

import olsq
from olsq import attention
from olsq.attention.recurrences.delta import solve_errors
from tests.tiers import leading

pytestmark = pytest.mark.usefixtures("one_target")

each_rule = leading([row for row in ROWS if row.causal])
CUTS = 64, 69, 127  # the first token of a chunk, one inside, one of the last chunk
SIZES = 1e10, 1e15, 1e20, 1e30, 3e38
GROWTHS = 30.0, 1e3, 1e6
# arguments with a range, whose numbers cannot be large
RANGED = {"forget", "log_forget", "trapezoid", "mix", "removal_rate", "input_gate"}
RANGED |= {"recurrence_gate", "feedback", "curvature_forget", "erase", "momentum"}


@cache
def program(row):
    """Outputs and gradients of one compiled function, its arrays and its cotangents."""
    arrays = {n: a.astype(np.float32) for n, a in arrays_of(row)[0].items()}

    def both(arrays, cotangent):
        o, pull = jax.vjp(lambda arrays: call(row, arrays)[0], arrays)
        return o, pull(cotangent)[0]

    shape = jax.eval_shape(lambda arrays: call(row, arrays)[0], arrays).shape
    return quick(both), arrays, np.random.default_rng(1).normal(size=shape).astype(np.float32)


def enlarged(x, size):
    x = np.where(x == 0, 1, x)
    return (x / np.abs(x).max() * size).astype(np.float32)


def spoilt(row, arrays, cut):
    """Arrays that are the same before the token ``cut``, with what was done to them."""
    names = [n for n in timed(row, arrays) if n not in RANGED]
    for size in SIZES:
        for n in names:
            a = arrays[n].copy()
            a[:, cut] = size if n == "log_weight" else enlarged(a[:, cut], size)
            yield f"{n} of {size:g}", {**arrays, n: a}
        whole = {n: arrays[n].copy() for n in row.arrays}
        for a in whole.values():
            a[:, cut] = enlarged(a[:, cut], size)
        yield f"all of {size:g}", {**arrays, **whole}
    for growth in GROWTHS:
        for n in names:
            a = arrays[n].copy()
            a[:, cut:] = np.where(np.isfinite(a[:, cut:]), a[:, cut:] * growth, a[:, cut:])
            yield f"{n} times {growth:g} from there on", {**arrays, n: a}


@pytest.mark.slow
@each_rule
@pytest.mark.parametrize("cut", CUTS)
def test_what_overflows_later_reaches_neither_outputs_nor_gradients(row, cut):
    run, arrays, cotangent = program(row)
    cotangent = cotangent.copy()
    cotangent[:, cut:] = 0
    o, slopes = run(arrays, cotangent)
    for what, changed in spoilt(row, arrays, cut):
        got, got_slopes = run(changed, cotangent)
        near(got[:, :cut], o[:, :cut], what)
        for n, slope in slopes.items():
            near(got_slopes[n], slope, f"{what}: gradient of {n}")


def near(got, want, what, tolerance=1e-4):
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert np.isfinite(got).all(), what
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max(), what


DIVERGING = (
    "delta", "gated_delta", "gated_delta_product", "kda", "comba", "preconditioned_delta",
    "momentum_delta",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.name in DIVERGING], ids=str)
def test_a_rule_that_diverges_is_right_until_it_overflows(row):
    """With keys 4 times as long every memory grows; float32 has room for dozens of tokens."""
    arrays = {n: a.copy() for n, a in arrays_of(row)[0].items()}
    arrays["k"] *= 4
    for n in ("forget", "weight"):
        if n in arrays:
            arrays[n] = np.ones_like(arrays[n])
    single = {n: a.astype(np.float32) for n, a in arrays.items()}
    o, state = quick(lambda arrays: call(row, arrays))(single)
    ends = 0
    for b in range(B):
        for h in range(H):
            with np.errstate(all="ignore"):
                want = exact(row, {n: a.astype(float) for n, a in single.items()}, b, h)[0]
            size = np.maximum.accumulate(np.abs(want).max(-1))
            size = np.where(np.isfinite(size), size, np.inf)
            got = np.asarray(o[b, :, h], float)
            early = size < 1e12
            assert np.isfinite(got[early]).all()
            off = np.abs(got - want)[early].max(-1)
            assert (off <= 1e-3 * size[early]).all()
            lost = np.isnan(got).any(-1)
            assert lost[np.argmax(lost) :].all() or not lost.any()  # once lost, for good
            ends += lost[-1]
            assert bool(lost[-1]) == bool(np.isnan(state.matrix[b, h]).any())
    assert ends > 0


LARGE = {"matrix", "cross", "keys", "values", "hidden", "velocity"}  # fields that may be 3e38


@pytest.mark.slow
@leading([row for row in ROWS if row.causal and LARGE & set(getattr(row.state, "_fields", ()))])
def test_a_segment_forgets_a_state_that_is_near_the_largest_number(row):
    """A read of the state overflows, and is multiplied by the 0 of the segment's start."""
    arrays, prior = arrays_of(row, 24)
    arrays = {n: a.astype(np.float32) for n, a in arrays.items()}
    state = begin(row, prior, np.float32)
    large = state._replace(**{
        n: np.copysign(np.float32(3e38), x)
        for n, x in state._asdict().items() if n in LARGE
    })  # fmt: skip
    ids = np.repeat([[0] * 10 + [1] * 14], B, 0)
    run = quick(lambda arrays, state: call(row, arrays, state, ids)[0])
    want, got = (np.asarray(run(arrays, s))[:, 10:] for s in (state, large))
    near(got, want, row.name)


@pytest.mark.full
def test_a_gate_of_0_ends_a_divergence():
    row = next(row for row in ROWS if row.name == "gated_delta")
    arrays = {n: a.astype(np.float32) for n, a in arrays_of(row)[0].items()}
    arrays["forget"] = np.ones_like(arrays["forget"])
    for reset in (64, 100):
        grown = {n: a.copy() for n, a in arrays.items()}
        grown["k"][:, : reset - 1] *= 100
        grown["forget"][:, reset] = 0
        run = quick(lambda arrays: call(row, arrays)[0])
        alone = {n: a[:, reset:] for n, a in grown.items()}
        o = run(grown)
        assert np.isnan(np.asarray(o)[[0, 1, 3], reset - 1]).all()
        near(o[:, reset:], run(alone), "after the reset", 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("columns", [1, 3])
def test_errors_are_solved_row_by_row_where_they_overflow(columns):
    rng = np.random.default_rng(0)
    below = np.tril(0.3 * rng.normal(size=(2, 24, 24)), -1).astype(np.float32)
    right = rng.normal(size=(2, 24, columns)).astype(np.float32)
    below[1, 12:] *= 1e6  # which grow by as much from row to row
    below[1, 20:, :20] = 0  # a reset
    u, overflown = jax.jit(solve_errors)(below, right)
    want = [
        solve_triangular(a, b, lower=True, unit_diagonal=True)
        for a, b in zip(below.astype(float), right.astype(float), strict=True)
    ]
    near(u[0], want[0], "nothing overflows", 1e-4)
    first = int(np.argmax(overflown[1]))
    assert not overflown[0].any()
    assert 12 < first < 20
    near(u[1, :12], want[1][:12], "before", 1e-4)
    assert np.isfinite(u).all()
    near(u[1, 20], right[1, 20], "after the reset", 1e-6)


def test_forward_derivatives_before_a_divergence():
    row = next(row for row in ROWS if row.name == "gated_delta")
    arrays = {n: a.astype(np.float32) for n, a in arrays_of(row)[0].items()}
    rng = np.random.default_rng(2)
    directions = {n: rng.normal(size=a.shape).astype(np.float32) for n, a in arrays.items()}
    push = quick(lambda a, d: jax.jvp(lambda a: call(row, a)[0], (a,), (d,))[1])
    want = push(arrays, directions)
    k = arrays["k"].copy()
    k[:, 69:] *= 1e3
    got = push({**arrays, "k": k}, directions)
    near(got[:, :69], want[:, :69], "tangents")


@pytest.mark.full
def test_under_vmap_one_stream_that_diverges_is_alone():
    row = next(row for row in ROWS if row.name == "gated_delta")
    arrays = {n: a.astype(np.float32) for n, a in arrays_of(row)[0].items()}
    grown = {**arrays, "k": arrays["k"] * 1e3}
    both = jax.tree.map(lambda *x: np.stack(x), arrays, grown)
    o = quick(jax.vmap(lambda arrays: call(row, arrays)[0]))(both)
    near(o[0], quick(lambda arrays: call(row, arrays)[0])(arrays), "the other", 1e-5)
    assert np.isnan(o[1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e10, 1e12])
def test_the_norms_of_kalman_do_not_overflow(size):
    """As in float64, also after a key whose fourth power float32 does not hold."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 1, 40, 1, 4))
    k[:, 20] *= size
    gates, ratio = rng.uniform(0.8, 1, (1, 40, 1)), 0.1
    single = [x.astype(np.float32) for x in (q, k, v, gates)]
    for name, g in (("forget", single[3]), ("log_forget", np.log(single[3]))):
        o, _ = attention.kalman(*single[:3], **{name: g}, ratio=ratio, solver=olsq.Dense())
        row = next(row for row in ROWS if row.name == "kalman")
        row = replace(row, options={"ratio": ratio})
        want = row.oracle(*(x[0, :, 0].astype(float) for x in single[:3]),
                          forget=single[3][0, :, 0].astype(float), ratio=ratio)[0]  # fmt: skip
        near(o[0, :20, 0], want[:20], "before", 1e-4)
        near(o[0, 20:, 0] * size, want[20:] * size, "after", 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.parametrize("size", [1e10, 1e15, 1e20, 1e30, 3e38])
def test_sequences_and_local_regressions_before_what_overflows(numpy, size):
    as_array = np.asarray if numpy else jnp.asarray
    rng = np.random.default_rng(0)
    k, q = rng.normal(size=(2, 130, 3)).astype(np.float32)
    v = rng.normal(size=(130, 2)).astype(np.float32)
    for solve in (
        lambda k, v, q: olsq.online_lstsq(k, v, q, ridge=0.5, forget=0.9).value,
        lambda k, v, q: olsq.local_lstsq(k, v, q, ridge=0.5).value,
        lambda k, v, q: olsq.local_lstsq(k, v, q, ridge=0.5, window=20).value,
    ):
        clean = solve(*map(as_array, (k, v, q)))
        for which in ([0], [1], [2], [0, 1, 2]):
            arrays = [x.copy() for x in (k, v, q)]
            for i in which:
                arrays[i][69] = enlarged(arrays[i][69], size)
            with np.errstate(all="ignore"):
                got = solve(*map(as_array, arrays))
            near(got[:69], clean[:69], f"{which}")


assert max(CUTS) < T
