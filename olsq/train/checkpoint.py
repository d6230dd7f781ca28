"""Checkpoints: everything a run needs to resume, in one safetensors file written atomically.

Tensors are named ``weights/...``, ``optimiser/...`` (paths in the model and in optax's state) and
``log/...``.  The metadata entry ``olsq train`` is JSON: ``version``, ``content`` (step, config,
setup, tokenizer, digest of the data) and ``sha256`` over content and tensors.  No pickle, no date:
equal runs write equal bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from olsq.files import tensors
from olsq.nn.kinds import path_names
from olsq.train.log import Log
from olsq.train.tokenizers import Tokenizer, tokenizer_from_dict

__all__ = ["Checkpoint", "CheckpointError", "CheckpointMismatch", "read_checkpoint"]

KEY, VERSION = "olsq train", 1
START_AGAIN = "delete it, or choose another directory, to start again"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: damaged, foreign, in the way, or of another run."""


class CheckpointMismatch(CheckpointError):
    """A checkpoint of a run with other options.

    Attributes
    ----------
    path : str
    differences : dict
        Name of an option to the pair (in the checkpoint, now).
    """

    def __init__(self, path: str, differences: dict[str, tuple[Any, Any]]) -> None:
        self.path, self.differences = path, differences
        super().__init__(f"cannot resume from {path}: {describe_differences(differences)}")


