"""Mixers with heads: the MesaNet paper's projections, convolution, gates and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_sizes
from olsq.attention.arguments import repeat_heads
from olsq.attention.rules.linear import features as mapped
from olsq.nn.base import Mixer, MixerState
from olsq.nn.parts import (
    NORM_EPS,
    Linear,
    RMSNorm,
    Shift,
    ShortConvolution,
    as_bool,
    at_least_float32,
    scale_to_unit,
    split_keys,
)

WIDTH = 4  # of the short convolutions
FeatureMap = Literal["silu", "identity", "elu", "dpfp"]
FEATURE_MAPS = get_args(FeatureMap)
ValueMap = Literal["identity", "silu"]
GateMap = Literal["silu", "sigmoid"]


class HeadMixer(Mixer):
    """Mixer with heads: queries, keys and values, a rule, and the projection back to the stream.

    Parameters
    ----------
    dim : int
        Width of the residual stream.
    heads, key_size, value_size : int
        ``key_size = dim // heads`` and ``value_size = key_size`` if not given.
    key_heads : int, optional
        Heads of queries and keys, where ``heads / key_heads`` neighbouring heads of values share
        each of them; gates, ridges and what is remembered are of ``heads`` heads.  ``heads`` if
        not given.
    feature_map : {"silu", "identity", "elu", "dpfp"}
        Of queries and keys, before they are normalised.  "dpfp" makes keys ``2 nu`` times wider.
    value_map : {"identity", "silu"}
        Of values.
    normalise : bool
        Scale queries and keys to length 1.
    convolution : bool
        Causal depthwise convolution on queries and keys (and values, if ``convolve_values``), of
        ``convolution_width`` 4, with a bias if ``convolution_bias``.
    key_shift : bool
        Instead, a token's key is made from the token before it.
    output_norm : bool
        RMS norm of what each head reads.
    output_gate : bool
        Multiply what the heads read, normalised, by ``silu(W x)``.
    gate_map : {"silu", "sigmoid"}
        What is made of ``W x`` there.
    norm_eps : float
        Of the norm of what each head reads.
    output_gain : float
        Standard deviation of the output projection's weights, in units of ``1 / sqrt(inputs)``;
        models make it ``sqrt(2 / blocks)``.
    key : jax.random.key
    """

    query_proj: Linear
    key_proj: Linear
    value_proj: Linear
    output_proj: Linear
    output_gate: Linear | None
    norm: RMSNorm | None
    convolution: ShortConvolution | Shift | None
    dim: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    key_heads: int = eqx.field(static=True)
    key_size: int = eqx.field(static=True)
    value_size: int = eqx.field(static=True)
    feature_map: FeatureMap = eqx.field(static=True)
    value_map: ValueMap = eqx.field(static=True)
    gate_map: GateMap = eqx.field(static=True)
    nu: int = eqx.field(static=True)
    normalise: bool = eqx.field(static=True, converter=as_bool)
    convolved: tuple[str, ...] = eqx.field(static=True)

    rule: ClassVar[Callable[..., Any]]
    own_keys: ClassVar[bool] = False  # whether weights per head meet the keys before the rule

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        key_heads: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        feature_map: FeatureMap = "silu",
        value_map: ValueMap = "identity",
        nu: int = 1,
        normalise: bool = True,
        convolution: bool = True,
        convolve_values: bool = False,
        convolution_width: int = WIDTH,
        convolution_bias: bool = False,
        key_shift: bool = False,
        output_norm: bool = True,
        output_gate: bool = False,
        gate_map: GateMap = "silu",
        norm_eps: float = NORM_EPS,
        output_gain: float = 1.0,
        key: Array,
    ) -> None:
        if key_size is None:
            check_sizes(dim=dim, heads=heads)
            if dim % heads:
                raise ValueError(f"dim {dim} must be a multiple of heads {heads}: or give key_size")
            key_size = dim // heads
        value_size = key_size if value_size is None else value_size
        key_heads = heads if key_heads is None else key_heads
        check_sizes(dim=dim, heads=heads, key_size=key_size, value_size=value_size, nu=nu)
        check_sizes(key_heads=key_heads)
        if heads % key_heads:
            raise ValueError(f"key_heads must divide the {heads} heads, got {key_heads}")
        for name, value, allowed in (
            ("feature_map", feature_map, FEATURE_MAPS),
            ("value_map", value_map, get_args(ValueMap)),
            ("gate_map", gate_map, get_args(GateMap)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
        self.dim, self.heads, self.key_size, self.value_size = dim, heads, key_size, value_size
        self.key_heads = key_heads
        self.feature_map, self.nu, self.normalise = feature_map, nu, normalise
        self.value_map, self.gate_map = value_map, gate_map
        keys = split_keys(key, ("query", "key", "value", "output", "convolution", "gate"))
        widths = self.stream_widths
        self.query_proj = Linear(dim, widths["query"], key=keys["query"])
        self.key_proj = Linear(dim, widths["key"], key=keys["key"])
        self.value_proj = Linear(dim, widths["value"], key=keys["value"])
        self.output_proj = Linear(heads * value_size, dim, key=keys["output"], gain=output_gain)
        wide, gate_key = heads * value_size, keys["gate"]
        self.output_gate = Linear(dim, wide, key=gate_key) if output_gate else None
        self.norm = RMSNorm(heads, value_size, eps=norm_eps) if output_norm else None
        if key_shift:
            self.convolution, self.convolved = Shift(), ("key",)
        elif convolution:
            self.convolved = ("query", "key", "value") if convolve_values else ("query", "key")
            channels = sum(widths[name] for name in self.convolved)
            check_sizes(convolution_width=convolution_width)
            self.convolution = ShortConvolution(
                convolution_width, channels, bias=convolution_bias, key=keys["convolution"]
            )
        else:
            self.convolution, self.convolved = None, ()

    @property
    def stream_widths(self) -> dict[str, int]:
        """Numbers of channels of the queries, keys and values of all heads."""
        keys = self.key_heads * self.key_size
        return {"query": keys, "key": keys, "value": self.heads * self.value_size}

    @property
    def mapped_size(self) -> int:
        """Width of a head's keys after the feature map."""
        return 2 * self.nu * self.key_size if self.feature_map == "dpfp" else self.key_size

    def project(
        self, x: Array, recent: Array | None, segment_ids: Array | None
    ) -> tuple[dict[str, Array], Array | None]:
        """Compute queries, keys and values of x (B, T, dim), convolved, with values mapped.

        Returns
        -------
        streams : dict of array (B, T, channels)
            "query", "key" and "value", of all heads.
        recent : array (B, width - 1, channels) or None
            The convolution's state.
        """
        projected = self.query_proj(x), self.key_proj(x), self.value_proj(x)
        streams: dict[str, Array] = dict(zip(("query", "key", "value"), projected, strict=True))
        if self.convolution is not None:
            joined = jnp.concatenate([streams[name] for name in self.convolved], -1)
            joined, recent = self.convolution(joined, recent, segment_ids)
            ends, total = [], 0
            for name in self.convolved:
                total += streams[name].shape[-1]
                ends.append(total)
            parts = jnp.split(joined, ends[:-1], -1)
            streams.update(zip(self.convolved, parts, strict=True))
        if self.value_map == "silu":
            streams["value"] = jax.nn.silu(streams["value"])
        return streams, recent

    def features(self, x: Array) -> Array:
        """Map queries or keys (B, T, H, key_size) to the rule's inputs, (B, T, H, mapped_size)."""
        kind = self.feature_map
        # MesaNet: SiLU, then L2 normalisation
        x = jax.nn.silu(x) if kind == "silu" else mapped(x, kind, self.nu)
        return scale_to_unit(x) if self.normalise else x

    def split_heads(self, x: Array) -> Array:
        """Reshape a stream (B, T, H * size) to (B, T, H, size)."""
        return split_channels(x, self.heads)

    def split_streams(self, streams: dict[str, Array]) -> tuple[Array, Array, Array]:
        """Reshape queries, keys and values to (B, T, heads, size).

        Queries and keys keep their ``key_heads`` heads unless weights per head meet them.
        """
        q, k = (split_channels(streams[name], self.key_heads) for name in ("query", "key"))
        if self.own_keys:
            q, k = (repeat_heads(x, self.heads) for x in (q, k))
        return q, k, self.split_heads(streams["value"])

    def arguments(self, x: Array) -> dict[str, Any]:
        """Compute gates and other arguments of the rule by name, from the layer's input x (B, T,
        dim).
        """
        return {}

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **context: Any
    ) -> tuple[Array, Any]:
        """Run the rule: outputs (B, T, H, V) and its state.

        q and k are (B, T, key_heads, K), v is (B, T, H, V); ``context`` are state and segment_ids.
        """
        return type(self).rule(q, k, v, **arguments, **context)

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        """Compute ``q, k, v``, (B, T, heads, size) each, the rule's arguments and the convolution's
        state.
        """
        streams, recent = self.project(x, recent, segment_ids)
        q, k, v = self.split_streams(streams)
        return self.features(q), self.features(k), v, self.arguments(x), recent

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        recent, memory = (None, None) if state is None else state
        q, k, v, arguments, recent = self.read(x, recent, segment_ids)
        o, memory = self.attend(q, k, v, arguments, state=memory, segment_ids=segment_ids)
        return self.write(o, x), MixerState(recent, memory)

    def write(self, o: Array, x: Array) -> Array:
        """Normalise the outputs of the heads (B, T, H, V), gate them by x, project them to (B, T,
        dim).
        """
        if self.norm is not None:
            o = self.norm(o)
        return self.output_proj(jax.lax.collapse(self.gate_outputs(o, x), 2).astype(x.dtype))

    def gate_outputs(self, o: Array, x: Array) -> Array:
        """Gate the outputs of the heads (B, T, H, V) by x (B, T, dim), if the mixer has a gate."""
        if self.output_gate is None:
            return o
        gate = self.split_heads(self.output_gate(x))
        gate = jax.nn.silu(gate) if self.gate_map == "silu" else jax.nn.sigmoid(gate)
        return o * gate.astype(o.dtype)


