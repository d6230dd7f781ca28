"""Keep what moments knew before a gap in the forgetting, with all its digits.

Moments are sums: a gap of 50 half-lives leaves nothing in them of the rows before it, one of 13 a
few digits.  So from a gap on a square-root form, which keeps all digits, learns the same rows, and
results are read from it until the moments determine every coefficient that it determines.

The first rows without a ridge are treated the same way: singular moments cost their eigenvalues in
every row, the square-root form O(d^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.form import copied
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root import SquareRootForm

FAINT = 1e-6  # a pivot with more than this left of its diagonal entry has ten digits
PLACES = {name: f"past_{name}" for name in SquareRootForm.FIELDS}  # in files


def trusted_share(old: NDArray[np.float64], diagonal: NDArray[np.float64]) -> float:
    """Return the share of its diagonal entry above which a pivot of the moments can be trusted.

    Such a pivot comes from rows after the gap, or is accurate.  ``diagonal`` (d,) is the moments',
    ``old`` (d,) the part of it from before the gap.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(old > 0, old / diagonal, 0.0)
    return min(1e3 * float(share.sum()), FAINT)


@dataclass(eq=False)
class Past:
    """The square-root form of all rows so far; with the ridge if that is discounted.

    ``old`` (d,) is what is left of the diagonal of the information from before the gap: zeros
    where there was no gap, and the form has learned every row since the start.
    """

    root: SquareRootForm
    old: NDArray[np.float64]

    @property
    def is_start(self) -> bool:
        return not self.old.any()

    def learn(
        self, rows: Rows, start: int, stop: int, trace: Trace | None = None
    ) -> NDArray[np.float64]:
        """Learn rows start..stop, and return their a-priori residuals (n, m)."""
        m, d = self.root.z.shape
        errors = np.empty((stop - start, m))
        if start < stop:
            own = Trace.none(m, d) if trace is None else Trace(*(a[start:stop] for a in trace))
            self.root.absorb(Rows(*(a[start:stop] for a in rows)), errors, own)
        return errors

    def fade(self, gates: NDArray[np.float64]) -> None:
        """Forget what is older than the gap by the gates (n,) of newer rows."""
        self.old *= gates.prod()

    def with_ridge(self, ridge: NDArray[np.float64] | None) -> SquareRootForm:
        """Return the form, or a copy that has learned a fixed ridge (d,)."""
        if ridge is None or not ridge.any():
            return self.root
        root = copied(self.root)
        sizes = np.sqrt(ridge)
        none, exact = np.zeros_like(root.z.T), np.zeros_like(root.R)
        root.absorb_observations(np.diag(sizes), none, exact, sizes, 0.0)
        return root

    # -- in files ---------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        """Return every array, by the name that it has in files."""
        root = {PLACES[name]: array for name, array in self.root.arrays().items()}
        return root | {"old": self.old}

    @classmethod
    def restore(
        cls, arrays: dict[str, NDArray], intercept: bool, precision: tuple[str, str]
    ) -> Past | None:
        """Rebuild from the results of :meth:`arrays`; None where ``arrays`` has none of them."""
        root = {name: arrays[place] for name, place in PLACES.items() if place in arrays}
        if not root:
            return None
        return cls(SquareRootForm(**root, intercept=intercept, precision=precision), arrays["old"])
