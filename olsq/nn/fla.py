"""Weights of flash-linear-attention's MesaNet, as our layers and models.

Its names, shapes and formulas are those of ``fla/layers/mesa_net.py`` and
``fla/models/mesa_net`` there.  What differs from ours in layout: projections are (outputs, inputs);
the taps of a convolution are (channels, 1, width) with the current token last; one norm's scale is
shared by all heads; the ridge is flat.  What differs in mathematics is an option of ours: no bound
on the forget gate, no soft cap, embeddings enter unscaled, logits have weights of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.nn.files import filled, listed
from olsq.nn.gated import RIDGE_FLOOR
from olsq.nn.model import Dtype, LanguageModel
from olsq.nn.solved import Mesa
from olsq.sequence.jax.inputs import promoted

LAYER_EPS, MODEL_EPS = 1e-5, 1e-6  # its defaults for a layer alone and for a model
PROJECTIONS = {
    "q_proj": "query_proj", "k_proj": "key_proj", "v_proj": "value_proj", "o_proj": "output_proj",
    "a_proj": "forget.project", "b_proj": "strength.project", "g_proj": "output_gate",
}  # fmt: skip
MLP = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
CONVOLUTIONS = ("q_conv1d", "k_conv1d")
LAYER = re.compile(r"model\.layers\.(\d+)\.")

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]


def from_fla(
    state_dict: Mapping[str, Any], *, config: Any = None, dtype: Dtype | None = None
) -> Any:
    """The layer or model of flash-linear-attention's MesaNet that has these weights.

    Parameters
    ----------
    state_dict : mapping of str to array
        All weights of its ``MesaNet`` layer (``q_proj.weight``, ...) or of its
        ``MesaNetForCausalLM`` (``model.layers.0.attn.q_proj.weight``, ...): NumPy or JAX arrays,
        what safetensors loads, or PyTorch tensors, which are taken to the CPU.
    config : mapping or MesaNetConfig, optional
        What the weights do not tell, under its names: ``norm_eps`` (1e-5 for a layer, 1e-6 for a
        model, if not given), ``lambda_lower_bound`` (0.25), ``tie_word_embeddings`` (False).  Sizes
        in it are compared with the weights'.
    dtype : {"float32", "bfloat16", "float64"}, optional
        Of a model's activations; float32 if None, and float64 for float64 weights with
        ``jax_enable_x64``.  A layer computes in the dtype of its input.

    Returns
    -------
    Mesa or LanguageModel
        With float32 weights (float64 kept with ``jax_enable_x64``) and an exact solver.  Its
        kernels take at most 30 steps of conjugate gradients instead:
        ``olsq.nn.with_solver(model, olsq.ConjugateGradient(max_steps=30))`` is nearest to them.

    Raises
    ------
    ValueError
        If names are missing or unknown, shapes or sizes do not fit each other, or the model has
        layers of softmax attention.

    Notes
    -----
    The norm's scale that its heads share is repeated for each head, so that training ours from
    there lets heads differ.

    Examples
    --------
    >>> import numpy as np, olsq.nn
    >>> rng = np.random.default_rng(0)
    >>> shapes = {f"{name}_proj.weight": (8, 8) for name in "qkvo"}
    >>> shapes |= {f"{name}_proj.weight": (2, 8) for name in "ab"}
    >>> shapes |= {f"{name}_proj.bias": (2,) for name in "ab"}
    >>> shapes |= {f"{name}_conv1d.weight": (8, 1, 4) for name in "qk"}
    >>> shapes |= {"lambda_params": (8,), "o_norm.weight": (4,)}
    >>> layer = olsq.nn.from_fla({name: rng.normal(size=s) for name, s in shapes.items()})
    >>> layer.dim, layer.heads, layer.key_size
    (8, 2, 4)
    """
    options = _options(config)
    arrays = {name: _array(name, value) for name, value in state_dict.items()}
    if any(LAYER.match(name) for name in arrays):
        return _model(arrays, options, dtype)
    if "lambda_params" in arrays:
        return _layer(arrays, options)
    raise ValueError(
        "these are not the weights of a MesaNet layer or causal language model of "
        "flash-linear-attention, which have lambda_params or model.layers.0.attn.lambda_params; "
        f"they are {listed(arrays) or 'none'}"
    )


class Sizes(NamedTuple):
    """Of a layer, under its names of them."""

    hidden_size: int
    num_heads: int
    head_dim: int
    conv_size: int
    use_output_gate: bool
    conv_bias: bool


def _layer(arrays: Arrays, options: dict[str, Any]) -> Mesa:
    sizes = _sizes(arrays, "", options)
    _fit(arrays, _layer_shapes(sizes, ""), options, sizes._asdict())
    given = _mixer_options(sizes, options, LAYER_EPS)
    template = eqx.filter_eval_shape(
        lambda: Mesa(
            sizes.hidden_size, heads=sizes.num_heads, key_size=sizes.head_dim,
            key=jax.random.key(0), **given,
        )
    )  # fmt: skip
    return filled(template, _ours(arrays, "", sizes), "the state_dict")


def _model(arrays: Arrays, options: dict[str, Any], dtype: Dtype | None) -> LanguageModel:
    if options.get("attn") is not None:
        raise ValueError("layers of softmax attention (config.attn) cannot be read, only MesaNet's")
    if options.get("hidden_act", "swish") not in ("swish", "silu"):
        raise ValueError(f"hidden_act must be 'swish', got {options['hidden_act']!r}")
    sizes = _sizes(arrays, "model.layers.0.attn.", options)
    vocab_size, dim = _axes(arrays, "model.embeddings.weight", 2)
    width, _ = _axes(arrays, "model.layers.0.mlp.gate_proj.weight", 2)
    found = {int(match[1]) for match in map(LAYER.match, arrays) if match}
    blocks = options.get("num_hidden_layers", max(found) + 1)
    tied = bool(options.get("tie_word_embeddings", False))

    shapes: Shapes = {"model.embeddings.weight": (vocab_size, dim), "model.norm.weight": (dim,)}
    if not tied or "lm_head.weight" in arrays:
        shapes["lm_head.weight"] = (vocab_size, dim)
    for i in range(blocks):
        at = f"model.layers.{i}."
        shapes |= _layer_shapes(sizes, f"{at}attn.")
        shapes |= {f"{at}{name}_norm.weight": (dim,) for name in ("attn", "mlp")}
        shapes |= {f"{at}mlp.{name}.weight": (width, dim) for name in ("gate_proj", "up_proj")}
        shapes[f"{at}mlp.down_proj.weight"] = (dim, width)
    _fit(arrays, shapes, options, {
        **sizes._asdict(), "vocab_size": vocab_size, "intermediate_size": width
    })  # fmt: skip
    embedding = arrays["model.embeddings.weight"]
    if tied and not np.array_equal(arrays.get("lm_head.weight", embedding), embedding):
        raise ValueError("config ties the logits to the embedding, but lm_head.weight differs")

    eps = options.get("norm_eps", MODEL_EPS)
    working: Any = dtype or str(embedding.dtype)
    mesa = _mixer_options(sizes, options, MODEL_EPS)
    template = eqx.filter_eval_shape(
        lambda: LanguageModel(
            vocab_size, dim=dim, blocks=blocks, heads=sizes.num_heads, key_size=sizes.head_dim,
            mixer="mesa", mixer_options={"mesa": mesa}, mlp_ratio=width / dim, soft_cap=None,
            tied=tied, scale_embedding=False, norm_eps=eps, dtype=working,
            key=jax.random.key(0),
        )
    )  # fmt: skip
    ours = {"embedding": embedding, "backbone.norm.scale": arrays["model.norm.weight"]}
    if not tied:
        ours["head"] = arrays["lm_head.weight"]
    for i in range(blocks):
        at, to = f"model.layers.{i}.", f"backbone.blocks.{i}."
        ours |= {f"{to}mixer.{name}": x for name, x in _ours(arrays, f"{at}attn.", sizes).items()}
        ours[f"{to}mixer_norm.scale"] = arrays[f"{at}attn_norm.weight"]
        ours[f"{to}mlp_norm.scale"] = arrays[f"{at}mlp_norm.weight"]
        for name, part in MLP.items():
            ours[f"{to}mlp.{part}.weight"] = arrays[f"{at}mlp.{name}.weight"].T
    return filled(template, ours, "the state_dict")


def _sizes(arrays: Arrays, at: str, options: dict[str, Any]) -> Sizes:
    inner, dim = _axes(arrays, f"{at}q_proj.weight", 2)
    heads, _ = _axes(arrays, f"{at}a_proj.weight", 2)
    *_, width = _axes(arrays, f"{at}q_conv1d.weight", 3)
    if not heads or inner % heads:
        raise ValueError(f"{at}q_proj.weight has {inner} rows, for {heads} heads of one size")
    gated = f"{at}g_proj.weight" in arrays or bool(options.get("use_output_gate"))
    biased = f"{at}q_conv1d.bias" in arrays or bool(options.get("conv_bias"))
    return Sizes(dim, heads, inner // heads, width, gated, biased)


def _layer_shapes(sizes: Sizes, at: str) -> Shapes:
    """What a layer's weights are called there, and their shapes."""
    dim, heads, size, width, gated, biased = sizes
    inner = heads * size
    shapes: Shapes = {f"{name}_proj.weight": (inner, dim) for name in ("qkvg" if gated else "qkv")}
    shapes |= {f"{name}_proj.weight": (heads, dim) for name in "ab"}
    shapes |= {f"{name}_proj.bias": (heads,) for name in "ab"}
    shapes |= {f"{name}.weight": (inner, 1, width) for name in CONVOLUTIONS}
    if biased:
        shapes |= {f"{name}.bias": (inner,) for name in CONVOLUTIONS}
    shapes |= {"o_proj.weight": (dim, inner), "lambda_params": (inner,), "o_norm.weight": (size,)}
    return {at + name: shape for name, shape in shapes.items()}


