"""Layers with flash-linear-attention's parameters, computed by olsq: MesaNet, Gated DeltaNet.

Parameters have the names and shapes of that library's ``MesaNet`` and ``GatedDeltaNet``, so that
``load_state_dict`` reads its weights and ``state_dict`` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from olsq.arrays.checks import check_flag, check_flags
from olsq.torch.calls import wrap

gated_delta, mesa = wrap("gated_delta"), wrap("mesa")

UNIT_EPS = 1e-6  # added to |x|^2 where x is scaled to length 1
NOT_GIVEN: Any = object()


class LayerState(NamedTuple):
    """State that a layer keeps between calls.

    Attributes
    ----------
    recent : tuple of tensor (B, width - 1, channels)
        The last inputs of each short convolution.
    rule : named tuple of tensors
        State of the attention rule.
    """

    recent: tuple[Tensor, ...]
    rule: Any


class ShortConv(nn.Module):
    """Causal depthwise convolution, then SiLU; the last tap is on the current token."""

    def __init__(self, channels: int, width: int, bias: bool) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, 1, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convolve x (B, T, channels) after ``recent``; return it with the last inputs."""
        before = self.weight.shape[-1] - 1
        if recent is None:
            recent = x.new_zeros(x.shape[0], before, x.shape[-1])
        full = torch.cat([recent, x], 1)
        weight, bias = self.weight.to(x.dtype), self.bias
        bias = None if bias is None else bias.to(x.dtype)
        y = nn.functional.conv1d(full.mT, weight, bias, groups=x.shape[-1]).mT
        return nn.functional.silu(y), full[:, full.shape[1] - before :]


class Norm(nn.Module):
    """RMS norm over a head's outputs, with one scale for all heads."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).to(x.dtype)


class HeadLayer(nn.Module):
    """Projections, convolutions, output norm and gate around an attention rule."""

    convolved: tuple[str, ...] = ("q", "k", "v")
    head_weights = ""  # a parameter from whose length from_fla counts the heads

    def __init__(
        self,
        dim: int,
        heads: int,
        key_size: int | None,
        value_size: int | None,
        output_gate: bool,
        width: int | None,
        bias: bool,
        norm_eps: float,
    ) -> None:
        super().__init__()
        check_flags(output_gate=output_gate, convolution_bias=bias)
        if key_size is None:
            if dim % heads:
                raise ValueError(f"dim {dim} must be a multiple of heads {heads}: or give key_size")
            key_size = dim // heads
        value_size = key_size if value_size is None else value_size
        sizes = {"dim": dim, "heads": heads, "key_size": key_size, "value_size": value_size}
        if wrong := [f"{name}={n}" for name, n in sizes.items() if n < 1]:
            raise ValueError(f"sizes must be at least 1, got {', '.join(wrong)}")
        self.dim, self.heads, self.key_size, self.value_size = dim, heads, key_size, value_size
        inner, wide = heads * key_size, heads * value_size
        self.q_proj = nn.Linear(dim, inner, bias=False)
        self.k_proj = nn.Linear(dim, inner, bias=False)
        self.v_proj = nn.Linear(dim, wide, bias=False)
        self.widths = {"q": inner, "k": inner, "v": wide}
        for name in self.convolved if width is not None else ():
            self.add_module(f"{name}_conv1d", ShortConv(self.widths[name], width or 0, bias))
        if output_gate:
            self.g_proj = nn.Linear(dim, wide, bias=False)
        self.o_norm = Norm(value_size, norm_eps)
        self.o_proj = nn.Linear(wide, dim, bias=False)
        self.output_gate, self.gate_kind = output_gate, "swish"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run the rule on (B, T, H, size); x (B, T, dim) makes the gates."""
        raise NotImplementedError

    def forward(self, x: Tensor, *, state: LayerState | None = NOT_GIVEN) -> Any:
        """Mix x (B, T, dim); with ``state`` (None begins a stream) return the new state too."""
        if x.dim() != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must have shape (batch, time, {self.dim}), got {tuple(x.shape)}")
        past = state if isinstance(state, LayerState) else None
        if state is not NOT_GIVEN and state is not None and past is None:
            raise TypeError(f"state must be a LayerState or None, got {type(state).__name__}")
        streams, recent = {}, []
        for name in ("q", "k", "v"):
            y = getattr(self, f"{name}_proj")(x)
            conv = getattr(self, f"{name}_conv1d", None)
            if conv is not None:
                y, last = conv(y, past.recent[len(recent)] if past is not None else None)
                recent.append(last)
            elif name in self.convolved:
                y = nn.functional.silu(y)
            streams[name] = y.unflatten(-1, (self.heads, -1))
        q, k = (scale_to_unit(streams[name]) for name in ("q", "k"))
        o, rule = self.attend(q, k, streams["v"], x, None if past is None else past.rule)
        o = self.o_norm(o)
        if self.output_gate:
            gate = self.g_proj(x).unflatten(-1, (self.heads, -1))
            o = o * (gate.sigmoid() if self.gate_kind == "sigmoid" else nn.functional.silu(gate))
        y = self.o_proj(o.flatten(-2).to(x.dtype))
        return y if state is NOT_GIVEN else (y, LayerState(tuple(recent), rule))

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Any]:
        """Read the sizes of a state dict, and the options that only a configuration has."""
        needed = ("q_proj.weight", "v_proj.weight", cls.head_weights)
        if missing := [name for name in needed if name not in weights]:
            raise ValueError(f"the weights lack {', '.join(missing)}: give one layer's state_dict")
        inner, dim = weights["q_proj.weight"].shape
        heads, wide = weights[cls.head_weights].shape[0], weights["v_proj.weight"].shape[0]
        if config.get("num_heads") not in (None, heads):
            raise ValueError(
                f"num_heads must be the {heads} heads of {cls.head_weights}, got "
                f"{config['num_heads']}: heads of values that share keys are read by "
                "olsq.nn.from_fla"
            )
        width = None
        if "q_conv1d.weight" in weights:
            width = weights["q_conv1d.weight"].shape[-1]
        return {
            "dim": dim,
            "heads": heads,
            "key_size": inner // heads,
            "value_size": wide // heads,
            "output_gate": "g_proj.weight" in weights,
            "convolution_width": width,
            "convolution_bias": "q_conv1d.bias" in weights,
            "norm_eps": config.get("norm_eps", 1e-5),
        }

    @classmethod
    def from_fla(
        cls, weights: Mapping[str, Tensor], config: Mapping[str, Any] | None = None
    ) -> Self:
        """Make the layer of a state dict of flash-linear-attention's layer.

        Parameters
        ----------
        weights : mapping of str to tensor
            The layer's ``state_dict()``, in any one dtype, which the layer keeps.
        config : mapping, optional
            Its ``config.json``, for what weights do not show: ``norm_eps`` and the options named
            in the class's documentation.

        Returns
        -------
        module
            With the weights loaded, on their device.

        Raises
        ------
        ValueError
            If sizes cannot be read from the weights.
        RuntimeError
            If weights are missing, unknown or of another shape: torch names them.
        """
        layer = cls(**cls.options_of(weights, config or {}))
        first = weights["q_proj.weight"]
        layer = layer.to(device=first.device, dtype=first.dtype)
        layer.load_state_dict(dict(weights))
        return layer


