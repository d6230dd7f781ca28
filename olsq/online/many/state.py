"""The states of many streams in arrays, filters first, each in the form that is accurate for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.covariance import CovarianceForm, square_root_of
from olsq.online.forms.covariance_kernels import COVARIANCE, SQUARE_ROOT
from olsq.online.forms.factor.form import as_factor, as_root
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.limits import Limits, limits_for, rows_to_determine
from olsq.online.forms.minimum_norm import group_by_pivots
from olsq.online.forms.rows import Trace, clip_to
from olsq.online.forms.schema import BANK
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.statistics import FitArrays, statistics
from olsq.online.many import decision_kernels
from olsq.online.rows.inputs import with_ones

LARGEST_TOGETHER = 32  # coefficients of filters that are factored together: they fit the cache
READ_AT_ONCE = 4096  # filters whose dense algebra is in memory at a time
FORM_ARRAYS = ("matrix", "coefs", "columns", "tally", "loss", "held", "spread")


class Kind(NamedTuple):
    """Properties that all filters of a bank share."""

    intercept: bool
    discounted: bool
    method: str  # "covariance" or "sqrt"
    precision: tuple[str, str]  # of the stored state and of the data, as a form's
    is_complex: bool = False  # rows are pairs of real ones (see rows/complex_rows.py)
    complex_intercept: bool = False  # whose columns are then among those of the pairs

    @property
    def limits(self) -> Limits:
        return limits_for(*self.precision)

    @property
    def settings(self) -> tuple[Any, ...]:
        """The settings that the kernels take."""
        limits = self.limits
        return (
            limits.covariance,
            limits.square_root,
            self.method == "covariance",
            self.intercept,
            self.discounted,
        )


@dataclass(eq=False)
class BankState:
    """The arrays of all filters' states; forms (n,) is the form of each.

    matrix (n, k, k) and coefs (n, m, k) are P and theta in the covariance form, R and z in the
    square-root form; columns (n, 2, k), tally (n, 4), loss (n, m), held (n,), spread (n, k, k) or
    (n, 0, 0) and clock (n, 3) as a form and its switch have them; seen (n,) counts samples.
    ``ridge`` (n, k) has the intercept's zero first where there is one; ``logs`` (n,) is the
    forgotten sum of the logarithms of the weights.
    """

    forms: NDArray[np.int64]
    matrix: NDArray
    coefs: NDArray
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    clock: NDArray[np.int64]
    seen: NDArray[np.int64]
    spread: NDArray
    ridge: NDArray[np.float64]
    logs: NDArray[np.float64]

    @classmethod
    def start(
        cls,
        kind: Kind,
        ridge: NDArray,
        n_targets: int,
        sandwich: bool = False,
        stored: Any = None,
    ) -> Self:
        """Make filters before any row, with a ridge (n, k) each, stored as the kind says or as
        ``stored``.
        """
        n, k = ridge.shape
        stored = np.dtype(kind.precision[0] if stored is None else stored)
        limits = kind.limits
        with np.errstate(divide="ignore", over="ignore"):
            variance = 1.0 / ridge
        inverts = np.full(n, kind.method == "covariance")
        inverts &= (variance < limits.variance).all(axis=1)
        diagonal = np.where(inverts[:, None], variance, np.sqrt(ridge))
        matrix = np.zeros((n, k, k), stored)
        matrix[:, np.arange(k), np.arange(k)] = diagonal
        # With a ridge on all but the intercept the first row determines everything.
        penalised = (ridge[:, int(kind.intercept) :] > 0).all(axis=1)
        wait = np.where(penalised, 1, rows_to_determine(k))
        s = k if sandwich else 0
        return cls(
            np.where(inverts, COVARIANCE, SQUARE_ROOT),
            matrix,
            np.zeros((n, n_targets, k), stored),
            np.repeat(ridge[:, None], 2, axis=1),
            np.tile([0.0, 0.0, 1.0, 0.0], (n, 1)),
            np.zeros((n, n_targets)),
            np.zeros(n, np.int64),
            np.column_stack([wait, wait, np.zeros(n, np.int64)]),
            np.zeros(n, np.int64),
            np.zeros((n, s, s), stored),
            ridge,
            np.zeros(n),
        )

    def __len__(self) -> int:
        return self.forms.shape[0]

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
        """The arrays as the kernels take them, without ridge and logs, the spreads in two axes."""
        k = self.matrix.shape[1]
        spread = self.spread.reshape(-1, k) if self.spread.size else None
        return (*list(self.arrays().values())[:-3], spread)

    def widened(self, filters: NDArray[np.int64]) -> Self:
        """Copy some of the filters in float64, whatever is stored."""
        part = self.take(filters)
        for name in ("matrix", "coefs", "spread"):
            setattr(part, name, getattr(part, name).astype(np.float64, copy=False))
        return part

    def narrowed(self, dtype: np.dtype) -> Self:
        """Convert the matrices to the stored dtype."""
        names = ("matrix", "coefs", "spread")
        return replace(self, **{name: clip_to(getattr(self, name), dtype) for name in names})

    # -- as the forms of estimators ---------------------------------------------------------------

    def _form(self, place: Any, kind: Kind, covariance: bool) -> CovarianceForm | SquareRootForm:
        """Copy filter ``place``'s state, or the stack of some filters', as a form."""
        copy = True if np.ndim(place) == 0 else None  # indexing by an array copies
        arrays = [np.array(getattr(self, name)[place], copy=copy) for name in FORM_ARRAYS]
        make = CovarianceForm if covariance else SquareRootForm
        return make(*arrays, intercept=kind.intercept, precision=kind.precision)

    def switch(self, f: int, kind: Kind) -> FormSwitch:
        """Copy filter f's state as an estimator holds it."""
        form = self._form(f, kind, self.forms[f] == COVARIANCE)
        form.held = form.held.reshape(1)
        return FormSwitch(as_factor(form), kind.method)

    def set_switch(self, f: int, switch: FormSwitch, seen: int) -> None:
        """Set the state of filter f to an estimator's."""
        form: Any = as_root(switch.form)
        self.forms[f], self.matrix[f], self.coefs[f] = SQUARE_ROOT, form.R, form.z
        for name in FORM_ARRAYS[2:]:
            array = getattr(form, name)
            getattr(self, name)[f] = array[0] if name == "held" else array
        self.clock[f], self.seen[f] = (1, 1, 0), seen

    def stacks(
        self, filters: NDArray[np.int64], kind: Kind, covariance: bool = True
    ) -> Iterator[tuple[NDArray[np.int64], CovarianceForm | SquareRootForm]]:
        """Yield stacks of the states of some filters (see :class:`Form`), each with its places
        among ``filters``; without ``covariance`` only those in square-root form.
        """
        inverted = self.forms[filters] == COVARIANCE
        together = np.flatnonzero(inverted)
        if covariance and together.size:
            yield together, self._form(filters[together], kind, True)
        factored = np.flatnonzero(~inverted)
        for group in group_by_pivots(self.matrix[filters[factored]]):
            together = factored[group]
            yield together, self._form(filters[together], kind, False)

    # -- reading ----------------------------------------------------------------------------------

    def theta(self, filters: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
        """Return coefficients (b, m, k) of some filters, of minimum norm where undetermined."""
        coefficients = self.coefs[filters].astype(np.float64)
        for places, form in self.stacks(filters, kind, covariance=False):
            coefficients[places] = form.coefficients()
        return coefficients

    def write(
        self, trace: Trace, at: NDArray[np.int64], filters: NDArray[np.int64], kind: Kind
    ) -> None:
        """Write the states of some filters to their rows ``at`` (b,) of a trace."""
        for places, form in self.stacks(filters, kind):
            trace.write(at[places], form)

    def estimates(self, filters: NDArray[np.int64], kind: Kind) -> Trace:
        """Read the states of some filters as a trace of b rows."""
        (m, k), sandwich = self.coefs.shape[1:], self.spread.shape[1] > 0
        trace = Trace.empty(filters.size, m, k, sandwich)
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
        R, z = (a[filters].astype(np.float64) for a in (self.matrix, self.coefs))
        inverted = self.forms[filters] == COVARIANCE
        R[inverted], z[inverted] = square_root_of(R[inverted], z[inverted])
        return R, z

    def draws(
        self, filters: NDArray[np.int64], kind: Kind, theta: NDArray, scale: NDArray, u: NDArray
    ) -> NDArray[np.float64]:
        """Draw coefficients (size, b, m, k) about theta (b, m, k), for standard normal u of that
        shape and the square roots of the noise variances, ``scale`` (b, m).

        NaN where a filter's coefficients are undetermined.
        """
        size, b, m, k = u.shape
        out, sandwich = np.empty_like(u), self.spread.shape[1] > 0
        by_kernel = k <= LARGEST_TOGETHER and self.matrix.dtype == np.float64 and not sandwich
        if by_kernel:
            arguments = self.forms, self.matrix, filters, theta, np.ascontiguousarray(scale), u
            decision_kernels.draw(*arguments, 0, b, out)
        for places, form in self.stacks(filters, kind, covariance=not by_kernel):
            # As many products for each filter as there are draws: one of matrices.
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
        out, by_kernel = np.empty(n), self.matrix.dtype == np.float64 and not sandwich
        if by_kernel:
            arguments = self.forms, self.matrix, filters, rows, kind.intercept
            decision_kernels.leverage(*arguments, 0, filters.size, out)
        x = None
        for places, form in self.stacks(filters, kind, covariance=not by_kernel):
            if x is None:
                x = with_ones(np.broadcast_to(rows, (n, rows.shape[1])), kind.intercept)
                finite = np.isfinite(x).all(axis=1).reshape(filters.size, -1)
                x = np.where(np.isfinite(x), x, 0.0).reshape(filters.size, -1, x.shape[1])
            read = form.sandwich_leverage if sandwich else form.leverage
            with np.errstate(over="ignore", invalid="ignore"):
                leverages = read(x[places])
            by_filter = out.reshape(filters.size, -1)  # in here: no filter may be asked
            by_filter[places] = np.where(finite[places], leverages, np.nan)
        return out
