"""Files of a finished run: write figures and sampled text; load the model and its tokenizer."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import olsq.nn
from olsq.files import write_atomically
from olsq.train.checkpoint import read_tokenizer
from olsq.train.evaluation import Evaluation
from olsq.train.figures import plot_loss, plot_perplexity
from olsq.train.log import Log
from olsq.train.tokenizers import Tokenizer

__all__ = ["Run", "load_run", "sample_text", "write_results"]


def write_results(
    directory: str | os.PathLike[str], log: Log, evaluation: Evaluation, *, title: str = ""
) -> list[Path]:
    """Write ``loss.png``, ``perplexity.png`` and ``positions.csv``; return their paths.

    ``positions.csv`` has the mean validation loss, in nats, and the perplexity of every position.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["position,loss,perplexity\n"]
    for place, loss in enumerate(evaluation.by_position, 1):
        rows.append(f"{place},{loss:.9g},{np.exp(loss):.9g}\n")
    suffix = f"   ({title})" if title else ""
    contents = {
        "loss.png": _png(plot_loss(log, title=f"Loss{suffix}")),
        "perplexity.png": _png(
            plot_perplexity(evaluation, title=f"Perplexity by position{suffix}")
        ),
        "positions.csv": "".join(rows).encode(),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def sample_text(
    model: Any,
    tokenizer: Tokenizer,
    prompt: str,
    tokens: int,
    *,
    seed: int = 0,
    temperature: float = 0.8,
    top_k: int | None = 40,
) -> str:
    """Sample a continuation of ``prompt`` from a model with ``generate``, as text.

    Parameters
    ----------
    model : olsq.nn.LanguageModel
    tokenizer : ByteTokenizer or BytePairTokenizer
    prompt : str
        At least one character.
    tokens : int
        How many to sample.
    seed : int
    temperature, top_k : float, int or None
        As in :func:`olsq.nn.generate`.
    """
    start = tokenizer.encode(prompt)
    if not start.size:
        raise ValueError("the prompt is empty: give at least one character")
    kept = None if top_k is None else min(top_k, tokenizer.vocab_size)
    found = model.generate(
        jnp.asarray(start)[None], tokens, key=jax.random.key(seed), temperature=temperature,
        top_k=kept,
    )  # fmt: skip
    return tokenizer.decode(np.asarray(found)[0])


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=200, format="png")
    return buffer.getvalue()


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
