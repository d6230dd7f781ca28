"""Figures of the tests for structural breaks: the CUSUM of squares, and F along the path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from olsq.plot.drawing import BLUE, MUTED, RED, house_style, new_figure
from olsq.plot.numbers import place, positions_of_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from olsq.stability import BreakTest, CusumSquares


def plot_cusum_squares(result: CusumSquares, *, x: ArrayLike | None = None) -> Figure:
    """Draw a CUSUM of squares between its lines, the first crossing marked.

    Parameters
    ----------
    result : CusumSquares
        From :func:`olsq.stability.cusum_squares`.
    x : array_like, shape (n,), optional
        Horizontal positions of all rows of the data; row numbers from 1 by default.

    Returns
    -------
    matplotlib.figure.Figure
        One panel.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.datasets import nile
    >>> from olsq.plot import plot_cusum_squares
    >>> from olsq.stability import cusum_squares
    >>> path = olsq.coefficient_path(np.ones((100, 1)), nile()["volume"])
    >>> plot_cusum_squares(cusum_squares(path), x=nile()["year"]).axes[0].get_title(loc="right")
    '5 % lines: not crossed'
    """
    with house_style():
        figure, ax = _panel()
        at = positions_of_rows(result.row, x)
        ax.plot(at, result.value, color=BLUE, linewidth=1.3)
        for line in (result.lower, result.upper):
            ax.plot(at, line, color=RED, linewidth=1, linestyle=(0, (4, 3)))
        note = f"{100 * result.level:g} % lines: "
        outside = np.flatnonzero((result.value < result.lower) | (result.value > result.upper))
        if outside.size:
            first = outside[0]
            ax.plot(at[first], result.value[first], "o", color=RED, markersize=5, zorder=5)
            note += f"crossed at {place(at[first])}"
        else:
            note += "not crossed"
        ax.set_ylim(-0.05, 1.05)
        ax.set_title("CUSUM of squared recursive residuals")
        ax.set_title(note, loc="right", color=RED, fontweight="normal", fontsize=8.5)
    return figure


def plot_break_test(result: BreakTest, *, x: ArrayLike | None = None) -> Figure:
    """Draw F at every place of a break, the largest marked.

    Parameters
    ----------
    result : BreakTest
        From :func:`olsq.stability.break_test`.
    x : array_like, shape (n,), optional
        Horizontal positions of all rows of the data; row numbers from 1 by default.

    Returns
    -------
    matplotlib.figure.Figure
        One panel.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.datasets import nile
    >>> from olsq.plot import plot_break_test
    >>> from olsq.stability import break_test
    >>> found = break_test(np.ones((100, 1)), nile()["volume"])
    >>> plot_break_test(found, x=nile()["year"]).axes[0].get_title(loc="right")
    'new coefficients from 1899, p < 0.001'
    """
    with house_style():
        figure, ax = _panel()
        at = positions_of_rows(result.rows, x)
        ax.axhline(0, color=MUTED, linewidth=0.7)
        ax.plot(at, result.value, color=BLUE, linewidth=1.3)
        best = int(np.flatnonzero(result.rows == result.row)[0])
        ax.plot(at[best], result.value[best], "o", color=RED, markersize=5, zorder=5)
        size = "< 0.001" if result.p_value < 0.001 else f"= {result.p_value:.3f}"
        ax.set_title("F of a break before each row")
        ax.set_title(
            f"new coefficients from {place(at[best])}, p {size}",
            loc="right",
            color=RED,
            fontweight="normal",
            fontsize=8.5,
        )
    return figure


def _panel() -> tuple[Figure, Axes]:
    figure = new_figure(8, 2.8)
    return figure, figure.subplots()
