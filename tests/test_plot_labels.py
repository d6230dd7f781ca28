"""Labels at the ends of lines and beside points: in place, and not over each other."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text
from scipy.optimize import minimize

from olsq.plot.drawing import new_figure
from olsq.plot.labels import label_lines, label_points, spread

mpl.use("agg")


def test_spread_moves_as_little_as_it_can():
    wanted = np.random.default_rng(0).uniform(0, 12, size=7)
    found = spread(wanted, 2.0)
    order = np.argsort(wanted)
    assert (np.diff(found[order]) > 2.0 - 1e-9).all()
    apart = {"type": "ineq", "fun": lambda h: np.diff(h[order]) - 2.0}
    best = minimize(lambda h: ((h - wanted) ** 2).sum(), found + 0.1, constraints=apart)
    assert ((found - wanted) ** 2).sum() <= best.fun + 1e-6
    np.testing.assert_array_equal(spread(np.array([5.0, 1.0]), 2.0), [5.0, 1.0])  # untouched


def test_spread_stays_within_bounds():
    np.testing.assert_allclose(spread(np.array([9.9, 10.0, 9.8]), 1.0, 0.0, 10.0), [9, 10, 8])
    np.testing.assert_allclose(spread(np.array([0.1, 0.0]), 1.0, 0.0, 10.0), [1, 0])


@pytest.fixture
def axes():
    ax = new_figure(5, 3).subplots()
    ax.set(xlim=(0, 10), ylim=(0, 1))
    return ax


def boxes(texts):
    """Return the boxes of the letters, without the strokes that link them to their lines."""
    return [Text.get_window_extent(text) for text in texts]


def apart(found):
    return not any(a.overlaps(b) for i, a in enumerate(found) for b in found[:i])


def test_labels_of_lines(axes):
    ends = [0.5, 0.51, 0.52, 0.9]
    for i, end in enumerate(ends):
        axes.plot([0, 10], [0.1, end], label=f"line {i}")
    axes.plot([0, 10], [0.2, 0.2], label="_hidden")
    axes.plot([0, 10], [np.nan, np.nan], label="nothing")
    labels = label_lines(axes)
    axes.figure.draw_without_rendering()
    assert [label.get_text() for label in labels] == [f"line {i}" for i in range(4)]
    assert apart(boxes(labels))
    heights = [box.y0 for box in boxes(labels)]
    assert heights == sorted(heights)
    right = axes.get_window_extent().x1
    assert all(box.x0 >= right for box in boxes(labels))
    assert labels[0].get_color() == axes.get_lines()[0].get_color()


def test_labels_stand_where_lines_end(axes):
    (short,) = axes.plot([0, 3, 20], [0.1, 0.5, 0.7], label="leaves")  # its last point is outside
    axes.plot([0, 4, 10], [0.1, 0.9, 300], label="rises")
    axes.plot([0, 10], [0.1, 0.5], label="stays")
    first, up, last = label_lines(axes)
    assert tuple(first.xy) == (3, 0.5)
    assert tuple(up.xy) == (4, 0.9)
    assert tuple(last.xy) == (10, 0.5)
    (at_edge,) = label_lines(axes, [short], edge=True)
    axes.figure.draw_without_rendering()
    assert boxes([at_edge])[0].x0 >= axes.get_window_extent().x1


def test_labels_of_points_keep_clear(axes):
    points = [(5, 0.5, "first"), (5.3, 0.5, "second"), (5.1, 0.53, "third"), (9.8, 0.5, "edge")]
    labels = label_points(axes, [(*point, "black") for point in points])
    axes.figure.draw_without_rendering()
    assert apart(boxes(labels))
    frame = axes.get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes(labels))
    dots = [axes.transData.transform(point[:2]) for point in points]
    assert not any(box.contains(*dot) for box in boxes(labels) for dot in dots)


def test_names_of_a_crowd_stand_apart_and_are_linked(axes):
    rng = np.random.default_rng(3)
    points = [(4 + 2 * rng.random(), 0.5, f"estimator {i}", "k") for i in range(14)]
    line = axes.text(1.0, 0.53, "a line of the least error", fontsize=8)
    labels = label_points(axes, points)
    axes.figure.draw_without_rendering()
    assert [label.get_text() for label in labels] == [name for *_, name, _ in points]
    assert apart(boxes([line, *labels]))
    assert any(label.arrow_patch for label in labels)
