"""Derivatives of every rule, backwards and forwards, against differences of its oracle."""

from __future__ import annotations

from functools import cache

import jax
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
from attention_draws import KINDS, B, H

from tests.tiers import leading, once_a_rule

each_rule = once_a_rule(ROWS)
FIRST = {row.rule: row for row in reversed(ROWS)}
FIRST |= {str(row): row for row in ROWS if str(row) == "gla signed"}  # an option of several rules
T = 9
CONSTANT = ("maximum", "position")  # fields that carry no gradient


def setting(row):
    """Arrays by name, and what came before: the fields of a state, or arrays for a store."""
    arrays, prior = arrays_of(row, T, seed=1)
    if row.fresh:
        return arrays, {}
    if row.state is None:
        return arrays, {n: prior[n] for n in timed(row, prior)}
    return arrays, begin(row, prior)._asdict()


def forward(row, arrays, before):
    """Outputs and compared state as a list."""
    state = None
    if before and row.state is None:
        state = call(row, {**arrays, **before})[1]
    elif before:
        state = row.state(**before)
    o, end = call(row, arrays, state)
    return [o, *compared(row, end)]


@cache
def derivatives(row):
    """Jitted gradient and directional derivative in everything but ``fixed``."""

    def both(arrays, moving, fixed, up, directions):
        def f(arrays, moving):
            return forward(row, arrays, {**moving, **fixed})

        _, pull = jax.vjp(f, arrays, moving)
        _, push = jax.jvp(f, (arrays, moving), directions)
        return pull(up), push

    return quick(both)


def upstream(row, arrays, before, rng):
    shapes = jax.eval_shape(lambda a, b: forward(row, a, b), arrays, before)
    up = [rng.normal(size=x.shape) for x in shapes]
    for i, x in enumerate(shapes):
        if not np.issubdtype(x.dtype, np.floating):
            up[i] = np.zeros(x.shape, jax.dtypes.float0)
    for x in up:
        if x.dtype != jax.dtypes.float0:
            x[[b for b in range(B) if b not in row.smooth]] = 0
    return up


def run(row, arrays, before, up, seed=3):
    """Gradients and directional derivatives, and the directions."""
    rng = np.random.default_rng(seed)
    moving = {n: x for n, x in before.items() if n not in CONSTANT}
    fixed = {n: x for n, x in before.items() if n in CONSTANT}
    directions = [
        {n: np.where(np.isinf(x), 0, rng.normal(size=x.shape)) for n, x in part.items()}
        for part in (arrays, moving)
    ]
    got = derivatives(row)(arrays, moving, fixed, up, tuple(directions))
    return (*got, directions)


def scalar(row, arrays, before, up, b, h):
    """Compute the scalar that is differentiated, of one stream by its oracle."""
    prior = {**arrays, **before} if before and row.state is None else None
    state = tuple(x[b, h] for x in before.values()) if before and prior is None else None
    o, end = exact(row, arrays, b, h, state=state, prior=prior)
    total = (o * up[0][b, :, h]).sum()
    for x, y in zip(up[1:], end, strict=False):
        total += (x[b, h] * y).sum() if x.dtype != jax.dtypes.float0 else 0
    return total


def differences(row, arrays, before, up):
    """Central differences of the oracle in every entry of what it is given."""
    names = timed(row, arrays)
    found = {}
    for which, part in (("arrays", arrays), ("before", before)):
        for n, x in part.items():
            if n in CONSTANT:
                continue
            out = np.zeros(x.shape)
            per_stream = n in names or which == "before"
            for at in np.ndindex(x.shape):
                if np.isinf(x[at]):
                    continue
                if not per_stream:
                    streams = [(b, at[0]) for b in row.smooth]
                else:
                    head = at[2] if n in names else at[1]
                    streams = [(at[0], head)] if at[0] in row.smooth else []
                h = 3e-6 * (abs(x[at]) + 0.1)
                for sign in (1, -1) if streams else ():
                    moved = x.copy()
                    moved[at] += sign * h
                    changed = [arrays, before]
                    changed[which == "before"] = {**part, n: moved}
                    for b, head in streams:
                        out[at] += sign * scalar(row, *changed, up, b, head) / (2 * h)
            found[which, n] = out
    return found