def split_channels(x: Array, heads: int) -> Array:
    """Reshape (B, T, heads * size) to (B, T, heads, size)."""
    return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads)


class JointlyNormed(HeadMixer):
    """Mixer whose heads may share one RMS norm of their outputs, with ``joint_norm=True``."""

    joint_norm: bool = eqx.field(static=True, converter=as_bool)

    def __init__(self, dim: int, *, joint_norm: bool = False, **options: Any) -> None:
        super().__init__(dim, **options)
        self.joint_norm = joint_norm
        if joint_norm and self.norm is not None:
            self.norm = RMSNorm(self.heads * self.value_size, eps=self.norm.eps)

    def write(self, o: Array, x: Array) -> Array:
        return super().write(jax.lax.collapse(o, 2) if self.joint_norm else o, x)

    def gate_outputs(self, o: Array, x: Array) -> Array:
        return super().gate_outputs(self.split_heads(o) if self.joint_norm else o, x)


class Gate(eqx.Module):
    """Pre-activations of a gate per head, in float32 or better: sigmoids resolve gates near 1."""

    project: Linear

    def __init__(self, dim: int, outputs: int, *, key: Array, bias: ArrayLike | None = 0.0) -> None:
        self.project = Linear(dim, outputs, key=key, bias=bias)

    def __call__(self, x: Array) -> Array:
        return self.project(at_least_float32(x))
