"""Model folders that others can load: weights, configuration, tokenizer and a card."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

import olsq
from olsq.files import tensors, write_atomically
from olsq.nn.card import card
from olsq.nn.files import load, save
from olsq.nn.fla import from_fla, to_fla
from olsq.nn.fla.reading import TYPES
from olsq.nn.model import LanguageModel
from olsq.nn.surgery import count_parameters
from olsq.nn.vocabulary import tokenizer_json, vocabulary_of

Folder = str | os.PathLike[str]
FolderLayout = Literal["olsq", "fla"]

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG, TOKENIZER, CARD = "config.json", "tokenizer.json", "README.md"
OURS = "olsq"  # the model_type of a folder in our layout


class Pretrained(NamedTuple):
    """Result of :func:`load_pretrained`: model, tokenizer and configuration.

    Attributes
    ----------
    model : LanguageModel
    tokenizer : dict or None
        What ``olsq.train.tokenizer_from_dict`` takes; None if there is no ``tokenizer.json``.
    config : dict
        What ``config.json`` says.
    """

    model: LanguageModel
    tokenizer: dict[str, Any] | None
    config: dict[str, Any]


def save_pretrained(
    model: LanguageModel,
    folder: Folder,
    *,
    tokenizer: Any = None,
    layout: FolderLayout = "olsq",
    name: str | None = None,
    data: str | None = None,
) -> None:
    """Write a model as a new folder: weights, ``config.json``, tokenizer and a card.

    Parameters
    ----------
    model : LanguageModel
    folder : path
        New, or empty.  It appears under its name complete or not at all.
    tokenizer : tokenizer of :mod:`olsq.train`, ``tokenizers.Tokenizer`` or path, optional
        Written as ``tokenizer.json``, which Hugging Face's ``tokenizers`` reads: the same numbers
        for the same text.  A path is that of such a file.
    layout : {"olsq", "fla"}
        Of weights and configuration: ours, for every model, with solvers and a checksum; or
        flash-linear-attention's, for models that :func:`to_fla` takes, which its
        ``AutoModelForCausalLM.from_pretrained(folder)`` reads.
    name : str, optional
        The card's title; the folder's name if None.
    data : str, optional
        Text of the card about the training data.

    Raises
    ------
    FileExistsError
        If the folder exists and is not empty.
    ValueError
        If the model cannot be written in that layout, the tokenizer is of another kind, or has
        more tokens than the model; nothing is written then.
    OSError
        If a file cannot be written; nothing is left.

    See Also
    --------
    load_pretrained : The model again.
    save : One file.

    Notes
    -----
    The finished directory of ``examples/train_text.py`` becomes such a folder by
    ``run = olsq.train.load_run("run")`` and ``save_pretrained(run.model, "folder",
    tokenizer=run.tokenizer)``.

    Examples
    --------
    >>> import os, tempfile, jax, olsq.nn
    >>> model = olsq.nn.LanguageModel(256, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> folder = os.path.join(tempfile.mkdtemp(), "small")
    >>> olsq.nn.save_pretrained(model, folder, data="Nothing: these weights are random.")
    >>> sorted(os.listdir(folder))
    ['README.md', 'config.json', 'model.safetensors']
    >>> again = olsq.nn.load_pretrained(folder).model
    >>> bool((again.embedding == model.embedding).all())
    True
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(
            f"model must be a LanguageModel, got a {type(model).__name__}; olsq.nn.save writes the "
            "weights of other modules"
        )
    if layout not in get_args(FolderLayout):
        raise ValueError(f"layout must be one of {get_args(FolderLayout)}, got {layout!r}")
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not an empty folder: choose another name")
    theirs = to_fla(model) if layout == "fla" else None
    texts: dict[str, str] = {}
    if tokenizer is not None:
        texts[TOKENIZER] = tokenizer_json(tokenizer)
        _check_vocabulary(vocabulary_of(texts[TOKENIZER])[0], model.vocab_size)
    if theirs is None:
        config = _configuration(model)
    else:  # the dtype of the weights, whatever that of the activations is here
        config = {**theirs.config, "torch_dtype": str(model.embedding.dtype), "use_cache": True}
    texts[CONFIG] = json.dumps(config, indent=2, sort_keys=True) + "\n"
    texts[CARD] = card(
        model,
        folder=target.name,
        layout=layout,
        name=name or target.name,
        data=data,
        tokenizer=tokenizer is not None,
    )

    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    temporary.mkdir()
    try:
        if theirs is None:
            save(temporary / WEIGHTS, model)
        else:
            # transformers refuses a safetensors file whose metadata name no format.
            tensors.write(
                temporary / WEIGHTS, _make_contiguous(theirs.state_dict), {"format": "pt"}
            )
        for file, text in texts.items():
            write_atomically(temporary / file, text.encode())
        if target.exists():
            target.rmdir()
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load_pretrained(folder: Folder, *, dtype: Any = None) -> Pretrained:
    """Load the model in a folder that :func:`save_pretrained` or flash-linear-attention wrote.

    Parameters
    ----------
    folder : path
        With ``config.json`` and ``model.safetensors``, or the parts of that with their index.
    dtype : optional
        Of the activations of a model of flash-linear-attention: see :func:`from_fla`.

    Returns
    -------
    Pretrained

    Raises
    ------
    FileNotFoundError
        If the folder or a file in it is not there.
    olsq.StateFileError
        If a file is damaged, files do not belong together, or the configuration is of a model that
        has no counterpart here.  It is a ValueError.
    ValueError
        If weights are missing, unknown or of another shape than the configuration's; they are
        named.

    Notes
    -----
    Nothing in a folder is run: files of pickled weights are not read.

    Examples
    --------
    >>> import os, tempfile, jax, olsq.nn
    >>> model = olsq.nn.LanguageModel(256, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> folder = os.path.join(tempfile.mkdtemp(), "small")
    >>> olsq.nn.save_pretrained(model, folder)
    >>> model, tokenizer, config = olsq.nn.load_pretrained(folder)
    >>> config["model_type"], config["parameters"], tokenizer
    ('olsq', 7666, None)
    """
    place = Path(folder)
    config = _json(place / CONFIG)
    kind = config.get("model_type")
    if kind != OURS and kind not in TYPES:
        raise olsq.StateFileError(
            f"{place / CONFIG} is of model_type {kind!r}, which has no counterpart here; known are "
            f"{', '.join((OURS, *TYPES))}"
        )
    if kind == OURS:
        _require_file(place / WEIGHTS)
        model = load(place / WEIGHTS)
        expected = json.loads(json.dumps(_configuration(model)))
        differ = sorted(
            key for key in expected if key != "olsq_version" and config.get(key) != expected[key]
        )
        if differ:
            raise olsq.StateFileError(
                f"{CONFIG} and {WEIGHTS} in {place} do not belong together: {', '.join(differ)} "
                "differ; take both from one place"
            )
    else:
        model = from_fla(_weights(place), config=config, dtype=dtype)
    saved = None
    if (place / TOKENIZER).exists():
        try:
            text = (place / TOKENIZER).read_text(encoding="utf-8")
            count, saved = vocabulary_of(text)
        except ValueError as error:
            raise olsq.StateFileError(f"{place / TOKENIZER} is damaged: {error}") from error
        _check_vocabulary(count, model.vocab_size)
    return Pretrained(model, saved, config)


def _configuration(model: LanguageModel) -> dict[str, Any]:
    """Return ``config.json`` in our layout; the weights' metadata hold the configuration too."""
    return {
        "model_type": OURS,
        "architectures": ["LanguageModel"],
        "olsq_version": olsq.__version__,
        "parameters": count_parameters(model),
        "vocab_size": model.vocab_size,
        "configuration": json.loads(model.configuration),
    }


def _make_contiguous(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make arrays C-ordered, as a file needs them."""
    return {name: np.ascontiguousarray(x) for name, x in arrays.items()}


def _weights(place: Path) -> dict[str, np.ndarray]:
    """Read all weights of a folder, from one file or from the files that its index names."""
    files = [WEIGHTS]
    if not (place / WEIGHTS).exists() and (place / INDEX).exists():
        files = sorted(set(_json(place / INDEX).get("weight_map", {}).values()))
    arrays = {}
    for file in files:
        if os.path.basename(file) != file:
            raise olsq.StateFileError(f"{INDEX} names {file!r}, which is not in the folder")
        _require_file(place / file)
        try:
            arrays |= tensors.read(place / file, lambda names, metadata: None)[0]
        except tensors.UnreadableError as error:
            raise olsq.StateFileError(
                f"{place / file} is truncated, damaged or not a safetensors file ({error})"
            ) from error
    return arrays


def _require_file(path: Path) -> None:
    if path.exists():
        return
    pickled = [p.name for p in path.parent.glob("*.bin")] + [
        p.name for p in path.parent.glob("*.pt")
    ]
    more = (
        f"; {pickled[0]} is not read, since pickled weights run code: write them as safetensors"
        if pickled
        else ""
    )
    raise FileNotFoundError(f"{path.parent} has no {path.name}{more}")


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    _require_file(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise olsq.StateFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise olsq.StateFileError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def _check_vocabulary(count: int | None, room: int) -> None:
    if count is not None and count > room:
        raise ValueError(
            f"tokenizer has {count} tokens, more than the model's vocab_size of {room}: give the "
            "tokenizer that the model was trained with"
        )
