"""The states of many streams in arrays, filters first, each in the form that is accurate for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.covariance import CovarianceForm, square_root_of
from olsq.online.forms.covariance_kernels import COVARIANCE, SQUARE_ROOT
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.held_kernels import hide_held
from olsq.online.forms.limits import Limits, limits_for, rows_to_determine
from olsq.online.forms.minimum_norm import inverse_root, sandwich_of, solution, variances
from olsq.online.forms.rows import clip_to
from olsq.online.forms.schema import BANK
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.statistics import FitArrays
from olsq.online.many import decision_kernels, kernels

LARGEST_TOGETHER = 32  # coefficients of filters that are factored together: they fit the cache
FORM_ARRAYS = ("columns", "tally", "loss", "held", "spread")


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


class Estimates(NamedTuple):
    """Estimates of some filters (b): coefficients, the intercept's first, and statistics.

    theta (b, m, k); variance (b, k) the diagonal of the inverse information and sandwich (b, k) or
    (0, k) of ``P S P``, inf where undetermined; rank (b,) and used (b,), ``tr(P S)``.
    """

    theta: NDArray[np.float64]
    variance: NDArray[np.float64]
    sandwich: NDArray[np.float64]
    rank: NDArray[np.int64]
    used: NDArray[np.float64]

    def counts(self, tally: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the counts (b, 6) that the statistics rest on, as a trace has them."""
        return np.column_stack([tally, self.rank.astype(np.float64), self.used])


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

    # -- one filter as a stream of its own --------------------------------------------------------

    def switch(self, f: int, kind: Kind) -> FormSwitch:
        """Copy filter f's state as an estimator holds it."""
        arrays = {name: array[f].copy() for name, array in self.arrays().items()}
        counters = [np.atleast_1d(arrays[name]) for name in FORM_ARRAYS]
        make = CovarianceForm if arrays["forms"] == COVARIANCE else SquareRootForm
        form = make(
            arrays["matrix"],
            arrays["coefs"],
            *counters,
            intercept=kind.intercept,
            precision=kind.precision,
        )
        return FormSwitch(form, kind.method, arrays["clock"])

    def set_switch(self, f: int, switch: FormSwitch, seen: int) -> None:
        """Set the state of filter f to an estimator's."""
        form: Any = switch.form
        covariance = isinstance(form, CovarianceForm)
        self.forms[f] = COVARIANCE if covariance else SQUARE_ROOT
        self.matrix[f], self.coefs[f] = (form.P, form.theta) if covariance else (form.R, form.z)
        for name in FORM_ARRAYS:
            array = getattr(form, name)
            getattr(self, name)[f] = array[0] if name == "held" else array
        self.clock[f], self.seen[f] = switch.clock, seen

    # -- reading ----------------------------------------------------------------------------------

    def theta(self, filters: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
        """Return coefficients (b, m, k) of some filters, of minimum norm where undetermined."""
        coefficients = self.coefs[filters].astype(np.float64)
        for places, pivots in self._by_pivots(filters):
            which = filters[places]
            R, z = (a[which].astype(np.float64) for a in (self.matrix, self.coefs))
            if pivots.all():
                theta = np.empty_like(z)
                kernels.solve_determined(R, z, theta)
                coefficients[places] = theta
            else:
                level = noise_levels(self.tally[which], pivots.size, kind)
                coefficients[places] = solution(R, z, pivots, level, kind.intercept)
        return coefficients

    def estimates(self, filters: NDArray[np.int64], kind: Kind) -> Estimates:
        """Compute the estimates of some filters."""
        b, k = filters.size, self.matrix.shape[1]
        variance = np.diagonal(self.matrix, axis1=1, axis2=2)[filters].astype(np.float64)
        rank = np.full(b, k)
        robust = self.spread.shape[1] > 0
        sandwich, used = np.zeros((b if robust else 0, k)), np.zeros(b)
        if robust:
            half = self.spread[filters].astype(np.float64) @ self.matrix[filters]
            sandwich[:] = (half**2).sum(axis=1)
            used[:] = (half * self.spread[filters]).sum(axis=(1, 2))
        for places, pivots in self._by_pivots(filters):
            which = filters[places]
            R = self.matrix[which].astype(np.float64)
            root = inverse_root(R, pivots)
            diagonals = np.ascontiguousarray(variances(R, root))
            hide_held(diagonals, self.columns[which], self.tally[which], kind.limits.square_root)
            variance[places], rank[places] = diagonals, int(pivots.sum())
            if robust:
                diagonal, used[places] = sandwich_of(self.spread[which], root)
                sandwich[places] = np.where(np.isfinite(diagonals), diagonal, np.inf)
        return Estimates(self.theta(filters, kind), variance, sandwich, rank, used)

    def statistics(
        self, filters: NDArray[np.int64], kind: Kind, estimates: Estimates, noise: NDArray
    ) -> tuple[NDArray, NDArray, FitArrays]:
        """Return sigma2 (b, m), standard errors (b, m, k), the intercept's first if there is one,
        and what the goodness of fit is computed from.

        ``noise`` (m,) or (b, m) are known noise variances, inf where they are to be estimated.
        """
        shape = estimates.theta.shape
        stderr, fit = np.empty(shape), FitArrays.empty(*shape[:2])
        sigma2 = np.broadcast_to(noise, shape[:2]).copy()
        each = np.arange(shape[0])
        trace = (
            estimates.theta,
            estimates.variance,
            self.loss[filters],
            estimates.counts(self.tally[filters]),
            np.empty((0, shape[1])),
            estimates.sandwich,
        )
        kernels.fill_statistics_of_members(
            trace,
            (filters, each, each + 1),
            self.ridge,
            kind.discounted,
            sigma2,
            stderr,
            fit.arrays,
        )
        return sigma2, stderr, fit

    def factors(self, filters: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        """Return R (b, k, k) upper triangular, of the information ``R^T R``, and ``z = R theta``.

        Rows of R are 0 where rows so far say nothing more.
        """
        R, z = (a[filters].astype(np.float64) for a in (self.matrix, self.coefs))
        inverted = self.forms[filters] == COVARIANCE
        R[inverted], z[inverted] = square_root_of(R[inverted], z[inverted])
        return R, z

    def spreads(self, filters: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return B (b, k, k) with ``B B^T`` the covariance of theta over sigma2: P, or ``P S P``.

        NaN where coefficients are undetermined.
        """
        P = self.matrix[filters].astype(np.float64)
        B = np.full_like(P, np.nan)
        for places, pivots in self._by_pivots(filters):
            root = inverse_root(P[places], pivots)
            if pivots.all():
                B[places] = root
            P[places] = root @ np.swapaxes(root, 1, 2)
        inverted = self.forms[filters] == COVARIANCE
        B[inverted] = np.linalg.cholesky(P[inverted])
        if self.spread.shape[1] > 0:
            pivots = np.isfinite(B[:, :1, :1])
            half = self.spread[filters].astype(np.float64) @ P
            B = np.where(pivots, np.swapaxes(half, 1, 2), np.nan)
        return B

    def draws(
        self, filters: NDArray[np.int64], theta: NDArray, scale: NDArray, u: NDArray
    ) -> NDArray[np.float64]:
        """Compute ``theta + scale B u`` (size, b, m, k), with B as in :meth:`spreads`.

        theta (b, m, k), scale (b, m), standard normal u (size, b, m, k).
        """
        size, b, m, k = u.shape
        quick = (self.forms[filters] == COVARIANCE).all() and k <= LARGEST_TOGETHER
        if quick and self.matrix.dtype == np.float64 and self.spread.shape[1] == 0:
            out = np.empty_like(u)
            arguments = self.forms, self.matrix, filters, theta, np.ascontiguousarray(scale), u
            decision_kernels.draw(*arguments, 0, b, out)
            return out
        B = self.spreads(filters)
        # As many products for each filter as there are draws: one of matrices.
        moved = np.swapaxes(u, 0, 1).reshape(b, size * m, k) @ np.swapaxes(B, 1, 2)
        return theta + scale[..., None] * np.swapaxes(moved.reshape(b, size, m, k), 0, 1)

    def leverage(
        self, filters: NDArray[np.int64], rows: NDArray[np.float64], intercept: bool, n: int
    ) -> NDArray[np.float64]:
        """Compute ``x P x`` (n,) of rows (n, d), equally many per filter, or (1, d) for all of
        them.

        inf where x has a part that nothing is known of, NaN where it has a missing value.
        """
        out = np.empty(n)
        if self.matrix.dtype == np.float64:
            arguments = self.forms, self.matrix, filters, rows, intercept
            decision_kernels.leverage(*arguments, 0, filters.size, out)
        by_pivots = self._by_pivots(filters)
        if not by_pivots:
            return out
        b, by_filter = filters.size, out.reshape(filters.size, -1)
        x = np.broadcast_to(rows, (n, rows.shape[1]))
        if intercept:
            x = np.column_stack([np.ones(n), x])
        x = x.reshape(b, -1, x.shape[1])
        with np.errstate(invalid="ignore"):
            for places, pivots in by_pivots:
                R, regressors = self.matrix[filters[places]].astype(np.float64), x[places]
                root = inverse_root(R, pivots)
                p = regressors @ root
                size = (p**2).sum(axis=2)
                if not pivots.all():
                    outside = np.abs(p @ np.swapaxes(R @ root, 1, 2) @ R - regressors)
                    length = np.linalg.norm(R, axis=1)[:, None] * np.sqrt(size)[..., None]
                    unknown = outside > 1e-8 * np.maximum(np.abs(regressors), length)
                    size[unknown.any(axis=2)] = np.inf
                size[~np.isfinite(regressors).all(axis=2)] = np.nan
                by_filter[places] = size
        return out

    def _by_pivots(
        self, filters: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Group the places among ``filters`` of those in square-root form by their pivots."""
        places = np.flatnonzero(self.forms[filters] == SQUARE_ROOT)
        if not places.size:
            return []
        pivots = np.diagonal(self.matrix[filters[places]], axis1=1, axis2=2) != 0
        if (pivots == pivots[0]).all():  # as streams that began together have them
            return [(places, pivots[0])]
        patterns, kinds = np.unique(pivots, axis=0, return_inverse=True)
        kinds = kinds.ravel()
        return [(places[kinds == i], patterns[i]) for i in range(len(patterns))]


def noise_levels(tally: NDArray, d: int, kind: Kind) -> NDArray[np.float64]:
    """Compute ``square_root_kernels.noise_level`` of each of the tallies (b, 4)."""
    eps, _, coarse = kind.limits.square_root
    return eps * (2 * np.sqrt(d) + 3 * np.sqrt(tally[:, 0])) + coarse
