"""Gates passed as logs, in every rule that takes them: logs add up as logs, and none is a reset."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, Row, call, compared, error, exact, quick
from attention_draws import drawing, gates, mostly_positive, weights

from olsq import attention
from olsq.reference import attention as oracle
from tests.tiers import LEADING, in_tiers, leading

pytestmark = pytest.mark.usefixtures("one_target")

FIRST: dict[tuple[str, bool, bool], Row] = {}
for _row in ROWS:
    if "log_forget" in signature(getattr(attention, _row.rule)).parameters and not _row.mine.get(
        "signed"
    ):
        FIRST.setdefault((_row.rule, "vector" in _row.name, _row.weight == "log_weight"), _row)
# The others' gates are handled by the recurrence of one of these.
SHARED = {"mamba2", "gla", "gated_delta_product", "momentum_delta", "rwkv7", "mesa_discounted"}
each_rule = leading(FIRST.values(), LEADING - SHARED)
# The cheapest; and gates of slots, and beside a solve.
few_rules = in_tiers(FIRST.values(), {"gla vector"}, {"gsa", "mesa_channel"})
CHANGES: dict[str, dict[str, Any]] = {
    "mesa_window": {"options": {"window": 512}, "window": 512},  # a window that sees far
    "forgetting": {"mine": {}},
    "mlstm": {"draw": drawing(mostly_positive, forget=gates, weight=weights)},
}


def drawn(row, t, logs):
    """Float32 arrays of one stream and head, and the oracle's: gates by their exact factors."""
    rng = np.random.default_rng(3)
    arrays = row.draw(rng, t)
    gate = arrays.pop(row.forget) if row.forget else arrays.pop("forget")
    fixed = row.fixed(np.random.default_rng(0))
    arrays = {n: a[:1, :, :1] for n, a in arrays.items()} | {n: a[:1] for n, a in fixed.items()}
    arrays = {n: a.astype(np.float32) for n, a in arrays.items()}
    log = np.broadcast_to(logs(rng, (1, t, 1, 1)), gate[:1, :, :1, None].shape[:4])
    log = (log[..., 0] if gate.ndim == 3 else np.repeat(log, gate.shape[3], 3)).astype(np.float32)
    factors = {n: a.astype(float) for n, a in arrays.items()} | {
        "forget": np.exp(log.astype(float))
    }
    return {**arrays, "log_forget": log}, factors


def compare(row, t, logs, tolerance):
    arrays, factors = drawn(row, t, logs)
    o, state = quick(lambda a: call(row, a))(arrays)
    want, end = exact(row, factors, 0, 0)
    assert o.dtype == np.float32
    assert error(o[0, :, 0], want) < tolerance
    for mine, right in zip(compared(row, state), end or (), strict=False):
        assert error(mine[0, 0], right) < tolerance


@few_rules
def test_logs_near_0_add_up_as_logs(row):
    """As factors, gates of 1 - 1e-5 lose 2e-5 to 1e-4 of the memory over 4,096 tokens."""
    t = 512 if row.rule == "mesa_window" else 4096
    row = replace(row, **CHANGES.get(str(row), {}))
    # gsa reads what a first memory recalls from a second one: roundings of both add up.
    tolerance = 8e-6 if row.rule == "gsa" else 4e-6
    compare(row, t, lambda rng, shape: np.full(shape, np.log1p(-1e-5)), tolerance)


