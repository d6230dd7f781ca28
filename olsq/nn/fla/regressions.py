"""Layouts of the delta rules and of MesaNet."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from olsq.nn.fla.layout import Allowed, Config, Headed, Layout, Options, Sizes
from olsq.nn.fla.parts import NEGATED, PLAIN, Arrays, Form, Part, by_head, by_step, linear
from olsq.nn.gated import RIDGE_FLOOR, Gated

# Keys and queries are normalised there too; values go through silu, with or without a convolution.
STEPPED: Options = {"value_map": "silu", "strength_bias": False}


class DeltaLayout(Layout):
    model_type, architecture, title = "delta_net", "DeltaNetForCausalLM", "DeltaNet"
    per_head = "b_proj"
    fixed: ClassVar[Options] = STEPPED
    allowed: ClassVar[Allowed] = {
        "use_beta": (True,),
        "qk_activation": ("silu",),
        "qk_norm": ("l2",),
    }
    layer_only: ClassVar[Options] = {"conv_bias": False}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        reflects = bool(config.get("allow_neg_eigval", False))
        return {**super().options(s, config, eps), "negative_eigenvalues": reflects}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [*super().parts(s, norm), linear("b_proj", "strength.project", s.heads, s.dim)]

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "allow_neg_eigval": layer.negative_eigenvalues}


class GatedLayout(Headed):
    """Layout of delta rules with Mamba-2's forget gate,
    ``exp(-exp(A_log) softplus(W x + dt_bias))``.
    """

    per_head = "a_proj"
    fixed: ClassVar[Options] = STEPPED | {"forget_speed": True}
    layer_only: ClassVar[Options] = {"conv_bias": False}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [
            *super().parts(s, norm),
            linear("a_proj", "forget.project", s.heads, s.dim, NEGATED),
            Part("dt_bias", "forget.project.bias", (s.heads,), NEGATED),
            Part("A_log", "speed", (s.heads,)),
        ]

    def move_scales(self, layer: Any) -> Any:
        layer = super().move_scales(layer)
        if not isinstance(layer, Gated) or layer.speed is not None:
            return layer
        return eqx.tree_at(
            lambda m: m.speed, layer, jnp.zeros(layer.heads), is_leaf=lambda x: x is None
        )


class GatedDeltaLayout(GatedLayout):
    model_type, architecture = "gated_deltanet", "GatedDeltaNetForCausalLM"
    title = "GatedDeltaNet"
    shares_keys = True
    allowed: ClassVar[Allowed] = {"output_gate_activation": ("swish", "silu", "sigmoid")}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        kind = config.get("output_gate_activation", "swish")
        gate = "sigmoid" if kind == "sigmoid" else "silu"
        return {
            **super().options(s, config, eps),
            "gate_map": gate,
            "negative_eigenvalues": bool(config.get("allow_neg_eigval", False)),
        }

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [*super().parts(s, norm), linear("b_proj", "strength.project", s.heads, s.dim)]

    def config(self, layer: Any, s: Sizes) -> Options:
        kind = "sigmoid" if layer.gate_map == "sigmoid" else "swish"
        return {
            **super().config(layer, s),
            "output_gate_activation": kind,
            "allow_neg_eigval": layer.negative_eigenvalues,
        }


def curvature_parts(gate: str, s: Sizes) -> list[Part]:
    """List the weights of a preconditioner's curvature, whose gate's projection is ``gate``."""
    at = "curvature"
    return [
        linear(gate, f"{at}.forget.project", s.heads, s.dim, NEGATED),
        Part("dt_bias_atk", f"{at}.forget.project.bias", (s.heads,), NEGATED),
        Part("A_log_atk", f"{at}.speed", (s.heads,)),
        linear("b_atk_proj", f"{at}.strength.project", s.heads, s.dim),
        Part("log_atk_scale", f"{at}.center", (s.heads,)),
    ]


# The rule's own numbers, which layers here do not change.
SQUASHED: Allowed = {"squash_x": (1.5,), "squash_eps": (1e-6,)}


class PreconditionedGatedDeltaLayout(GatedDeltaLayout):
    model_type, architecture = "precond_gated_deltanet", "PrecondGatedDeltaNetForCausalLM"
    title = "PrecondGatedDeltaNet"
    shares_keys = False
    allowed: ClassVar[Allowed] = SQUASHED | {"output_gate_activation": ("swish", "silu")}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [*super().parts(s, norm), *curvature_parts("a_atk_proj", s)]


class DeltaProductLayout(GatedLayout):
    model_type, architecture = "gated_deltaproduct", "GatedDeltaProductForCausalLM"
    title = "GatedDeltaProduct"
    gate_option = "use_output_gate"
    allowed: ClassVar[Allowed] = {"use_forget_gate": (True,)}

    def refuse(self, config: Config) -> None:
        super().refuse(config)
        if config.get("allow_neg_eigval") not in (True, False):
            raise ValueError(
                "config must give allow_neg_eigval, True or False: the weights do not show it"
            )

    def steps(self, arrays: Arrays, at: str, inner: int, config: Config) -> int:
        rows, _ = self.axes(arrays, f"{at}k_proj.weight", 2)
        return max(1, rows // max(1, inner))

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {
            **super().options(s, config, eps),
            "steps": s.steps,
            "negative_eigenvalues": bool(config["allow_neg_eigval"]),
        }

    def channels(self, ours: str, s: Sizes) -> Form:
        return PLAIN if ours == "query_proj" else by_step(s.steps, s.heads)

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        order = by_step(s.steps, s.heads)
        rates = linear("b_proj", "rates.project", s.heads * s.steps, s.dim, order)
        return [*super().parts(s, norm), rates]

    def config(self, layer: Any, s: Sizes) -> Options:
        return {
            **super().config(layer, s),
            "num_householder": s.steps,
            "use_forget_gate": True,
            "allow_neg_eigval": layer.negative_eigenvalues,
        }

    def config_sizes(self, s: Sizes) -> Options:
        return {**super().config_sizes(s), "num_householder": s.steps}


class KDALayout(Headed):
    model_type, architecture, title = "kda", "KDAForCausalLM", "KimiDeltaAttention"
    per_head = "b_proj"
    gate_option = ""
    fixed: ClassVar[Options] = STEPPED
    allowed: ClassVar[Allowed] = {"safe_gate": (False,), "lower_bound": (None,)}
    layer_only: ClassVar[Options] = {"conv_bias": False}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        reflects = bool(config.get("allow_neg_eigval", False))
        return {
            **super().options(s, config, eps),
            "output_gate": True,
            "negative_eigenvalues": reflects,
        }

    def strengths(self, s: Sizes) -> list[Part]:
        """List the weights of the gates of a step."""
        return [linear("b_proj", "strength.project", s.heads, s.dim)]

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        inner, read, rank = s.heads * s.key, s.heads * s.value, s.value
        return [
            *super().parts(s, norm),
            linear("f_proj.0", "decay.project.down", rank, s.dim),
            linear("f_proj.1", "decay.project.up", inner, rank),
            Part("dt_bias", "decay.project.up.bias", (inner,)),
            Part("A_log", "decay.speed", (s.heads,)),
            *self.strengths(s),
            linear("g_proj.0", "reading.down", rank, s.dim),
            linear("g_proj.1", "reading.up", read, rank),
            Part("g_proj.1.bias", "reading.up.bias", (read,)),
        ]

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "allow_neg_eigval": layer.negative_eigenvalues}


class GatedDelta2Layout(KDALayout):
    model_type, architecture, title = "gdn2", "GDN2ForCausalLM", "GatedDeltaNet2"
    per_head = None
    allowed: ClassVar[Allowed] = {"safe_gate": (False,)}

    def strengths(self, s: Sizes) -> list[Part]:
        return [
            linear("b_proj", "erase.project", s.heads * s.key, s.dim),
            linear("w_proj", "admit.project", s.heads * s.value, s.dim),
        ]


class PreconditionedKDALayout(KDALayout):
    model_type, architecture, title = "precond_kda", "PrecondKDAForCausalLM", "PrecondKDA"
    allowed: ClassVar[Allowed] = KDALayout.allowed | SQUASHED

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        return [*super().parts(s, norm), *curvature_parts("a_proj", s)]


class MesaLayout(Headed):
    model_type, architecture, title = "mesa_net", "MesaNetForCausalLM", "MesaNet"
    per_head = "a_proj"
    taps = ("q_conv1d", "k_conv1d")
    gate_option = "use_output_gate"
    always_convolved = one_size = True
    scaled = False
    fixed: ClassVar[Options] = {"forget_bound": None}
    layer_only: ClassVar[Options] = {"conv_bias": False}

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        floor = config.get("lambda_lower_bound", RIDGE_FLOOR)
        return {**super().options(s, config, eps), "ridge_floor": floor, "ridge_start": floor + 1.0}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        gates = {"a_proj": "forget.project", "b_proj": "strength.project"}
        parts = super().parts(s, norm)
        for theirs, ours in gates.items():
            parts.append(linear(theirs, ours, s.heads, s.dim))
            parts.append(Part(f"{theirs}.bias", f"{ours}.bias", (s.heads,)))
        ridge = Part("lambda_params", "ridge.raw", (s.heads * s.key,), by_head(s.heads))
        return [*parts, ridge]

    def shape_options(self, s: Sizes) -> Options:
        return {"head_dim": s.key}

    def config(self, layer: Any, s: Sizes) -> Options:
        return {**super().config(layer, s), "lambda_lower_bound": layer.ridge.floor}
