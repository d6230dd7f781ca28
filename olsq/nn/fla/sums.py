"""Layouts of gated sums, of softmax attention and of Parallax."""

from __future__ import annotations

from typing import Any, ClassVar

from olsq.nn.fla.layout import Allowed, Config, Layout, Options, Sizes
from olsq.nn.fla.parts import Arrays, Part, linear
from olsq.nn.gsa import POWER
from olsq.nn.linear import RANK

SWISH = ("swish", "silu")
ROPE = 10000.0


class Sum(Layout):
    """Layout with queries, keys and values that have no feature map, or a convolution with silu."""

    norms = ("g_norm_swish_gate", "g_norm")
    gate_option = "use_output_gate"
    fixed: ClassVar[Options] = {"normalise": False}
    allowed: ClassVar[Allowed] = {
        "feature_map": (None,),
        "gate_fn": SWISH,
        "elementwise_affine": (True, None),
    }

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        maps = ("silu", "silu") if s.width else ("identity", "identity")
        return {**super().options(s, config, eps), "feature_map": maps[0], "value_map": maps[1]}


class GLALayout(Sum):
    model_type, architecture, title = "gla", "GLAForCausalLM", "GLA"
    fixed: ClassVar[Options] = {"normalise": False, "vector_gates": True, "weighted": False}
    allowed: ClassVar[Allowed] = Sum.allowed | {
        "clamp_min": (None,),
        "gate_logit_normalizer": (16,),
        "use_gk": (True,),
        "use_gv": (False,),
    }
    layer_only: ClassVar[Options] = {"conv_bias": False, "gate_low_rank_dim": 16}

    def rank(self, arrays: Arrays, at: str) -> int:
        return self.axes(arrays, f"{at}gk_proj.0.weight", 2)[0]

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "rank": s.rank}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        inner = s.heads * s.key
        return [
            *super().parts(s, norm),
            linear("gk_proj.0", "vector.down", s.rank, s.dim),
            linear("gk_proj.1", "vector.up", inner, s.rank),
            Part("gk_proj.1.bias", "vector.up.bias", (inner,)),
        ]

    def unused_weights(self, s: Sizes) -> dict[str, tuple[int, ...]]:
        return {"forget.project.weight": (s.dim, s.heads), "forget.project.bias": (s.heads,)}

    def sizes_of(self, layer: Any) -> Sizes:
        rank = RANK if layer.vector is None else layer.vector.down.weight.shape[1]
        return replace_sizes(super().sizes_of(layer), rank=rank)

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "gate_low_rank_dim": s.rank}


class RetentionLayout(Sum):
    model_type, architecture, title = "retnet", "RetNetForCausalLM", "RetNet"
    fixed: ClassVar[Options] = {"normalise": False, "rope_base": ROPE}
    layer_only: ClassVar[Options] = {"conv_bias": False}


class LinearLayout(Layout):
    model_type, architecture = "linear_attn", "LinearAttentionForCausalLM"
    title = "LinearAttention"
    fixed: ClassVar[Options] = {"normalise": False, "convolution": False}
    taps = ()
    norms = ("norm",)
    gate_option = ""
    allowed: ClassVar[Allowed] = {
        "norm_q": (False,),
        "norm_k": (False,),
        "output_norm": ("rmsnorm",),
        "elementwise_affine": (True, None),
    }

    def refuse(self, config: Config) -> None:
        super().refuse(config)
        feature_map = config.get("feature_map")
        if feature_map not in ("elu", "identity"):
            raise ValueError(
                f"feature_map must be 'elu' or 'identity', got {feature_map!r}: the weights do not "
                "show it, and others, such as the learned 'elementwise_product', have no "
                "counterpart"
            )

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        divided = bool(config.get("norm_feature_map", config.get("do_feature_map_norm", False)))
        options = super().options(s, config, eps)
        # With the normaliser, the scale of queries cancels.
        options["norm_eps"] = eps if divided else eps * s.key
        return {**options, "feature_map": config["feature_map"], "normaliser": divided}

    def eps_of(self, layer: Any, s: Sizes) -> float | None:
        if layer.norm is None:
            return None
        return layer.norm.eps if layer.normaliser else layer.norm.eps / s.key

    def config(self, layer: Any, s: Sizes) -> Options:
        return {
            **super().config(layer, s),
            "feature_map": layer.feature_map,
            "norm_feature_map": layer.normaliser,
            "do_feature_map_norm": layer.normaliser,
        }


class HGRN2Layout(Layout):
    model_type, architecture, title = "hgrn2", "HGRN2ForCausalLM", "HGRN2"
    projections: ClassVar[dict[str, str]] = {
        "q_proj": "query_proj",
        "f_proj": "key_proj",
        "i_proj": "value_proj",
    }
    taps = ("q_conv1d", "f_conv1d", "i_conv1d")
    norms = ("g_norm",)
    gate_option = ""
    one_size = square = True
    fixed: ClassVar[Options] = {"feature_map": "silu", "normalise": False, "joint_norm": True}
    allowed: ClassVar[Allowed] = {"use_lower_bound": (False,), "elementwise_affine": (True, None)}
    layer_only: ClassVar[Options] = {"conv_bias": False}

    def heads(self, arrays: Arrays, at: str, config: Config, read: int) -> int:
        size = config.get("expand_ratio")
        if size is None and config.get("num_heads") is None:
            raise ValueError(
                "the weights of an HGRN2 do not show its number of heads: pass "
                "config={'expand_ratio': ...}, the size of a head, or num_heads"
            )
        return config["num_heads"] if size is None else read // size

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        joint = Part(f"{norm}.weight", "norm.scale", (s.dim,))
        return [part for part in super().parts(s, norm) if part.ours != "norm.scale"] + [joint]

    def shape_options(self, s: Sizes) -> Options:
        return {"expand_ratio": s.key, "use_lower_bound": False}

    def config_sizes(self, s: Sizes) -> Options:
        return {**super().config_sizes(s), "expand_ratio": s.key}


