"""Drawing on given axes: the house style, one coefficient, the errors, the CUSUM, a whole page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#6b7785", "#e3e8ee"
BLUE, ORANGE, RED = "#2166ac", "#d9730d", "#c0362c"

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


def house_style():
    """Context in which matplotlib draws in the house style."""
    import matplotlib as mpl

    return mpl.rc_context(STYLE)


def roomy_layout():
    """Constrained layout with space between the panels for their titles."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.1)


def _robust_limits(low: NDArray, high: NDArray) -> tuple[float, float] | None:
    """Vertical limits that ignore the wild first rows; None where nothing is finite."""
    settled = slice(len(low) // 20, None)
    ends = np.concatenate([low[settled], high[settled]])
    ends = ends[np.isfinite(ends)]
    if not ends.size:
        return None
    bottom, top = np.quantile(ends, [0.005, 0.995])
    pad = 0.08 * (top - bottom) or 0.05 * abs(top) or 1.0
    return bottom - pad, top + pad


def _finish_x(ax: Axes, x: NDArray) -> None:
    """No empty margins; long row numbers as 500k and 2M rather than as powers of ten."""
    from matplotlib.ticker import EngFormatter

    ax.margins(x=0)
    if x.dtype.kind in "iu" and x[-1] >= 10_000:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _line_width(n: int) -> float:
    return 1.4 if n < 600 else 1.0


def draw_coefficient(
    ax: Axes, x: NDArray, coef: NDArray, stderr: NDArray, *, title: str = "", color: str = BLUE
) -> None:
    """One coefficient with its 95 % band and its last value written at the end of the line."""
    finite = np.isfinite(stderr)
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
    last = f"{coef[-1]:.4g}" + (f" ± {half[-1]:.2g} (95 %)" if finite[-1] else "")
    ax.set_title(
        last.replace("-", "−"), loc="right", color=color, fontweight="normal", fontsize=8.5
    )


def draw_residuals(ax: Axes, x: NDArray, low: NDArray, high: NDArray, rms: NDArray) -> None:
    """One-step-ahead errors: their range as a band (or bars) and their running size as a line."""
    width = float(np.clip(400 / max(len(x), 1), 0.5, 2.0))
    bottom, top = np.minimum(low, 0), np.maximum(high, 0)
    # Unsnapped: lines rounded to whole pixels leave white stripes between them.
    ax.vlines(x, bottom, top, color=BLUE, alpha=0.45, linewidth=width, snap=False)
    ax.plot(x, rms, color=ORANGE, linewidth=1.2)
    ax.plot(x, -rms, color=ORANGE, linewidth=1.2)
    ax.axhline(0, color=MUTED, linewidth=0.7)
    limits = _robust_limits(low, high)
    if limits is not None:
        reach = 1.35 * max(map(abs, limits))
        ax.set_ylim(-reach, reach)
    _finish_x(ax, x)
    ax.set_title("One-step-ahead errors")
    ax.set_title("± running RMS", loc="right", color=ORANGE, fontweight="normal", fontsize=8.5)


def draw_cusum(
    ax: Axes, x: NDArray, value: NDArray, bound: NDArray | None, level: float = 0.05
) -> None:
    """The CUSUM path, and its lines (of this level) unless ``bound`` is None."""
    ax.axhline(0, color=MUTED, linewidth=0.7)
    ax.plot(x, value, color=BLUE, linewidth=_line_width(len(x)))
    note = f"{100 * level:g} % lines do not apply"
    if bound is not None:
        ax.plot(x, bound, color=RED, linewidth=1, linestyle=(0, (4, 3)))
        ax.plot(x, -bound, color=RED, linewidth=1, linestyle=(0, (4, 3)))
        outside = np.flatnonzero(np.abs(value) > bound)
        note = f"{100 * level:g} % lines: " + ("crossed" if outside.size else "not crossed")
        if outside.size:
            first = outside[0]
            ax.plot(x[first], value[first], "o", color=RED, markersize=5, zorder=5)
            note += f" at {x[first]:.0f}" if x[first] % 1 == 0 else f" at {x[first]:.1f}"
    _finish_x(ax, x)
    ax.set_title("CUSUM of recursive residuals")
    color = MUTED if bound is None else RED
    ax.set_title(note, loc="right", color=color, fontweight="normal", fontsize=8.5)


def running_rms(square: NDArray, width: int) -> NDArray[np.float64]:
    """Centred root mean square over ``width`` entries, NaN entries left out."""
    kernel = np.ones(min(width, max(len(square), 1)))
    known = np.isfinite(square)
    total = np.convolve(np.where(known, square, 0.0), kernel, mode="same")[: len(square)]
    count = np.convolve(known.astype(float), kernel, mode="same")[: len(square)]
    return np.sqrt(np.maximum(total, 0.0) / np.where(count > 0.5, count, np.nan))


class Curves(NamedTuple):
    """What one regression's figure shows, at no more points than a figure has pixels.

    ``x`` (n,); ``coef`` and ``stderr`` (n, k); ``names`` k labels; ``low``, ``high`` and ``square``
    (n,) the smallest, largest and mean squared error of the rows behind each point; ``cusum`` (n,)
    and ``bound`` (n,), or None where the test does not apply.
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


def draw_fit(curves: Curves, *, xlabel: str = "row", title: str = "", most: int = 6) -> Figure:
    """Draw coefficient panels (at most ``most``, the best determined ones), errors and CUSUM."""
    from matplotlib.figure import Figure

    size = np.abs(curves.coef[-1]) / curves.stderr[-1]
    chosen = np.sort(np.argsort(-np.nan_to_num(size), kind="stable")[:most])
    n_rows = (len(chosen) + 1) // 2
    with house_style():
        figure = Figure(figsize=(10, 1.9 * n_rows + 2.9), layout=roomy_layout())
        grid = figure.add_gridspec(n_rows + 1, 2, height_ratios=[1.9] * n_rows + [2.4])
        for place, k in enumerate(chosen):
            alone = place == len(chosen) - 1 and place % 2 == 0
            ax = figure.add_subplot(grid[place // 2, slice(None) if alone else place % 2])
            draw_coefficient(
                ax, curves.x, curves.coef[:, k], curves.stderr[:, k], title=str(curves.names[k])
            )
        with_cusum = curves.cusum is not None
        ax = figure.add_subplot(grid[n_rows, 0 if with_cusum else slice(None)])
        rms = running_rms(curves.square, max(len(curves.x) // 20, 5))
        draw_residuals(ax, curves.x, curves.low, curves.high, rms)
        ax.set_xlabel(xlabel)
        if curves.cusum is not None:
            ax = figure.add_subplot(grid[n_rows, 1])
            draw_cusum(ax, curves.x, curves.cusum, curves.bound)
            ax.set_xlabel(xlabel)
        left_out = len(curves.names) - len(chosen)
        if left_out:
            title += f"   ({len(chosen)} of {len(curves.names)} coefficients: largest |t|)"
        figure.suptitle(title.strip(), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure
