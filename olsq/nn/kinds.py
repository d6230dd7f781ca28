"""Kinds of weights (matrix, bias, ...), as layers declare them, and names of arrays: paths."""

from __future__ import annotations

from typing import Any, Literal, get_args

import equinox as eqx
import jax

__all__ = ["ParameterKind", "kind", "parameter_kinds"]

ParameterKind = Literal["matrix", "bias", "scale", "convolution", "embedding", "ridge", "other"]
KINDS: tuple[ParameterKind, ...] = get_args(ParameterKind)
KEY = "olsq.kind"  # of a field's metadata
# Kinds of the weights of equinox.nn's own layers, which declare none: by the words of the class's
# name.
THEIRS: dict[str, ParameterKind] = {
    "Conv": "convolution",
    "Embedding": "embedding",
    "Norm": "scale",
    "Linear": "matrix",
    "Cell": "matrix",
}


def kind(name: ParameterKind) -> dict[str, ParameterKind]:
    """Declare the kind of a layer's array: field metadata for :func:`parameter_kinds`.

    Parameters
    ----------
    name : {"matrix", "bias", "scale", "convolution", "embedding", "ridge", "other"}

    Returns
    -------
    dict
        For ``equinox.field(metadata=...)``.

    Raises
    ------
    ValueError
        If the name is unknown.

    Examples
    --------
    >>> import equinox as eqx, jax, olsq.nn
    >>> class Mix(eqx.Module):
    ...     weight: jax.Array = eqx.field(metadata=olsq.nn.kind("matrix"))
    ...     speed: jax.Array
    >>> olsq.nn.parameter_kinds(Mix(jax.numpy.ones((2, 2)), jax.numpy.ones(2)))
    Mix(weight='matrix', speed='other')
    """
    if name not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {name!r}")
    return {KEY: name}


def parameter_kinds(tree: Any) -> Any:
    """Return the kind of every array of a model, in the structure of the model.

    Parameters
    ----------
    tree : pytree
        A model, its weights (``equinox.filter(model, equinox.is_inexact_array)``) or their
        gradients.

    Returns
    -------
    pytree of str
        "matrix", "bias", "scale", "convolution", "embedding", "ridge" or "other": what the layer
        declares with :func:`kind`, the innermost layer first.  Layers of ``equinox.nn`` are
        known.  An array in a field that says nothing is "other"; one in no layer at all (in a
        dict, say) is a "matrix" if it has two axes or more.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mesa(8, heads=2, key=jax.random.key(0))
    >>> kinds = olsq.nn.parameter_kinds(layer)
    >>> kinds.query_proj.weight, kinds.convolution.kernel, kinds.ridge.raw, kinds.norm.scale
    ('matrix', 'convolution', 'ridge', 'scale')
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return jax.tree.unflatten(structure, [_kind(tree, path, leaf) for path, leaf in leaves])


def _kind(node: Any, path: tuple[Any, ...], leaf: Any) -> ParameterKind:
    """Return the kind of the leaf at ``path`` below ``node``."""
    declared: ParameterKind | None = None
    inside = False
    for part in path:
        if isinstance(node, eqx.Module):
            inside = True
            declared = _declared_kind(type(node), getattr(part, "name", "")) or declared
        node = _child(node, part)
    if declared is None:
        declared = "matrix" if not inside and getattr(leaf, "ndim", 0) >= 2 else "other"
    return declared


def _declared_kind(layer: type, name: str) -> ParameterKind | None:
    """Return the kind a field of a layer's class declares, or the one known for equinox.nn's."""
    declared = getattr(layer, "__dataclass_fields__", {}).get(name)
    if declared is not None and KEY in declared.metadata:
        return declared.metadata[KEY]
    if not layer.__module__.startswith("equinox.nn"):
        return None
    if "bias" in name:
        return "bias"
    return next((each for word, each in THEIRS.items() if word in layer.__name__), None)


def _child(node: Any, part: Any) -> Any:
    """Return the child of a node that a part of a path names; None where that is unknown."""
    try:
        if hasattr(part, "name"):
            return getattr(node, part.name)
        return node[part.key if hasattr(part, "key") else part.idx]
    except (AttributeError, KeyError, IndexError, TypeError):
        return None


def path_names(path: tuple[Any, ...]) -> list[str]:
    """Return the names along a path through a pytree: fields, keys and numbers."""
    return [_name(part) for part in path]


def _name(part: Any) -> str:
    """Name one part of a path, as ``keystr(simple=True)``, which JAX 0.5.0 does not have."""
    for kind in ("name", "key", "idx"):
        if hasattr(part, kind):
            return str(getattr(part, kind))
    return str(part)


def named_arrays(tree: Any) -> dict[str, Any]:
    """Return the arrays of a module by their path, ``blocks.0.mixer.query_proj.weight``."""
    return {
        ".".join(path_names(path)): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