@pytest.mark.slow
@each_rule
def test_logs_of_every_size(row):
    most = -2 if row.rule == "mesa_discounted" else 2.5  # whose ridge would be forgotten too
    row = replace(row, **CHANGES.get(str(row), {}))
    compare(row, 130, lambda rng, shape: -(10.0 ** rng.uniform(-6, most, shape)), 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("width", [None, 1])
@pytest.mark.parametrize("log", [-6.93e-7, -2.5e-8])
def test_a_million_tokens(log, width):
    one = jnp.ones((1, 10**6, 1, 1))
    gates = jnp.full(one.shape if width else one.shape[:3], log)
    once = jnp.zeros(one.shape[:3]).at[:, 0].set(1)
    _, state = quick(attention.gla)(one, one, one, log_forget=gates, weight=once)
    want = np.exp(float(np.float32(log)) * (10**6 - 1))
    np.testing.assert_allclose(state.matrix[0, 0, 0, 0], want, rtol=2e-6)


@pytest.mark.full
@pytest.mark.parametrize("log", [-87.0, -88.0, -89.0, -120.0, -200.0])
def test_mlstm_gates_beside_weights_as_large(log):
    """A gate that is 0 as a factor, but not beside the log weights of its stream."""
    k = jnp.ones((1, 2, 1, 1))
    v = jnp.array([5.0, 1.0])[None, :, None, None]
    gates, weights = (jnp.array(x)[None, :, None] for x in ([0, log], [300, 300 + log - 30]))

    @jax.jit
    def last(gates):
        return attention.mlstm(k, k, v, log_forget=gates, log_weight=weights)[0][0, 1, 0, 0]

    np.testing.assert_allclose(last(gates), 5, rtol=1e-6)
    assert np.isfinite(quick(jax.grad(last))(gates)).all()
    nothing = gates.at[0, 1].set(-jnp.inf)
    np.testing.assert_allclose(last(nothing), 1, rtol=1e-6)


@pytest.mark.full
def test_mlstm_logs_beside_weights_of_their_size_are_the_oracle():
    rng, t = np.random.default_rng(4), 130
    q, k = np.abs(rng.normal(size=(2, 1, t, 1, 3)))
    v = rng.normal(size=(1, t, 1, 2))
    logs = np.where(rng.uniform(size=(1, t, 1)) < 0.1, -rng.uniform(80, 130, (1, t, 1)), -0.01)
    weights = 200 + np.cumsum(logs, 1) / 8 + rng.normal(size=(1, t, 1))
    gates = {"log_forget": logs, "log_weight": weights}
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    gates = {n: x.astype(np.float32) for n, x in gates.items()}
    o, _ = quick(attention.mlstm)(q, k, v, **gates)
    want, _ = oracle.mlstm(
        *(x[0, :, 0] for x in (q, k, v)), **{n: x[0, :, 0] for n, x in gates.items()}
    )
    assert error(o[0, :, 0], want) < 3e-5  # sums of logs near 200 are rounded


@pytest.mark.full
def test_a_derivative_in_a_log_is_that_of_the_factor():
    rng = np.random.default_rng(5)
    q, k, v = rng.normal(size=(3, 1, 40, 1, 3)).astype(np.float32)
    logs = -(10.0 ** rng.uniform(-4, 1, (1, 40, 1))).astype(np.float32)

    def of(gates, name):
        return (attention.gated_delta(q, k, v, weight=0.3, **{name: gates})[0] ** 2).sum()

    slope = jax.jit(jax.grad(of), static_argnums=1)
    got = slope(logs, "log_forget")
    want = slope(np.exp(logs), "forget") * np.exp(logs)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5 * np.abs(want).max())


MASKS = -1e4, -1e9, -1e10, -1e12, -1e20, float(np.finfo(np.float32).min)


@few_rules
def test_a_log_below_what_exp_can_hold_is_a_reset(row):
    """Masks use finite numbers: outputs and gradients are those of -inf, and 0 at the gate."""
    row = replace(row, **CHANGES.get(str(row), {}))
    arrays, _ = drawn(row, 130, lambda rng, shape: np.full(shape, -0.01))
    gates = arrays["log_forget"]
    names = [n for n in arrays if n not in row.packed]

    @quick
    def both(arrays):
        o, pull = jax.vjp(lambda arrays: call(row, arrays)[0], arrays)
        return o, pull(jnp.cos(jnp.arange(o.size, dtype=o.dtype).reshape(o.shape)))[0]

    def masked(value):
        at = gates.copy()
        at[:, [40, 64, 101]] = value
        return both({**arrays, "log_forget": at})

    want, slopes = masked(-np.inf)
    if row.rule == "mesa_discounted":  # whose ridge is forgotten too: nothing is determined
        for value in MASKS:
            np.testing.assert_array_equal(np.isfinite(masked(value)[0]), np.isfinite(want))
        return
    for value in MASKS:
        o, got = masked(value)
        assert error(o, want) < 1e-6
        for n in names:
            slope = np.nan_to_num(np.asarray(slopes[n]))
            assert np.abs(got[n] - slope).max() <= 2e-6 * max(np.abs(slope).max(), 1e-30), n
        assert not np.asarray(got["log_forget"])[:, [40, 64, 101]].any()


@pytest.mark.full
@pytest.mark.parametrize("small", [-1e3, -1e12, -1e20, float(np.finfo(np.float32).min)])
def test_mlstm_leaves_out_tokens_of_a_very_small_log_weight(small):
    rng = np.random.default_rng(6)
    q, k, v = rng.normal(size=(3, 1, 70, 1, 3)).astype(np.float32)
    gates = np.full((1, 70, 1), -0.05, np.float32)
    weights = rng.normal(size=(1, 70, 1)).astype(np.float32)

    def run(weights, gates):
        def out(q, k, v, weights, gates):
            return attention.mlstm(q, k, v, log_forget=gates, log_weight=weights)[0]

        o, pull = jax.vjp(out, q, k, v, weights, gates)
        return o, pull(jnp.cos(jnp.arange(o.size, dtype=o.dtype).reshape(o.shape)))

    for first, gate in ((0, None), (50, small)):
        left_out, absent, at = weights.copy(), weights.copy(), gates.copy()
        left_out[:, :5], absent[:, :5] = small, -np.inf
        left_out[:, 5] = absent[:, 5] = first
        if gate is not None:  # all that is before it, of any weight, is forgotten
            at[:, 6] = gate
        want, slopes = quick(run)(absent, np.where(at < -100, -np.inf, at))
        o, got = quick(run)(left_out, at)
        assert error(o, want) < 1e-6
        for a, b in zip(got, slopes, strict=True):
            assert error(a, np.nan_to_num(b)) < 1e-5
