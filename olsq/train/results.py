"""Results of a finished run: figures, sampled text; and loading its model and tokenizer."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import olsq.nn
from olsq.files import write_atomically
from olsq.train.checkpoint import read_tokenizer
from olsq.train.evaluation import Evaluation
from olsq.train.log import Log
from olsq.train.tokenizers import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["Run", "load_run", "plot_loss", "plot_perplexity", "sample_text", "write_results"]
SIZE = 5.4, 3.3  # inches: letters of 8 points can be read on a phone


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
        raise ValueError("prompt must have at least one character, got an empty one")
    kept = None if top_k is None else min(top_k, tokenizer.vocab_size)
    sampled = model.generate(
        jnp.asarray(start)[None],
        tokens,
        key=jax.random.key(seed),
        temperature=temperature,
        top_k=kept,
    )
    return tokenizer.decode(np.asarray(sampled)[0])


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
    """Load the model and the tokenizer from a directory that ``examples/train_text.py`` wrote.

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
        raise FileNotFoundError(f"{folder} has no {checkpoint.name}: it is no finished run")
    if not weights.exists():
        raise FileNotFoundError(
            f"{folder} has no {weights.name}: its run is not finished: go on with --resume"
        )
    tokenizer = read_tokenizer(checkpoint)
    if tokenizer is None:
        raise ValueError(f"{checkpoint} has no tokenizer: its run was not made from text")
    return Run(olsq.nn.load(weights), tokenizer)


def plot_loss(log: Log, *, title: str = "Loss") -> Figure:
    """Plot the training loss of every step, its moving average, and the validation loss.

    Parameters
    ----------
    log : Log
        With at least one record.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Skipped steps are marked at the lower edge; the last validation loss is at its line.
    """
    from olsq.plot.drawing import BLUE, ORANGE, RED, house_style, new_figure
    from olsq.plot.labels import label_lines

    step, loss, validation = log["step"], log["loss"], log["validation_loss"]
    done = np.isfinite(loss)
    evaluated = np.isfinite(validation)
    with house_style():
        figure = new_figure(*SIZE)
        ax = figure.subplots()
        ax.plot(step[done], loss[done], color=BLUE, alpha=0.25, linewidth=0.8)
        smooth = centred_mean(loss[done], max(len(loss) // 50, 1))
        ax.plot(step[done], smooth, color=BLUE, label="training,\naveraged")
        ax.plot(
            step[evaluated],
            validation[evaluated],
            "o-",
            color=ORANGE,
            markersize=3,
            clip_on=False,
            label=f"validation\n{validation[evaluated][-1]:.3f}" if evaluated.any() else "_",
        )
        skipped = log["skipped"] > 0
        if skipped.any():
            ax.plot(
                step[skipped],
                np.zeros(skipped.sum()),
                "|",
                color=RED,
                markersize=9,
                transform=ax.get_xaxis_transform(),
                clip_on=False,
            )
            # On the left, where a loss is far from the lower edge.
            ax.text(
                0.015,
                0.06,
                f"skipped, not finite: {skipped.sum():,}",
                color=RED,
                fontsize=8,
                transform=ax.transAxes,
            )
        ax.set_ylim(_limits(np.concatenate([smooth, validation[evaluated]])))
        ax.set_xlim(0, max(step[-1], 1))
        ax.set_title(title)
        ax.set_xlabel("step")
        ax.set_ylabel("loss, nats per token")
        label_lines(ax)
    return figure


def plot_perplexity(evaluation: Evaluation, *, title: str = "Perplexity by position") -> Figure:
    """Plot perplexity over the position of the predicted token, with 95 % bars.

    A model that uses its context predicts better, the more it has read.
    """
    from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

    from olsq.plot.drawing import BLUE, MUTED, house_style, new_figure

    bins = evaluation.binned()
    middle = np.sqrt(bins.first * bins.last)
    center = np.exp(bins.loss)
    half = 1.96 * np.nan_to_num(bins.error)
    with house_style():
        figure = new_figure(*SIZE)
        ax = figure.subplots()
        low, high = np.exp(bins.loss - half), np.exp(bins.loss + half)
        ax.errorbar(
            middle,
            center,
            [center - low, high - center],
            fmt="o-",
            color=BLUE,
            markersize=3,
            elinewidth=0.8,
        )
        ax.axhline(evaluation.perplexity, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        # Powers of ten would label one or two places of the range a model covers.
        ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.4g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.annotate(
            f"all\n{evaluation.perplexity:.2f}",
            (1.0, evaluation.perplexity),
            (5, 0),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
            va="center",
            annotation_clip=False,
        )
        ax.set_title(title)
        ax.set_xlabel("position of the predicted token in the sequence")
        ax.set_ylabel("perplexity")
    return figure


def centred_mean(x: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Average up to ``width`` values around each, as many before it as after, so that it does not
    lag.

    The window shrinks towards both ends, so that a straight line stays one there too.
    """
    total = np.concatenate([[0.0], np.cumsum(x)])
    at = np.arange(len(x))
    half = np.minimum(np.minimum(at, len(x) - 1 - at), width // 2)
    return (total[at + half + 1] - total[at - half]) / (2 * half + 1)


def _limits(values: NDArray[np.float64]) -> tuple[float, float]:
    """Choose axis limits that show all values but the 0.5 % largest."""
    if not values.size:
        return 0.0, 1.0
    bottom, top = values.min(), np.quantile(values, 0.995)
    pad = 0.06 * (top - bottom) or 0.05 * abs(top) or 1.0
    return float(bottom - pad), float(top + pad)
