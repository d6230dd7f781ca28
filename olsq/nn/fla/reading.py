"""Detect the layout of flash-linear-attention's weights; read them as our layers and models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.attention.registry import RULES
from olsq.nn.files import filled, listed
from olsq.nn.fla.layout import Config, Layout, Options, Sizes
from olsq.nn.fla.parts import Arrays, convert_from_fla
from olsq.nn.model import Dtype, LanguageModel
from olsq.sequence.jax.inputs import promoted

LAYOUTS: dict[str, Layout] = {  # by the names of our mixers
    layer.mixer: resolve_name(f"olsq.nn.fla.{layer.weights}")(layer.mixer)
    for rule in RULES
    for layer in rule.layers
    if layer.weights
}
WINDOWED = LAYOUTS["sliding_window"]  # of the model type of softmax, told apart by an option
TYPES = {layout.model_type: layout for layout in LAYOUTS.values() if layout is not WINDOWED}
KINDS = {layout.kind: layout for layout in LAYOUTS.values()}
COMBA = (
    "Comba has no counterpart: there, queries are normalised after their correction, where "
    "olsq.nn.Comba normalises before it"
)
LAYER_EPS = 1e-5  # its default for a layer alone
MLP = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def layout_of(arrays: Arrays, at: str, config: Config) -> Layout:
    """Return the layout of the weights whose names begin with ``at``: the configured or detected
    one.
    """
    model_type = config.get("model_type")
    if model_type is None:
        model_type = _detect_model_type(arrays, at)
    if model_type == "comba":
        raise ValueError(COMBA)
    if model_type not in TYPES:
        raise ValueError(
            f"model_type {model_type!r} of flash-linear-attention has no counterpart here; those "
            f"that have are {', '.join(TYPES)}"
        )
    if model_type == "transformer" and config.get("window_size") is not None:
        return WINDOWED
    return TYPES[model_type]


def _detect_model_type(arrays: Arrays, at: str) -> str:
    """Detect the model type from the names of the weights."""

    def has(*names: str) -> bool:
        return all(f"{at}{name}" in arrays for name in names)

    signs = {
        "mesa_net": ("lambda_params",),
        "precond_kda": ("f_proj.0.weight", "log_atk_scale"),  # before kda and gated_deltanet
        "precond_gated_deltanet": ("log_atk_scale",),
        "gdn2": ("f_proj.0.weight", "w_proj.weight"),  # before kda, which has the first too
        "kda": ("f_proj.0.weight",),
        "gla": ("gk_proj.0.weight",),
        "hgrn2": ("i_proj.weight",),
        "forgetting_transformer": ("f_proj.bias",),
        "comba": ("A_log", "D", "k_proj.weight"),
        "parallax": ("r_proj.weight", "q_proj.weight"),
        "gsa": ("f_proj.weight", "k_proj.weight", "g_norm.weight"),
        "mamba3": ("in_proj.weight", "B_norm.weight", "C_norm.weight"),
    }
    for kind, names in signs.items():
        if has(*names):
            return kind
    if has("A_log", "k_proj.weight", "q_proj.weight"):
        keys, queries = (len(arrays[f"{at}{name}_proj.weight"]) for name in "kq")
        return "gated_deltaproduct" if keys > queries else "gated_deltanet"
    if has("q_proj.weight") and not any(f"{at}{name}.weight" in arrays for name in ("gk_proj",)):
        if has("b_proj.weight"):
            return "delta_net"
        if has("norm.weight"):
            return "linear_attn"
        if has("g_norm_swish_gate.weight") or has("g_norm.weight"):
            return "retnet"
        if has("k_proj.weight", "v_proj.weight", "o_proj.weight"):
            return "transformer"
    raise ValueError(
        "these are not the weights of a layer or causal language model of flash-linear-attention "
        f"that has a counterpart here ({', '.join(TYPES)}); they are {listed(arrays) or 'none'}"
    )


LAYER = re.compile(r"(?:model|backbone)\.layers\.(\d+)\.")
MIXERS = re.compile(r"(?:model\.layers\.\d+\.attn|backbone\.layers\.\d+\.mixer)\.")


def from_fla(
    state_dict: Mapping[str, Any], *, config: Any = None, dtype: Dtype | None = None
) -> Any:
    """Convert flash-linear-attention's weights to a layer or model.

    Parameters
    ----------
    state_dict : mapping of str to array
        All weights of a layer (``q_proj.weight``, ...) or of a causal language model
        (``model.layers.0.attn.q_proj.weight``, ...): NumPy or JAX arrays, what safetensors loads,
        or PyTorch tensors, which are taken to the CPU.
    config : mapping or configuration, optional
        What the weights do not contain, under that library's names: ``model_type`` where several
        kinds have weights of these names, ``num_heads`` of softmax attention, ``norm_eps`` (1e-5
        for a layer, 1e-6 for a model, if not given), ``lambda_lower_bound`` (0.25),
        ``feature_map``, ``tie_word_embeddings`` (False), ...  Sizes in it are compared with the
        weights', and options without a counterpart refused.
    dtype : {"float32", "bfloat16", "float64"}, optional
        Of a model's activations; float32 if None, and float64 for float64 weights with
        ``jax_enable_x64``.  A layer computes in the dtype of its input.

    Returns
    -------
    Mixer or LanguageModel
        With float32 weights (float64 kept with ``jax_enable_x64``).  A Mesa has an exact solver.
        Their kernels take at most 30 steps of conjugate gradients instead:
        ``olsq.nn.with_solver(model, olsq.ConjugateGradient(max_steps=30))`` is nearest to them.

    Raises
    ------
    ValueError
        If the kind of layer or an option has no counterpart, names are missing or unknown, shapes
        or sizes do not fit each other, or the model mixes kinds of layers.

    See Also
    --------
    to_fla : The other way.

    Notes
    -----
    The norm's scale that heads share there is repeated for each head, so that training ours from
    there lets heads differ.  Queries that are divided by ``sqrt(key_size)`` there are not here:
    the norm of what is read takes it out, with ``norm_eps`` times ``key_size``.

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
    >>> type(layer).__name__, layer.dim, layer.heads, layer.key_size
    ('Mesa', 8, 2, 4)
    """
    options = _options(config)
    arrays = {name: _array(name, value) for name, value in state_dict.items()}
    is_model = any(LAYER.match(name) for name in arrays)
    if is_model and options.get("attn") is not None:
        raise ValueError(
            "a model with layers of softmax attention between others (config.attn) cannot be read: "
            "its heads are not those of the others"
        )
    mixers = sorted({match[0] for match in map(MIXERS.match, arrays) if match})
    layout = layout_of(arrays, mixers[0] if mixers else "", options)
    if "model.lower_bounds" in arrays:
        options = {**options, "use_lower_bound": True}
    layout.refuse(options)
    for at in mixers if is_model else [""]:
        arrays = layout.split_weights(arrays, at, options)
    return _model(layout, arrays, options, dtype) if is_model else _layer(layout, arrays, options)


def _layer(layout: Layout, arrays: Arrays, options: Options) -> Any:
    s = layout.sizes(arrays, "", options)
    parts = layout.parts(s, layout.norm_name(arrays, "", s))
    shapes = {part.theirs: part.shape for part in parts}
    _check_weights(layout, arrays, shapes, options, layout.config_sizes(s))
    template = layout.outline(s, options, options.get("norm_eps", LAYER_EPS))
    return filled(template, _convert_layer(layout, arrays, "", s), "the state_dict")


def _model(layout: Layout, arrays: Arrays, options: Options, dtype: Dtype | None) -> LanguageModel:
    if options.get("hidden_act", "swish") not in ("swish", "silu"):
        raise ValueError(f"hidden_act must be 'swish', got {options['hidden_act']!r}")
    if options.get("attnres_block_size") is not None:
        raise ValueError("attention over blocks (attnres_block_size) has no counterpart here")
    names = layout.names
    at = names.block(0)
    s = layout.sizes(arrays, f"{at}{names.mixer}.", options)
    vocab_size, dim = layout.axes(arrays, f"{names.body}.embeddings.weight", 2)
    width = layout.axes(arrays, f"{at}mlp.gate_proj.weight", 2)[0] if names.mlp_norm else 0
    numbers = {int(match[1]) for match in map(LAYER.match, arrays) if match}
    blocks = options.get("num_hidden_layers", max(numbers) + 1)
    tied = bool(options.get("tie_word_embeddings", False))

    shapes: dict[str, tuple[int, ...]] = {f"{names.body}.embeddings.weight": (vocab_size, dim)}
    shapes[f"{names.body}.{names.norm}.weight"] = (dim,)
    if not tied or "lm_head.weight" in arrays:
        shapes["lm_head.weight"] = (vocab_size, dim)
    norm = layout.norm_name(arrays, f"{at}{names.mixer}.", s)
    for i in range(blocks):
        at = names.block(i)
        shapes |= {f"{at}{names.mixer}.{p.theirs}": p.shape for p in layout.parts(s, norm)}
        shapes[f"{at}{names.mixer_norm}.weight"] = (dim,)
        if names.mlp_norm is None:
            continue
        shapes[f"{at}{names.mlp_norm}.weight"] = (dim,)
        shapes |= {f"{at}mlp.{name}.weight": (width, dim) for name in ("gate_proj", "up_proj")}
        shapes[f"{at}mlp.down_proj.weight"] = (dim, width)
    sizes = {**layout.config_sizes(s), "vocab_size": vocab_size}
    sizes |= {"intermediate_size": width} if width else {}
    _check_weights(layout, arrays, shapes, options, sizes)
    embedding = arrays[f"{names.body}.embeddings.weight"]
    if tied and not np.array_equal(arrays.get("lm_head.weight", embedding), embedding):
        raise ValueError(
            "config ties the logits to the embedding, but lm_head.weight differs from it: give "
            "tie_word_embeddings=False in config, or leave lm_head.weight out"
        )

    eps = options.get("norm_eps", names.eps)
    working: Any = dtype or str(embedding.dtype)
    layer_options = layout.options(s, options, eps)
    template = eqx.filter_eval_shape(
        lambda: LanguageModel(
            vocab_size,
            dim=dim,
            blocks=blocks,
            heads=s.heads,
            key_size=s.key,
            mixer=layout.mixer,
            mixer_options={layout.mixer: layer_options},
            mlp_ratio=width / dim,
            soft_cap=None,
            tied=tied,
            scale_embedding=False,
            norm_eps=eps,
            dtype=working,
            key=jax.random.key(0),
        )
    )
    last = arrays[f"{names.body}.{names.norm}.weight"]
    ours = {"embedding": embedding, "backbone.norm.scale": last}
    if not tied:
        ours["head"] = arrays["lm_head.weight"]
    for i in range(blocks):
        at, to = names.block(i), f"backbone.blocks.{i}."
        mixer = _convert_layer(layout, arrays, f"{at}{names.mixer}.", s)
        ours |= {f"{to}mixer.{name}": x for name, x in mixer.items()}
        ours[f"{to}mixer_norm.scale"] = arrays[f"{at}{names.mixer_norm}.weight"]
        if names.mlp_norm is None:
            continue
        ours[f"{to}mlp_norm.scale"] = arrays[f"{at}{names.mlp_norm}.weight"]
        for name, part in MLP.items():
            ours[f"{to}mlp.{part}.weight"] = arrays[f"{at}mlp.{name}.weight"].T
    return filled(template, ours, "the state_dict")


def _convert_layer(layout: Layout, arrays: Arrays, at: str, s: Sizes) -> Arrays:
    """Convert a layer's weights to our names and layout; those that do nothing there are 0."""
    converted = convert_from_fla(layout.parts(s, layout.norm_name(arrays, at, s)), arrays, at)
    kind = next(iter(converted.values())).dtype
    return converted | {
        name: np.zeros(shape, kind) for name, shape in layout.unused_weights(s).items()
    }


def _check_weights(
    layout: Layout,
    arrays: Arrays,
    shapes: dict[str, tuple[int, ...]],
    options: Options,
    sizes: Options,
) -> None:
    """Raise ValueError unless the weights are exactly those expected and all sizes agree."""
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
        if options.get(name) not in (None, size)
    ]
    faults = {"missing": missing, "unknown": unknown, "shapes": wrong, "config": differ}
    problems = "; ".join(f"{kind}: {listed(names)}" for kind, names in faults.items() if names)
    if problems:
        tie = "lm_head.weight" in missing
        hint = ' (config={"tie_word_embeddings": True} reads logits with the embedding)'
        raise ValueError(
            f"the weights do not make a {layout.title}; {problems}{hint if tie else ''}"
        )


def _array(name: str, value: Any) -> np.ndarray:
    """Convert a weight to NumPy, float32 or better; PyTorch's without importing it."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if "float64" in str(value.dtype) else value.float()).numpy()
    array = np.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name} must be floating-point, got {array.dtype}")
    wide = promoted(array, jnp.float32)
    return array.astype(jax.dtypes.canonicalize_dtype(wide))


def _options(config: Any) -> Options:
    if config is None:
        return {}
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be a mapping or a configuration, got {type(config)}")
    return dict(config)