def _mixer_options(sizes: Sizes, options: dict[str, Any], eps: float) -> dict[str, Any]:
    floor = options.get("lambda_lower_bound", RIDGE_FLOOR)
    return {
        "forget_bound": None, "ridge_floor": floor, "ridge_start": floor + 1.0,
        "norm_eps": options.get("norm_eps", eps), "output_gate": sizes.use_output_gate,
        "convolution_width": sizes.conv_size, "convolution_bias": sizes.conv_bias,
    }  # fmt: skip


def _ours(arrays: Arrays, at: str, sizes: Sizes) -> Arrays:
    """A layer's weights in our names and layout."""
    heads, size = sizes.num_heads, sizes.head_dim
    ours = {}
    for name, part in PROJECTIONS.items():
        if f"{at}{name}.weight" in arrays:
            ours[f"{part}.weight"] = arrays[f"{at}{name}.weight"].T
        if f"{at}{name}.bias" in arrays:
            ours[f"{part}.bias"] = arrays[f"{at}{name}.bias"]
    taps = [arrays[f"{at}{name}.weight"][:, 0, ::-1].T for name in CONVOLUTIONS]
    ours["convolution.kernel"] = np.concatenate(taps, 1)  # its first tap is the current token's
    if sizes.conv_bias:
        biases = [arrays[f"{at}{name}.bias"] for name in CONVOLUTIONS]
        ours["convolution.bias"] = np.concatenate(biases)
    ours["ridge.raw"] = arrays[f"{at}lambda_params"].reshape(heads, size)
    ours["norm.scale"] = np.tile(arrays[f"{at}o_norm.weight"], (heads, 1))
    return ours