class GSALayout(Layout):
    model_type, architecture, title = "gsa", "GSAForCausalLM", "GatedSlotAttention"
    taps, norms, gate_option = (), ("g_norm",), ""  # their use_output_gate does nothing
    scaled = False
    fixed: ClassVar[Options] = {
        "normalise": False,
        "convolution": False,
        "value_map": "silu",
        "read_map": "silu",
        "joint_norm": True,
    }
    # After their convolution, which has a silu of its own, their features are mapped twice.
    allowed: ClassVar[Allowed] = {
        "use_short_conv": (False,),
        "feature_map": SWISH,
        "gate_logit_normalizer": (POWER,),
        "scale": (1.0,),
        "elementwise_affine": (True, None),
    }

    def heads(self, arrays: Arrays, at: str, config: Config, read: int) -> int:
        if config.get("num_heads") is None:
            raise ValueError(
                "the weights of a GatedSlotAttention do not show its number of heads: pass "
                "config={'num_heads': ...}"
            )
        return config["num_heads"]

    def sizes(self, arrays: Arrays, at: str, config: Config) -> Sizes:
        s = super().sizes(arrays, at, config)
        slots, over = divmod(self.axes(arrays, f"{at}f_proj.weight", 2)[0], s.heads)
        if over:
            raise ValueError(f"{at}f_proj.weight must have as many rows for each head, {s.heads}")
        return replace_sizes(s, count=slots)

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "slots": s.count}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [
            *(part for part in super().parts(s, norm) if part.ours != "norm.scale"),
            linear("f_proj", "forget.project", s.heads * s.count, s.dim),
            Part(f"{norm}.weight", "norm.scale", (s.dim,)),
        ]

    def sizes_of(self, layer: Any) -> Sizes:
        return replace_sizes(super().sizes_of(layer), count=layer.slots)

    def move_scales(self, layer: Any) -> Any:
        if not layer.joint_norm:
            return layer  # the caller then reports the difference of joint_norm
        if layer.heads * layer.value_size != layer.dim:
            raise ValueError(
                f"heads are {layer.heads * layer.value_size} wide together, not {layer.dim}: the "
                "norm of flash-linear-attention's GatedSlotAttention is as wide as the stream"
            )
        return layer

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "num_slots": s.count}

    def config_sizes(self, s: Sizes) -> Options:
        return {**super().config_sizes(s), "num_slots": s.count}


class SoftmaxLayout(Layout):
    model_type, architecture, title = "transformer", "TransformerForCausalLM", "Transformer"
    taps, norms, gate_option = (), (), ""
    one_size = square = True
    allowed: ClassVar[Allowed] = {"qkv_bias": (False,), "qk_norm": (False,), "window_size": (None,)}

    def refuse(self, config: Config) -> None:
        super().refuse(config)
        if config.get("rope_theta", ROPE) is None:
            raise ValueError("rope_theta must be a number: their Transformer always rotates")

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "rope_base": config.get("rope_theta", ROPE)}

    def shape_options(self, s: Sizes) -> Options:
        return {}

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "rope_theta": layer.rope_base, "window_size": None}


class WindowLayout(SoftmaxLayout):
    allowed: ClassVar[Allowed] = {"qkv_bias": (False,), "qk_norm": (False,)}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "window": config["window_size"]}

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "window_size": layer.window}


class ParallaxLayout(Layout):
    model_type, architecture, title = "parallax", "ParallaxForCausalLM", "Parallax"
    taps, norms, gate_option = (), (), ""
    one_size = square = True
    fixed: ClassVar[Options] = {"rope_base": None}
    allowed: ClassVar[Allowed] = {"qkv_bias": (False,), "qk_norm": (False,)}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "window": config.get("window_size")}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        direction = linear("r_proj", "direction_proj", s.heads * s.key, s.dim)
        return [*super().parts(s, norm), direction]

    def shape_options(self, s: Sizes) -> Options:
        return {}

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "window_size": layer.window}


class ForgettingLayout(Layout):
    model_type, architecture = "forgetting_transformer", "ForgettingTransformerForCausalLM"
    title = "ForgettingTransformer"
    taps, norms, gate_option = (), (), "use_output_gate"
    one_size = square = True
    per_head = "f_proj"
    fixed: ClassVar[Options] = {"gate_map": "sigmoid"}
    allowed: ClassVar[Allowed] = {"qkv_bias": (False,), "qk_norm": (False,), "window_size": (None,)}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [
            *super().parts(s, norm),
            linear("f_proj", "forget.project", s.heads, s.dim),
            Part("f_proj.bias", "forget.project.bias", (s.heads,)),
        ]

    def shape_options(self, s: Sizes) -> Options:
        return {}


def replace_sizes(s: Sizes, **changed: Any) -> Sizes:
    return Sizes(**{**vars(s), **changed})
