"""Write our layers and models as weights and configuration of flash-linear-attention."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from olsq.nn.base import Mixer
from olsq.nn.fla.layout import Layout, Options
from olsq.nn.fla.parts import Arrays, convert_to_fla
from olsq.nn.fla.reading import COMBA, KINDS, LAYER_EPS, MLP
from olsq.nn.kinds import named_arrays
from olsq.nn.model import LanguageModel
from olsq.nn.surgery import mixers_of

# Options that may differ: how and where a regression is solved does not show in the weights.
FREE = ("solver", "adjoint", "shards")
Differences = Iterator[str]


class FlaWeights(NamedTuple):
    """Result of :func:`to_fla`: weights and configuration.

    Attributes
    ----------
    state_dict : dict of str to array
        Weights under their names, in their layout: NumPy arrays.
    config : dict
        Of the configuration class with that ``model_type``, or of the layer's constructor.
    """

    state_dict: dict[str, np.ndarray]
    config: dict[str, Any]


def to_fla(model: Any) -> FlaWeights:
    """Convert a layer or model to weights of flash-linear-attention that compute the same.

    Parameters
    ----------
    model : Mixer or LanguageModel
        A layer that both libraries compute alike, with the options that theirs has: GLA with
        ``vector_gates``, GatedDelta with ``value_map="silu"`` and so on, as :func:`from_fla` makes
        them.  A model also needs ``soft_cap=None``, MLPs (for Mamba-3 none), and one kind of mixer.

    Returns
    -------
    FlaWeights
        ``state_dict`` and ``config``.  :func:`from_fla` of both is the model again.

    Raises
    ------
    ValueError
        If the layer has no counterpart or an option that theirs does not have; all are named.

    Notes
    -----
    What a norm scales differently for each head moves into the output projection; embeddings that
    are scaled where they enter are written scaled, with the others as ``lm_head``; a
    :class:`GatedDelta` without a learned speed gets speed 1.  Solvers are not written: theirs are
    30 steps of conjugate gradients.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> options = {"vector_gates": True, "weighted": False, "normalise": False}
    >>> options |= {"feature_map": "identity", "convolution": False, "output_gate": True}
    >>> layer = olsq.nn.GLA(8, heads=2, key=jax.random.key(0), **options)
    >>> weights, config = olsq.nn.to_fla(layer)
    >>> config["model_type"], weights["gk_proj.0.weight"].shape
    ('gla', (16, 8))
    >>> again = olsq.nn.from_fla(weights, config=config)
    >>> bool((again.query_proj.weight == layer.query_proj.weight).all())
    True
    """
    if isinstance(model, LanguageModel):
        return _model(model)
    if isinstance(model, Mixer):
        layout = _layout(model)
        return FlaWeights(*_layer(layout, model, "", LAYER_EPS))
    raise ValueError(
        f"model must be a layer of olsq.nn or a LanguageModel, got a {type(model).__name__}"
    )


def _layout(mixer: Mixer) -> Layout:
    layout = KINDS.get(type(mixer))
    if layout is not None:
        return layout
    name = type(mixer).__name__
    if name == "Comba":
        raise ValueError(COMBA)
    supported = sorted({kind.__name__ for kind in KINDS})
    raise ValueError(
        f"{name} has no counterpart in flash-linear-attention that computes the same; those that "
        f"have are {', '.join(supported)}"
    )


def _layer(layout: Layout, mixer: Any, at: str, eps: float) -> tuple[Arrays, Options]:
    """Convert a layer to weights prefixed with ``at``, and options.

    ``eps`` is used if it has no norm.
    """
    moved = layout.move_scales(mixer)
    s = layout.sizes_of(moved)
    their_eps = layout.eps_of(moved, s)
    config: Options = {"model_type": layout.model_type, **layout.config(moved, s)}
    config["norm_eps"] = eps if their_eps is None else their_eps
    try:
        layout.refuse(config)
        template = layout.outline(s, config, config["norm_eps"])
    except ValueError as error:
        raise ValueError(f"this {type(mixer).__name__} has no counterpart: {error}") from error
    differ = list(_differences(moved, template, ""))
    widths = s.heads * s.key, s.heads * s.value
    if layout.square and set(widths) != {s.dim}:
        differ.append(f"heads are {widths[0]} and {widths[1]} wide together, not {s.dim}")
    if layout.one_size and s.key != s.value:
        differ.append(f"value_size {s.value}, not key_size {s.key}")
    if differ:
        raise ValueError(
            f"this {type(mixer).__name__} is not what flash-linear-attention's {layout.title} "
            f"computes: {'; '.join(differ)}"
        )
    arrays = {name: np.asarray(x) for name, x in named_arrays(moved).items()}
    written = convert_to_fla(layout.parts(s, layout.norm_to_write(s)), arrays, at)
    return layout.join_weights(written, at), config


def _model(model: LanguageModel) -> FlaWeights:
    mixers: list[Any] = list(mixers_of(model))
    kinds = sorted({type(mixer).__name__ for mixer in mixers})
    layout, wrong = _layout(mixers[0]), []
    names = layout.names
    if len(kinds) > 1:
        wrong.append(f"mixers of several kinds ({', '.join(kinds)})")
    if model.soft_cap is not None:
        wrong.append(f"soft_cap={model.soft_cap} (make it with soft_cap=None)")
    if any((block.mlp is None) != (names.mlp_norm is None) for block in model.backbone.blocks):
        wrong.append("blocks without an MLP" if names.mlp_norm else "MLPs (give mlp_ratio=0)")
    if wrong:
        raise ValueError(
            f"the model has what models of flash-linear-attention do not: {'; '.join(wrong)}"
        )
    eps = model.backbone.norm.eps
    places = [f"{names.block(i)}{names.mixer}." for i in range(len(mixers))]
    converted = [_layer(layout, *each, eps) for each in zip(mixers, places, strict=True)]
    config = converted[0][1]
    if any(other != config for _, other in converted):
        raise ValueError(
            "the mixers of all blocks must have the same options: flash-linear-attention has one "
            "configuration for all"
        )
    if not math.isclose(config["norm_eps"], eps, rel_tol=1e-9):
        times = eps / config["norm_eps"]
        name, needed = layout.mixer, layout.norm_of(mixers[0]).eps * times
        raise ValueError(
            f"norms of the stream have norm_eps={eps}, and those of the mixers stand for "
            f"{config['norm_eps']:g} there, where one number is for both: make the model with "
            f'mixer_options={{"{name}": {{"norm_eps": {needed:g}, ...}}}}'
        )
    for name, only in layout.layer_only.items():
        if config.pop(name, only) != only:
            raise ValueError(f"their models make layers with {name}={only}, a layer alone may not")

    embedding = np.asarray(model.embedding)
    head = embedding if model.head is None else np.asarray(model.head)
    if model.scale_embedding:
        embedding = np.asarray(model.embedding * math.sqrt(embedding.shape[1]))
    tied = model.head is None and not model.scale_embedding
    weights = {f"{names.body}.embeddings.weight": embedding}
    for i, (mixer, _) in enumerate(converted):
        at, block = names.block(i), model.backbone.blocks[i]
        weights |= mixer
        weights[f"{at}{names.mixer_norm}.weight"] = np.asarray(block.mixer_norm.scale)
        if block.mlp is None or block.mlp_norm is None:
            continue
        weights[f"{at}{names.mlp_norm}.weight"] = np.asarray(block.mlp_norm.scale)
        for name, part in MLP.items():
            weight = np.asarray(getattr(block.mlp, part).weight)
            weights[f"{at}mlp.{name}.weight"] = np.ascontiguousarray(weight.T)
    weights[f"{names.body}.{names.norm}.weight"] = np.asarray(model.backbone.norm.scale)
    if not tied:
        weights["lm_head.weight"] = head
    written = {
        "architectures": [layout.architecture],
        **config,
        "norm_eps": eps,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": len(mixers),
        "hidden_act": "swish",
        "tie_word_embeddings": tied,
    }
    if names.mlp_norm:
        width = weights[f"{names.block(0)}mlp.up_proj.weight"].shape[0]
        written["intermediate_size"] = width
    return FlaWeights(weights, written)


def _differences(layer: Any, template: Any, path: str) -> Differences:
    """Yield options and weights in which a layer differs from what reading it back would make."""
    for field in dataclasses.fields(layer):
        name, place = field.name, f"{path}{field.name}"
        if name in FREE:
            continue
        a, b = getattr(layer, name), getattr(template, name)
        if field.metadata.get("static"):
            close = isinstance(a, float) and isinstance(b, float) and math.isclose(a, b)
            if not close and a != b:
                yield f"{place} is {a!r}, not {b!r}"
        elif a is None or b is None:
            if a is not b:
                yield f"{place} {'is missing' if a is None else 'has no place there'}"
        elif isinstance(a, eqx.Module):
            if type(a) is type(b):
                yield from _differences(a, b, f"{place}.")
            else:
                yield f"{place} is a {type(a).__name__}, not a {type(b).__name__}"
        elif np.shape(a) != np.shape(b):
            yield f"{place} is {np.shape(a)}, not {np.shape(b)}"
