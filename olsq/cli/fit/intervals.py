"""One target's part of a chunk's path, and intervals around its predictions before each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.declared import GROUPS
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.output import GOODNESS, TESTS
from olsq.cli.sources.grouping import GroupedRows, extend
from olsq.online import CoefficientPath
from olsq.online.forms.student import t_quantile
from olsq.online.whole_array import hide


class TargetPath(NamedTuple):
    """A chunk's path of one target, with the intercept among the coefficients.

    ``coef`` and ``stderr`` (n, k) have the intercept first if there is one; ``residual``,
    ``recursive`` and ``sigma2`` (n,).  ``statistics`` (n, r) are those of the file, if it has them.
    """

    coef: NDArray
    stderr: NDArray
    residual: NDArray
    recursive: NDArray
    sigma2: NDArray
    statistics: NDArray | None

    @classmethod
    def of(cls, path: CoefficientPath, target: int | None, options: FitOptions) -> TargetPath:
        """Select one target of several, or (None) the only one."""
        at = (slice(None),) if target is None else (slice(None), target)
        coef, stderr = path.coef[at], path.stderr[at]
        if options.intercept:
            coef = np.column_stack([path.intercept[at], coef])
            stderr = np.column_stack([path.intercept_stderr[at], stderr])
        statistics = None
        if "statistics" in options.columns:
            one = path if target is None else path.of_target(target)
            tests, k = one.of_coefficients(options.level), coef.shape[1]
            statistics = np.column_stack(
                [getattr(one, name) for name in GOODNESS] + [tests[test][:, -k:] for test in TESTS]
            )
            statistics[np.isinf(statistics)] = np.nan
        residuals = path.residual[at], path.recursive_residual[at]
        return cls(coef, stderr, *residuals, path.sigma2[at], statistics)

    def columns(
        self,
        X: NDArray,
        y: NDArray,
        groups: Sequence[str],
        bounds: tuple[NDArray, NDArray] | None = None,
        fitted: NDArray | None = None,
    ) -> NDArray:
        """Return columns of the output file, in the order of ``output_names``.

        ``fitted`` (n,) are predictions of all rows, where skipped rows change coefficients or with
        a horizon.
        """
        # Elsewhere a skipped row leaves the coefficients alone, so those "after" it are those
        # before it: they predict where only the target is missing.
        d = X.shape[1]
        constant = self.coef[:, 0] if self.coef.shape[1] > d else 0.0
        after = constant + np.einsum("nd,nd->n", X, self.coef[:, self.coef.shape[1] - d :])
        predicted = after if fitted is None else fitted
        of_group = {
            "prediction": np.where(np.isfinite(self.residual), y - self.residual, predicted),
            "interval": None if bounds is None else np.column_stack(bounds),
            "residual": self.residual,
            "coef": self.coef,
            "stderr": np.where(np.isfinite(self.stderr), self.stderr, np.nan),
            "sigma": np.where(np.isfinite(self.sigma2), np.sqrt(self.sigma2), np.nan),
            "statistics": self.statistics,
        }
        return np.column_stack([of_group[group] for group in GROUPS if group in groups])


def hide_first(path: CoefficientPath, learned: NDArray, fewest: int | None) -> CoefficientPath:
    """Hide the coefficients of the rows before the first one that was learned.

    Those of which fewer than ``fewest`` are ``learned`` (n,) have nothing but their residuals.
    """
    few = learned < (fewest or 1)
    if not few.any():
        return path
    shown = hide(path, few)
    if fewest is None:
        return path._replace(coef=shown.coef, intercept=shown.intercept)
    return shown


class Intervals:
    """Computes lower and upper bounds for one target, and remembers every group's sigma2.

    The bounds are ``prediction -+ q sigma sqrt(1 / w + x P x)`` with sigma from the rows before and
    P their inverse information, which the row's own factor has forgotten already: the root is what
    divides a residual to make it a recursive one.  q is Student's, of ``(sum zeta)^2 / sum zeta^2 -
    k`` degrees of freedom with zeta the forgetting weights of the rows learned before (in a
    window: of those inside) and k the number of coefficients; where spans of time decide about
    them, or sigma is known, the normal distribution's.
    """

    def __init__(self, options: FitOptions, n_coefficients: int) -> None:
        self._options, self._k = options, n_coefficients
        self._sigma2 = np.empty(0)  # of every group, after its last row
        # Of every group the learned ones (1) of its last rows, for windows of positions.
        self._marks: dict[int, NDArray[np.float64]] = {}

    def bounds(
        self,
        part: TargetPath,
        y: NDArray,
        learned: NDArray[np.float64],
        used: NDArray[np.bool_],
        groups: GroupedRows,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bounds of a chunk's rows, NaN where there are none.

        ``learned`` (n,) counts the rows of each row's group that were learned before it, ``used``
        marks the rows that are learned.
        """
        gate = self._gate()
        sums = [self._sum_learned(learned, g) for g in (gate, gate**2)]
        if self._options.window_of == "positions":
            sums = self._sum_positions(used, groups, (gate, gate**2))
        sigma2 = np.full(len(y), self._options.noise_variance or np.nan)
        if self._options.noise_variance is None:
            after = part.sigma2[groups.rows]
            self._sigma2 = extend(self._sigma2, int(groups.codes.max(initial=-1)) + 1, np.inf)
            firsts = self._sigma2[groups.codes[groups.begins]]
            sigma2[groups.rows] = groups.shift(after, firsts)
            self._sigma2[groups.codes] = after  # of several, the last stays
        sigma = np.sqrt(sigma2)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.abs(part.residual / part.recursive)
            # Without an error there is no ratio; without noise none is needed.
            root = np.where((part.residual == 0) & (sigma == 0), 1.0, root)
            reach = self._quantile(*sums) * sigma * root
        reach[~np.isfinite(reach)] = np.nan
        prediction = y - part.residual
        return prediction - reach, prediction + reach

    def _gate(self) -> float:
        """Return the forgetting factor of every row; 1 where spans of time decide about it."""
        half_life = self._options.half_life
        if half_life is None or isinstance(half_life, str):
            return 1.0 if self._options.forget is None else self._options.forget
        return 0.5 ** (1.0 / half_life)

    def _sum_learned(self, learned: NDArray[np.float64], gate: float) -> NDArray[np.float64]:
        """Sum powers of ``gate`` over the learned rows that each row's estimate rests on."""
        if isinstance(self._options.window, (int, float)):
            learned = np.minimum(learned, float(self._options.window))
        return _geometric_sum(gate, learned)

    def _sum_positions(
        self, used: NDArray[np.bool_], groups: GroupedRows, gates: tuple[float, float]
    ) -> list[NDArray[np.float64]]:
        """Sum powers of each gate over the learned rows among the last positions before each row,
        in its group.
        """
        assert self._options.window is not None
        window = int(self._options.window)
        sums = [np.zeros(len(used)) for _ in gates]
        for code, rows in groups.by_code().items():
            marks = np.concatenate([self._marks.get(code, np.empty(0)), used[rows]])
            ends = np.arange(len(marks) - len(rows), len(marks))
            for gate, out in zip(gates, sums, strict=True):
                total = np.concatenate([[0], _faded_sums(marks, gate)])
                out[rows] = total[ends] - gate**window * total[np.maximum(ends - window, 0)]
            self._marks[code] = marks[-window:].astype(np.float64)
        return sums

    def _quantile(
        self, rows: NDArray[np.float64], squares: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the quantile for these sums of forgetting weights and of their squares."""
        options = self._options
        if options.noise_variance is not None:  # one prediction's variance is known, or infinite
            freedom = np.full(len(rows), np.inf)
        elif options.span is not None:
            # how many rows a span of time holds is not known here: the normal distribution
            freedom = np.where(rows > self._k, np.inf, 0.0)
        else:
            freedom = rows**2 / np.maximum(squares, 1.0) - self._k
        return t_quantile(freedom, options.level)

    def as_dict(self) -> dict[str, Any]:
        """Return what is remembered of every group for the checkpoint."""
        marks = {str(code): pack(marks) for code, marks in self._marks.items()}
        return {"sigma2": pack(self._sigma2)} | ({"marks": marks} if marks else {})

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the values saved by :meth:`as_dict`."""
        self._sigma2 = unpack(saved["sigma2"])
        self._marks = {int(code): unpack(text) for code, text in saved.get("marks", {}).items()}


def _faded_sums(values: NDArray, gate: float) -> NDArray[np.float64]:
    """Return ``s_t = gate s_{t-1} + values_t``."""
    if gate == 1.0:
        return np.cumsum(values)
    from scipy.signal import lfilter  # a third of a second, which other options do without

    return np.asarray(lfilter([1.0], [1.0, -gate], values))


def _geometric_sum(gate: float, rows: NDArray) -> NDArray[np.float64]:
    """Return ``1 + gate + ... + gate^(rows - 1)``."""
    if gate == 1.0:
        return rows
    return (1.0 - gate**rows) / (1.0 - gate)
