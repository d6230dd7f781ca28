"""The states of many streams in arrays, filters first: the factor of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.factor.snapshots import group_by_pivots
from olsq.online.forms.factor.stack import Stack
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.limits import Limits, limits_for
from olsq.online.forms.rows import Trace
from olsq.online.forms.schema import BANK
from olsq.online.forms.statistics import FitArrays, statistics
from olsq.online.many import decision_kernels, kernels
from olsq.online.rows.inputs import with_ones

READ_AT_ONCE = 4096  # filters whose dense algebra is in memory at a time
LEARNED = ("factor", "pivots", "columns", "tally", "loss", "held", "seen")
FORM_ARRAYS = (*LEARNED[:-1], "spread")


class Kind(NamedTuple):
    """Properties that all filters of a bank share."""

    intercept: bool
    discounted: bool
    precision: str  # of the rows, as a form's
    is_complex: bool = False  # rows are pairs of real ones (see rows/complex_rows.py)
    complex_intercept: bool = False  # whose columns are then among those of the pairs

    @property
    def limits(self) -> Limits:
        return limits_for(self.precision)


@dataclass(eq=False)
class BankState:
    """The arrays of all filters' states.

    factor (n, k, k + m) and pivots (n, k) are F and D of :mod:`olsq.online.forms.factor`; columns
    (n, 2, k), tally (n, 4), loss (n, m), held (n,) and spread (n, k, k) or (n, 0, 0) as a form has
    them; seen (n,) counts samples.  ``ridge`` (n, k) has the intercept's zero first where there is
    one; ``logs`` (n,) is the forgotten sum of the logarithms of the weights.  ``values`` (n, k), or
    (n, 0) where no column may be an intercept, are those of columns that had one value in every
    row: 0 where they varied, or are 0, NaN before the first row.
    """

    factor: NDArray
    pivots: NDArray[np.float64]
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    seen: NDArray[np.int64]
    spread: NDArray
    ridge: NDArray[np.float64]
    logs: NDArray[np.float64]
    values: NDArray[np.float64]

    @classmethod
    def start(
        cls,
        kind: Kind,
        ridge: NDArray,
        n_targets: int,
        sandwich: bool = False,
    ) -> Self:
        """Make filters before any row, with a ridge (n, k) each."""
        n, k = ridge.shape
        s = k if sandwich else 0
        return cls(
            np.tile(np.eye(k, k + n_targets), (n, 1, 1)),
            ridge.astype(np.float64),
            np.repeat(ridge[:, None], 2, axis=1),
            np.tile([0.0, 0.0, 1.0, 0.0], (n, 1)),
            np.zeros((n, n_targets)),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros((n, s, s)),
            ridge,
            np.zeros(n),
            np.full((n, 0 if kind.intercept or kind.is_complex else k), np.nan),
        )

    def __len__(self) -> int:
        return self.pivots.shape[0]

    @property
    def n_coefs(self) -> int:
        return self.pivots.shape[1]

    @property
    def n_targets(self) -> int:
        return self.loss.shape[1]

    def arrays(self) -> dict[str, NDArray]:
        """Return every array of the state, by name."""
        return {name: getattr(self, name) for name in BANK}

    def copy(self) -> Self:
        return replace(self, **{name: array.copy() for name, array in self.arrays().items()})

    def take(self, filters: Any) -> Self:
        """Copy some of the filters."""
        return type(self)(**{name: array[filters] for name, array in self.arrays().items()})

    def put(self, filters: NDArray[np.int64], states: BankState) -> None:
        """Replace the states of some of the filters by those of others."""
        for name, array in self.arrays().items():
            array[filters] = getattr(states, name)

    def joined(self, more: BankState) -> Self:
        """Concatenate these filters and the others to one state."""
        return replace(
            self,
            **{
                name: np.concatenate([array, getattr(more, name)])
                for name, array in self.arrays().items()
            },
        )

    @property
    def in_kernels(self) -> tuple[Any, ...]:
        """The arrays as the kernels take them, the spreads in two axes."""
        spread = self.spread.reshape(-1, self.n_coefs) if self.spread.size else None
        return (*(getattr(self, name) for name in LEARNED), spread)

    def stack(self, kind: Kind) -> Stack:
        """The filters as their rows are learned; kernels write into the arrays."""
        limits, theta = kind.limits.square_root, partial(self.theta, kind=kind)
        return Stack(self.in_kernels, limits, kind.intercept, theta, lambda: self.form(0, kind))

    # -- as the forms of estimators ---------------------------------------------------------------

    def form(self, place: Any, kind: Kind) -> FactorForm:
        """Copy filter ``place``'s state, or the stack of some filters', as a form."""
        arrays = {name: np.array(getattr(self, name)[place]) for name in FORM_ARRAYS}
        F, D = arrays.pop("factor"), arrays.pop("pivots")
        return FactorForm(F, D, **arrays, intercept=kind.intercept, precision=kind.precision)

    def switch(self, f: int, kind: Kind) -> FormSwitch:
        """Copy filter f's state as an estimator holds it."""
        form: Any = self.form(f, kind)
        form.held = form.held.reshape(1)
        return FormSwitch(form)

    def set_switch(self, f: int, switch: FormSwitch, seen: int) -> None:
        """Set the state of filter f to an estimator's."""
        form: Any = switch.form
        self.factor[f], self.pivots[f] = form.F, form.D
        for name in FORM_ARRAYS[2:]:
            array = getattr(form, name)
            getattr(self, name)[f] = array[0] if name == "held" else array
        self.seen[f] = seen

    def stacks(
        self, filters: NDArray[np.int64], kind: Kind
    ) -> Iterator[tuple[NDArray[np.int64], FactorForm]]:
        """Yield stacks of the states of some filters (see :class:`Form`) with the same pivots of 0,
        each with its places among ``filters``.
        """
        for places in group_by_pivots(self.pivots[filters]):
            yield places, self.form(filters[places], kind)

    def _split(self, filters: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        """Return the places among ``filters`` of those that kernels read, and of the others.

        Kernels read factors of full rank; the others are read in stacks.
        """
        by_kernel = (self.pivots[filters] > 0).all(axis=1)
        return np.flatnonzero(by_kernel), np.flatnonzero(~by_kernel)

    # -- reading ----------------------------------------------------------------------------------

    def theta(self, filters: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
        """Return coefficients (b, m, k) of some filters, of minimum norm where undetermined."""
        theta = np.empty((filters.size, self.n_targets, self.n_coefs))
        rest = self._split(filters)[1]
        if rest.size < filters.size:
            kernels.solve_filters(self.factor, self.pivots, filters, theta)
        for places, form in self.stacks(filters[rest], kind):
            theta[rest[places]] = form.coefficients()
        return theta

    def write(
        self, trace: Trace, at: NDArray[np.int64], filters: NDArray[np.int64], kind: Kind
    ) -> None:
        """Write the states of some filters to their rows ``at`` (b,) of a trace."""
        known, rest = self._split(filters)
        if known.size:
            limits = kind.limits.square_root
            kernels.record(self.in_kernels, filters[known], at[known], limits, tuple(trace))
        for places, form in self.stacks(filters[rest], kind):
            trace.write(at[rest[places]], form)

    def estimates(self, filters: NDArray[np.int64], kind: Kind) -> Trace:
        """Read the states of some filters as a trace of b rows."""
        sandwich = self.spread.shape[1] > 0
        trace = Trace.empty(filters.size, self.n_targets, self.n_coefs, sandwich)
        for start in range(0, filters.size, READ_AT_ONCE):
            part = np.arange(start, min(start + READ_AT_ONCE, filters.size))
            self.write(trace, part, filters[part], kind)
        return trace

    def statistics(
        self, filters: NDArray[np.int64], kind: Kind, estimates: Trace, noise: NDArray
    ) -> tuple[NDArray, NDArray, FitArrays]:
        """Return sigma2 (b, m), standard errors (b, m, k), the intercept's first if there is one,
        and what the goodness of fit is computed from.

        ``noise`` (m,) or (b, m) are known noise variances, inf where they are to be estimated.
        """
        shape = estimates.coef.shape
        stderr, fit = np.empty(shape), FitArrays.empty(*shape[:2])
        sigma2 = np.broadcast_to(noise, shape[:2]).copy()
        each = np.arange(shape[0])
        turns = filters, each, each + 1
        statistics(estimates, self.ridge, kind.discounted, sigma2, stderr, fit, turns)
        return sigma2, stderr, fit

    def factors(self, filters: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        """Return R (b, k, k) upper triangular, of the information ``R^T R``, and ``z = R theta``.

        Rows of R are 0 where rows so far say nothing more.
        """
        F, root = self.factor[filters], np.sqrt(self.pivots[filters])
        F *= root[:, :, None]
        return F[:, :, : self.n_coefs], np.swapaxes(F[:, :, self.n_coefs :], -1, -2)

    def draws(
        self, filters: NDArray[np.int64], kind: Kind, theta: NDArray, scale: NDArray, u: NDArray
    ) -> NDArray[np.float64]:
        """Draw coefficients (size, b, m, k) about theta (b, m, k), for standard normal u of that
        shape and the square roots of the noise variances, ``scale`` (b, m).

        NaN where a filter's coefficients are undetermined.
        """
        size, _, m, k = u.shape
        out, sandwich = np.empty_like(u), self.spread.shape[1] > 0
        known, rest = self._split(filters)
        if sandwich:
            rest = np.arange(filters.size)
        elif known.size:
            arguments = self.in_kernels[:4], filters, kind.limits.square_root
            decision_kernels.draw(*arguments, theta, np.ascontiguousarray(scale), u, out)
        for part, form in self.stacks(filters[rest], kind):
            # As many products for each filter as there are draws: one of matrices.
            places = rest[part]
            W = np.swapaxes(u[:, places], 0, 1).reshape(places.size, size * m, k)
            if form.full_rank:
                W = form.deviations(W, sandwich)
            W[~form.determined().all(axis=1)] = np.nan
            moved = np.swapaxes(W.reshape(places.size, size, m, k), 0, 1)
            out[:, places] = theta[places] + scale[places, :, None] * moved
        return out

    def leverage(
        self,
        filters: NDArray[np.int64],
        kind: Kind,
        rows: NDArray[np.float64],
        n: int,
        sandwich: bool = False,
    ) -> NDArray[np.float64]:
        """Compute ``x P x`` (n,), or ``x P S P x``, of rows (n, d), equally many per filter, or
        (1, d) for all of them.

        inf where x has a part that nothing is known of, NaN where it has a missing value.
        """
        out, x = np.empty(n), None
        known, rest = self._split(filters)
        if sandwich:
            rest = np.arange(filters.size)
        elif known.size:
            arguments = self.in_kernels[:4], filters, kind.limits.square_root
            decision_kernels.leverage(*arguments, rows, kind.intercept, out)
        for part, form in self.stacks(filters[rest], kind):
            if x is None:
                x = with_ones(np.broadcast_to(rows, (n, rows.shape[1])), kind.intercept)
                finite = np.isfinite(x).all(axis=1).reshape(filters.size, -1)
                x = np.where(np.isfinite(x), x, 0.0).reshape(filters.size, -1, x.shape[1])
            places = rest[part]
            read = form.sandwich_leverage if sandwich else form.leverage
            with np.errstate(over="ignore", invalid="ignore"):
                leverages = read(x[places])
            by_filter = out.reshape(filters.size, -1)  # in here: no filter may be asked
            by_filter[places] = np.where(finite[places], leverages, np.nan)
        return out
