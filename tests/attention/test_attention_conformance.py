"""Every attention rule against its oracle, token by token: one table, see attention_cases."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import (
    ROWS,
    arrays_of,
    begin,
    call,
    compared,
    error,
    exact,
    quick,
    timed,
    window,
)
from attention_draws import KINDS, LOST, RESET, B, H, T, V

from tests.tiers import RECURRENCES, leading, once_a_rule

pytestmark = pytest.mark.usefixtures("one_target")

each_rule = once_a_rule(ROWS)
# A quick run has short streams of every rule in test_attention_derivatives.
each_recurrence = leading(ROWS, RECURRENCES, others=pytest.mark.full)
HALF = 64
# First tokens of segments: in the first chunk, a token alone, at and after the chunk's edge.
STARTS = (0, 7, 30, 31, 64, 66, 101)


@cache
def compiled(row, step=False):
    """One jitted rule a row; tests that ask for the same shapes share its compilations."""
    return quick(lambda arrays, state=None, ids=None: call(row, arrays, state, ids, step=step))


@cache
def whole(row):
    """Arrays, what came before, the state it left, and float64 outputs and end of all tokens."""
    arrays, prior = arrays_of(row)
    state = begin(row, prior)
    return arrays, prior, state, compiled(row)(arrays, state)


def check(row, arrays, prior, got, tol, where=""):
    """Outputs and final state of every stream, against the oracle."""
    o, state = got
    fields = compared(row, state)
    for b, kind in enumerate(KINDS):
        for h in range(H):
            want, end = exact(row, arrays, b, h, prior=prior)
            assert error(o[b, :, h], want) < tol, (kind, h, where)
            for i, mine in enumerate(fields):
                assert error(mine[b, h], end[i]) < tol, (kind, h, where, i)


def cast(row, arrays, dtype):
    return {n: a.astype(dtype) for n, a in arrays.items()}


def changed(arrays, **changes):
    return {**arrays, **changes}


@each_recurrence
def test_float64_is_the_oracle(row):
    arrays, prior, _, got = whole(row)
    assert got[0].dtype == np.float64
    check(row, arrays, prior, got, 1e-11)


@pytest.mark.slow
@each_rule
def test_float32_is_the_oracle(row):
    arrays = cast(row, arrays_of(row)[0], np.float32)
    o, state = compiled(row)(arrays)
    assert np.float64 not in {x.dtype for x in jax.tree.leaves((o, state))}
    # Rounding the inputs of this learner once more moves the oracle's outputs by up to 2e-5.
    check(row, arrays, None, (o, state), 1e-4 if row.rule == "ttt_mlp" else 1e-5)


@each_rule
def test_no_stream_and_no_head(row):
    arrays, _ = arrays_of(row)
    names = timed(row, arrays)
    for axis in (0, 2):  # of streams, of heads
        none = {
            n: a.take([], axis) if n in names else a.take([], 0) if axis == 2 else a
            for n, a in arrays.items()
        }
        o, _ = jax.eval_shape(lambda given: call(row, given), none)
        assert o.shape[:3] == tuple(0 if i == axis else n for i, n in enumerate((B, T, H)))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, pytest.param(7, marks=pytest.mark.slow), 64])
@leading(ROWS)
def test_any_length(row, length):
    arrays, prior, state, _ = whole(row)
    first = window(row, arrays, length)
    check(row, first, prior, compiled(row)(first, state), 1e-11, length)


@pytest.mark.slow
@leading(ROWS)
def test_eight_tokens_under_vmap(row):
    arrays, prior, state, _ = whole(row)
    first = window(row, arrays, 8)
    two = jax.tree.map(lambda x: np.stack([x, np.flip(x, 0)]), (first, state))
    names = timed(row, arrays)
    axes = {n: 0 if n in names else None for n in arrays}
    both = {n: two[0][n] if n in names else arrays[n] for n in arrays}
    got = quick(jax.vmap(lambda a, s: call(row, a, s), in_axes=(axes, 0)))(both, two[1])
    check(row, first, prior, jax.tree.map(lambda x: np.array(x[0]), got), 1e-11)
    check(row, first, prior, jax.tree.map(lambda x: np.flip(x[1], 0), got), 1e-11)


@pytest.mark.slow
@each_rule
def test_one_token_at_a_time(row):
    arrays, prior, state, _ = whole(row)
    if not row.causal:
        return
    names, outputs = timed(row, arrays), []
    for t in range(12):
        one = {n: a[:, t] if n in names else a for n, a in arrays.items()}
        o, state = compiled(row, step=True)(one, state)
        outputs.append(o)
    check(row, window(row, arrays, 12), prior, (np.stack(outputs, 1), state), 1e-11)


@pytest.mark.slow
@each_rule
def test_value_heads_share_a_query_and_a_key(row):
    """Fewer heads of queries and keys than of values are these heads repeated."""
    arrays, _ = arrays_of(row, 12)
    shared = {n: arrays[n][:, :, :1] for n in row.arrays if n in "qk"}
    repeated = changed(arrays, **{n: np.repeat(x, H, 2) for n, x in shared.items()})
    o, state = compiled(row)(changed(arrays, **shared))
    check(row, repeated, None, (o, state), 1e-11)
    if row.causal:
        one = {n: a[:, 0] if n in timed(row, arrays) else a
               for n, a in changed(arrays, **shared).items()}  # fmt: skip
        o, state = compiled(row, step=True)(one)
        check(row, window(row, repeated, 1), None, (o[:, None], state), 1e-11)


@pytest.mark.slow
@each_rule
def test_it_goes_on_from_its_state(row):
    arrays, prior, state, (o, _) = whole(row)
    if row.causal:
        head = compiled(row)(window(row, arrays, HALF), state)
        tail = compiled(row)(window(row, arrays, HALF, HALF + 7), head[1])
        joined = np.concatenate([head[0], tail[0]], 1)
        assert error(joined, o[:, : HALF + 7]) < 1e-11
        check(row, window(row, arrays, HALF + 7), prior, (joined, tail[1]), 1e-11)


def segments():
    ids = np.zeros((B, T), np.int32)
    for start in STARTS[1:]:
        ids[:, start:] += 1 + start % 3
    return ids


@pytest.mark.slow
@each_rule
def test_segments_are_sequences_of_their_own(row):
    arrays, prior, state, _ = whole(row)
    o, end = compiled(row)(arrays, state, segments())
    for i, start in enumerate(STARTS):
        stop = (*STARTS[1:], T)[i]
        piece = window(row, arrays, start, stop)
        before = None if i else prior
        last = end if stop == T else None
        for b, kind in enumerate(KINDS):
            for h in range(H):
                want, state = exact(row, piece, b, h, prior=before)
                assert error(o[b, start:stop, h], want) < 1e-11, (kind, start)
                for j, x in enumerate(compared(row, last) if last else ()):
                    assert error(x[b, h], state[j]) < 1e-11, (kind, j)


@pytest.mark.slow
@each_rule
def test_the_first_token_of_a_call_may_begin_a_segment(row):
    arrays, _, state, _ = whole(row)
    first = window(row, arrays, 12)
    ids = np.repeat([[0] + [1] * 12], B, 0)  # that of the token before, then of the tokens
    o, end = compiled(row)(first, state, ids)
    want, alone = compiled(row)(first)
    assert error(o, want) < 1e-11
    for a, b in zip(compared(row, end), compared(row, alone), strict=True):
        assert error(a, b) < 1e-11
    assert error(compiled(row)(first, state, ids[:, 1:])[0], want) > 1e-6  # goes on with the state


@pytest.mark.full
@leading(ROWS, RECURRENCES)
def test_a_lost_sample_spoils_nothing_before_it_and_nothing_in_the_next_segment(row):
    arrays, _, state, (clean, clean_end) = whole(row)
    cut = 42  # inside the segment from 31 to 63, and not a token that is left out
    spoilt = {n: a.copy() for n, a in arrays.items()}
    for n in row.samples:
        spoilt[n][:, cut : cut + 3] = np.nan
    o, _ = compiled(row)(spoilt, state)
    if row.causal:
        assert error(o[:, :cut], clean[:, :cut]) < 1e-11
        assert np.isnan(o[:, cut]).all()
    clean, clean_end = compiled(row)(arrays, state, segments())
    o, end = compiled(row)(spoilt, state, segments())
    assert np.isnan(o[:, cut]).all()
    for keep in (slice(0, 31), slice(64, T)):
        assert error(o[:, keep], clean[:, keep]) < 1e-11
    for a, b in zip(compared(row, end), compared(row, clean_end), strict=True):
        assert error(a, b) < 1e-11


@each_recurrence
def test_what_is_not_finite(row):
    arrays, _, state, (clean, clean_end) = whole(row)
    spoilt = {n: a.copy() for n, a in arrays.items()}
    absent = np.zeros((T, H), bool)
    if row.weight:
        nothing = arrays[row.weight][2] == (-np.inf if "log" in row.weight else 0)
        absent = nothing.reshape(T, H, -1).all(-1)
        assert absent.any()
    for n in row.samples:
        spoilt[n][0, 70, 0] = np.nan  # for ever, in one head
        spoilt[n][1, LOST] = np.inf  # until a gate of 0
        spoilt[n][2][absent] = np.nan
    if "q" in row.arrays:
        spoilt["q"][3, 10] = np.nan
    o, end = compiled(row)(spoilt, state)
    lost = np.zeros((B, T, H), bool)
    lost[0, 70 if row.causal else 0 : 70 + row.window, 0] = True
    last = min(LOST + row.window, RESET + row.late if row.forget and row.resets else T)
    lost[1, LOST if row.causal else 0 : last] = True
    if "q" in row.arrays:
        lost[3, 10] = True
    np.testing.assert_array_equal(np.isnan(o), np.broadcast_to(lost[..., None], o.shape))
    assert error(np.where(np.isnan(o), 0, o), np.where(np.isnan(o), 0, clean)) < 1e-11
    for a, b in zip(compared(row, end), compared(row, clean_end), strict=True):
        gone = np.zeros(a.shape, bool)
        gone[0, 0], gone[1] = True, not (row.forget and row.resets)
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_array_equal(np.isnan(a), gone)
        assert error(np.where(gone, 0, a), np.where(gone, 0, b)) < 1e-11


@pytest.mark.full
@leading(ROWS, RECURRENCES)
def test_a_gate_that_is_nan_loses_what_follows(row):
    if row.forget is None:
        return
    arrays, _, state, (clean, _) = whole(row)
    gate = arrays[row.forget].copy()
    gate[:, 50, 0] = np.nan
    o, end = compiled(row)(changed(arrays, **{row.forget: gate}), state)
    at = 50 + row.late
    assert error(o[:, :at], clean[:, :at]) < 1e-11
    assert error(o[:, :, 1], clean[:, :, 1]) < 1e-11
    assert np.isnan(o[[0, 2, 3], at : at + row.window, 0]).all()
    ends = [x for x in compared(row, end) if np.issubdtype(x.dtype, np.floating)]
    assert all(np.isnan(x[0, 0]).all() for x in ends)


@pytest.mark.slow
@leading(ROWS)
def test_bfloat16_is_worked_on_in_float32(row):
    arrays = cast(row, window(row, arrays_of(row)[0], 7), np.float32)
    half = {n: jnp.asarray(a, jnp.bfloat16) if n in row.arrays else a for n, a in arrays.items()}
    rounded = {n: np.asarray(a, np.float32) for n, a in half.items()}
    o, state = compiled(row)(half)
    assert o.dtype == jnp.bfloat16
    fields = compared(row, state)
    for b in range(B):
        for h in range(H):
            want, end = exact(row, rounded, b, h)
            # Rounding moves an entry by at most half of the last of its 8 bits.
            far = np.abs(np.asarray(o[b, :, h], float) - want) - 0.5 * 2**-7 * np.abs(want)
            assert far.max() <= 1e-5 * np.abs(want).max()
            for i, mine in enumerate(fields):
                assert error(mine[b, h], end[i]) < 1e-5, i


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32, jnp.float64])
@each_rule
def test_a_state_may_be_stored_in_any_precision(row, dtype):
    arrays, _, state, _ = whole(row)
    first = cast(row, window(row, arrays, 8), np.float32)

    def stored(kind):
        floating = jnp.floating
        return jax.tree.map(
            lambda x: jnp.asarray(x, kind) if jnp.issubdtype(x.dtype, floating) else x, state
        )

    half = stored(dtype)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype == dtype else x, half)
    o, _ = compiled(row)(first, half)
    assert error(o, compiled(row)(first, wide)[0]) < 1e-5


@pytest.mark.full
@leading(ROWS, RECURRENCES)
def test_no_tokens(row):
    arrays, _, state, _ = whole(row)
    o, end = compiled(row)(window(row, arrays, 0), state)
    assert o.shape[:3] == (B, 0, H)
    for a, b in zip(jax.tree.leaves(end), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_table_is_wide():
    assert arrays_of(ROWS[0])[0]["k"].shape[-1] != V
    assert T % 64 != 0