class Mesa(HeadLayer):
    """MesaNet's layer: every token reads the solution of a ridge regression from keys to values.

    Parameters
    ----------
    dim, heads : int
    key_size : int, optional
        Of a head's queries, keys and values; ``dim / heads`` if None.
    output_gate : bool
        Multiply the outputs by ``silu(W x)``.
    convolution_width : int
        Taps of the convolutions of queries and keys.
    convolution_bias : bool
    ridge_floor : float
        ``Lambda = ridge_floor + softplus(lambda_params)``, at first ``max(1, ridge_floor + 0.5)``;
        ``lambda_lower_bound`` of the library's configuration.
    norm_eps : float
        Of the norm of the outputs.
    solver : optional
        As for :func:`olsq.attention.mesa`: exact if None.  The library's kernels stop after 30
        steps of conjugate gradient: ``olsq.ConjugateGradient(max_steps=30)``.

    Notes
    -----
    Names of the parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj``, ``g_proj``, ``a_proj``
    and ``b_proj`` (with biases), ``q_conv1d``, ``k_conv1d``, ``lambda_params``, ``o_norm``.
    ``layer(x)`` is (B, T, dim); ``layer(x, state=None)`` returns a :class:`LayerState` too, from
    which the next call goes on, with one token or many.  Forget gates start near 0.99, as those of
    :class:`olsq.nn.Mesa`; the library's start near one half (``a_proj.bias`` near 0).
    """

    convolved = ("q", "k")
    head_weights = "a_proj.weight"

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        key_size: int | None = None,
        output_gate: bool = False,
        convolution_width: int = 4,
        convolution_bias: bool = False,
        ridge_floor: float = 0.25,
        norm_eps: float = 1e-5,
        solver: Any = None,
    ) -> None:
        super().__init__(
            dim, heads, key_size, None, output_gate, convolution_width, convolution_bias, norm_eps
        )
        if not ridge_floor >= 0:
            raise ValueError(f"ridge_floor must be >= 0, got {ridge_floor}")
        self.a_proj, self.b_proj = nn.Linear(dim, heads), nn.Linear(dim, heads)
        nn.init.constant_(self.a_proj.bias, math.log(99.0))  # gates of 0.99, as in olsq.nn
        rise = max(1.0 - ridge_floor, 0.5)
        start = rise + math.log(-math.expm1(-rise))  # inverse softplus: softplus(start) = rise
        self.lambda_params = nn.Parameter(torch.full((heads * self.key_size,), start))
        self.ridge_floor, self.solver = ridge_floor, solver

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        gates = nn.functional.logsigmoid(at_least_float32(self.a_proj(x)))
        weight = at_least_float32(self.b_proj(x)).sigmoid()
        ridge = nn.functional.softplus(at_least_float32(self.lambda_params)) + self.ridge_floor
        ridge = ridge.view(self.heads, self.key_size)
        return mesa(
            q, k, v, log_forget=gates, weight=weight, ridge=ridge, solver=self.solver, state=state
        )

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Any]:
        options = super().options_of(weights, config)
        if options["convolution_width"] is None or options.pop("value_size") != options["key_size"]:
            raise ValueError(
                "weights must have convolutions, and values as wide as keys, to be those of a "
                "MesaNet layer"
            )
        return {**options, "ridge_floor": config.get("lambda_lower_bound", 0.25)}


