"""Parts that layers share: projections, norms, short convolutions, rotary positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_flag, check_number, check_sizes, refuse, shown
from olsq.arrays.unshared import unshared
from olsq.nn.kinds import kind
from olsq.sequence.jax.inputs import promoted
from olsq.sequence.jax.pieces import delay, running_max

UNIT_EPS = 1e-6  # added to |x|^2 where x is scaled to length 1: a zero stays zero
NORM_EPS = 1e-6


def as_bool(value: bool) -> bool:
    """Return a flag as Python's: Equinox takes NumPy's for an array, which no static field is."""
    return bool(value)


def check_matrix(**sizes: Any) -> None:
    """Raise ValueError unless these are the sizes of an array that JAX can ask memory for."""
    check_sizes(**sizes)
    if math.prod(sizes.values()) >= 2**48:  # it ends the process for an array of 2**64 bytes
        raise ValueError(f"{' times '.join(sizes)} must be below 2**48, got {sizes}")


class Linear(eqx.Module):
    """``x W + b`` over the last axis, in the dtype of x; weights are kept in float32.

    Parameters
    ----------
    inputs, outputs : int
    key : jax.random.key
    gain : float
        W starts normal with standard deviation ``gain / sqrt(inputs)``.
    bias : float or array (outputs,), optional
        Where b starts; there is none if None.

    Attributes
    ----------
    weight : array (inputs, outputs)
    bias : array (outputs,) or None

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Linear(8, 3, key=jax.random.key(0), bias=0.0)
    >>> layer(jax.numpy.ones((1, 6, 8))).shape, layer.bias.shape
    ((1, 6, 3), (3,))
    """

    weight: Array = eqx.field(metadata=kind("matrix"))  # (inputs, outputs)
    bias: Array | None = eqx.field(metadata=kind("bias"))  # (outputs,)

    def __init__(
        self, inputs: int, outputs: int, *, key: Array, gain: float = 1.0, bias: Any = None
    ) -> None:
        check_matrix(inputs=inputs, outputs=outputs)
        gain = check_number("gain", gain)
        if bias is not None:
            refuse("bias", bias, np.isnan, "be numbers")
        self.weight = jax.random.normal(key, (inputs, outputs)) * (gain / math.sqrt(inputs))
        self.bias = None if bias is None else jnp.broadcast_to(jnp.asarray(bias, float), (outputs,))

    def __call__(self, x: Array) -> Array:
        y = x @ self.weight.astype(x.dtype)
        return y if self.bias is None else y + self.bias.astype(x.dtype)


class LowRank(eqx.Module):
    """Projection of low rank, ``x A B + b``."""

    down: Linear
    up: Linear

    def __init__(self, inputs: int, outputs: int, rank: int, *, key: Array, bias: Any) -> None:
        first, second = jax.random.split(key)
        self.down = Linear(inputs, rank, key=first)
        self.up = Linear(rank, outputs, key=second, bias=bias)

    def __call__(self, x: Array) -> Array:
        return self.up(self.down(x))


class RMSNorm(eqx.Module):
    """``scale x / sqrt(mean x^2 + eps)`` over the last axis, computed in float32 or better.

    Parameters
    ----------
    *shape : int
        Of ``scale``, which starts at 1: (width,), or (heads, width) for a scale per head.
    eps : float

    Examples
    --------
    >>> import jax.numpy as jnp, olsq.nn
    >>> [round(float(y), 3) for y in olsq.nn.RMSNorm(2)(jnp.array([3.0, 4.0]))]
    [0.849, 1.131]
    """

    scale: Array = eqx.field(metadata=kind("scale"))  # (..., width): leading axes are heads
    eps: float = eqx.field(static=True)

    def __init__(self, *shape: int, eps: float = NORM_EPS) -> None:
        self.scale = jnp.ones(shape)
        self.eps = check_number("eps", eps, least=0)

    def __call__(self, x: Array) -> Array:
        wide = at_least_float32(x)
        size = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + self.eps)
        return (wide * size * self.scale).astype(x.dtype)


class ShortConvolution(eqx.Module):
    """Causal depthwise convolution: ``y_t = sum_i kernel[i] x_{t-i} + bias`` of each channel.

    Parameters
    ----------
    width : int
        Taps, the current token's included.
    channels : int
    key : jax.random.key
    bias : bool
        Add one per channel, from 0.

    Notes
    -----
    The kernel (width, channels) starts normal with standard deviation ``1 / sqrt(width)``.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.ShortConvolution(4, 8, key=jax.random.key(0))
    >>> y, recent = layer(jax.numpy.ones((1, 6, 8)), None, None)
    >>> y.shape, recent.shape
    ((1, 6, 8), (1, 3, 8))
    """

    kernel: Array = eqx.field(metadata=kind("convolution"))  # (width, channels)
    bias: Array | None = eqx.field(metadata=kind("bias"))  # (channels,)

    def __init__(self, width: int, channels: int, *, key: Array, bias: bool = False) -> None:
        check_matrix(width=width, channels=channels)
        self.kernel = jax.random.normal(key, (width, channels)) / math.sqrt(width)
        self.bias = jnp.zeros(channels) if check_flag("bias", bias) else None

    def __call__(
        self, x: Array, recent: Array | None, segment_ids: Array | None
    ) -> tuple[Array, Array]:
        """Convolve x: outputs (B, T, C), and the last ``width - 1`` inputs for the following
        tokens.

        Parameters
        ----------
        x : array (B, T, C)
        recent : array (B, width - 1, C) or None
            Inputs before x; 0 if None.
        segment_ids : int array (B, T) or None
            Taps do not reach into another segment.
        """
        y, recent = convolve_causally(x, self.kernel.astype(x.dtype), recent, segment_ids)
        return y if self.bias is None else y + self.bias.astype(x.dtype), recent


class Shift(eqx.Module):
    """Shift by one token: every token gets the channels of the token before it.

    Nothing is learned.
    """

    def __call__(
        self, x: Array, recent: Array | None, segment_ids: Array | None
    ) -> tuple[Array, Array]:
        kernel = jnp.stack([jnp.zeros(x.shape[-1], x.dtype), jnp.ones(x.shape[-1], x.dtype)])
        return convolve_causally(x, kernel, recent, segment_ids)


def convolve_causally(
    x: Array, kernel: Array, recent: Array | None, segment_ids: Array | None
) -> tuple[Array, Array]:
    """Convolve causally within segments; ``recent`` are the inputs before x."""
    b, t, channels = x.shape
    before = kernel.shape[0] - 1
    if recent is None:
        recent = jnp.zeros((b, before, channels), x.dtype)
    recent = recent.astype(x.dtype)
    # The inputs in a state belong to the segment of the first token.
    earlier: Any = None if segment_ids is None else jnp.repeat(segment_ids[:, :1], before, 1)
    total = jnp.zeros_like(x)
    for i in range(before + 1):
        tap = delay(x, recent, i)
        if segment_ids is not None:
            same = segment_ids == delay(segment_ids, earlier, i)
            tap = jnp.where(same[..., None], tap, 0)
        total = total + kernel[i] * tap
    first = max(t - before, 0) if isinstance(t, int) else 0  # of a symbol of jax.export all
    kept = jnp.concatenate([recent, x[:, first:]], 1)
    kept = kept[:, kept.shape[1] - before :]
    if segment_ids is not None and t:
        ids = jnp.concatenate([earlier, segment_ids[:, first:]], 1)
        same = ids[:, ids.shape[1] - before :] == segment_ids[:, -1:]
        kept = jnp.where(same[..., None], kept, 0)
    return total, kept


def bounded_exp(x: Array) -> Array:
    """Compute the exponential of a learned log, constant beyond 80: a rate saturates.

    A rate of infinity would make NaN of a step of 0, and of every gradient.
    """
    return jnp.exp(jnp.minimum(x, 80.0))


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """Set each number of x to 0 with probability ``rate``, and scale the others by
    ``1 / (1 - rate)``.

    Returns x unchanged without a key, as in evaluation and decoding.
    """
    if key is None or rate == 0:
        return x
    kept = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(kept, x / (1.0 - rate), 0).astype(x.dtype)


def check_dropout(rate: Any) -> None:
    """Raise ValueError unless the rate is a probability below 1."""
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 <= rate < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {shown(rate)}")


def at_least_float32(x: Array) -> Array:
    return x.astype(promoted(x, jnp.float32))


def scale_to_unit(x: Array) -> Array:
    """Scale x to length 1 over its last axis, in its own dtype."""
    wide = at_least_float32(x)
    size = jax.lax.rsqrt(jnp.sum(wide * wide, -1, keepdims=True) + UNIT_EPS)
    return (wide * size).astype(x.dtype)


def rotate(x: Array, positions: Array, base: float = 10000.0) -> Array:
    """Apply rotary positions: rotate channels (i, i + K/2) of x (B, T, H, K) by the position."""
    half, wide = x.shape[-1] // 2, at_least_float32(x)
    speeds = float(base) ** (-np.arange(half) / max(half, 1))
    angles = rotary_angles(positions[:, :, None, None], speeds, wide.dtype)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b, unrotated = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos, unrotated], -1).astype(x.dtype)


def rotary_angles(positions: Array, speeds: np.ndarray, dtype: Any) -> Array:
    """Compute ``positions * speeds``; in float32 up to whole turns.

    A float32 near 1e7 has no digits after the point.  There the product is taken in units of 2^-32
    turns, and overflow of the unsigned integer drops the whole turns; the error is below 1e-6 up to
    2^31 tokens.  In float64 the product itself is as good.
    """
    if dtype == jnp.float64:
        return positions.astype(dtype) * speeds
    per_position = speeds / (2 * np.pi) % 1 * 2.0**32
    integer = np.floor(per_position)
    part = (per_position - integer).astype(np.float32)
    units = positions.astype(jnp.uint32) * integer.astype(np.uint32)
    units += (positions.astype(jnp.float32) * part).astype(jnp.uint32)
    signed = jax.lax.bitcast_convert_type(units, jnp.int32).astype(jnp.float32)
    return signed * np.float32(2 * np.pi / 2.0**32)


def positions(first: Array, tokens: int, segment_ids: Array | None) -> Array:
    """Number the tokens (B, T) from ``first`` (B,) on, and from 0 in each later segment."""
    step = jnp.arange(tokens, dtype=first.dtype)
    at = first[:, None] + step
    if segment_ids is None:
        return at
    new = segment_ids != delay(segment_ids, segment_ids[:, :1])
    begin = running_max(jnp.where(new, step, 0))
    return jnp.where(begin > 0, step - begin, at)


def check_stream(name: str, x: ArrayLike, width: int) -> Array:
    """Check and convert x to a floating array (batch, time, width)."""
    x = jnp.asarray(unshared(x))
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape (batch, time, {width}), got {x.shape}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating-point, got {x.dtype}")
    return x


def check_tokens(tokens: ArrayLike, vocab_size: int) -> Array:
    """Check and convert tokens to an integer array (B, T), within the vocabulary where concrete."""
    array = jnp.asarray(unshared(tokens))
    if array.ndim != 2 or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"tokens must be integers of shape (batch, time), got {array.dtype} {array.shape}"
            + ("; one prompt is tokens[None]" if array.ndim == 1 else "")
        )
    refuse("tokens", tokens, lambda t: (t < 0) | (t >= vocab_size), f"lie in [0, {vocab_size})")
    return array


def check_segment_ids(segment_ids: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Check and convert segment ids to an integer array (batch, time)."""
    ids = jnp.asarray(unshared(segment_ids))
    if ids.shape != shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(
            f"segment_ids must be integers of shape {shape} (batch, time), got {ids.dtype} "
            f"{ids.shape}"
        )
    return ids


def split_keys(key: Array, names: Sequence[str]) -> dict[str, Array]:
    """Derive one random key per name, so that what one part draws never changes another's."""
    return {name: jax.random.fold_in(key, i) for i, name in enumerate(names)}
