"""Base layout of flash-linear-attention's layers: sizes, projections, convolutions, norm, gate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.nn.fla.parts import PLAIN, TAPS, Arrays, Form, Part, linear, shared_by_heads
from olsq.nn.heads import HeadMixer
from olsq.nn.mixers import MIXERS
from olsq.nn.parts import ShortConvolution

Config = Mapping[str, Any]
Options = dict[str, Any]
# allowed values of an option of theirs; the first is its default
Allowed = dict[str, tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a layer."""

    dim: int
    heads: int
    key_heads: int  # fewer where neighbouring heads of values share them
    key: int
    value: int
    width: int  # of the convolutions; 0 if there are none
    bias: bool  # of the convolutions
    gate: bool  # whether the output is gated by a full projection
    steps: int = 1  # of a delta product
    rank: int = 0  # of low-rank projections
    count: int = 0  # number of slots, or of rotation angles
    normed: bool = True  # whether the output is normalised


class Names(NamedTuple):
    """Names of the parts of a causal language model, and the eps of its norms."""

    body: str = "model"
    mixer: str = "attn"
    mixer_norm: str = "attn_norm"
    mlp_norm: str | None = "mlp_norm"  # None if its blocks have no MLPs
    norm: str = "norm"
    eps: float = 1e-6  # unless the configuration says

    def block(self, i: int) -> str:
        """Return the prefix of the names of block i."""
        return f"{self.body}.layers.{i}."