class GatedDelta(HeadLayer):
    """Gated DeltaNet's layer: forget, then one step towards each token's value.

    Parameters
    ----------
    dim, heads : int
    key_size, value_size : int, optional
        Of a head; ``dim / heads`` and the key size if None.
    output_gate : bool
        Multiply the outputs by ``silu(W x)``, or ``sigmoid(W x)`` with ``gate_map="sigmoid"``.
    gate_map : {"swish", "silu", "sigmoid"}
        ``output_gate_activation`` of the library's configuration.
    negative_eigenvalues : bool
        Twice the step size, up to 2; ``allow_neg_eigval`` of the library's configuration.
    convolution_width : int or None
        Taps of the convolutions of queries, keys and values; None leaves only SiLU.
    convolution_bias : bool
    norm_eps : float
        Of the norm of the outputs.

    Notes
    -----
    Names of the parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj``, ``g_proj``, ``a_proj``,
    ``b_proj``, ``A_log``, ``dt_bias``, ``q_conv1d``, ``k_conv1d``, ``v_conv1d``, ``o_norm``.
    Queries are divided by sqrt(K) as in the library, and gates start as there, with
    ``softplus(dt_bias)`` from 0.001 to 0.1 and ``exp(A_log)`` from 1 to 16.  For states see
    :class:`Mesa`.
    """

    head_weights = "A_log"

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        output_gate: bool = True,
        gate_map: str = "swish",
        negative_eigenvalues: bool = False,
        convolution_width: int | None = 4,
        convolution_bias: bool = False,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__(
            dim,
            heads,
            key_size,
            value_size,
            output_gate,
            convolution_width,
            convolution_bias,
            norm_eps,
        )
        if gate_map not in ("swish", "silu", "sigmoid"):
            raise ValueError(f"gate_map must be 'swish', 'silu' or 'sigmoid', got {gate_map!r}")
        self.gate_kind = gate_map
        self.negative_eigenvalues = check_flag("negative_eigenvalues", negative_eigenvalues)
        self.a_proj = nn.Linear(dim, heads, bias=False)
        self.b_proj = nn.Linear(dim, heads, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        # steps softplus(dt_bias) start between 0.001 and 0.1, as Mamba's
        steps = torch.empty(heads).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        steps = nn.functional.softplus(at_least_float32(self.a_proj(x)) + self.dt_bias)
        gates = -at_least_float32(self.A_log).exp() * steps
        weight = at_least_float32(self.b_proj(x)).sigmoid() * (1 + self.negative_eigenvalues)
        q = q * self.key_size**-0.5
        return gated_delta(q, k, v, log_forget=gates, weight=weight, state=state)

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Any]:
        options = super().options_of(weights, config)
        return {
            **options,
            "gate_map": config.get("output_gate_activation", "swish"),
            "negative_eigenvalues": bool(config.get("allow_neg_eigval", False)),
        }


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision: sigmoids near 1 and sums of squares need it."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def scale_to_unit(x: Tensor) -> Tensor:
    """Scale x to length 1 over its last axis."""
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + UNIT_EPS)).to(x.dtype)
