"""Columns of keys in units far apart, in float32: units never decide."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import attention
from olsq.reference import sequence as reference
from olsq.sequence import start_decoding
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

D, M, T, RIDGE = 6, 2, 64, 1e-3
SIDES = {"numpy": np.asarray, "jax": jnp.asarray}
SCALES = {"one large": np.array([1, 1, 1e3, 1, 1, 1]), "each": 10.0 ** np.arange(-1, 5)}


def drawn(scales):
    """Keys, values, queries, and the outputs: condition 4 once columns are scaled."""
    rng = np.random.default_rng(7)
    keys, queries = (rng.normal(size=(2, T, D)) * scales).astype(np.float32)
    values = rng.normal(size=(T, M)).astype(np.float32)
    ridge = np.full(D, RIDGE) / scales**2
    want = reference.solve(keys / scales, values, queries / scales, ridge=ridge).value
    return keys, values, queries, want


def far_off(got, want):
    got, want = np.asarray(got, float)[2 * D :], want[2 * D :]  # once all is determined
    assert np.isfinite(got).all()
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.full
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("side", SIDES)
def test_decoding_with_a_factor(side, scales):
    keys, values, queries, want = drawn(scales)
    put = SIDES[side]
    state = start_decoding(
        olsq.Moments(put(np.zeros((D, D), np.float32)), put(np.zeros((M, D), np.float32))),
        ridge=RIDGE,
    )
    outputs = []
    for key, value, query in zip(keys, values, queries, strict=True):
        state = olsq.update(state, put(key), put(value))
        outputs.append(olsq.query(state, put(query)))
    assert np.isfinite(np.asarray(outputs)).all()
    assert far_off(outputs, want) < 1e-5


@pytest.mark.full
def test_one_token_of_mesa():
    keys, values, queries, want = drawn(SCALES["one large"])
    moments = olsq.Moments(jnp.zeros((1, 1, D, D)), jnp.zeros((1, 1, M, D)))
    state = start_decoding(moments, ridge=RIDGE)
    step, outputs = quick(attention.mesa_step), []
    for key, value, query in zip(keys, values, queries, strict=True):
        o, state = step(query[None, None], key[None, None], value[None, None], state=state)
        outputs.append(o[0, 0])
    assert far_off(outputs, want) < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("side", SIDES)
def test_recursive_least_squares(side, scales):
    """Leverages of 1e9 and 1e11 leave a factor digits, and a covariance none."""
    keys, values, queries, want = drawn(scales)
    arrays = map(SIDES[side], (keys, values, queries))
    got = olsq.online_lstsq(*arrays, ridge=RIDGE, solver=olsq.Recursive()).value
    assert far_off(got, want) < 1e-2