class Layout:
    """Weights of one kind of layer in flash-linear-attention: names, shapes, options.

    Subclasses fill in the table of names and override what is special.
    """

    model_type: ClassVar[str]  # of its configuration
    architecture: ClassVar[str]  # of its causal language model
    title: ClassVar[str]  # in messages
    names: ClassVar[Names] = Names()
    fixed: ClassVar[Options] = {}  # our options that are the same for all their layers
    allowed: ClassVar[Allowed] = {}  # supported values of each option of theirs
    layer_only: ClassVar[Options] = {}  # options that their models never pass to a layer
    projections: ClassVar[dict[str, str]] = {
        "q_proj": "query_proj",
        "k_proj": "key_proj",
        "v_proj": "value_proj",
    }
    taps: ClassVar[tuple[str, ...]] = ("q_conv1d", "k_conv1d", "v_conv1d")
    output: ClassVar[str] = "o_proj"
    norms: ClassVar[tuple[str, ...]] = ("o_norm",)  # the first is the name we write with a gate
    per_head: ClassVar[str | None] = None  # a weight with a row for each head
    gate_option: ClassVar[str] = "use_gate"
    always_convolved: ClassVar[bool] = False
    scaled: ClassVar[bool] = True  # queries are divided by sqrt(key size) there
    one_size: ClassVar[bool] = False  # values are as wide as keys
    shares_keys: ClassVar[bool] = False  # num_v_heads may be a multiple of num_heads, of keys
    square: ClassVar[bool] = False  # and heads together as wide as the stream

    def __init__(self, mixer: str) -> None:
        self.mixer, self.kind = mixer, MIXERS[mixer]

    # --- from theirs

    def refuse(self, config: Config) -> None:
        """Raise ValueError for options of theirs that have no counterpart here."""
        heads = config.get("num_heads")
        for name in ("num_kv_heads",) if self.shares_keys else ("num_kv_heads", "num_v_heads"):
            if config.get(name) not in (None, heads):
                raise ValueError(
                    f"{name} {config[name]} is not num_heads {heads}: heads that share keys or "
                    f"values have no counterpart in olsq.nn.{self.kind.__name__}"
                )
        for name, allowed in self.allowed.items():
            if config.get(name, allowed[0]) not in allowed:
                raise ValueError(
                    f"{name}={config[name]!r} has no counterpart in olsq.nn.{self.kind.__name__}, "
                    f"which computes that of {' or '.join(map(repr, allowed))}"
                )

    def split_weights(self, arrays: Arrays, at: str, config: Config) -> Arrays:
        """Split weights of theirs that hold several of ours."""
        return arrays

    def sizes(self, arrays: Arrays, at: str, config: Config) -> Sizes:
        """Determine the sizes from weights and configuration."""
        query, _, value = self.projections
        inner, dim = self.axes(arrays, f"{at}{query}.weight", 2)
        read = inner if self.one_size else self.axes(arrays, f"{at}{value}.weight", 2)[0]
        heads = self.heads(arrays, at, config, read)
        steps = self.steps(arrays, at, inner, config)
        key_heads = self.key_heads(heads, config)
        if not heads or inner % key_heads:
            raise ValueError(
                f"{at}{query}.weight has {inner} rows, which {key_heads} heads cannot share "
                "evenly: give the num_heads of its config"
            )
        if read % (heads * steps):
            raise ValueError(
                f"{at}{value}.weight has {read} rows, which {heads} heads cannot share evenly: "
                "give the num_heads of its config"
            )
        first = self.taps[0] if self.taps else ""
        width = 0
        if f"{at}{first}.weight" in arrays:
            *_, width = self.axes(arrays, f"{at}{first}.weight", 3)
        elif self.taps and (self.always_convolved or config.get("use_short_conv")):
            width = config.get("conv_size", 4)
        return Sizes(
            dim,
            heads,
            key_heads,
            inner // key_heads,
            read // heads // steps,
            width,
            bias=f"{at}{first}.bias" in arrays or bool(width and config.get("conv_bias")),
            gate=f"{at}g_proj.weight" in arrays or bool(config.get(self.gate_option)),
            steps=steps,
            rank=self.rank(arrays, at),
        )

    def heads(self, arrays: Arrays, at: str, config: Config, read: int) -> int:
        if self.per_head is not None:
            return self.axes(arrays, f"{at}{self.per_head}.weight", 2)[0]
        for norm in self.norms:
            if f"{at}{norm}.weight" in arrays:
                return read // self.axes(arrays, f"{at}{norm}.weight", 1)[0]
        if config.get("num_heads") is None:
            raise ValueError(
                f"the weights of a {self.title} do not show its number of heads: pass "
                "config={'num_heads': ...}"
            )
        return config["num_heads"]

    def key_heads(self, heads: int, config: Config) -> int:
        """Return the number of heads of queries and keys, which weights do not show."""
        if not self.shares_keys or config.get("num_v_heads") is None:
            return heads
        key_heads = config.get("num_heads")
        if config["num_v_heads"] != heads or not key_heads or heads % key_heads:
            raise ValueError(
                f"num_v_heads must be the {heads} heads of {self.per_head}.weight, and a multiple "
                f"of num_heads, got num_v_heads {config['num_v_heads']} and num_heads {key_heads}"
            )
        return key_heads

    def steps(self, arrays: Arrays, at: str, inner: int, config: Config) -> int:
        return 1

    def rank(self, arrays: Arrays, at: str) -> int:
        return 0

    def axes(self, arrays: Arrays, name: str, count: int) -> tuple[int, ...]:
        """Return the shape of a weight, raising if it is missing or has another number of axes."""
        if name not in arrays:
            raise ValueError(f"the weights must be those of a {self.title}, but {name} is missing")
        if arrays[name].ndim != count:
            raise ValueError(f"{name} must have {count} axes, got shape {arrays[name].shape}")
        return arrays[name].shape

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        """Return the options of our mixer."""
        options: Options = {"output_gate": s.gate, **self.fixed}
        if self.norms:
            options["norm_eps"] = eps * s.key if self.scaled else eps
        if s.value != s.key:
            options["value_size"] = s.value
        if s.key_heads != s.heads:
            options["key_heads"] = s.key_heads
        if self.taps:
            options["convolution"] = bool(s.width)
            if s.width:
                options |= {"convolution_width": s.width, "convolution_bias": s.bias}
                options["convolve_values"] = len(self.taps) == 3
        return options

    def outline(self, s: Sizes, config: Config, eps: float) -> Any:
        """Build our layer with shapes where it has arrays."""
        options = self.options(s, config, eps)
        return eqx.filter_eval_shape(
            lambda: self.kind(
                s.dim, heads=s.heads, key_size=s.key, key=jax.random.key(0), **options
            )
        )

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        """List every weight there with its place here; ``norm`` is the name of the norm."""
        widths = self.widths(s)
        parts = [
            linear(theirs, ours, widths[ours], s.dim, self.channels(ours, s))
            for theirs, ours in self.projections.items()
        ]
        parts.append(linear(self.output, "output_proj", s.dim, s.heads * s.value))
        if s.gate:
            parts.append(linear("g_proj", "output_gate", s.heads * s.value, s.dim))
        # We have one kernel, over the channels of all convolved streams.
        for name, ours in zip(
            self.taps if s.width else (), self.projections.values(), strict=False
        ):
            channels, form = widths[ours], self.channels(ours, s)
            kernel = Form(
                lambda x, form=form: TAPS.ours(form.ours(x)),
                lambda x, form=form: form.theirs(TAPS.theirs(x)),
            )
            shape = (channels, 1, s.width)
            parts.append(Part(f"{name}.weight", "convolution.kernel", shape, kernel))
            if s.bias:
                parts.append(Part(f"{name}.bias", "convolution.bias", (channels,), form))
        if self.norms:
            parts.append(Part(f"{norm}.weight", "norm.scale", (s.value,), shared_by_heads(s.heads)))
        return parts

    def widths(self, s: Sizes) -> dict[str, int]:
        """Return the numbers of outputs of our projections."""
        return {
            "query_proj": s.key_heads * s.key,
            "key_proj": s.key_heads * s.steps * s.key,
            "value_proj": s.heads * s.steps * s.value,
        }

    def channels(self, ours: str, s: Sizes) -> Form:
        """Return the order of a projection's outputs."""
        return PLAIN

    def unused_weights(self, s: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shapes of our weights that do nothing in such a layer, by name."""
        return {}

    def norm_name(self, arrays: Arrays, at: str, s: Sizes) -> str:
        """Return the name of the norm, which depends on their fused kernels."""
        there = [name for name in self.norms if f"{at}{name}.weight" in arrays]
        return there[0] if there else self.norm_to_write(s)

    def norm_to_write(self, s: Sizes) -> str:
        return self.norms[0 if s.gate else -1] if self.norms else ""

    # --- to theirs

    def move_scales(self, layer: Any) -> Any:
        """Move scales that differ between heads to weights that may differ between heads there."""
        scale = None if layer.norm is None else np.asarray(layer.norm.scale)
        if scale is None or scale.ndim == 1 or (scale == scale[:1]).all():
            return layer
        weight = layer.output_proj.weight * jnp.reshape(scale, (-1, 1))
        return eqx.tree_at(
            lambda m: (m.output_proj.weight, m.norm.scale), layer, (weight, jnp.ones_like(scale))
        )

    def sizes_of(self, layer: HeadMixer) -> Sizes:
        taps = layer.convolution
        learned = isinstance(taps, ShortConvolution)
        return Sizes(
            layer.dim,
            layer.heads,
            layer.key_heads,
            layer.key_size,
            layer.value_size,
            width=taps.kernel.shape[0] if learned else 0,
            bias=learned and taps.bias is not None,
            gate=layer.output_gate is not None,
            steps=getattr(layer, "steps", 1),
        )

    def join_weights(self, arrays: Arrays, at: str) -> Arrays:
        """Join the weights that :meth:`split_weights` splits."""
        return arrays

    def norm_of(self, layer: Any) -> Any:
        """Return the norm whose eps is that of the configuration; None if there is none."""
        return layer.norm

    def eps_of(self, layer: Any, s: Sizes) -> float | None:
        """Return their ``norm_eps``; None if there is no norm."""
        if layer.norm is None:
            return None
        return layer.norm.eps / s.key if self.scaled else layer.norm.eps

    def config(self, layer: Any, s: Sizes) -> Options:
        """Return their options of the layer, except the eps of its norm."""
        config: Options = {"hidden_size": s.dim, "num_heads": s.key_heads, **self.shape_options(s)}
        if s.key_heads != s.heads:
            config["num_v_heads"] = s.heads
        if self.taps:
            config |= {"use_short_conv": bool(s.width), "conv_bias": s.bias}
            config |= {"conv_size": s.width} if s.width else {}
        if self.gate_option:
            config[self.gate_option] = s.gate
        return config

    def shape_options(self, s: Sizes) -> Options:
        """Return the options by which they give the sizes of keys and values."""
        return {
            "expand_k": expansion(s.heads * s.key, s.dim),
            "expand_v": expansion(s.heads * s.value, s.dim),
        }

    def config_sizes(self, s: Sizes) -> Options:
        """Return the sizes under their names, to compare with a configuration."""
        named: Options = {"hidden_size": s.dim, "num_heads": s.key_heads}
        return named | ({"conv_size": s.width} if s.width else {})


class Headed(Layout):
    """Layout whose sizes are given by ``head_dim`` and ``expand_v``."""

    def shape_options(self, s: Sizes) -> Options:
        return {"head_dim": s.key, "expand_v": expansion(s.value, s.key)}

    def config_sizes(self, s: Sizes) -> Options:
        return {**super().config_sizes(s), "head_dim": s.key}


def expansion(width: int, of: int) -> float:
    """Return a factor with ``int(of * factor) == width``: they truncate it, and do not round."""
    ratio = width / of
    return ratio if int(of * ratio) == width else math.nextafter(ratio, math.inf)
