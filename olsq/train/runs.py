"""Load a finished run of ``olsq train``: the model and its tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import olsq.nn
from olsq.train.checkpoint import read_tokenizer
from olsq.train.tokenizers import Tokenizer

__all__ = ["Run", "load_run"]


class Run(NamedTuple):
    """Result of :func:`load_run`: model and tokenizer.

    Attributes
    ----------
    model : olsq.nn.LanguageModel
    tokenizer : ByteTokenizer or BytePairTokenizer
    """

    model: Any
    tokenizer: Tokenizer


def load_run(directory: str | os.PathLike[str]) -> Run:
    """Load the model and the tokenizer from a directory that ``olsq train`` wrote.

    Parameters
    ----------
    directory : path
        With ``model.safetensors``, and ``checkpoint.safetensors`` for the tokenizer.

    Returns
    -------
    Run

    Raises
    ------
    FileNotFoundError
        If one of the files is not there.
    ValueError
        If a file is damaged or foreign, or the checkpoint has no tokenizer.
    """
    folder = Path(directory)
    weights, checkpoint = folder / "model.safetensors", folder / "checkpoint.safetensors"
    if not checkpoint.exists():
        raise FileNotFoundError(f"{folder} has no {checkpoint.name}: it is no run of olsq train")
    if not weights.exists():
        raise FileNotFoundError(
            f"{folder} has no {weights.name}: its run is not finished, olsq train --resume goes on"
        )
    tokenizer = read_tokenizer(checkpoint)
    if tokenizer is None:
        raise ValueError(f"{checkpoint} has no tokenizer: its run was not made from text")
    return Run(olsq.nn.load(weights), tokenizer)