def describe_differences(differences: dict[str, tuple[Any, Any]]) -> str:
    """Describe the differences between two runs in words."""
    return "; ".join(f"{name} was {old} and is {new}" for name, (old, new) in differences.items())


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint.

    Attributes
    ----------
    path : str
    step : int
        Steps done.
    config, setup : dict
        Options of the training, and what the caller described the run with.
    data : str
        SHA-256 of the tokens.
    tokenizer : ByteTokenizer, BytePairTokenizer or None
    tensors : dict of str to array
        ``weights/...`` and ``optimiser/...``.
    log : Log
    """

    path: str
    step: int
    config: dict[str, Any]
    setup: dict[str, Any]
    data: str
    tokenizer: Tokenizer | None
    tensors: dict[str, NDArray]
    log: Log

    def check(self, config: dict[str, Any], setup: dict[str, Any], data: str) -> None:
        """Raise CheckpointMismatch, naming what differs, if the checkpoint is of another run."""
        differences: dict[str, tuple[Any, Any]] = {}
        for before, now in ((self.setup, _as_json(setup)), (self.config, _as_json(config))):
            for name in {**before, **now}:
                if before.get(name) != now.get(name):
                    differences.setdefault(name, (before.get(name), now.get(name)))
        if not differences and self.data != data:
            differences["the text"] = (f"{self.data[:8]} (SHA-256 of its tokens)", data[:8])
        if differences:
            raise CheckpointMismatch(self.path, differences)

    def restore(self, prefix: str, template: Any) -> Any:
        """Rebuild the pytree under ``prefix`` in the structure of ``template``.

        Raises
        ------
        CheckpointError
            If names, shapes or types of the arrays are not those of ``template``.
        """
        expected = named_arrays(prefix, template)
        saved = {name for name in self.tensors if name.startswith(prefix + "/")}
        if strange := sorted(saved ^ expected.keys()):
            where = "the checkpoint" if strange[0] in saved else "this run"
            raise CheckpointError(
                f"{self.path} is of another model: only {where} has {strange[0]}; {START_AGAIN}"
            )
        leaves = []
        for name, here in expected.items():
            there = self.tensors[name]
            if here.dtype.kind == "V" and there.dtype == np.uint16:  # bfloat16, see as_tensor
                there = there.view(here.dtype)
            if there.shape != here.shape or there.dtype != here.dtype:
                raise CheckpointError(
                    f"{self.path} is of another model: {name} is {there.dtype} {there.shape} "
                    f"there and {here.dtype} {here.shape} here; {START_AGAIN}"
                )
            leaves.append(jnp.asarray(there))
        return jax.tree.unflatten(jax.tree.structure(template), leaves)


def named_arrays(prefix: str, tree: Any) -> dict[str, Any]:
    """Return the leaves of a pytree by their path, ``prefix/field/0/...``."""
    return {
        "/".join([prefix, *path_names(path)]): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def write_checkpoint(
    path: str | os.PathLike[str],
    trees: dict[str, Any],
    content: dict[str, Any],
    log: Log,
) -> None:
    """Write ``trees`` by prefix, ``content`` and ``log`` to a file that appears complete or not at
    all.
    """
    arrays = {f"log/{name}": column for name, column in log.to_arrays().items()}
    for prefix, tree in trees.items():
        arrays |= {name: as_tensor(leaf) for name, leaf in named_arrays(prefix, tree).items()}
    notes = {"version": VERSION, "content": content, "sha256": _digest(content, arrays)}
    tensors.write(path, arrays, {KEY: json.dumps(notes, sort_keys=True)})


def as_tensor(leaf: Any) -> NDArray:
    """Convert an array for safetensors' NumPy writer: bfloat16 as its bits."""
    array = np.array(leaf, order="C")
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify a checkpoint.

    Parameters
    ----------
    path : path
        ``checkpoint.safetensors`` in the directory of a run.

    Returns
    -------
    Checkpoint
        ``step``, ``config``, ``tokenizer``, ``log`` and the raw ``tensors``.

    Raises
    ------
    CheckpointError
        If the file is truncated, damaged or foreign; it is left as it is.
    FileNotFoundError
        If there is none.
    """
    name = os.fspath(path)
    with _refusing_damage(name):
        arrays, metadata = tensors.read(path, lambda _, metadata: _parse_metadata(name, metadata))
        notes = _parse_metadata(name, metadata)
    if _digest(notes["content"], arrays) != notes["sha256"]:
        raise CheckpointError(f"{name} is damaged: its checksum does not match; {START_AGAIN}")
    content = notes["content"]
    columns = {k.removeprefix("log/"): v for k, v in arrays.items() if k.startswith("log/")}
    saved = content["tokenizer"]
    return Checkpoint(
        path=name,
        step=content["step"],
        config=content["config"],
        setup=content["setup"],
        data=content["data"],
        tokenizer=None if saved is None else tokenizer_from_dict(saved),
        tensors={k: v for k, v in arrays.items() if not k.startswith("log/")},
        log=Log.from_arrays(columns),
    )


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer | None:
    """Read the tokenizer of a checkpoint without its tensors; errors as read_checkpoint's."""
    name = os.fspath(path)
    with _refusing_damage(name):
        saved = _parse_metadata(name, tensors.metadata(path))["content"]["tokenizer"]
    return None if saved is None else tokenizer_from_dict(saved)


@contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    """Raise CheckpointError where a file cannot be read; ``name`` is the file's."""
    try:
        yield
    except (tensors.UnreadableError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{name} is truncated, damaged or no checkpoint ({error}); {START_AGAIN}"
        ) from None


def _parse_metadata(name: str, metadata: dict[str, str]) -> dict[str, Any]:
    """Parse the metadata, checking that this version can read them."""
    notes = json.loads(metadata.get(KEY, "null"))
    if notes is None:
        raise CheckpointError(f"{name} is not a checkpoint of olsq.train; {START_AGAIN}")
    if notes["version"] != VERSION:
        raise CheckpointError(
            f"{name} has format {notes['version']}, this olsq reads {VERSION}: use the version "
            "that wrote it"
        )
    return notes


def _digest(content: dict[str, Any], arrays: dict[str, NDArray]) -> str:
    text = json.dumps(content, sort_keys=True)
    return tensors.checksum(
        text.encode(), arrays, lambda name, x: f"\n{name} {x.dtype.str} {x.shape}\n"
    )


def _as_json(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as they come back from JSON: tuples as lists."""
    return json.loads(json.dumps(options))
