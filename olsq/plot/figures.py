"""Public figures: coefficients over time, one-step-ahead errors, CUSUM, all on one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.reals import real_array
from olsq.online.many.labels import refuse_groups, rows_of_groups
from olsq.plot.drawing import (
    ONE_STEP,
    Curves,
    draw_coefficient,
    draw_cusum,
    draw_fit,
    draw_residuals,
    house_style,
    new_figure,
)
from olsq.plot.numbers import positions, positions_of_rows, running_rms
from olsq.stability.recursive import Cusum, cusum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from olsq.online import CoefficientPath

# More rows than a figure has pixels are thinned to this many before drawing.
MAX_POINTS = 4000
MOST_GROUPS = 9  # with a row of panels each


def _axis(n: int, x: ArrayLike | None) -> NDArray:
    """Return the horizontal positions: ``x`` if given, else row numbers from 1."""
    if not n:
        raise ValueError("path must have a row to draw")
    if x is None:
        return np.arange(1, n + 1)
    at = positions(x)
    if at.shape != (n,):
        raise ValueError(f"x must have shape ({n},), one for each row of path, got {at.shape}")
    return at


def _stack_coefficients(path: CoefficientPath, names: Sequence[str] | None):
    """Return coefficients, errors and names, with the intercept, if there is one, as a first
    column.
    """
    coef, stderr = real_array(path.coef, "path.coef"), np.asarray(path.stderr)
    if coef.ndim != 2:
        raise ValueError(
            f"path must have one target, coef of shape (n, d), got {coef.shape}: make one path for "
            "each target"
        )
    labels = [f"coefficient {j}" for j in range(coef.shape[1])] if names is None else list(names)
    if len(labels) != coef.shape[1]:
        raise ValueError(
            f"names must have one entry for each coefficient, {coef.shape[1]}, got {len(labels)}"
        )
    if np.any(path.intercept):
        coef = np.column_stack([path.intercept, coef])
        stderr = np.column_stack([path.intercept_stderr, stderr])
        labels = ["intercept", *labels]
    return coef, stderr, labels


def _rows_to_draw(n: int) -> NDArray[np.intp]:
    """Choose the rows to draw: all, or MAX_POINTS evenly spaced ones ending with the last."""
    return np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).astype(np.intp))


def plot_path(
    path: CoefficientPath, *, names: Sequence[str] | None = None, x: ArrayLike | None = None
) -> Figure:
    """Draw every coefficient over time with its 95 % band, one panel each.

    Parameters
    ----------
    path : CoefficientPath
        Path of one target.
    names : sequence of str, optional
        Names of the regressors.
    x : array_like, shape (n,), optional
        Horizontal positions (numbers or dates); row numbers from 1 by default.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig(...)``.

    Raises
    ------
    ValueError
        If the path has several targets, or names or x do not fit it.

    Notes
    -----
    A path made with ``by=`` has a row of panels for each group, in order of appearance.

    Bands are left out where the standard error is infinite (not yet determined).  They are 1.96
    times ``path.stderr``: with forgetting, a path made with ``cov="sandwich"`` has those that cover
    95 %; those of the default are too wide.

    Examples
    --------
    >>> import olsq
    >>> from olsq.datasets import us_macro
    >>> from olsq.plot import plot_path
    >>> data = us_macro()
    >>> path = olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True)
    >>> figure = plot_path(path, names=["m1"], x=data["time"])
    >>> len(figure.axes)
    2
    """
    coef, stderr, labels = _stack_coefficients(path, names)
    at = _axis(len(coef), x)
    groups = rows_of_groups(path)
    if len(groups) > MOST_GROUPS:
        raise ValueError(
            f"the path has {len(groups)} groups, and a figure shows up to {MOST_GROUPS}: draw one "
            f"of them, path.of_group({next(iter(groups))!r}).plot(), or make a path of a few"
        )
    k = len(labels)
    with house_style():
        # Groups below each other and coefficients side by side; of one group below each other.
        shape = (k, 1) if len(groups) < 2 else (len(groups), k)
        figure = new_figure(max(8, 4 * shape[1]), 1.8 * shape[0] + 0.4)
        axes = figure.subplots(*shape, sharex=True, squeeze=False)
        panels = iter(axes.flat)
        for key, rows in groups.items() if len(groups) > 1 else [(None, np.arange(len(coef)))]:
            shown = rows[_rows_to_draw(len(rows))]
            for j, name in enumerate(labels):
                title = name if key is None else f"{key}: {name}".replace("$", r"\$")
                draw_coefficient(
                    next(panels), at[shown], coef[shown, j], stderr[shown, j], title=title
                )
        if x is None:
            for ax in axes[-1]:
                ax.set_xlabel("row")
    return figure


def plot_residuals(path: CoefficientPath, *, x: ArrayLike | None = None) -> Figure:
    """Draw the forecast errors of a path, one step ahead or of its horizon, and their running RMS.

    Parameters
    ----------
    path : CoefficientPath
        Path of one target.
    x : array_like, shape (n,), optional
        Horizontal positions; row numbers from 1 by default.

    Returns
    -------
    matplotlib.figure.Figure
        One panel.

    Raises
    ------
    ValueError
        If the path has several targets or x does not fit it.

    Examples
    --------
    >>> import olsq
    >>> from olsq.plot import plot_residuals
    >>> path = olsq.coefficient_path([[1.0], [2.0], [3.0]], [1.0, 3.0, 2.0])
    >>> plot_residuals(path).axes[0].get_title(loc="left")
    'One-step-ahead errors'
    """
    refuse_groups(path)
    residual = real_array(path.residual, "path.residual")
    if residual.ndim != 1:
        raise ValueError(
            f"path must have one target, residual of shape (n,), got {residual.shape}: make one "
            "path for each target"
        )
    at, rows = _axis(len(residual), x), _rows_to_draw(len(residual))
    rms = running_rms(residual**2, max(len(residual) // 20, 5))
    with house_style():
        figure = new_figure(8, 2.8)
        draw_residuals(
            figure.subplots(),
            at[rows],
            residual[rows],
            residual[rows],
            rms[rows],
            ahead=_ahead(path),
        )
    return figure


def plot_cusum(result: Cusum, *, x: ArrayLike | None = None) -> Figure:
    """Draw a CUSUM path between its lines, the first crossing marked.

    Parameters
    ----------
    result : Cusum
        From :func:`cusum`.
    x : array_like, shape (n,), optional
        Horizontal positions of all rows of the data; row numbers from 1 by default.

    Returns
    -------
    matplotlib.figure.Figure
        One panel.

    Examples
    --------
    >>> import olsq
    >>> from olsq.datasets import us_macro
    >>> from olsq.plot import cusum, plot_cusum
    >>> data = us_macro()
    >>> path = olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True)
    >>> plot_cusum(cusum(path), x=data["time"]).axes[0].get_title(loc="right")
    '5 % lines: crossed at 1993'
    """
    at = positions_of_rows(result.row, x)
    with house_style():
        figure = new_figure(8, 2.8)
        draw_cusum(figure.subplots(), at, result.value, result.bound, result.level)
    return figure


def plot_fit(
    path: CoefficientPath,
    *,
    names: Sequence[str] | None = None,
    x: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Draw coefficients, forecast errors and the CUSUM on one page.

    Parameters
    ----------
    path : CoefficientPath
        Path of one target.
    names, x : optional
        As in :func:`plot_path`.
    title : str, optional
        Written above the page.

    Returns
    -------
    matplotlib.figure.Figure
        At most six coefficients (those with the largest ``|coef / stderr|``).

    Raises
    ------
    ValueError
        As :func:`plot_path` and :func:`cusum` do.

    Examples
    --------
    >>> import olsq
    >>> from olsq.datasets import us_macro
    >>> from olsq.plot import plot_fit
    >>> data = us_macro()
    >>> path = olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True)
    >>> figure = plot_fit(path, names=["m1"], x=data["time"], title="cpi ~ 1 + m1")
    >>> [ax.get_title(loc="left") for ax in figure.axes][:3]
    ['intercept', 'm1', 'One-step-ahead errors']
    """
    refuse_groups(path)
    coef, stderr, labels = _stack_coefficients(path, names)
    at, rows = _axis(len(coef), x), _rows_to_draw(len(coef))
    test = cusum(path)
    value, bound = np.full((2, len(coef)), np.nan)
    value[test.row], bound[test.row] = test.value, test.bound
    # Errors before the coefficients were determined are meaningless, and would set the scale.
    residual = np.full(len(coef), np.nan)
    residual[test.row] = path.residual[test.row]
    curves = Curves(
        at[rows],
        coef[rows],
        stderr[rows],
        labels,
        residual[rows],
        residual[rows],
        residual[rows] ** 2,
        value[rows],
        bound[rows],
    )
    return draw_fit(curves, xlabel="row" if x is None else "", title=title, ahead=_ahead(path))


def _ahead(path: CoefficientPath) -> str:
    """Return how far ahead the path's residuals are, for a title."""
    return ONE_STEP if path.labels.forecast_from is None else "Forecast"
