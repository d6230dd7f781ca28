"""The figure of ``olsq demo``: both regressions side by side, attention rules below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from olsq.cli.demo.studies import JUMP, TOKENS, Reading, Study, paths
from olsq.plot.drawing import BLUE, INK, MUTED, ORANGE, house_style, new_figure, roomy_layout
from olsq.plot.labels import label_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SMOOTHED = 8  # tokens that a point of the third act's lines averages
LIGHT_ORANGE, LIGHT_BLUE = "#eda766", "#7fb3d5"


def draw_demo(macro: Study, co2: Study, readings: Sequence[Reading]) -> Figure:
    """Draw each study's data, predictions and coefficient, and the attention rules' errors.

    The studies are two columns above one wide panel.
    """
    with house_style():
        figure = new_figure(9.7, 8.4, roomy_layout())
        grid = figure.add_gridspec(3, 2)
        places = (grid[0, 0], grid[1, 0], grid[0, 1], grid[1, 1], grid[2, :])
        axes = [figure.add_subplot(place) for place in places]
        lines = [
            *_draw_study(axes[0], axes[1], macro, "Price points per billion dollars of money"),
            *_draw_study(axes[2], axes[3], co2, "Growth of CO2 in ppm a year"),
            (axes[4], _draw_readings(axes[4], readings)),
        ]
        axes[0].set_ylabel("consumer price index")
        axes[2].set_ylabel("CO2 in ppm")
        _draw_inset(axes[2], co2, since=1998.0)
        for year, height, words in ((1995.5, 2.55, "El Niño 1998"), (1992.0, 0.4, "Pinatubo 1991")):
            axes[3].text(year, height, words, color=MUTED, fontsize=8, ha="center")
        for ax, named in lines:
            label_lines(ax, named)
    return figure


def _draw_readings(ax: Axes, readings: Sequence[Reading]) -> list[Line2D]:
    """Plot the errors by token on a logarithmic axis."""
    colors = (MUTED, LIGHT_ORANGE, ORANGE, LIGHT_BLUE, BLUE)
    drawn = []
    for reading, color in zip(readings, colors, strict=True):
        smooth = np.convolve(reading.error, np.full(SMOOTHED, 1 / SMOOTHED), "valid")
        token = np.arange(len(smooth)) + SMOOTHED
        name = reading.name.replace(", ", ",\n")
        drawn += ax.semilogy(
            token, smooth, color=color, linewidth=2 if reading.best else 1.4, label=name
        )
    ax.axvline(JUMP, color=MUTED, linewidth=0.8, linestyle=":")
    ax.set_xlim(0, TOKENS)
    ax.set_xticks(range(0, TOKENS + 1, TOKENS // 4))
    ax.set_xlabel("token")
    ax.set_ylabel("squared error of the next value")
    ax.set_title("Regression inside a sequence: error, 1 = no answer")
    return drawn


def _draw_study(
    top: Axes, bottom: Axes, study: Study, slope: str
) -> list[tuple[Axes, list[Line2D]]]:
    """Draw both panels of a study; return each with the lines to be labelled."""
    x = study.time
    _draw_predictions(top, study)
    top.set_title(study.title, fontsize=12, pad=10)
    drawn: list[Line2D] = []
    for path, color, name in zip(paths(study), (ORANGE, BLUE), _memory_labels(study), strict=True):
        drawn += _draw_band(
            bottom, x, path.coef[:, 0], path.stderr[:, 0], study.burn_in, color, name
        )
    bottom.axhline(0, color=MUTED, linewidth=0.7)
    bottom.set_title(f"{slope}, with 95 % band")
    low, high = bottom.get_ylim()
    bottom.set_ylim(min(low, 0), high + 0.12 * (high - low))
    for ax in (top, bottom):
        ax.set_xlim(x[0], x[-1])
    return [(top, top.get_lines()), (bottom, drawn)]


def _memory_labels(study: Study) -> tuple[str, str]:
    """Return the labels of the regression that remembers everything and of the one that forgets."""
    return "nothing\nforgotten", study.memory.replace(" ", "\n", 1)


def _draw_predictions(ax: Axes, study: Study) -> None:
    """Plot the data as dots over the one-step-ahead predictions of both regressions."""
    learned = np.arange(len(study.y)) >= study.burn_in
    for path, color, name in zip(paths(study), (ORANGE, BLUE), _memory_labels(study), strict=True):
        guess = (study.y - path.residual)[learned]
        ax.plot(study.time[learned], guess, color=color, linewidth=1.2, label=name)
    ax.plot(study.time, study.y, ".", color=INK, markersize=1.8, label="data")


def _draw_inset(ax: Axes, study: Study, since: float) -> None:
    """Plot the latest years again, enlarged, in the free lower right corner."""
    ax.set_ylim(275, None)
    inset = ax.inset_axes((0.45, 0.12, 0.52, 0.36))
    _draw_predictions(inset, study)
    recent = study.time >= since
    inset.set_xlim(since, study.time[-1])
    low, high = np.nanmin(study.y[recent]), np.nanmax(study.y[recent])
    inset.set_ylim(low - 4, high + 2)
    inset.set_xticks(np.arange(since, study.time[-1]))
    inset.tick_params(labelsize=8, length=2)


def _draw_band(
    ax: Axes, x: NDArray, coef: NDArray, stderr: NDArray, burn_in: int, color: str, name: str
) -> list[Line2D]:
    """Plot a coefficient with its band, without the first rows, whose wild values hide the rest."""
    drawn = np.isfinite(stderr) & (np.arange(len(x)) >= burn_in)
    half = 1.96 * np.where(drawn, stderr, np.nan)
    ax.fill_between(x, coef - half, coef + half, color=color, alpha=0.18, linewidth=0)
    return ax.plot(x, np.where(drawn, coef, np.nan), color=color, label=name)
