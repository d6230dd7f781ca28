"""Labels at the ends of lines and beside points, in place of a legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["label_lines", "label_points", "spread"]


def label_lines(
    ax: Axes,
    lines: Sequence[Line2D] | None = None,
    *,
    fontsize: float = 8.0,
    gap: float = 5.0,
    edge: bool = False,
) -> list[Any]:
    """Label each line behind its last visible point, in its colour, without overlaps.

    Call it once limits and scales are set, for all axes of a figure in turn.

    Parameters
    ----------
    ax : matplotlib Axes
    lines : sequence of Line2D, optional
        Those to label; all of the axes with a label that does not begin with "_" if None.
    fontsize, gap : float
        In points: the size of the letters, and the space between a line's end and its label.
    edge : bool
        Write all labels at the right edge of the axes, one under the other, though lines end before
        it.

    Returns
    -------
    list of matplotlib Annotation
        In the order of the lines that have a point to label.

    Notes
    -----
    Labels are moved up or down only, as little as it takes, in the order of the lines' ends; one
    that had to move far is tied to its line by a thin stroke.
    """
    all_lines = ax.get_lines() if lines is None else lines
    named = [(line, str(line.get_label())) for line in all_lines]
    ends = [(line, name, _end(ax, line)) for line, name in named if not name.startswith("_")]
    ends = [(line, name, end) for line, name, end in ends if end is not None]
    if not ends:
        return []
    figure = _laid_out(ax)
    points = 72.0 / figure.dpi
    box = ax.get_window_extent()
    places = np.array([ax.transData.transform(end) for *_, end in ends]) * points
    bottom, top = box.y0 * points, box.y1 * points
    line_heights = np.clip(places[:, 1], bottom, top)
    columns = np.zeros(len(ends)) if edge else np.round(places[:, 0] / (6 * fontsize))
    tall = 1.15 * fontsize * max(name.count("\n") + 1 for _, name, _ in ends)
    heights = line_heights.copy()
    for column in np.unique(columns):
        same = columns == column
        heights[same] = spread(line_heights[same], tall, bottom, top)
    drawn = []
    for (line, name, end), place, height in zip(ends, places, heights, strict=True):
        moved = height - place[1]
        far = abs(moved) > 0.6 * fontsize
        stroke: dict[str, Any] = {
            "arrowstyle": "-",
            "color": line.get_color(),
            "linewidth": 0.5,
            "shrinkA": 0,
            "shrinkB": 0,
            "relpos": (0.0, 0.5),
        }
        drawn.append(
            ax.annotate(
                name,
                (1.0, end[1]) if edge else end,
                (gap + (gap if far else 0.0), moved),
                xycoords=("axes fraction", "data") if edge else "data",
                textcoords="offset points",
                fontsize=fontsize,
                color=line.get_color(),
                ha="left",
                va="center",
                annotation_clip=False,
                arrowprops=stroke if far else None,
            )
        )
    return drawn


def spread(
    heights: NDArray[np.float64], least: float, bottom: float = -np.inf, top: float = np.inf
) -> NDArray[np.float64]:
    """Move heights to be at least ``least`` apart, in the order of ``heights`` and as near as
    possible.

    Neighbours that would touch are moved as one block around the mean of their wanted heights,
    which is the least-squares solution (pool adjacent violators). Blocks stay between ``bottom``
    and ``top`` where they fit.
    """
    order = np.argsort(heights, kind="stable")
    # In terms of height minus rank times distance, the condition is that values do not decrease.
    free = np.asarray(heights, float)[order] - least * np.arange(len(order))
    blocks: list[tuple[float, int]] = []
    for value in free:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean = (mean * count + other * more) / (count + more)
            count += more
        blocks.append((mean, count))
    level = np.concatenate([np.full(count, mean) for mean, count in blocks])
    level = np.maximum(np.minimum(level, top - least * (len(order) - 1)), bottom)
    moved = np.empty(len(order))
    moved[order] = level + least * np.arange(len(order))
    return moved


def label_points(
    ax: Axes, points: Sequence[tuple[float, float, str, Any]], *, fontsize: float = 8.0
) -> list[Any]:
    """Write a name beside each point, where it covers neither a point nor other words.

    Parameters
    ----------
    ax : matplotlib Axes
        With its limits and scales set.
    points : sequence of (x, y, name, colour)
        In the order in which they choose; a name of "" is a point to keep clear of.
    fontsize : float
        In points.

    Returns
    -------
    list of matplotlib Annotation
        Of the points with a name.

    Notes
    -----
    Each takes the best of 48 places around its point, six distances in eight directions: the one
    that covers least, the nearest of equals.  A stroke links a name that is far to its point.
    """
    figure = _laid_out(ax)
    scale = figure.dpi / 72.0
    dots = [ax.transData.transform((x, y)) for x, y, *_ in points]
    reach = 4 * scale  # half of what a usual dot takes
    taken = [(x - reach, y - reach, x + reach, y + reach) for x, y in dots]
    taken += [other.get_window_extent().extents for other in ax.texts if other.get_text()]
    frame = ax.get_window_extent()
    drawn = []
    for (x, y, name, colour), (left, low) in zip(points, dots, strict=True):
        if not name:
            continue
        look: dict[str, Any] = {
            "textcoords": "offset points",
            "fontsize": fontsize,
            "color": colour,
            "ha": "left",
            "va": "bottom",
            "annotation_clip": False,
        }
        probe = ax.annotate(name, (x, y), (0, 0), **look)
        size = probe.get_window_extent()
        probe.remove()
        wide, tall = size.width, size.height
        choices = []
        for far in DISTANCES:
            for across, up in DIRECTIONS:
                gap = far * scale
                corner = (
                    left + across * gap - (wide if across < 0 else wide / 2 if not across else 0),
                    low + up * gap - (tall if up < 0 else tall / 2 if not up else 0),
                )
                box = (*corner, corner[0] + wide, corner[1] + tall)
                outside = wide * tall - _overlap(box, (frame.x0, frame.y0, frame.x1, frame.y1))
                covered = sum(_overlap(box, other) for other in taken) + outside
                choices.append((round(covered), far, len(choices), corner, box))
        _, far, _, corner, box = min(choices)
        if far > LINKED_FROM:
            near = np.clip((left, low), box[:2], box[2:])  # of its box
            look["arrowprops"] = {
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "relpos": tuple((near - corner) / (wide, tall)),
                "shrinkA": 0,
                "shrinkB": 3,
            }
        offset = (corner[0] - left) / scale, (corner[1] - low) / scale
        drawn.append(ax.annotate(name, (x, y), offset, **look))
        taken.append(box)
    return drawn


DISTANCES, LINKED_FROM = (5.0, 14.0, 24.0, 36.0, 50.0, 66.0), 20.0  # of a name, in points
DIRECTIONS = ((1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))


def _laid_out(ax: Axes) -> Any:
    """Return the whole figure of the axes, after a layout engine has set their places."""
    figure: Any = getattr(ax.figure, "figure", None) or ax.figure
    figure.draw_without_rendering()
    return figure


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Compute the area that two boxes (left, bottom, right, top) share."""
    across = min(a[2], b[2]) - max(a[0], b[0])
    up = min(a[3], b[3]) - max(a[1], b[1])
    return across * up if across > 0 and up > 0 else 0.0


def _end(ax: Axes, line: Line2D) -> tuple[float, float] | None:
    """Return the last point of a line that lies within the limits of the axes, as plain numbers."""
    data = np.asarray(line.get_xydata(), float)
    low, high = np.sort(np.stack([ax.get_xlim(), ax.get_ylim()], -1), 0)
    inside = ((data >= low) & (data <= high)).all(-1)  # nor where it is not finite
    return tuple(data[inside][-1].tolist()) if inside.any() else None
