"""One target's part of a chunk's path, for the output file and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.output import GROUPS
from olsq.online import CoefficientPath


class TargetPath(NamedTuple):
    """A chunk's path of one target, with the intercept among the coefficients.

    ``coef`` and ``stderr`` (n, k) have the intercept first if there is one; ``residual``,
    ``recursive`` and ``sigma2`` (n,).
    """

    coef: NDArray
    stderr: NDArray
    residual: NDArray
    recursive: NDArray
    sigma2: NDArray

    @classmethod
    def of(cls, path: CoefficientPath, target: int | None, intercept: bool) -> TargetPath:
        """Select one target of several, or (None) the only one."""
        at = (slice(None),) if target is None else (slice(None), target)
        coef, stderr = path.coef[at], path.stderr[at]
        if intercept:
            coef = np.column_stack([path.intercept[at], coef])
            stderr = np.column_stack([path.intercept_stderr[at], stderr])
        return cls(coef, stderr, path.residual[at], path.recursive_residual[at], path.sigma2[at])

    def columns(
        self, X: NDArray, y: NDArray, groups: Sequence[str],
        bounds: tuple[NDArray, NDArray] | None = None,
    ) -> NDArray:  # fmt: skip
        """Return columns of the output file, in the order of ``output_names``."""
        # A skipped row leaves the coefficients alone, so those "after" it are those before it:
        # they predict where only the target is missing.
        d = X.shape[1]
        constant = self.coef[:, 0] if self.coef.shape[1] > d else 0.0
        fitted = constant + np.einsum("nd,nd->n", X, self.coef[:, self.coef.shape[1] - d :])
        of_group = {
            "prediction": np.where(np.isfinite(self.residual), y - self.residual, fitted),
            "interval": None if bounds is None else np.column_stack(bounds),
            "residual": self.residual,
            "coef": self.coef,
            "stderr": np.where(np.isfinite(self.stderr), self.stderr, np.nan),
            "sigma": np.where(np.isfinite(self.sigma2), np.sqrt(self.sigma2), np.nan),
        }
        return np.column_stack([of_group[group] for group in GROUPS if group in groups])


def hide_before_first(path: CoefficientPath, begun: NDArray[np.bool_]) -> CoefficientPath:
    """Hide the coefficients of the rows before the first one that was learned."""
    if begun.all():
        return path
    coef, intercept = path.coef.copy(), path.intercept.copy()
    coef[~begun], intercept[~begun] = np.nan, np.nan
    return path._replace(coef=coef, intercept=intercept)
