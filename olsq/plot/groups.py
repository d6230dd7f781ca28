"""Figures of one regression per group: dots with error bars, or curves of quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from olsq.plot.drawing import BLUE, INK, MUTED, ORANGE, house_style, new_figure, roomy_layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DOTS = 40  # groups whose names can still be read beside each other
MOST_PANELS = 6
LONGEST_LABEL = 24


def draw_groups(
    labels: Sequence[str], coef: NDArray, stderr: NDArray, names: Sequence[str], *, title: str = ""
) -> Figure:
    """Draw a panel for each coefficient (at most six, those that differ most between the groups).

    Up to 40 groups are named, in alphabetical order, and drawn as dots with 95 % bars. For more,
    each panel is the curve of its coefficient's quantiles.
    """
    drawn = _most_different(coef, stderr)
    few = len(labels) <= MOST_DOTS
    with house_style():
        n_columns = 2 if len(drawn) == 4 else min(len(drawn), 3)
        n_rows = -(-len(drawn) // n_columns)
        height = (0.17 * len(labels) + 1.0 if few else 2.5) * n_rows + 0.6
        figure = new_figure(10, max(height, 2.4), roomy_layout())
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        order = sorted(range(len(labels)), key=lambda i: labels[i], reverse=True)
        for place, ax in enumerate(axes.flat):
            if place >= len(drawn):
                ax.axis("off")
                continue
            k = drawn[place]
            if few:
                named = [labels[i] for i in order] if place % n_columns == 0 else None
                _draw_dots(ax, named, coef[order, k], stderr[order, k])
            else:
                _draw_quantiles(ax, coef[:, k], stderr[:, k])
            ax.set_title(names[k])
        left_out = len(names) - len(drawn)
        if left_out:
            title += f"   ({len(drawn)} of {len(names)} coefficients: those that differ most)"
        figure.suptitle(title.strip(), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _most_different(coef: NDArray, stderr: NDArray) -> NDArray[np.int64]:
    """Choose the coefficients whose spread over the groups is largest relative to their errors."""
    if not len(coef):
        return np.arange(coef.shape[1])[:MOST_PANELS]
    finite = np.where(np.isfinite(stderr), stderr, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        typical = np.sqrt(np.array([_median(column**2) for column in finite.T]))
        spread = np.nan_to_num(coef.std(axis=0) / typical, posinf=np.finfo(float).max)
    return np.sort(np.argsort(-spread, kind="stable")[:MOST_PANELS])


def _median(values: NDArray) -> float:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else np.nan


def _draw_dots(ax: Axes, labels: Sequence[str] | None, coef: NDArray, stderr: NDArray) -> None:
    """Draw one coefficient of each group with its 95 % bar; undetermined ones are open circles."""
    if not len(coef):
        return
    place, determined = np.arange(len(coef)), np.isfinite(stderr)
    half = 1.96 * np.where(determined, stderr, 0.0)
    low, high = (coef - half).min(), (coef + half).max()
    # otherwise including 0 would compress the scale
    if low - (high - low) / 4 < 0 < high + (high - low) / 4:
        ax.axvline(0, color=MUTED, linewidth=0.7)
    ax.hlines(place, coef - half, coef + half, color=BLUE, alpha=0.45, linewidth=2.2)
    ax.plot(coef[determined], place[determined], "o", color=BLUE, markersize=4)
    ax.plot(
        coef[~determined],
        place[~determined],
        "o",
        markerfacecolor="white",
        markeredgecolor=MUTED,
        markersize=4,
    )
    ax.set_ylim(-0.7, len(coef) - 0.3)
    ax.grid(axis="y", visible=False)
    if labels is None:
        ax.set_yticks(place, [])
    else:
        ax.set_yticks(place, list(map(_shortened, labels)), color=INK)
    ax.tick_params(axis="y", length=0)
    note = "95 %" if determined.all() else "95 %, open: not determined"
    ax.set_title(note, loc="right", color=BLUE, fontweight="normal", fontsize=8.5)


def _draw_quantiles(ax: Axes, coef: NDArray, stderr: NDArray) -> None:
    """Draw groups in the order of their coefficients, with the 95 % band of their errors."""
    determined = np.isfinite(stderr)
    coef, stderr = coef[determined], stderr[determined]
    left_out = int((~determined).sum())
    order = np.argsort(coef, kind="stable")
    coef, stderr = coef[order], stderr[order]
    ax.axhline(0, color=MUTED, linewidth=0.7)
    if coef.size:
        share = (np.arange(coef.size) + 0.5) / coef.size
        half = 1.96 * _running_medians(stderr)
        ax.fill_between(share, coef - half, coef + half, color=BLUE, alpha=0.18, linewidth=0)
        ax.plot(share, coef, color=BLUE)
        median = float(np.median(coef))
        ax.axhline(median, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        bottom, top = np.quantile(np.concatenate([coef - half, coef + half]), (0.005, 0.995))
        pad = 0.06 * (top - bottom) or 0.05 * abs(top) or 1.0
        ax.set_ylim(bottom - pad, top + pad)
        note = f"median {median:.4g}".replace("-", "−")
    else:
        note = ""
    ax.set_xlim(0, 1)
    ax.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0 %", "25 %", "50 %", "75 %", "100 %"))
    without = f" ({left_out:,} undetermined)" if left_out else ""
    ax.set_xlabel(f"share of {coef.size:,} groups{without}")
    ax.set_title(note, loc="right", color=ORANGE, fontweight="normal", fontsize=8.5)


def _running_medians(values: NDArray) -> NDArray:
    """Compute running medians over a fiftieth of the values."""
    width = max(len(values) // 50, 1)
    if width == 1:
        return values
    starts = np.arange(0, len(values), width)
    middles = [float(np.median(values[a : a + width])) for a in starts]
    centres = np.minimum(starts + (width - 1) / 2, len(values) - 1)
    return np.interp(np.arange(len(values)), centres, middles)


def _shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 3] + "..."
