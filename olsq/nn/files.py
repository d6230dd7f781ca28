"""Model files: weights as safetensors, with the model's configuration in the metadata."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import olsq
from olsq.files import tensors
from olsq.nn.configuration import decode, encode
from olsq.nn.kinds import named_arrays
from olsq.nn.model import LanguageModel
from olsq.nn.surgery import map_mixers, mixers_of
from olsq.solvers import Solver

Path = str | os.PathLike[str]
Module = TypeVar("Module")

FORMAT = "1"
BLOCKS = "backbone.blocks."  # what the names of a block's tensors begin with
# What metadata that olsq did not write may raise before they are refused.
UNUSABLE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
)
SHOWN = 6  # names in a message


def save(path: Path, model: Any) -> None:
    """Write a model to one safetensors file.

    Tensors are named by their path, ``backbone.blocks.0.mixer.query_proj.weight``, and keep their
    dtype. The metadata hold the format, the model's configuration, the solver of every mixer that
    has one, and a checksum. The file appears under its name complete or not at all, and nothing in
    it is code.

    Parameters
    ----------
    path : path
    model : LanguageModel
        :func:`load` makes it again.  Of any other module of :mod:`olsq.nn` only the weights are
        written, for :func:`load_into`.

    Raises
    ------
    TypeError
        If the model is no module.
    ValueError
        If the model differs from what its constructor's arguments make by more than weights and
        solvers.
    OSError
        If the file cannot be written; an old file of that name is then as it was.

    Examples
    --------
    >>> import os, tempfile, jax, olsq.nn
    >>> model = olsq.nn.LanguageModel(16, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> olsq.nn.save(path, model)
    >>> bool((olsq.nn.load(path).embedding == model.embedding).all())
    True
    """
    if not isinstance(model, eqx.Module):
        raise TypeError(
            f"model must be a module of olsq.nn, got a {type(model).__name__}: save(path, model)"
        )
    metadata = {
        "olsq.format": FORMAT,
        "olsq.version": olsq.__version__,
        "olsq.kind": type(model).__name__,
    }
    if isinstance(model, LanguageModel):
        solvers = [m.solver for m in mixers_of(model) if m.solves()]
        metadata["olsq.configuration"] = model.configuration
        metadata["olsq.solvers"] = encode({"solvers": solvers})
        if _outline(_remade(metadata)) != _outline(model):
            raise ValueError(
                "the model is not what its constructor's arguments make: a block, a shape or an "
                "option was changed, so load could not make it again; save its parts, such as "
                "model.backbone, and load_into parts changed in the same way"
            )
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in named_arrays(model).items()}
    metadata["olsq.sha256"] = _digest(arrays, metadata)
    tensors.write(path, arrays, metadata)


def load(path: Path) -> LanguageModel:
    """Load the model that :func:`save` wrote: its outputs are the same, bit for bit.

    Parameters
    ----------
    path : path

    Raises
    ------
    olsq.StateFileError
        If the file is truncated, damaged, of another format, of another kind, or does not fit the
        model that its metadata describe.  It is a ValueError.
    FileNotFoundError

    Examples
    --------
    >>> import os, tempfile, jax, olsq, olsq.nn
    >>> model = olsq.nn.LanguageModel(16, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> cheap = model.with_solver(olsq.ConjugateGradient(max_steps=5))
    >>> path = os.path.join(tempfile.mkdtemp(), "cheap.safetensors")
    >>> olsq.nn.save(path, cheap)
    >>> olsq.nn.mixers_of(olsq.nn.load(path))[0].solver.max_steps
    5
    """
    arrays, metadata = _read(path)
    if "olsq.configuration" not in metadata:
        raise olsq.StateFileError(
            f"{path} holds the weights of one {metadata.get('olsq.kind')}, not how it was made: "
            "make one and fill it with olsq.nn.load_into(path, it)"
        )
    try:
        _check_described(metadata, arrays)
        model = _remade(metadata)
    except UNUSABLE as error:
        raise olsq.StateFileError(
            f"{path} describes a model that this olsq ({olsq.__version__}) cannot make; it was "
            f"written by olsq {metadata.get('olsq.version')}: {error}"
        ) from error
    return filled(model, arrays, path)


def load_into(path: Path, template: Module) -> Module:
    """Fill a module like ``template`` with the weights of a file that :func:`save` wrote.

    Parameters
    ----------
    path : path
    template : module of olsq.nn
        Module with the wanted structure; its arrays are replaced, so the result of
        :func:`equinox.filter_eval_shape` is enough.

    Raises
    ------
    olsq.StateFileError
        As :func:`load`; missing, superfluous and misshapen tensors are named.

    Examples
    --------
    >>> import os, tempfile, jax, olsq.nn
    >>> one, other = (olsq.nn.Mesa(8, heads=1, key=jax.random.key(i)) for i in range(2))
    >>> path = os.path.join(tempfile.mkdtemp(), "layer.safetensors")
    >>> olsq.nn.save(path, one)
    >>> bool((olsq.nn.load_into(path, other).key_proj.weight == one.key_proj.weight).all())
    True
    """
    return filled(template, _read(path)[0], path)


def filled(template: Any, arrays: Mapping[str, Any], source: Any) -> Any:
    """Replace the arrays of ``template`` by those of the same names.

    Raises StateFileError if they do not fit.
    """
    outline = named_arrays(template)
    shapes = {name: np.shape(arrays[name]) for name in outline if name in arrays}
    faults = {
        "missing": [name for name in outline if name not in arrays],
        "not in the model": [name for name in arrays if name not in outline],
        "of another shape": [
            f"{name} {shape}, not {outline[name].shape}"
            for name, shape in shapes.items()
            if shape != outline[name].shape
        ],
    }
    if any(faults.values()):
        problems = "; ".join(f"{kind}: {listed(names)}" for kind, names in faults.items() if names)
        raise olsq.StateFileError(f"tensors of {source} do not fit the model; {problems}")
    if any(jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype for x in arrays.values()):
        raise olsq.StateFileError(
            f"{source} holds 64-bit weights, which JAX would round here: call "
            'jax.config.update("jax_enable_x64", True) first, or write it with float32 weights'
        )
    leaves = [jnp.asarray(arrays[name]) for name in outline]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def listed(names: Iterable[str]) -> str:
    """Format names for a message: the first few, and how many more."""
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _remade(metadata: Mapping[str, str]) -> LanguageModel:
    """Rebuild the model that the metadata describe, with shapes where it has arrays."""
    options = decode(metadata["olsq.configuration"])
    saved_solvers = decode(metadata["olsq.solvers"])["solvers"]
    model = eqx.filter_eval_shape(lambda: LanguageModel(**options, key=jax.random.key(0)))
    solving = sum(m.solves() for m in mixers_of(model))
    if len(saved_solvers) != solving:
        raise ValueError(f"it has {len(saved_solvers)} solvers for {solving} mixers that use one")
    solvers = iter(saved_solvers)
    return map_mixers(lambda m: m.with_solver(next(solvers)) if m.solves() else m, model)


def _check_described(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError for a model of other sizes than the file's, before any of it is made.

    Making the outline of a model takes time for each of its blocks, and tells what else differs.
    """
    options = decode(metadata["olsq.configuration"])
    blocks = {name.split(".")[2] for name in arrays if name.startswith(BLOCKS)}
    if "blocks" in options and (
        type(options["blocks"]) is not int or options["blocks"] != len(blocks)
    ):
        raise ValueError(f"blocks is {options['blocks']!r}, but it has tensors of {len(blocks)}")
    entries = sum(array.size for array in arrays.values())
    for name in ("vocab_size", "dim", "heads"):
        if isinstance(size := options.get(name), int) and size > entries:
            raise ValueError(f"{name} is {size}, but the tensors hold only {entries} numbers")
    for name in ("tied", "scale_embedding"):
        if not isinstance(options.get(name, True), bool):
            raise ValueError(f"{name} cannot be {options[name]!r}")
    for name in ("norm_eps", "soft_cap", "mlp_ratio", "dropout"):
        value = options.get(name)
        if value is not None and not (type(value) in (int, float) and 0 <= value < math.inf):
            raise ValueError(f"{name} cannot be {value!r}")
    solvers = decode(metadata["olsq.solvers"])["solvers"]
    saved_solvers = solvers if isinstance(solvers, list) else [solvers]
    for mixer in dict(options.get("mixer_options") or {}).values():
        saved_solvers = [*saved_solvers, mixer.get("solver")]
    for solver in saved_solvers:
        if not (solver is None or isinstance(solver, Solver)):
            raise ValueError(f"solver cannot be {solver!r}")


def _outline(model: Any) -> Any:
    """Return everything of a model but the values of its weights."""
    leaves, structure = jax.tree.flatten(model)
    return structure, [np.shape(x) for x in leaves]


def _digest(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    text = "".join(f"{name}={value}\n" for name, value in sorted(metadata.items()))
    return tensors.checksum(
        text.encode(), arrays, lambda name, x: f"{name} {x.dtype.name} {x.shape}\n"
    )


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read tensors and metadata of a file that :func:`save` wrote, and check that it is intact."""
    try:
        arrays, metadata = tensors.read(path, functools.partial(_check_format, path))
    except tensors.UnreadableError as error:
        raise olsq.StateFileError(
            f"{path} is truncated, damaged or not a safetensors file ({error}): "
            "take another copy, or save the model again"
        ) from error
    if _digest(arrays, {k: v for k, v in metadata.items() if k != "olsq.sha256"}) != metadata.get(
        "olsq.sha256"
    ):
        raise olsq.StateFileError(
            f"{path} is damaged or was changed: its checksum does not match; take another copy, or "
            "save the model again"
        )
    return arrays, metadata


def _check_format(path: Path, names: list[str], metadata: Mapping[str, str]) -> None:
    written = metadata.get("olsq.format")
    if written is None:
        theirs = any(name.endswith(("lambda_params", "q_proj.weight")) for name in names)
        hint = (
            "its names are those of flash-linear-attention: read it with "
            "olsq.nn.from_fla(safetensors.numpy.load_file(path)), or its folder with "
            "olsq.nn.load_pretrained"
            if theirs
            else f"it holds {listed(names)}"
        )
        raise olsq.StateFileError(f"{path} was not written by olsq.nn.save; {hint}")
    if written != FORMAT:
        raise olsq.StateFileError(
            f"{path} has format {written}, written by olsq {metadata.get('olsq.version')}; this "
            f"olsq ({olsq.__version__}) reads format {FORMAT}: "
            f"use a matching olsq, or save it again"
        )
