"""Drawing on given axes: the house style, one coefficient, the errors, the CUSUM, a whole page."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.files import write_atomically
from olsq.plot.numbers import place, rounded, running_quantiles, running_rms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#6b7785", "#e3e8ee"
BLUE, ORANGE, RED = "#2166ac", "#d9730d", "#c0362c"

MOST_BARS = 700  # with more, bars touch each other on a figure of the usual width
RANGE_POINTS = 8
ONE_STEP = "One-step-ahead"

STYLE: dict[Any, Any] = {
    "figure.dpi": 150,
    "savefig.facecolor": "white",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
}


def new_figure(width: float, height: float, layout: Any = "constrained") -> Figure:
    """Make an empty figure; width and height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def house_style():
    """Return a context with the house style of figures.

    Without matplotlib it raises an ImportError that names the extra.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib: pip install ".[plot]" in a checkout of olsq', name=error.name
        ) from error
    return mpl.rc_context(STYLE)


def roomy_layout():
    """Return a constrained layout with space between the panels for their titles."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.1)


def _robust_limits(low: NDArray, high: NDArray) -> tuple[float, float] | None:
    """Compute vertical limits that ignore the first, erratic rows; None where nothing is finite."""
    late = slice(len(low) // 20, None)
    ends = np.concatenate([low[late], high[late]])
    ends = ends[np.isfinite(ends)]
    if not ends.size:
        return None
    bottom, top = np.quantile(ends, [0.005, 0.995])
    pad = 0.08 * (top - bottom) or 0.05 * abs(top) or 1.0
    return bottom - pad, top + pad


def _finish_x(ax: Axes, x: NDArray) -> None:
    """Format the horizontal axis: no margins, concise dates, row numbers as 500k and 2M."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import EngFormatter

    ax.margins(x=0)
    if x.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    elif x.dtype.kind in "iu" and x[-1] >= 10_000:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _line_width(n: int) -> float:
    return 1.4 if n < 600 else 1.0


def draw_coefficient(
    ax: Axes, x: NDArray, coef: NDArray, stderr: NDArray, *, title: str = "", color: str = BLUE
) -> None:
    """Draw one coefficient with its 95 % band, its last value written at the end of the line."""
    finite = np.isfinite(stderr)
    # the 95 % quantile of a normal
    half = 1.96 * np.where(finite, stderr, np.nan)
    ax.fill_between(x, coef - half, coef + half, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, coef, color=color, linewidth=_line_width(len(x)))
    limits = _robust_limits(
        np.where(finite, coef - half, coef), np.where(finite, coef + half, coef)
    )
    if limits is not None:
        ax.set_ylim(limits)
    _finish_x(ax, x)
    ax.set_title(title)
    last = rounded(coef[-1], half[-1] if finite[-1] else np.inf) + " (95 %)" * bool(finite[-1])
    ax.set_title(last, loc="right", color=color, fontweight="normal", fontsize=8.5)


def draw_residuals(
    ax: Axes,
    x: NDArray,
    low: NDArray,
    high: NDArray,
    rms: NDArray,
    sample: NDArray | None = None,
    ahead: str = ONE_STEP,
) -> None:
    """Draw forecast errors as bars, or as bands where bars would be a solid block.

    Each of the n points stands for rows whose smallest and largest errors are ``low`` and ``high``
    (n,); ``sample`` (n, k) holds some of them, NaN where there are fewer. The bands are the range
    and the running quantiles that hold 90 % and 50 %; the lines are ``rms`` (n,).  ``ahead`` says
    how far ahead the forecasts are.
    """
    quantiles = (
        None
        if len(x) <= MOST_BARS
        else running_quantiles(low[:, None] if sample is None else sample)
    )
    if quantiles is None:
        width = float(np.clip(400 / max(len(x), 1), 0.5, 2.0))
        bottom, top = np.minimum(low, 0), np.maximum(high, 0)
        # Unsnapped: lines rounded to whole pixels leave white stripes between them.
        ax.vlines(x, bottom, top, color=BLUE, alpha=0.45, linewidth=width, snap=False)
        note = "± running RMS"
    else:
        # The range of a few neighbours together: single ones would again draw a solid block.
        lowest, highest = (
            extreme.reduceat(bound, np.arange(0, len(x), RANGE_POINTS))
            for extreme, bound in ((np.fmin, low), (np.fmax, high))
        )
        places = x[::RANGE_POINTS]
        ax.fill_between(places, lowest, highest, step="post", color=BLUE, alpha=0.13, linewidth=0)
        for k, alpha in ((0, 0.22), (1, 0.35)):
            ax.fill_between(
                x, quantiles[:, k], quantiles[:, 3 - k], color=BLUE, alpha=alpha, linewidth=0
            )
        note = "range, 90 %, 50 %; ± running RMS"
    ax.plot(x, rms, color=ORANGE, linewidth=1.2)
    ax.plot(x, -rms, color=ORANGE, linewidth=1.2)
    ax.axhline(0, color=MUTED, linewidth=0.7)
    limits = _robust_limits(low, high)
    if limits is not None:
        reach = 1.35 * max(map(abs, limits))
        ax.set_ylim(-reach, reach)
    _finish_x(ax, x)
    ax.set_title(f"{ahead} errors")
    ax.set_title(note, loc="right", color=ORANGE, fontweight="normal", fontsize=8.5)


def draw_cusum(ax: Axes, x: NDArray, value: NDArray, bound: NDArray, level: float = 0.05) -> None:
    """Draw the CUSUM path, its lines of this level, and the first crossing."""
    ax.axhline(0, color=MUTED, linewidth=0.7)
    ax.plot(x, value, color=BLUE, linewidth=_line_width(len(x)))
    ax.plot(x, bound, color=RED, linewidth=1, linestyle=(0, (4, 3)))
    ax.plot(x, -bound, color=RED, linewidth=1, linestyle=(0, (4, 3)))
    outside = np.flatnonzero(np.abs(value) > bound)
    note = f"{100 * level:g} % lines: " + ("crossed" if outside.size else "not crossed")
    if outside.size:
        first = outside[0]
        ax.plot(x[first], value[first], "o", color=RED, markersize=5, zorder=5)
        note += f" at {place(x[first])}"
    _finish_x(ax, x)
    ax.set_title("CUSUM of recursive residuals")
    ax.set_title(note, loc="right", color=RED, fontweight="normal", fontsize=8.5)


class Curves(NamedTuple):
    """Data of one regression's figure, at no more points than a figure has pixels.

    ``x`` (n,); ``coef`` and ``stderr`` (n, k); ``names`` k labels; ``low``, ``high`` and ``square``
    (n,) the smallest, largest and mean squared error of the rows of each point; ``cusum`` (n,) and
    its 5 % line ``bound`` (n,), None where that does not apply; ``sample`` (n, k) some of the
    errors of each point, NaN where there are fewer.
    """

    x: NDArray
    coef: NDArray
    stderr: NDArray
    names: Sequence[str]
    low: NDArray
    high: NDArray
    square: NDArray
    cusum: NDArray | None
    bound: NDArray | None
    sample: NDArray | None = None


def draw_fit(
    curves: Curves,
    *,
    xlabel: str = "row",
    title: str = "",
    most: int = 6,
    ahead: str = ONE_STEP,
) -> Figure:
    """Draw coefficient panels (at most ``most``, the best determined ones), errors and CUSUM."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.abs(curves.coef[-1]) / curves.stderr[-1]
    drawn = np.sort(np.argsort(-np.nan_to_num(size), kind="stable")[:most])
    x, bound = curves.x, curves.bound
    with_cusum = curves.cusum is not None and bound is not None
    n_panels = len(drawn) + 1 + with_cusum
    n_rows = (n_panels + 1) // 2
    with house_style():
        figure = new_figure(10, 2.15 * n_rows + 0.5, roomy_layout())
        grid = figure.add_gridspec(n_rows, 2)
        axes: list[Axes] = []
        for place in range(n_panels):
            # A last panel without a neighbour takes both columns: all edges stay in line.
            alone = place == n_panels - 1 and place % 2 == 0
            column = slice(None) if alone else place % 2
            first = axes[0] if axes else None
            axes.append(figure.add_subplot(grid[place // 2, column], sharex=first))
        for k, ax in zip(drawn, axes, strict=False):
            draw_coefficient(
                ax, x, curves.coef[:, k], curves.stderr[:, k], title=str(curves.names[k])
            )
        rms = running_rms(curves.square, max(len(x) // 20, 5))
        errors = axes[len(drawn)]
        draw_residuals(errors, x, curves.low, curves.high, rms, curves.sample, ahead)
        if curves.cusum is not None and bound is not None:
            draw_cusum(axes[-1], x, curves.cusum, bound)
        if x.dtype.kind not in "UT":  # also where a coefficient of the ends is NaN
            axes[0].set_xlim(np.nanmin(x), np.nanmax(x) if len(x) > 1 else None)
        last = 1 if n_panels % 2 else 2
        for ax in axes[-last:]:
            ax.set_xlabel(xlabel)
        # Only the lowest panel of a column has tick labels.
        for ax in axes[: -3 if n_panels % 2 else -2]:
            ax.tick_params(labelbottom=False)
        left_out = len(curves.names) - len(drawn)
        if left_out:
            title += f"   ({len(drawn)} of {len(curves.names)} coefficients: largest |t|)"
        figure.suptitle(title.strip(), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def save_figure(figure: Any, path: str | os.PathLike[str], *, dpi: int) -> None:
    """Save a figure, in the format of its name; the file appears complete or not at all."""
    buffer = io.BytesIO()
    ending = os.path.splitext(os.fspath(path))[1]
    figure.savefig(buffer, dpi=dpi, format=ending.lower().removeprefix("."))
    write_atomically(path, buffer.getbuffer())
