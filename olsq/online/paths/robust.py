"""Robust standard errors of the windows of a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import read_only
from olsq.online.paths import robust_kernels
from olsq.online.paths.goodness import SumsOfSquares

if TYPE_CHECKING:
    from olsq.online.paths.collector import PathCollector

KINDS = {
    "HC0": robust_kernels.HC0,
    "HC1": robust_kernels.HC1,
    "HC2": robust_kernels.HC2,
    "HC3": robust_kernels.HC3,
    "hac": robust_kernels.HAC,
}


def newey_west_lags(n: int) -> int:
    """Return Newey and West's (1994) number of lags for n rows, ``floor(4 (n / 100)^(2/9))``."""
    return int(4.0 * (n / 100.0) ** (2.0 / 9.0))


class RobustErrors(NamedTuple):
    """A kind of robust standard errors, in ``KINDS``, and its lags; None for Newey and West's."""

    kind: str
    lags: int | None

    def fill(
        self,
        collector: PathCollector,
        sums: SumsOfSquares,
        X: NDArray[np.float64],
        ridge: NDArray[np.float64],
    ) -> None:
        """Replace the standard errors of a finished path; X (p + n, k) are the rows behind it."""
        inside = sums.inside()
        rows = inside.order, sums.Y, inside.gates, inside.weights
        robust_kernels.fill_robust_errors(
            tuple(read_only(np.ascontiguousarray(array)) for array in rows),
            read_only(X),
            inside.oldest,
            sums.skip,
            read_only(collector.coef.astype(np.float64)),
            read_only(ridge),
            (KINDS[self.kind], -1 if self.lags is None else self.lags),
            collector.stderr,
        )
