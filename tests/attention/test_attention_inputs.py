"""Arguments that rules refuse, by name; and checks of the oracles."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import ROWS, arrays_of, begin, call, timed, window
from attention_draws import B, H, V

from olsq import attention
from olsq.reference import attention_solved
from tests.unreal import KINDS
from tests.versions import in_one_program, quick

pytestmark = pytest.mark.usefixtures("one_target")

every = pytest.mark.parametrize("row", ROWS, ids=str)
T = 3
PLAIN = ("forget", "log_forget", "weight", "input_gate", "recurrence_gate", "step")
PLAIN += ("learning_rate", "curvature_forget", "curvature_weight", "mix", "ridge", "feedback")
PLAIN += ("erase",)
SHARES = ("mix", "removal_rate", "trapezoid")  # these lie in [0, 1], as gates do


def some(row):
    arrays, prior = arrays_of(row)
    return window(row, arrays, T), prior


def refused(row, arrays, match, error=ValueError, **options):
    with pytest.raises(error, match=match):
        call(row, arrays, **options)


@pytest.mark.slow
@every
def test_shapes_are_checked(row):
    arrays, _ = some(row)
    for name in row.arrays:
        refused(row, {**arrays, name: arrays[name][0]}, rf"\b{name}\b.*shape")
    if len(row.arrays) > 1:
        name = row.arrays[-1]  # more heads may share those of the others, fewer may not
        refused(row, {**arrays, name: arrays[name][:, :, :1]}, "heads")
    if {"q", "k"} <= set(row.arrays):
        refused(row, {**arrays, "q": arrays["q"][..., 1:]}, "width")
    for name in set(timed(row, arrays)) - set(row.arrays):
        longer = np.concatenate([arrays[name]] * 2, 1)
        refused(row, {**arrays, name: longer}, rf"\b{name}\b.*shape")
        if not name.startswith("log"):
            refused(row, {**arrays, name: np.ones_like(longer)}, rf"\b{name}\b.*shape")


@pytest.mark.full
@every
def test_values_are_checked(row):
    arrays, _ = some(row)
    for name in set(arrays) & set(PLAIN + SHARES):
        wrong = arrays[name].copy()
        below = -1.1 if row.mine.get("signed") and name == "forget" else -0.1
        wrong.flat[-1] = 0.1 if name == "log_forget" else below
        refused(row, {**arrays, name: wrong}, rf"\b{name}\b")
        if "forget" in name or "gate" in name or name in SHARES:
            wrong.flat[-1] = 1.1
            refused(row, {**arrays, name: wrong}, rf"\b{name}\b")
        if name == "ridge":
            wrong.flat[-1] = 0
            refused(row, {**arrays, name: wrong}, r"\bridge\b")


@every
def test_gates_are_given_once(row):
    arrays, _ = some(row)
    if row.forget:
        other = {"forget": "log_forget", "log_forget": "forget"}[row.forget]
        both = {**arrays, other: 0 * np.nan_to_num(arrays[row.forget], neginf=0)}
        refused(row, both, "forget or log_forget")


NUMBERS = [
    *((rule, "scale") for rule in ("softmax", "forgetting", "sliding_window", "gsa")),
    *((rule, "scale") for rule in ("local_linear", "parallax")),
    *((rule, "eps") for rule in ("ttt_linear", "ttt_mlp", "preconditioned_delta")),
    ("preconditioned_delta", "base"),
    ("kalman", "ratio"),
    ("rg_lru", "c"),
]


@pytest.mark.parametrize(("rule", "name"), NUMBERS)
def test_numbers_are_one_number_each(rule, name):
    """An array would broadcast against tokens, and NaN reach every output."""
    row = next(row for row in ROWS if row.rule == rule)
    arrays, _ = some(row)
    outside = () if name == "scale" else (-1.0,)
    for wrong in (np.ones(1), np.ones((H, 1)), np.nan, np.inf, *outside):
        message = f"^{name} must be " + ("one number" if np.ndim(wrong) else "finite")
        refused(replace(row, options={**row.options, name: wrong}), arrays, message)
    for wrong in (1j, "one"):
        options = {**row.options, name: wrong}
        refused(replace(row, options=options), arrays, f"^{name} must be real", TypeError)


@pytest.mark.full
@every
def test_segment_ids_are_checked(row):
    arrays, _ = some(row)
    falling = np.tile(np.array([1, 1, 0]), (B, 1))
    refused(row, arrays, "segment_ids must not decrease", segment_ids=falling)
    refused(row, arrays, "segment_ids must be integers", segment_ids=falling * 1.0)
    refused(row, arrays, "segment_ids must be integers", segment_ids=falling[:, :2])


@pytest.mark.slow
@every
def test_states_are_checked(row):
    arrays, prior = some(row)
    state = begin(row, prior)
    refused(row, arrays, r"\bstate\b", (TypeError, ValueError), state=tuple(state))
    shorter = type(state)(*(x[:1] for x in state))
    refused(row, arrays, r"\bstate\b|shape", (TypeError, ValueError), state=shorter)


def test_retention_has_a_gate_for_each_head():
    x = np.ones((1, 2, 3, 1))
    o, _ = quick(attention.retention)(x, x, x)
    np.testing.assert_allclose(o[0, 1, :, 0], 1 + 1 - 2.0 ** -(5 + np.arange(3)), rtol=1e-15)
    with pytest.raises(ValueError, match="forget"):
        attention.retention(x, x, x, forget=np.ones((2, 3)))


def test_steps_of_a_token_are_checked():
    q, k = np.ones((1, 2, 1, 3)), np.ones((1, 2, 1, 2, 3))
    rule = attention.gated_delta_product
    with pytest.raises(ValueError, match=r"k must have shape \(batch, time, heads, steps, dim\)"):
        rule(q, q, k)
    with pytest.raises(ValueError, match="steps of k and v must agree"):
        rule(q, k, k[:, :, :, :1])
    with pytest.raises(ValueError, match=r"weight has shape \(1, 2, 1\).*\(1, 2, 1, 2\)"):
        rule(q, k, k, weight=np.full((1, 2, 1), 0.5))
    with pytest.raises(ValueError, match="weight must be >= 0"):
        rule(q, k, k, weight=np.array([1.0, -1.0]))


@pytest.mark.full
def test_a_lost_curvature_outlives_the_reset_of_the_memory():
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 1, 8, 1, 2))
    k[0, 1] = np.nan
    forget, curvature = np.ones((2, 1, 8, 1))
    forget[0, 3] = forget[0, 6] = curvature[0, 5] = 0
    o, state = in_one_program(attention.preconditioned_delta)(
        q, k, v, forget=forget, curvature_forget=curvature, weight=0.5
    )
    np.testing.assert_array_equal(np.isnan(o[0, :, 0, 0]), [0, 1, 1, 1, 1, 1, 0, 0])
    assert all(np.isfinite(x).all() for x in state)


def test_mixed_widths_and_dtypes():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 4, H, 5)).astype(np.float32)
    v = jnp.asarray(rng.normal(size=(1, 4, H, V)), jnp.bfloat16)
    o, state = quick(attention.gla)(q, k, v)
    assert o.dtype == state.matrix.dtype == jnp.float32


@pytest.mark.parametrize("layers", [1, 2])
def test_the_oracle_of_test_time_training_has_the_gradient_of_its_loss(layers):
    rng = np.random.default_rng(layers)
    shapes = [(4, 4), (4,)] if layers == 1 else [(7, 4), (7,), (4, 7), (4,)]
    weights = [rng.normal(size=s) for s in shapes]
    k, v, scale, bias = rng.normal(size=(4, 4))
    rest = (k, v, scale, bias, 1e-6)
    slopes = attention_solved.ttt_gradient(weights, *rest)
    for i, w in enumerate(weights):
        for at in np.ndindex(w.shape):
            ends = []
            for sign in (1, -1):
                moved = w.copy()
                moved[at] += sign * 1e-5
                ends.append(
                    attention_solved.ttt_loss([*weights[:i], moved, *weights[i + 1 :]], *rest)
                )
            assert abs(slopes[i][at] - (ends[0] - ends[1]) / 2e-5) < 1e-8


@pytest.mark.slow
@every
def test_only_real_numbers(row):
    arrays, prior = some(row)
    state = begin(row, prior)
    token = {n: a[:, 0] if n in timed(row, arrays) else a for n, a in arrays.items()}
    steps = (False, True) if row.causal else (False,)
    for step in steps:
        given = token if step else arrays
        before = state if step else None
        for name in set(given) - set(row.held if step else ()):  # what a state holds is not given
            for make in KINDS.values():
                # a part of ``initial`` goes by the name its state has for it
                what = r"\binitial " if name in row.packed else rf"\b{name} must be"
                wrong = {**given, name: make(given[name])}
                with pytest.raises(TypeError, match=what):
                    call(row, wrong, before, step=step)
        for field, x in zip(state._fields, state, strict=True):
            if not np.issubdtype(x.dtype, np.floating):
                continue
            wrong = state._replace(**{field: KINDS["complex"](x)})
            with pytest.raises(TypeError, match=rf"\bstate\.{field} must be"):
                call(row, given, wrong, step=step)


@pytest.mark.parametrize("step", [attention.mesa_step, attention.mesa_discounted_step])
def test_only_real_numbers_in_a_token_solved_directly(step):
    x = np.ones((1, 1, 2))
    given = {"q": x, "k": x, "v": x, "ridge": 1.0, "forget": 0.5, "weight": 1.0}
    for name, good in given.items():
        for make in KINDS.values():
            with pytest.raises(TypeError, match=rf"\b{name} must be"):
                step(**{**given, name: make(good)})
