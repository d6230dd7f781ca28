"""``check_rule`` passes for rules of the family, and fails for each way to be broken."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import attention
from olsq.reference import attention as oracle
from olsq.reference import attention_solved as solved
from olsq.testing import check_rule

RULES = {
    "linear": (oracle.linear, {}),
    "gla": (oracle.gla, {}),
    "delta": (oracle.delta, {}),
    "mesa": (solved.mesa, {"options": {"ridge": 0.5, "solver": olsq.Dense(chunk=16)}}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("gla", "mesa") else pytest.mark.slow) for n in RULES]
)
def test_rules_of_the_family_have_every_property(name):
    known, options = RULES[name]
    rule, step = (getattr(attention, n) for n in (name, f"{name}_step"))
    dtypes = [np.float64, np.float32] if name == "gla" else [np.float64]
    before = jax.config.jax_enable_x64
    check_rule(rule, step, known, **options, dtypes=dtypes, max_examples=3)
    assert jax.config.jax_enable_x64 == before


# -- a plain rule, and what can be wrong with it --------------------------------------------------


def plain(q, k, v, *, forget=1.0, state=None):
    """S = forget S + v k^T by a scan; a step of it is the rule on one token."""
    b, _, h, width = k.shape
    begin = jnp.zeros((b, h, v.shape[-1], width), v.dtype) if state is None else state
    forget = jnp.broadcast_to(forget, k.shape[:-1]).astype(v.dtype)

    def one(memory, token):
        q, k, v, g = token
        memory = g[..., None, None] * memory + v[..., :, None] * k[..., None, :]
        return memory, jnp.einsum("bhvk,bhk->bhv", memory, q)

    tokens = tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v, forget))
    last, o = jax.lax.scan(one, begin, tokens)
    return jnp.moveaxis(o, 0, 1), last


def one_token(q, k, v, *, forget=1.0, state=None):
    o, state = plain(q[:, None], k[:, None], v[:, None], forget=forget[:, None], state=state)
    return o[:, 0], state


def known(q, k, v, *, forget):
    return oracle.gla(q, k, v, forget=forget)


def step_disagrees(q, k, v, *, forget=1.0, state=None):
    o, state = one_token(q, k, v, forget=forget, state=state)
    return o, state * 1.01


def forgets_its_state(q, k, v, *, forget=1.0, state=None):
    return plain(q, k, v, forget=forget)


def sees_the_future(q, k, v, *, forget=1.0, state=None):
    o, state = plain(q, k, v, forget=forget, state=state)
    return o + 1e-3 * v.mean(1, keepdims=True), state


def has_units(q, k, v, *, forget=1.0, state=None):
    o, state = plain(q, k, v, forget=forget, state=state)
    return o + 1e-9 * o**2, state


def prefers_a_target(q, k, v, *, forget=1.0, state=None):
    o, state = plain(q, k, v, forget=forget, state=state)
    return o.at[..., 0].mul(1.001), state


@jax.custom_jvp
def _wrong_slope(x):
    return x


_wrong_slope.defjvp(lambda x, t: (x[0], t[0] / 2))


def wrong_gradient(q, k, v, *, forget=1.0, state=None):
    return plain(_wrong_slope(q), k, v, forget=forget, state=state)


def leaks_segments(q, k, v, *, forget=1.0, state=None, segment_ids=None):
    return plain(q, k, v, forget=forget, state=state)


LOST = "causality of gradients"  # a plain scan multiplies 0 by what is not finite


@pytest.mark.full
def test_the_plain_rule_is_sound_but_for_gradients_of_what_is_not_finite():
    check_rule(plain, one_token, known, dtypes=[np.float64], max_examples=3, skip=[LOST])
    with pytest.raises(AssertionError, match=f"lacks 1 of 13 properties\n  {LOST}: "):
        check_rule(plain, None, known, dtypes=[np.float64], max_examples=0, length=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "step", "names"),
    [
        (plain, step_disagrees, ("step = rule",)),
        (forgets_its_state, None, ("resumption",)),
        (sees_the_future, None, ("causality", "prefix invariance", "oracle")),
        (has_units, None, ("scale equivariance", "oracle")),
        (prefers_a_target, None, ("permutation of targets", "oracle")),
        (wrong_gradient, None, ("VJP against oracle",)),
        (leaks_segments, None, ("segments",)),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_each_break_is_named(rule, step, names):
    with pytest.raises(AssertionError) as caught:
        check_rule(rule, step, known, dtypes=[np.float64], max_examples=2, length=20, skip=[LOST])
    message = str(caught.value)
    assert message.startswith(f"check_rule: {rule.__name__} lacks")
    for name in names:
        line = next(x for x in message.splitlines() if x.startswith(f"  {name}: "))
        assert "stream '" in line
        assert "error " in line
        assert "allowed " in line
    if "oracle" not in names:
        assert f"lacks {len(names)} of 12 properties" in message


@pytest.mark.full
def test_what_is_not_claimed_is_skipped():
    check_rule(
        leaks_segments, one_token, known, dtypes=[np.float64], max_examples=0, length=20,
        skip=["segments", LOST],
    )  # fmt: skip


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="options must hold what the rule needs: ridge"):
        check_rule(attention.mesa, attention.mesa_step, solved.mesa)
    with pytest.raises(ValueError, match="skip must be a collection of some of 'oracle'"):
        check_rule(plain, one_token, known, skip=["speed"])