@leading(ROWS, {"linear", "gated_delta"})
@pytest.mark.full
def test_derivatives_are_those_of_the_oracle(row):
    arrays, before = setting(row)
    up = upstream(row, arrays, before, np.random.default_rng(2))
    (grads, grads_before), push, directions = run(row, arrays, before, up)
    want = differences(row, arrays, before, up)
    largest = max(np.abs(x).max() for x in want.values())
    ahead = sum((a * b).sum() for a, b in zip(up, push, strict=True) if a.dtype == float)
    behind = size = 0.0
    for (which, n), w in want.items():
        got = np.asarray((grads if which == "arrays" else grads_before)[n])
        direction = directions[which == "before"][n]
        assert np.isfinite(got).all(), n
        assert got.shape == w.shape
        if n in timed(row, arrays) or which == "before":
            for b in row.smooth:
                near = max(np.abs(w[b]).max(), 1e-3 * largest)
                assert np.abs(got[b] - w[b]).max() < 1e-6 * near, (which, n, KINDS[b])
        else:
            assert np.abs(got - w).max() < 1e-6 * max(np.abs(w).max(), 1e-3 * largest), n
        behind += (w * direction).sum()
        size += np.abs(w * direction).sum()
    assert abs(ahead - behind) < 1e-6 * size


@pytest.mark.slow
@each_rule
def test_gradients_know_nothing_of_a_future_that_is_not_finite(row):
    if not row.causal:
        return
    cut = 5
    arrays, before = setting(row)
    up = upstream(row, arrays, before, np.random.default_rng(2))
    up[0][:, cut:] = 0
    for x in up[1:]:
        if x.dtype == float:
            x[:] = 0
    spoilt = {n: x.copy() for n, x in arrays.items()}
    for n in timed(row, arrays):
        spoilt[n][:, cut:] = np.nan
    clean = run(row, arrays, before, up)[0]
    got = run(row, spoilt, before, up)[0]
    names = timed(row, arrays)
    for part, wanted in zip(got, clean, strict=True):
        for n, x in part.items():
            y = np.asarray(wanted[n])
            x, y = (z[:, :cut] if n in names and part is got[0] else z for z in (x, y))
            assert np.abs(x - y).max() <= 1e-9 * max(np.abs(y).max(), 1e-300), n


@pytest.mark.usefixtures("one_target")
@pytest.mark.parametrize("row", FIRST.values(), ids=FIRST)
def test_a_rule_has_its_value_gradient_and_step(row):
    """In one program, which is what a quick run has of every rule beside its long streams."""
    arrays, _ = arrays_of(row, T + 1, seed=1)
    tokens = window(row, arrays, T)
    oracle = [[exact(row, arrays, b, h) for h in range(H)] for b in range(B)]
    before = [[exact(row, tokens, b, h) for h in range(H)] for b in range(B)]
    up = np.random.default_rng(2).normal(size=(B, T, H, oracle[0][0][0].shape[-1]))
    up[[b for b in range(B) if b not in row.smooth]] = 0
    names = timed(row, arrays)
    one = {n: a[:, T] if n in names else a for n, a in arrays.items()}

    def everything(tokens, one):
        o, pull, end = jax.vjp(lambda tokens: call(row, tokens), tokens, has_aux=True)
        (gradients,) = pull(up)
        if not row.causal:
            return o, compared(row, end), gradients, None, ()
        y, last = call(row, one, end, step=True)
        return o, compared(row, end), gradients, y, compared(row, last)

    o, end, gradients, y, last = quick(everything)(tokens, one)
    for b, kind in enumerate(KINDS):
        for h in range(H):
            want, fields = before[b][h]
            assert error(o[b, :, h], want) < 1e-11, kind
            for mine, field in zip(end, fields, strict=False):
                assert error(mine[b, h], field) < 1e-11, kind
            if row.causal:
                want, fields = oracle[b][h]
                assert error(y[b, h], want[T]) < 1e-11, kind
                for mine, field in zip(last, fields, strict=False):
                    assert error(mine[b, h], field) < 1e-11, kind

    rng, expected, size = np.random.default_rng(3), 0.0, 0.0
    moved = {1: {}, -1: {}}
    for n, x in tokens.items():
        # Weights and gates of 0 stay: those below 0 are another problem.
        direction = 1e-5 * np.where(np.isinf(x), 0, x) * rng.normal(size=x.shape)
        for sign in moved:
            moved[sign][n] = x + sign * direction
        expected += (np.asarray(gradients[n]) * direction).sum()
        size += np.abs(np.asarray(gradients[n]) * direction).sum()
    difference = sum(
        sign / 2 * scalar(row, moved[sign], {}, [up], b, h)
        for sign in moved
        for b in row.smooth
        for h in range(H)
    )
    assert abs(expected - difference) < 1e-6 * size
