"""Every argument must be real: a TypeError that names it, before anything is computed."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import sequence
from tests.sequence.sequence_cases import D, M
from tests.unreal import KINDS, SCALARS

pytestmark = pytest.mark.usefixtures("one_target")

T = 4
RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 1, (T, D))
Y = RNG.uniform(0.2, 1, (T, M))
GATES = np.full(T, 0.5)
STATE = olsq.Moments(np.eye(D), np.ones((M, D)))
NUMBER = {"forget", "log_forget", "weight", "ridge"}  # those that may be one number


def whole(solve, arrays=np.asarray):
    def call(state_gram=STATE.gram, state_cross=STATE.cross, log_forget=None, **named):
        if log_forget is not None:
            named["forget"] = None
        rest = {n: x for n, x in named.items() if n not in ("keys", "values", "queries")}
        state = olsq.Moments(state_gram, state_cross)
        kvq = (named[n] for n in ("keys", "values", "queries"))
        return solve(*kvq, **rest, log_forget=log_forget, state=state)

    good = {"keys": arrays(X), "values": arrays(Y), "queries": arrays(X), "forget": GATES}
    good |= {"weight": GATES, "ridge": np.ones(D)}
    named = {**good, "log_forget": -GATES, "state.gram": STATE.gram, "state.cross": STATE.cross}
    return call, good, named


def moments(state_gram=STATE.gram, state_cross=STATE.cross):
    return olsq.Moments(state_gram, state_cross)


@cache
def started():
    return sequence.start_decoding(STATE, ridge=1.0)


def start(gram, cross):
    """A state for decoding; the usual one is factorised once."""
    usual = gram is STATE.gram and cross is STATE.cross
    return started() if usual else sequence.start_decoding(moments(gram, cross), ridge=1.0)


def token(decoding):
    def call(state_gram=STATE.gram, state_cross=STATE.cross, **named):
        state = moments(state_gram, state_cross)
        if decoding:
            state = start(state_gram, state_cross)
        return olsq.update(state, named.pop("key"), named.pop("value"), **named)

    good = {"key": X[0], "value": Y[0], "forget": GATES[0], "weight": GATES[0]}
    return call, good, {**good, "state.gram": STATE.gram, "state.cross": STATE.cross}


def reading():
    def call(state_gram=STATE.gram, state_cross=STATE.cross, **named):
        return olsq.query(moments(state_gram, state_cross), named.pop("query"), **named)

    good = {"query": X[0], "ridge": np.ones(D)}
    return call, good, {**good, "state.gram": STATE.gram, "state.cross": STATE.cross}


def starting():
    def call(state_gram=STATE.gram, state_cross=STATE.cross, **named):
        return sequence.start_decoding(moments(state_gram, state_cross), **named)

    good = {"ridge": np.ones(D)}
    return call, good, {**good, "state.gram": STATE.gram, "state.cross": STATE.cross}


def merging():
    def call(state_gram=STATE.gram, state_cross=STATE.cross, **named):
        return sequence.merge_moments(moments(state_gram, state_cross), STATE, **named)

    good = {"forget": GATES[0]}
    return call, good, {**good, "state.gram": STATE.gram, "state.cross": STATE.cross}


FUNCTIONS = {
    "numpy": whole(olsq.online_lstsq),
    "jax": whole(olsq.online_lstsq, jnp.asarray),
    "sequence": whole(sequence.online_lstsq),
    "update": token(False),
    "update decoding": token(True),
    "query": reading(),
    "start_decoding": starting(),
    "merge_moments": merging(),
}
CASES = [(f, name) for f, (_, _, named) in FUNCTIONS.items() for name in named]


def refused(call, good, name, wrong):
    with pytest.raises(TypeError, match=rf"\b{name.replace('.', '[.]')} must be"):
        call(**{**good, name.replace(".", "_"): wrong})


@pytest.mark.parametrize(("function", "name"), CASES)
def test_only_real_numbers(function, name):
    call, good, named = FUNCTIONS[function]
    for make in KINDS.values():
        refused(call, good, name, make(named[name]))
    for wrong in SCALARS.values() if name in NUMBER else ():
        refused(call, good, name, wrong)

    # traced ones are seen to be complex too
    if function != "numpy":
        wrong = jax.ShapeDtypeStruct(np.shape(named[name]), np.complex64)
        with pytest.raises(TypeError, match=rf"\b{name.replace('.', '[.]')} must be"):
            jax.eval_shape(lambda x: call(**{**good, name.replace(".", "_"): x}), wrong)


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS)
def test_lists_and_every_real_dtype(function):
    call, good, named = FUNCTIONS[function]
    for dtype in (np.int8, jnp.bfloat16, list):
        changed = {}
        for name, x in named.items():
            if name != "log_forget":
                x = np.sign(x)  # exact in all of them
                x = x.tolist() if dtype is list else x.astype(dtype)
                changed[name.replace(".", "_")] = x
        call(**{**good, **changed})