def _fit(arrays: Arrays, shapes: Shapes, options: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Raise ValueError unless the weights are all there, nothing else is, and sizes agree."""
    wrong = [
        f"{name} {x.shape}, not {shapes[name]}"
        for name, x in arrays.items()
        if name in shapes and x.shape != shapes[name]
    ]
    missing = [name for name in shapes if name not in arrays]
    unknown = [name for name in arrays if name not in shapes]
    differ = [
        f"{name} {options[name]}, not {size}"
        for name, size in sizes.items()
        if options.get(name) not in (None, size) and not isinstance(size, bool)
    ]
    faults = {"missing": missing, "unknown": unknown, "shapes": wrong, "config": differ}
    found = "; ".join(f"{kind}: {listed(names)}" for kind, names in faults.items() if names)
    if found:
        tie = "lm_head.weight" in missing
        hint = ' (config={"tie_word_embeddings": True} reads logits with the embedding)'
        raise ValueError(f"the weights do not make a MesaNet; {found}{hint if tie else ''}")


def _axes(arrays: Arrays, name: str, count: int) -> tuple[int, ...]:
    if name not in arrays:
        raise ValueError(f"the weights do not make a MesaNet; missing: {name}")
    if arrays[name].ndim != count:
        raise ValueError(f"{name} must have {count} axes, got shape {arrays[name].shape}")
    return arrays[name].shape


def _array(name: str, value: Any) -> np.ndarray:
    """A weight in NumPy, float32 or better: PyTorch's without importing it."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if "float64" in str(value.dtype) else value.float()).numpy()
    array = np.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name} must be floating-point, got {array.dtype}")
    wide = promoted(array, jnp.float32)
    return array.astype(jax.dtypes.canonicalize_dtype(wide))


def _options(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be a mapping or a MesaNetConfig, got {type(config)}")
    return dict(config)
