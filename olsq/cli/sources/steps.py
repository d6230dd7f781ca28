"""The steps in time between the rows of a table, from which a gap is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A step that is far longer than most is no gap where so many, or such a share, were as long:
# the weekends of trading days.
USUAL_COUNT, USUAL_SHARE = 5, 0.1
# Rows have the same time by habit, and not by mistake, where such a share of them has.
TIED_SHARE = 0.01


class Steps:
    """Counts of the steps between rows by their length, in powers of two.

    Twice a step is always in the next class: one missing row is seen.

    Attributes
    ----------
    ties : int
        Steps of length 0.
    classes : dict
        The number of steps and the shortest one by the exponent of their length.
    """

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        saved = saved or {"ties": 0, "classes": []}
        self.ties: int = saved["ties"]
        self.classes = {exponent: (count, least) for exponent, count, least in saved["classes"]}

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for the checkpoint."""
        classes = [[exponent, *of_class] for exponent, of_class in sorted(self.classes.items())]
        return {"ties": self.ties, "classes": classes}

    def add(self, steps: NDArray[np.float64]) -> None:
        """Count steps (n,)."""
        self.ties += int(np.count_nonzero(steps == 0))
        steps = steps[steps > 0]
        exponents = np.frexp(steps)[1]
        for exponent in np.unique(exponents).tolist():
            of_class = steps[exponents == exponent]
            count, least = self.classes.get(exponent, (0, math.inf))
            self.classes[exponent] = (count + of_class.size, min(least, float(of_class.min())))

    @property
    def are_counted(self) -> bool:
        """True if there was a step, and it was counted: files of olsq 0.2 have none."""
        return self.ties > 0 or bool(self.classes)

    def ties_are_usual(self, ties: int, steps: int) -> bool:
        """Test whether rows often have the same time, with more ``ties`` among more ``steps``."""
        total = self.ties + sum(count for count, _ in self.classes.values()) + steps
        return self.ties + ties >= max(TIED_SHARE * total, 1)

    def are_usual(self, steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which steps (n,) are no gaps; all of them where none were counted."""
        total = sum(count for count, _ in self.classes.values())
        exponents = np.frexp(steps)[1]
        usual = np.ones(steps.size, np.bool_)
        for exponent in np.unique(exponents[steps > 0]).tolist():
            as_long = sum(count for e, (count, _) in self.classes.items() if e >= exponent)
            usual[exponents == exponent] = as_long >= min(USUAL_COUNT, USUAL_SHARE * total)
        return usual

    @property
    def commonest(self) -> float:
        """The shortest step of the class that most steps are in."""
        return max(self.classes.values())[1]
