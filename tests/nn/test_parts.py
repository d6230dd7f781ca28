"""The parts of layers against their definitions in NumPy, and how they start."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import (
    draw,
    error,
    quick,
)
from nn_reference import (
    convolved,
    dense,
    low_rank,
    rms,
    silu,
    softplus,
    turned,
)

from olsq import nn
from olsq.nn.gated import Ridge
from olsq.nn.parts import LowRank, Shift, rotate, scale_to_unit

pytestmark = pytest.mark.usefixtures("one_target")

KEY = jax.random.key(3)
TINY = 2e-6


def test_dense_is_a_product_in_the_dtype_of_its_input():
    layer = nn.Linear(5, 3, key=KEY, bias=[1.0, 2.0, 3.0])
    x = draw(2, 4, 5)
    assert error(layer(x), dense(layer, x.astype(float))) < TINY
    assert layer(jnp.asarray(x, jnp.bfloat16)).dtype == jnp.bfloat16
    assert nn.Linear(5, 3, key=KEY).bias is None
    deep = LowRank(5, 7, 2, key=KEY, bias=0.5)
    assert error(quick(lambda x: deep(x))(x), low_rank(deep, x.astype(float))) < TINY


@pytest.mark.parametrize("gain", [1.0, 0.3])
def test_weights_start_normal_in_fan_in_mode(gain):
    weight = np.asarray(nn.Linear(400, 250, key=KEY, gain=gain).weight, float) / gain
    assert weight.std() == pytest.approx(400**-0.5, rel=0.01)
    assert abs(weight.mean()) < 5 * 400**-0.5 / weight.size**0.5
    assert (weight**4).mean() / weight.var() ** 2 == pytest.approx(3, rel=0.05)


def test_rms_norm():
    norm = eqx.tree_at(lambda n: n.scale, nn.RMSNorm(2, 6), jnp.asarray(draw(2, 6)))
    x = 100 * draw(3, 4, 2, 6)
    assert error(norm(x), rms(norm, x.astype(float))) < TINY
    half = norm(jnp.asarray(x, jnp.bfloat16))
    assert half.dtype == jnp.bfloat16
    assert error(half, rms(norm, x.astype(float))) < 0.02
    assert np.all(norm(0 * x) == 0)


def test_unit_length():
    x = draw(2, 3, 2, 8)
    unit = quick(scale_to_unit)
    assert error(unit(x), x / np.linalg.norm(x, axis=-1, keepdims=True)) < TINY
    zero = jnp.zeros(4)
    assert np.all(unit(zero) == 0)
    assert np.all(np.isfinite(quick(jax.jacobian(scale_to_unit))(zero)))


def test_short_convolution_is_its_sum():
    layer = nn.ShortConvolution(4, 6, key=KEY, bias=True)
    layer = eqx.tree_at(lambda c: c.bias, layer, jnp.asarray(draw(6, seed=2)))
    x = draw(2, 7, 6)
    y, recent = quick(lambda x: layer(x, None, None))(x)
    want = np.stack([convolved(layer.kernel, line) for line in x.astype(float)])
    assert error(y, want + np.asarray(layer.bias)) < TINY
    assert np.array_equal(recent, x[:, -3:])
    assert np.asarray(nn.ShortConvolution(4, 20000, key=KEY).kernel).std() == pytest.approx(
        0.5, rel=0.02
    )


@pytest.mark.full
@pytest.mark.parametrize("part", [nn.ShortConvolution(4, 3, key=KEY), Shift()], ids=["taps", "one"])
def test_a_convolution_goes_on_and_stays_in_its_segment(part):
    x = draw(1, 9, 3)
    whole, last = part(x, None, None)
    for cut in (0, 2, 8):
        head, recent = part(x[:, :cut], None, None)
        tail, end = part(x[:, cut:], recent, None)
        assert error(np.concatenate([head, tail], 1), whole) < TINY
        assert np.array_equal(end, last)
    recent = part(x, None, None)[1]
    ids = np.array([[4, 4, 5, 6, 6, 6, 6, 6, 6]])
    packed, end = part(x, recent, ids)
    pieces = [part(x[:, :2], recent, None), *(part(x[:, c], None, None) for c in (slice(2, 3),))]
    pieces.append(part(x[:, 3:], None, None))
    assert error(packed, np.concatenate([y for y, _ in pieces], 1)) < TINY
    assert np.array_equal(end, pieces[-1][1])
    short, end = part(x[:, :3], None, ids[:, :3])
    assert np.array_equal(end, part(x[:, 2:3], None, None)[1])
    assert error(short[:, 2:], part(x[:, 2:3], None, None)[0]) < TINY


def test_a_shift_is_the_token_before():
    x = draw(2, 5, 3)
    y, _ = quick(lambda x: Shift()(x, None, None))(x)
    assert np.all(y[:, 0] == 0)
    assert np.array_equal(y[:, 1:], x[:, :-1])


@pytest.mark.full
@pytest.mark.parametrize("width", [8, 2, 5])
def test_rotary_positions_turn_pairs_and_products_depend_on_distance(width):
    q, k = draw(1, 6, 2, width), draw(1, 6, 2, width, seed=1)
    at = np.arange(6)[None]
    even = width // 2 * 2
    want = turned(q[0, ..., :even].astype(float))
    assert error(rotate(q, at)[0, ..., :even], want) < TINY
    assert np.array_equal(rotate(q, at)[..., even:], q[..., even:])
    for first in (0, 1000, 10**7, 3 * 10**8, 2**31 - 6):
        for base in (1e4, 1e6, 0.01):
            turns = (np.asarray(rotate(x, first + at, base), float) for x in (q, k))
            products = np.einsum("bthk,bshk->hts", *turns)
            turned_first = (np.asarray(rotate(x, at, base), float) for x in (q, k))
            assert error(products, np.einsum("bthk,bshk->hts", *turned_first)) < TINY
    assert rotate(jnp.asarray(q, jnp.bfloat16), at).dtype == jnp.bfloat16


def test_a_ridge_starts_where_it_is_told_and_stays_above_its_floor():
    for floor, start in ((0.25, 1.0), (49.0, 50.0), (0.0, 1e-3), (0.0, 60.0)):
        ridge = Ridge(2, 3, floor=floor, start=start)
        assert ridge.raw.shape == (2, 3)
        assert np.asarray(ridge()) == pytest.approx(start, rel=1e-5)
        low = eqx.tree_at(lambda r: r.raw, ridge, jnp.full((2, 3), -50.0))
        assert np.all(low() >= floor)
        other = eqx.tree_at(lambda r: r.raw, ridge, jnp.asarray(draw(2, 3)))
        assert np.asarray(other()) == pytest.approx(floor + softplus(draw(2, 3).astype(float)))
    for floor, start in ((1.0, 1.0), (-0.1, 1.0), (2.0, 1.0)):
        with pytest.raises(ValueError, match="ridge_start must exceed ridge_floor"):
            Ridge(2, 3, floor=floor, start=start)


def test_the_gated_mlp():
    mlp = nn.SwiGLU(6, key=KEY)
    x = draw(2, 3, 6)
    wide = silu(dense(mlp.gate, x.astype(float))) * dense(mlp.up, x.astype(float))
    assert wide.shape[-1] == 18
    assert error(quick(lambda x: mlp(x))(x), dense(mlp.down, wide)) < TINY
    assert nn.SwiGLU(6, ratio=2.5, key=KEY).up.weight.shape == (6, 15)
    assert nn.SwiGLU(6, width=4, key=KEY).down.weight.shape == (4, 6)
    plain, small = (nn.SwiGLU(6, output_gain=g, key=KEY).down.weight for g in (1.0, 0.5))
    assert error(small, 0.5 * np.asarray(plain)) < TINY
    with pytest.raises(ValueError, match="width must be an integer"):
        nn.SwiGLU(6, ratio=0.01, key=KEY)
