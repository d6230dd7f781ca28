"""The arrays of a rolling window, by name, as its kernels pass them to one another."""

from __future__ import annotations

from typing import Any, NamedTuple

FILLED, SLOT, POSITIONS = 0, 1, 2  # place: rows in the ring, the next slot, whether all rows count
DEPARTED, SAMPLES = 0, 1  # counts: rows that left since the factor was made; samples in the window
# squares: sums of squared targets; the largest loss since it was made; the targets' e_j
SUM, LARGEST_LOSS, BOUND = 0, 1, 2
SCALE, DECAY = 0, 1  # fading: what the ring's weights are divided by; the product of all gates


class WindowArrays(NamedTuple):
    """The ring of w rows, and what is known of their sums beside the factor.

    X (w, d), Y (w, m), weights (w,), fades (w,) or (0,), place (3,), ridge (d,), bounds e (d,),
    squares (3, m), counts (2,) and fading (2,); see :mod:`.kernels`.
    """

    X: Any
    Y: Any
    weights: Any
    fades: Any
    place: Any
    ridge: Any
    bounds: Any
    squares: Any
    counts: Any
    fading: Any


class Arriving(NamedTuple):
    """The rows of a call: X (n, d), Y (n, m), gates and weights (n,).

    ``leaving`` (n,) says how many rows leave with each; it is empty where the ring is the window.
    ``samples`` (n,) receives the number in the window after each row, or is empty.
    """

    X: Any
    Y: Any
    gates: Any
    weights: Any
    leaving: Any
    samples: Any


class Room(NamedTuple):
    """Arrays that kernels work in.

    ``four`` rows (X, Y, gates, weights), their errors (4, m), scratch and history of the recursion,
    the start of the careful one, a row (d + m,), and a number per target (m,).
    """

    four: Any
    errors: Any
    scratch: Any
    history: Any
    start: Any
    row: Any
    of_targets: Any
