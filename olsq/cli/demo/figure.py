"""The figure of ``olsq demo``: both regressions side by side, and the third act below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olsq.cli.demo.in_context import JUMP, TOKENS, Reading
from olsq.cli.demo.studies import Study, paths
from olsq.plot import cusum
from olsq.plot.drawing import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    draw_cusum,
    draw_residuals,
    house_style,
    new_figure,
    roomy_layout,
)
from olsq.plot.numbers import running_rms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMOOTHED = 8  # tokens that a point of the third act's lines averages
LIGHT_ORANGE, LIGHT_BLUE = "#eda766", "#7fb3d5"


def draw_demo(macro: Study, co2: Study, readings: Sequence[Reading]) -> Figure:
    """Data and predictions, a coefficient with its band, errors and CUSUM, one study a column.

    Below both, the errors of the attention rules by token.
    """
    with house_style():
        figure = new_figure(11, 14, roomy_layout())
        parts: Any = figure.subfigures(2, 1, height_ratios=[3, 1])
        above, below = parts
        axes = above.subplots(4, 2, sharex="col", gridspec_kw={"height_ratios": [5, 5, 4, 4]})
        _column(axes[:, 0], macro, "Price points per billion dollars of money")
        _column(axes[:, 1], co2, "Growth of CO2 in ppm a year")
        axes[0, 0].set_ylabel("consumer price index")
        axes[0, 1].set_ylabel("CO2 in ppm")
        _zoom(axes[0, 1], co2, since=1998.0)
        for year, height, words in ((1998.0, 2.78, "El Niño 1998"), (1992.9, 0.4, "Pinatubo 1991")):
            axes[1, 1].text(year, height, words, color=MUTED, fontsize=8, ha="center")
        _readings(below.subplots(), readings)
    return figure


def _readings(ax: Axes, readings: Sequence[Reading]) -> None:
    """Errors by token on a log axis, each line named where it ends."""
    colors = (MUTED, LIGHT_ORANGE, ORANGE, LIGHT_BLUE, BLUE)
    for reading, color in zip(readings, colors, strict=True):
        smooth = np.convolve(reading.error, np.full(SMOOTHED, 1 / SMOOTHED), "valid")
        token = np.arange(len(smooth)) + SMOOTHED
        ax.semilogy(token, smooth, color=color, linewidth=2 if reading.best else 1.4)
        name = reading.name.replace(", ", ",\n")
        ax.annotate(
            name, (token[-1], smooth[-1]), (6, 0), textcoords="offset points", color=color,
            fontsize=8.5, va="center", fontweight="bold", annotation_clip=False,
        )  # fmt: skip
    ax.axvline(JUMP, color=MUTED, linewidth=0.8, linestyle=":")
    ax.set_xlim(0, TOKENS * 1.25)
    ax.set_xticks(range(0, TOKENS + 1, TOKENS // 8))
    ax.set_xlabel("token")
    ax.set_title("A regression inside a sequence: squared error of the next value, 1 = no answer")


def _column(axes: Sequence[Axes], study: Study, slope: str) -> None:
    everything, forgetting = paths(study)
    top, middle, errors, test = axes
    x = study.time
    _predictions(top, study)
    top.set_title(study.title, fontsize=12, pad=10)
    _legend(top, ("data", INK), (study.memory, BLUE), ("nothing forgotten", ORANGE))
    for path, color in ((everything, ORANGE), (forgetting, BLUE)):
        _band(middle, x, path.coef[:, 0], path.stderr[:, 0], study.burn_in, color)
    middle.axhline(0, color=MUTED, linewidth=0.7)
    middle.set_title(f"{slope}, with 95 % band")
    low, high = middle.get_ylim()
    middle.set_ylim(min(low, 0), high + 0.2 * (high - low))
    _legend(middle, (study.memory, BLUE), ("nothing forgotten", ORANGE))
    error = np.where(np.arange(len(x)) >= study.burn_in, forgetting.residual, np.nan)
    draw_residuals(errors, x, error, error, running_rms(error**2, max(len(x) // 20, 5)))
    errors.set_title(f"Errors, {study.memory}")
    result = cusum(everything)
    draw_cusum(test, x[result.row], result.value, result.bound)
    test.set_title("CUSUM, nothing forgotten")
    top.set_xlim(x[0], x[-1])


def _predictions(ax: Axes, study: Study) -> None:
    """Data as dots over the one-step-ahead predictions of both regressions."""
    learned = np.arange(len(study.y)) >= study.burn_in
    for path, color in zip(paths(study), (ORANGE, BLUE), strict=True):
        ax.plot(study.time[learned], (study.y - path.residual)[learned], color=color, linewidth=1.2)
    ax.plot(study.time, study.y, ".", color=INK, markersize=1.8)


def _zoom(ax: Axes, study: Study, since: float) -> None:
    """The latest years again, large, in the free lower right corner."""
    ax.set_ylim(284, None)
    inset = ax.inset_axes((0.53, 0.1, 0.46, 0.38))
    _predictions(inset, study)
    recent = study.time >= since
    inset.set_xlim(since, study.time[-1])
    low, high = np.nanmin(study.y[recent]), np.nanmax(study.y[recent])
    inset.set_ylim(low - 4, high + 2)
    inset.set_xticks(np.arange(since, study.time[-1]))
    inset.tick_params(labelsize=7, length=2)


def _band(ax: Axes, x: NDArray, coef: NDArray, stderr: NDArray, burn_in: int, color: str) -> None:
    """A coefficient and its band, without the first rows, whose wild values hide the rest."""
    known = np.isfinite(stderr) & (np.arange(len(x)) >= burn_in)
    half = 1.96 * np.where(known, stderr, np.nan)
    ax.fill_between(x, coef - half, coef + half, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, np.where(known, coef, np.nan), color=color)


def _legend(ax: Axes, *entries: tuple[str, str]) -> None:
    """Coloured words in the upper left corner instead of a box with little lines."""
    for place, (words, color) in enumerate(entries):
        ax.text(
            0.02, 0.95 - 0.1 * place, words, transform=ax.transAxes, color=color, va="top",
            fontsize=8.5, fontweight="bold",
        )  # fmt: skip
