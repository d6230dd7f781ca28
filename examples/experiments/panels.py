"""Figures of the experiments: one panel 5 inches wide, several in two or three columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from olsq.plot.drawing import MUTED, house_style
from olsq.plot.labels import label_lines, label_points

__all__ = [
    "COLOURS",
    "WIDTH",
    "colour_of",
    "in_house_style",
    "label_lines",
    "label_points",
    "line",
    "panels",
]

WIDTH = 5.0  # inches of a panel by itself
TWO_COLUMNS = 8.4
# Dark enough to be read as letters on white, and told apart with any colour vision.
COLOURS = (
    "#2166ac", "#d9730d", "#1b7f4d", "#c0362c", "#7b4fa3", "#8a6100", "#0a8a9a", "#c2388a",
    "#4d4d4d",
)  # fmt: skip
# The same colour for a mixer in every figure.
MIXER_COLOURS = {
    name: COLOURS[i]
    for i, name in enumerate(
        ("mesa", "gla", "gated_delta", "softmax", "kda", "mamba2", "hawk-mesa", "mesa_discounted")
    )
} | {
    "mesa, small ridge": "#0b2e5c",
    "softmax, convolution": "#7d1a1a",
    "local_linear": "#e0218a",
    "local_linear, small ridge": "#8e1257",
    "local_linear, convolution": "#8e1257",
    "parallax": "#5b8c00",
    "parallax, convolution": "#3d5e00",
    "delta": "#4d4d4d",
    "hawk": "#8fb31d",
    "mlstm": "#a0522d",
    "sliding_window": "#7f7f7f",
}


def colour_of(mixer: str) -> str:
    """A mixer's colour; one beside those in the table is grey."""
    return MIXER_COLOURS.get(mixer, COLOURS[-1])


def in_house_style(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A function that draws, run in the style of :mod:`olsq.plot`."""

    @functools.wraps(draw)
    def styled(*arguments: Any, **options: Any) -> Any:
        with house_style():
            return draw(*arguments, **options)

    return styled


def panels(
    rows: int, columns: int = 1, *, height: float = 2.5, width: float = WIDTH, **shared: Any
) -> tuple[Any, Any]:
    """A figure and its axes, as ``plt.subplots`` returns them; ``height`` is a row's, in inches.

    A column of panels is laid out in two columns, read line by line; it is returned as a column.
    Two columns are as wide as the site's text, so that letters are shown at their size.
    """
    if columns > 1 or rows == 1:
        return plt.subplots(
            rows, columns, figsize=(TWO_COLUMNS if columns > 1 else width, 0.2 + height * rows),
            layout="constrained", **shared,
        )  # fmt: skip
    squeeze = shared.pop("squeeze", True)
    lines = -(-rows // 2)
    figure, grid = plt.subplots(
        lines, 2, figsize=(TWO_COLUMNS, 0.2 + height * lines), layout="constrained", **shared
    )
    axes = np.ravel(grid)
    for spare in axes[rows:]:
        spare.remove()
        above = axes[rows - 2]  # nothing is below it now
        above.tick_params(labelbottom=True)
        above.xaxis.label.set_visible(True)
    axes = axes[:rows]
    return figure, axes if squeeze else axes[:, None]


def line(ax: Any, height: float, text: str, *, across: float = 0.0, below: bool = False) -> None:
    """A thin line at a height, with words on it that begin at a share of the width."""
    ax.axhline(height, color=MUTED, lw=0.8, ls=(0, (4, 3)), zorder=0)
    ax.annotate(
        text, (across, height), (2, -2 if below else 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", fontsize=8, color=MUTED, va="top" if below else "bottom",
        annotation_clip=False, ha="left" if across < 0.9 else "right",
    )  # fmt: skip


def seed_lines(ax: Any, x: Any, runs: Any, colour: str, label: str, *, mean: bool = True) -> None:
    """A thin line for every seed of ``runs`` (seeds, points), and their mean, which is labelled."""
    for run in runs:
        ax.plot(x, run, color=colour, lw=0.6, alpha=0.45 if mean else 1.0, label="_seed")
    if mean:
        ax.plot(x, sum(np.asarray(run, float) for run in runs) / len(runs), color=colour,
                lw=1.4, label=label)  # fmt: skip
    else:
        ax.lines[-1].set_label(label)
