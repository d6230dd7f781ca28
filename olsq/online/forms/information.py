"""The information form: the moments themselves, factorised when they are read.

Updating is one rank-one addition, or one matrix product for many rows; it is the form that serves
``ridge_mode="fixed"`` with forgetting, since the ridge is added only at the solve.  It squares the
condition number: regressors worse than about 1e7 lose all digits here, and the minimum-norm
solution takes over.

From a gap in the forgetting on, :class:`~olsq.online.forms.past.Past` answers for the moments,
until newer rows determine all that it does.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.linalg.numpy.lapack import add_gram
from olsq.online.forms import moment_blocks, schema
from olsq.online.forms import moment_kernels as kernels
from olsq.online.forms.form import Form
from olsq.online.forms.lapack import cholesky
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.moment_factor import factor, tally_of
from olsq.online.forms.past import FAINT, Past, trusted_share
from olsq.online.forms.rows import Rows, Trace, forgotten
from olsq.online.forms.solved_moments import RegularMoments, SingularMoments, centred
from olsq.online.forms.square_root import SquareRootForm, counters
from olsq.online.forms.square_root_kernels import COUNT, DECAY, USED
from olsq.problem import Moments

EPS = float(np.finfo(np.float64).eps)
_BLOCK = 512  # rows per matrix product
BLOCKED_FROM = 128  # coefficients from which the product is added in place, by BLAS
SINGLE_ROWS = 64  # one at a time before blocks are tried again; doubles with every failure
MOST_SINGLE_ROWS = 1024
# Largest leverage in a block: its residuals lose as many digits. Solves for every row lose more, by
# the condition of the moments (ridge 1e-3, d = 64, first rows: errors of 1e-11; in blocks 3e-13).
MOST_LEVERAGE = 1e6


@dataclass(eq=False)
class InformationForm(Form):
    """The moments H (d, d) and G (m, d) of the data alone (float64), the ridge (d,) and its mode.

    ``past`` is set at a gap and dropped once newer rows determine as much as it does.
    ``squares`` (m,) is the discounted sum of ``w y^2``; ``columns``, ``tally``, ``held`` and
    ``spread`` as in the other forms.  ``solving`` says whether updates report a-priori residuals.
    """

    H: NDArray[np.float64]
    G: NDArray[np.float64]
    squares: NDArray[np.float64]
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    held: NDArray[np.int64]
    ridge: NDArray[np.float64]
    spread: NDArray[np.float64]
    _: KW_ONLY
    intercept: bool
    discounted: bool
    solving: bool
    precision: tuple[str, str] = DOUBLE
    past: Past | None = None

    name: ClassVar[str] = "information"
    FIELDS: ClassVar[schema.Fields] = schema.INFORMATION
    ARGUMENTS: ClassVar[tuple[str, ...]] = (*Form.ARGUMENTS, "discounted", "solving")

    def __post_init__(self) -> None:
        self.limits = limits_for(*self.precision)

    def arrays(self) -> dict[str, NDArray]:
        return super().arrays() | ({} if self.past is None else self.past.arrays())

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> Self:
        form = super().restore(arguments, arrays)
        form.past = Past.restore(arrays, form.intercept, form._precision_of_past)
        return form

    @property
    def _precision_of_past(self) -> tuple[str, str]:
        return "float64", self.precision[1]

    @property
    def reports_residuals(self) -> bool:  # type: ignore[reportIncompatibleVariableOverride]
        return self.solving

    @property
    def floor(self) -> float:
        return self.limits.floor

    @property
    def _lost(self) -> float:
        """Largest part of a pivot, relative to its diagonal entry, that is rounding error."""
        return max(8 * self.H.shape[0] * EPS, self.limits.coarse**2)

    @classmethod
    def start(
        cls,
        ridge: NDArray,
        n_targets: int,
        *,
        intercept: bool,
        discounted: bool,
        solving: bool,
        precision: tuple[str, str] = DOUBLE,
        sandwich: bool = False,
    ) -> InformationForm:
        d = ridge.shape[0]
        columns, tally, squares, held, spread = counters(np.zeros(d), n_targets, sandwich)
        form = cls(
            np.zeros((d, d)),
            np.zeros((n_targets, d)),
            squares,
            columns,
            tally,
            held,
            ridge,
            spread,
            intercept=intercept,
            discounted=discounted,
            solving=solving,
            precision=precision,
        )
        if solving and not ridge.any():
            root = SquareRootForm.start(ridge, n_targets, intercept, form._precision_of_past)
            form.past = Past(root, np.zeros(d))
        return form

    def accumulate(self, rows: Rows) -> None:
        """Absorb rows by matrix products, without solves and residuals."""
        for start in range(0, rows.X.shape[0], _BLOCK):
            X, Y, gates, weights = (a[start : start + _BLOCK] for a in rows)
            effective, left = np.empty_like(gates), np.empty(X.shape[1])
            held = kernels.gates_and_counts(
                self.columns, self.tally, X, gates, weights, self.floor, effective, left
            )
            if self.spread.size:
                kernels.absorb_squares(self.spread, X, effective, weights, 0, gates.size)
            after = np.ones_like(effective)  # product of the gates after each row
            after[:-1] = np.cumprod(effective[:0:-1])[::-1]
            decay = after[0] * effective[0]
            root = np.sqrt(weights * after)[:, None]
            plain = bool((root == 1).all())
            scaled_X, scaled_Y = (X, Y) if plain else (root * X, root * Y)
            # Where it is not more, the products differ by rounding alone.
            held = held and left.max(initial=0.0) > (1 + 1e-9) * decay
            if self.H.shape[0] < BLOCKED_FROM or held:
                self.H *= np.maximum.outer(left, left) if held else decay
                self.H += scaled_X.T @ scaled_X
            else:
                add_gram(self.H, scaled_X, 1.0, float(decay))
            self.G *= left if held else decay
            self.G += scaled_Y.T @ scaled_X
            self.squares = forgotten(self.squares, decay)
            self.squares += (scaled_Y**2).sum(0)

    def learns_in_steps(self, gate: float) -> bool:
        return self.past is not None or gate < kernels.GAP

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop with a solve, a residual and a trace entry for each.

        Without ``solving`` and a trace it is :meth:`accumulate`, and residuals are NaN.
        """
        while start < stop:
            gate = rows.gates.item(start)
            if gate < kernels.GAP:
                self._remember(gate)
            if stop - start == 1:
                end = stop
            elif stop - start > 64 and rows.gates[start + 1 : stop].min() >= kernels.GAP:
                end = stop  # a minimum is quicker than a search
            else:
                end = kernels.next_gap(rows.gates, start + 1, stop)
            while start < end:
                # A past learns row by row beside the sums, so it is dropped as soon as it can be.
                last = end if self.past is None else min(end, start + max(64, self.H.shape[0]))
                self._update_between_gaps(rows, start, last, residual, trace)
                if self.past is not None:
                    self.past.fade(rows.gates[start:last])
                    self.drop_past()
                    if self.past is None and trace.wanted:  # the last row is read from the moments
                        trace.write(last - 1, self)
                start = last
        return stop

    def _remember(self, gate: float) -> None:
        """Keep the state from before a gap in square-root form, since the moments will lose it."""
        if gate == 0:
            self.past = None
            return
        if self.H.any() or (self.discounted and (self._decay * self.ridge).any()):
            root, loss = self.root(), self.loss
            root.loss = loss if self.past is None else root.loss
            self.past = Past(root, self.known_before())
        if gate < EPS:
            # Restart the sums: what is left of old rows is below rounding, and in a column that
            # new rows do not excite it would be mistaken for information.
            loss = self.loss
            self.H[:], self.G[:], self.squares, self.tally[DECAY] = 0.0, 0.0, loss, 0.0

    @property
    def forgotten_ridge(self) -> NDArray:
        """The ridge (d,) that is forgotten with the rows: zeros where it is fixed."""
        return self.ridge if self.discounted else np.zeros_like(self.ridge)

    def known_before(self) -> NDArray:
        """Return the diagonal (d,) of the information, or of what is left from before a gap."""
        now = self.diagonal
        return now if self.past is None else np.maximum(now, self.past.old)

    def root(self) -> SquareRootForm:
        """Return the square-root form of the rows so far, with the ridge if it is discounted."""
        if self.past is not None:
            return self.past.root
        return self.moments_root(self.forgotten_ridge)

    def moments_root(self, ridge: NDArray) -> SquareRootForm:
        """Return the square-root form of the moments and a ridge (d,) that is forgotten."""
        error = 0.0
        R = cholesky(self.H, ridge, self._decay, FAINT)
        if R is not None:
            z = solve_triangular(R, self.G.T, trans=1).T
        else:  # eigenvalues, which take some twenty times as long
            gram = self.H + self._decay * np.diag(ridge)
            R, z, error, _ = factor(gram, self.G, EPS)
        return SquareRootForm(
            np.ascontiguousarray(R),
            np.ascontiguousarray(z),
            np.repeat((R**2).sum(0)[None], 2, axis=0),
            tally_of(error, self.tally),
            np.zeros(z.shape[0]),
            np.zeros(1, np.int64),
            np.zeros((0, 0)),
            intercept=self.intercept,
            precision=self._precision_of_past,
        )

    @property
    def _faint(self) -> float:
        """Part of a diagonal entry that its pivot needs to be newer rows', or to be accurate."""
        return 0.0 if self.past is None else trusted_share(self.past.old, self.diagonal)

    def recovered(self, share: float) -> bool:
        """Test whether rows since a gap determine every coefficient: pivots by their share."""
        lost = max(self._lost, share)
        return cholesky(self.H, self.ridge, self._decay, lost) is not None

    def drop_past(self) -> None:
        """Forget the past once newer rows determine all that it does."""
        if self.past is None:
            return
        share, known = self._faint, self.past.root
        if self.past.is_start and not known.full_rank:
            return  # eigenvalues for every call would cost more than this form
        if self.recovered(share) or (
            not known.full_rank and self._singular(share).rank >= known.rank
        ):
            self.past = None

    def _update_between_gaps(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Absorb rows as :meth:`update` does, with no gap after the first."""
        # The past has the ridge, and errors; without a gap it has all of a trace but sandwiches.
        answers = self.past is not None and (self.discounted or not self.ridge.any())
        if self.past is not None and answers and trace.wanted and self.past.is_start:
            step = 1 if len(trace.sandwich) else stop - start
            for t in range(start, stop, step):
                self.accumulate(Rows(*(a[t : t + step] for a in rows)))
                plain = trace._replace(sandwich=trace.sandwich[:0])
                residual[t : t + step] = self.past.learn(rows, t, t + step, plain)
                if len(trace.sandwich):
                    trace.sandwich[t], trace.counts[t, USED] = self.sandwich()
            return stop
        if not trace.wanted and (answers or not self.solving):
            self.accumulate(Rows(*(a[start:stop] for a in rows)))
            errors = None if self.past is None else self.past.learn(rows, start, stop)
            residual[start:stop] = np.nan if errors is None or not self.solving else errors
            return stop
        if trace.wanted or self.past is not None:
            return self._solve_rows(rows, start, stop, residual, trace)
        # As many rows as coefficients: then a row's share of the factor is O(d^2).
        block = min(max(self.H.shape[0], 8), 64)
        limits, t, single = (self.floor, self._lost, MOST_LEVERAGE), start, SINGLE_ROWS
        while t < stop:
            done = moment_blocks.update_in_blocks(
                (self.in_kernels, self.spread_in_kernels),
                (self.ridge, self.discounted),
                tuple(rows),
                (t, stop),
                min(block, stop - t),
                limits,
                residual,
            )
            if done == t:
                done = self._solve_rows(rows, t, min(t + single, stop), residual, trace)
                single = min(2 * single, MOST_SINGLE_ROWS)
            else:
                single = SINGLE_ROWS
            t = done
        return stop

    def _solve_rows(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Absorb rows start..stop as :meth:`update` does, with a factorisation for each."""
        theta = self.coefficients()
        t = fed = start
        lost = max(self._lost, self._faint)
        while t < stop:
            t, solved = kernels.update_solving(
                (self.in_kernels, self.spread_in_kernels),
                (self.ridge, self.discounted),
                theta,
                tuple(rows),
                (t, stop),
                (self.floor, lost),
                residual,
                trace.arrays,
            )
            if not solved:
                if self.past is not None:
                    self.past.learn(rows, fed, t)
                fed = t
                theta = self.coefficients()
                if trace.wanted:
                    trace.write(t - 1, self)
        if self.past is not None:
            self.past.learn(rows, fed, stop)
        return stop

    @property
    def in_kernels(self) -> tuple[NDArray, ...]:
        return self.H, self.G, self.columns, self.tally, self.squares

    # -- reading ----------------------------------------------------------------------------------

    @property
    def _decay(self) -> float:
        return float(self.tally[DECAY]) if self.discounted else 1.0

    @property
    def _gram(self) -> NDArray:
        return self.H + self._decay * np.diag(self.ridge)

    @property
    def diagonal(self) -> NDArray:
        return np.diagonal(self.H) + self._decay * self.ridge

    def _factor(self) -> NDArray | None:
        return cholesky(self.H, self.ridge, self._decay, self._lost)

    def _singular(self, share: float = 0.0, whole: bool = False) -> SingularMoments:
        """Decompose the moments; known is what is above rounding and above ``share``.

        ``whole`` counts the intercept with the slopes.
        """
        has_mean = self._has_mean and not whole
        return SingularMoments.decompose(
            self._gram, self.G, has_mean, self._lost, self.limits.coarse, share
        )

    def _solved(self, whole: bool = False) -> SquareRootForm | RegularMoments | SingularMoments:
        """Return what reads the state: since a gap its past, else the moments."""
        if self.past is not None:
            return self.past.with_ridge(None if self.discounted else self.ridge)
        R = self._factor()
        return self._singular(whole=whole) if R is None else RegularMoments(R, self.G)

    @property
    def _has_mean(self) -> bool:
        return bool(self.intercept and self.H[0, 0] > 0)

    def coefficients(self) -> NDArray:
        """Return theta (m, d), of minimum norm (intercept aside) where the system is singular."""
        return self._solved().coefficients()

    @property
    def loss(self) -> NDArray:  # type: ignore[reportIncompatibleVariableOverride]
        """The minimised objective (m,), without its 1/2: sum w y^2 - theta . G."""
        return np.maximum(self.squares - (self.coefficients() * self.G).sum(1), 0.0)

    @property
    def full_rank(self) -> bool:
        return self._factor() is not None if self.past is None else self.rank == self.H.shape[0]

    @property
    def rank(self) -> int:
        return self._solved().rank

    def inverse_diagonal(self) -> NDArray:
        """Return the diagonal of the inverse information (d,); inf where undetermined."""
        return self._solved().inverse_diagonal()

    def sandwich(self) -> tuple[NDArray, float]:
        """Return the diagonal (d,) of ``P S P``, inf where undetermined, and ``tr(P S)``."""
        # Any generalised inverse gives the same where a coefficient is determined.
        root = self._solved(whole=True).inverse_root()
        half = self.spread @ root
        diagonal = ((half @ root.T) ** 2).sum(0)
        return np.where(self.determined(), diagonal, np.inf), float((half**2).sum())

    def determined(self) -> NDArray[np.bool_]:
        """Mask (d,) of the coefficients that the data (and the ridge) determine uniquely."""
        return np.isfinite(self.inverse_diagonal())

    def rounding_of_squares(self) -> float:
        return 4 * EPS * float(self.tally[COUNT])  # equal rows round the sums the same way

    def explained(self) -> NDArray:
        _, slopes, _ = centred(self._gram, self.G, self._has_mean)
        return (self.coefficients()[:, -slopes.shape[1] :] * slopes).sum(1)

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        return self._solved().whitened(X)

    def unwhitened(self, W: NDArray) -> NDArray:
        return self._solved().unwhitened(W)

    def is_held(self, X: NDArray, leverage: NDArray) -> NDArray[np.bool_]:
        held = super() if self.past is None else self.past.root
        return held.is_held(X, leverage)

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        if self.past is not None and not self.past.is_start:
            return self.past.root.moments(ridge, discounted=True)  # as far as it has the ridge
        held = self._decay * self.ridge if discounted else np.zeros_like(self.ridge)
        return Moments(self.H + np.diag(held), self.G.copy())
