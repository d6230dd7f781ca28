"""The information form: the moments themselves, factorised when they are read.

Updating is one rank-one addition, or one matrix product for many rows; it is the form that serves
``ridge_mode="fixed"`` with forgetting, since the ridge is added only at the solve.  It squares the
condition number: regressors worse than about 1e7 lose all digits here, and the minimum-norm
solution takes over.

Moments are sums, in which a gap of 50 half-lives leaves nothing of what was known before it, and a
gap of 13 a few of its digits.  So from a gap on a square-root form, which keeps all digits, learns
beside the sums and answers for the coefficients, until the sums determine what it does.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.linalg.numpy.lapack import add_gram
from olsq.online.forms import moment_blocks, square_root
from olsq.online.forms import moment_kernels as kernels
from olsq.online.forms.form import Form, copied
from olsq.online.forms.lapack import cholesky, solve_moments
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.minimum_norm import null_space, triangular_inverse
from olsq.online.forms.moment_factor import factor, tally_of
from olsq.online.forms.rows import Rows, Trace, forgotten
from olsq.online.forms.square_root import (
    SquareRootForm,
    counters,
    merged_spread,
    merged_tally,
)
from olsq.online.forms.square_root_kernels import DECAY
from olsq.problem import Moments

_BLOCK = 512  # rows per matrix product
BLOCKED_FROM = 128  # coefficients from which the product is added in place, by BLAS
SINGLE_ROWS = 64  # one at a time before blocks are tried again; doubles with every failure
MOST_SINGLE_ROWS = 1024
FAINT = 1e-6  # a pivot with more than this left of its diagonal entry has ten digits
PAST = {name: f"past_{name}" for name in SquareRootForm.ARRAYS}  # in files


@dataclass(eq=False)
class InformationForm(Form):
    """The moments H (d, d) and G (m, d) of the data alone (float64), the ridge (d,) and its mode.

    ``past`` is the square-root form of all rows, with a discounted ridge, since a gap that newer
    rows have not made up for, and ``old`` (d,) what is left of the diagonal of the information from
    before that gap; None without one.
    ``squares`` (m,) is the forgotten sum of ``beta y^2``; ``columns``, ``tally``, ``held`` and
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
    past: SquareRootForm | None = None
    old: NDArray[np.float64] | None = None

    name: ClassVar[str] = "information"
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "H", "G", "squares", "columns", "tally", "held", "ridge", "spread",
    )  # fmt: skip
    ARGUMENTS: ClassVar[tuple[str, ...]] = (*Form.ARGUMENTS, "discounted", "solving")
    OPTIONAL: ClassVar[tuple[str, ...]] = ("old",)
    PER_TARGET: ClassVar[dict[str, int]] = {"G": 0, "squares": 0}

    def __post_init__(self) -> None:
        self.limits = limits_for(*self.precision)

    def arrays(self) -> dict[str, NDArray]:
        past = {} if self.past is None else self.past.arrays()
        return super().arrays() | {PAST[name]: array for name, array in past.items()}

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> Self:
        form = super().restore(arguments, arrays)
        past = {name: arrays[key] for name, key in PAST.items() if key in arrays}
        if past:
            form.past = SquareRootForm(
                **past, intercept=form.intercept, precision=form._precision_of_past
            )
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
        return max(8 * self.H.shape[0] * float(np.finfo(np.float64).eps), self.limits.coarse**2)

    @classmethod
    def start(
        cls, ridge: NDArray, n_targets: int, *, intercept: bool, discounted: bool, solving: bool,
        precision: tuple[str, str] = DOUBLE, sandwich: bool = False,
    ) -> InformationForm:  # fmt: skip
        d = ridge.shape[0]
        columns, tally, squares, held, spread = counters(np.zeros(d), n_targets, sandwich)
        return cls(
            np.zeros((d, d)), np.zeros((n_targets, d)), squares, columns, tally, held, ridge,
            spread,
            intercept=intercept, discounted=discounted, solving=solving, precision=precision,
        )  # fmt: skip

    def accumulate(self, rows: Rows) -> None:
        """Absorb rows by matrix products, without solves and residuals."""
        for start in range(0, rows.X.shape[0], _BLOCK):
            X, Y, gates, weights = (a[start : start + _BLOCK] for a in rows)
            effective, left = np.empty_like(gates), np.empty(X.shape[1])
            held = kernels.gates_and_counts(
                self.columns, self.tally, X, gates, weights, self.floor, effective, left
            )
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
                if self.old is not None:
                    self.old *= rows.gates[start:last].prod()
                    self._drop_past()
                start = last
        return stop

    def _remember(self, gate: float) -> None:
        """Keep all digits of what is known before a gap, about to become too faint for the sums."""
        if gate == 0:
            self.past = self.old = None
            return
        if self.H.any() or (self.discounted and (self._decay * self.ridge).any()):
            self.past, now = self._as_root(), np.diagonal(self.H) + self._decay * self.ridge
            self.old = now if self.old is None else np.maximum(now, self.old)
        if gate < float(np.finfo(np.float64).eps):
            # The sum goes on with the new rows alone: beside them the rest is rounding, and in a
            # column that stays silent it would pass for what new rows say.
            loss = self.loss
            self.H[:], self.G[:], self.squares, self.tally[DECAY] = 0.0, 0.0, loss, 0.0

    def _as_root(self) -> SquareRootForm:
        """Return the square-root form of the rows so far, with the ridge if it is discounted."""
        if self.past is not None:
            return self.past
        ridge, error = self.ridge if self.discounted else np.zeros_like(self.ridge), 0.0
        R = cholesky(self.H, ridge, self._decay, FAINT)
        if R is not None:
            z = solve_triangular(R, self.G.T, trans=1).T
        else:  # eigenvalues, which take some twenty times as long
            gram = self.H + self._decay * np.diag(ridge)
            R, z, error, _ = factor(gram, self.G, float(np.finfo(np.float64).eps))
        return SquareRootForm(
            np.ascontiguousarray(R), np.ascontiguousarray(z),
            np.repeat((R**2).sum(0)[None], 2, axis=0), tally_of(error, self.tally),
            np.zeros(z.shape[0]), np.zeros(1, np.int64), np.zeros((0, 0)),
            intercept=self.intercept, precision=self._precision_of_past,
        )  # fmt: skip

    def _feed(self, rows: Rows, start: int, stop: int) -> NDArray | None:
        """Let the past, if there is one, learn rows start..stop too; return its errors (n, m)."""
        if self.past is None:
            return None
        piece, (m, d) = Rows(*(a[start:stop] for a in rows)), self.G.shape
        errors = np.empty((stop - start, m))
        if start < stop:
            self.past.absorb(piece, errors, Trace.none(m, d))
        return errors

    @property
    def _faint(self) -> float:
        """Part of a diagonal entry that its pivot needs to be newer rows', or to be accurate."""
        if self.old is None:
            return 0.0
        now = np.diagonal(self.H) + self._decay * self.ridge
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(self.old > 0, self.old / now, 0.0)
        return min(1e3 * float(share.sum()), FAINT)

    @property
    def _recovered(self) -> bool:
        """True where rows since a gap determine every coefficient."""
        lost = max(self._lost, self._faint)
        return cholesky(self.H, self.ridge, self._decay, lost) is not None

    def _drop_past(self) -> None:
        """Forget the past once newer rows determine all that it does."""
        if self.past is not None and (
            self._recovered
            or (not self.past.full_rank and self._rank(self._faint) >= self.past.rank)
        ):
            self.past = self.old = None

    def _update_between_gaps(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Absorb rows as :meth:`update` does, with no gap after the first."""
        answers = self.past is not None and self.discounted  # the past has the ridge, and errors
        if not trace.wanted and (answers or not self.solving):
            self.accumulate(Rows(*(a[start:stop] for a in rows)))
            errors = self._feed(rows, start, stop)
            residual[start:stop] = np.nan if errors is None or not self.solving else errors
            return stop
        if trace.wanted or self.past is not None:
            return self._solve_rows(rows, start, stop, residual, trace)
        # As many rows as coefficients: then a row's share of the factor is O(d^2).
        block = int(np.clip(self.H.shape[0], 8, 64))
        state = self.H, self.G, self.squares, self.columns, self.tally, self.spread
        limits, t, single = (self.floor, self._lost), start, SINGLE_ROWS
        while t < stop:
            done = moment_blocks.update_in_blocks(
                *state, self.ridge, self.discounted, *rows, t, stop, min(block, stop - t), limits,
                self.limits.leverage, residual,
            )  # fmt: skip
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
                self.H, self.G, self.squares, self.columns, self.tally, self.spread, theta,
                self.ridge, self.discounted, *rows, t, stop, (self.floor, lost), residual,
                trace.arrays,
            )  # fmt: skip
            if not solved:
                self._feed(rows, fed, t)
                fed = t
                theta = self.coefficients()
                if trace.wanted:
                    trace.write(t - 1, self)
        self._feed(rows, fed, stop)
        return stop

    # -- reading ----------------------------------------------------------------------------------

    @property
    def _decay(self) -> float:
        return float(self.tally[DECAY]) if self.discounted else 1.0

    def _factor(self) -> NDArray | None:
        return cholesky(self.H, self.ridge, self._decay, self._lost)

    def _centred(self) -> tuple[NDArray, NDArray]:
        """Eliminate the intercept from the system: A (k, k) and G (m, k)."""
        A, G = self.H + self._decay * np.diag(self.ridge), self.G
        if not self._has_mean:
            return A, G
        mean = A[0, 1:] / A[0, 0]
        return A[1:, 1:] - np.outer(A[0, 1:], mean), G[:, 1:] - np.outer(G[:, 0], mean)

    @property
    def _has_mean(self) -> bool:
        return bool(self.intercept and self.H[0, 0] > 0)

    def _spectrum(
        self, A: NDArray, faint: float = 0.0
    ) -> tuple[NDArray, NDArray, NDArray, NDArray[np.bool_]]:
        """Return eigenvalues and -vectors of the scaled A, the scale, and a mask of known ones:
        above rounding, and above ``faint``.
        """
        first = self.H.shape[0] - A.shape[0]
        # What centring leaves of a constant column is rounding error.
        whole = np.diagonal(self.H)[first:] + self._decay * self.ridge[first:]
        alive = np.diagonal(A) > max(8 * self._lost, faint) * whole
        scale = np.sqrt(np.where(alive, np.diagonal(A), 1.0))
        values, vectors = np.linalg.eigh(
            np.where(np.outer(alive, alive), A / np.outer(scale, scale), 0.0)
        )
        kept = values > max(4 * self._lost, faint) * max(values.max(initial=0), 0)
        return values, vectors, scale, kept

    def coefficients(self) -> NDArray:
        """Return theta (m, d), of minimum norm (intercept aside) where the system is singular."""
        if self.past is not None:
            return (self.past if self.discounted else self._with_ridge(self.past)).coefficients()
        R = self._factor()
        if R is not None:
            return solve_moments(R, self.G)
        theta = np.zeros_like(self.G)
        A, G = self._centred()
        values, vectors, scale, kept = self._spectrum(A)
        first = theta.shape[1] - A.shape[0]

        def particular(scaled: NDArray) -> NDArray:
            return (scaled @ vectors[:, kept] / values[kept]) @ vectors[:, kept].T / scale

        beta = particular(G / scale)
        # Null directions in the data's own units, so that the norm minimised is the plain one;
        # then one refinement, since mixed units cost digits in the projection.
        k = A.shape[0]
        inflation = (vectors[:, kept] ** 2 / values[kept]).sum(1)
        error = self.limits.coarse * np.sqrt(inflation)
        error += 32 * k * np.finfo(np.float64).eps * inflation
        null, _ = np.linalg.qr(null_space(vectors[:, ~kept], error) / scale[:, None])
        beta = beta - (beta @ null) @ null.T
        # In units of unit columns, where nothing overflows.
        beta = beta + particular(G / scale - (beta * scale) @ (A / scale[:, None] / scale))
        theta[:, first:] = beta
        if first:
            theta[:, 0] = (self.G[:, 0] - beta @ self.H[0, 1:]) / self.H[0, 0]
        return theta

    def _with_ridge(self, past: SquareRootForm) -> SquareRootForm:
        """Return a copy of the past that has learnt the fixed ridge."""
        past = copied(past)
        past.absorb_factor(np.diag(np.sqrt(self.ridge)), np.zeros_like(self.G))
        return past

    @property
    def loss(self) -> NDArray:  # type: ignore[reportIncompatibleVariableOverride]
        """The minimised objective (m,), without its 1/2: sum w y^2 - theta . G."""
        return np.maximum(self.squares - (self.coefficients() * self.G).sum(1), 0.0)

    @property
    def full_rank(self) -> bool:
        return self._factor() is not None

    @property
    def rank(self) -> int:
        return self.H.shape[0] if self.full_rank else self._rank()

    def _rank(self, faint: float = 0.0) -> int:
        """Count the directions known, by eigenvalues above rounding and above ``faint``."""
        A, _ = self._centred()
        return int(self._spectrum(A, faint)[3].sum()) + (self.H.shape[0] - A.shape[0])

    def inverse_diagonal(self) -> NDArray:
        """Return the diagonal of the inverse information (d,); inf where undetermined."""
        R = self._factor()
        if R is not None:
            return triangular_inverse(R)[1]
        A, _ = self._centred()
        values, vectors, scale, kept = self._spectrum(A)
        out = np.empty(self.H.shape[0])
        first = out.size - A.shape[0]
        space = vectors[:, kept]
        variance = (space**2 / values[kept]).sum(1) / scale**2
        out[first:] = np.where(np.abs((space**2).sum(1) - 1.0) < 1e-6, variance, np.inf)
        if first:  # b = y_mean - x_mean . beta is determined if that combination of beta is
            mean = self.H[0, 1:] / self.H[0, 0] / scale
            inside = space.T @ mean
            known = np.linalg.norm(space @ inside - mean) <= 1e-6 * np.linalg.norm(mean)
            out[0] = 1.0 / self.H[0, 0] + (inside**2 / values[kept]).sum() if known else np.inf
        return out

    def sandwich(self) -> tuple[NDArray, float]:
        """Return the diagonal (d,) of ``P S P``, inf where undetermined, and ``tr(P S)``."""
        R = self._factor()
        if R is not None:
            root, _ = triangular_inverse(R)
        else:  # any generalised inverse gives the same where a coefficient is determined
            values, vectors, scale, kept = self._spectrum(
                self.H + self._decay * np.diag(self.ridge)
            )
            root = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
        half = self.spread @ root
        diagonal = ((half @ root.T) ** 2).sum(0)
        return np.where(self.determined(), diagonal, np.inf), float((half**2).sum())

    def determined(self) -> NDArray[np.bool_]:
        """Mask (d,) of the coefficients that the data (and the ridge) determine uniquely."""
        return np.isfinite(self.inverse_diagonal())

    def explained(self) -> NDArray:
        _, centred = self._centred()
        return (self.coefficients()[:, -centred.shape[1] :] * centred).sum(1)

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        R = self._factor()
        if R is not None:
            return solve_triangular(R, X.T, trans=1).T, np.ones(X.shape[0], np.bool_)
        A, _ = self._centred()
        values, vectors, scale, kept = self._spectrum(A)
        parts, space, rounding = [], vectors[:, kept], np.zeros(X.shape[0])
        if self._has_mean:  # x . P x = x_0^2 / H_00 + c . A^-1 c with c = x_r - x_0 mean
            parts.append(X[:, :1] / np.sqrt(self.H[0, 0]))
            mean = X[:, :1] * (self.H[0, 1:] / self.H[0, 0])
            unit = max(8 * self.H.shape[0] * float(np.finfo(np.float64).eps), self.limits.coarse)
            rounding = unit * np.linalg.norm((np.abs(X[:, 1:]) + np.abs(mean)) / scale, axis=1)
            X = X[:, 1:] - mean
        scaled = X / scale
        inside = scaled @ space
        outside = np.linalg.norm(scaled - inside @ space.T, axis=1)
        known = outside <= 1e-6 * np.linalg.norm(scaled, axis=1) + rounding
        return np.hstack([*parts, inside / np.sqrt(values[kept])]), known

    def unwhitened(self, W: NDArray) -> NDArray:
        R = self._factor()
        if R is not None:
            return solve_triangular(R, W.T).T
        A, _ = self._centred()
        values, vectors, scale, kept = self._spectrum(A)
        first = int(self._has_mean)
        out = (W[:, first:] / np.sqrt(values[kept])) @ vectors[:, kept].T / scale
        if not first:
            return out
        mean = self.H[0, 1:] / self.H[0, 0]
        return np.column_stack([W[:, 0] / np.sqrt(self.H[0, 0]) - out @ mean, out])

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        held = self._decay * self.ridge if discounted else np.zeros_like(self.ridge)
        return Moments(self.H + np.diag(held), self.G.copy())


def merge(first: InformationForm, second: InformationForm) -> InformationForm:
    """Return the form of first's rows followed by second's: ``H = Z_b H_a + H_b``."""
    decay = second.tally[DECAY]
    H, G = decay * first.H, decay * first.G
    H += second.H  # in place: large models have no room for another copy
    G += second.G
    merged = InformationForm(
        H, G,
        forgotten(first.squares, decay) + second.squares,
        decay * first.columns + second.columns, merged_tally(first.tally, second.tally),
        first.held + second.held, first.ridge,
        merged_spread(first.spread, second.spread, decay), intercept=first.intercept,
        discounted=first.discounted, solving=second.solving, precision=first.precision,
    )  # fmt: skip
    if first.past is not None or second.past is not None or 0 < decay < kernels.GAP:
        before = np.diagonal(first.H) + first._decay * first.ridge
        before = before if first.old is None else np.maximum(before, first.old)
        merged.old = decay * before + (0.0 if second.old is None else second.old)
        if merged._recovered:
            merged.old = None
        else:
            ridge = first.ridge if first.discounted else np.zeros_like(first.ridge)
            merged.past = square_root.merge(first._as_root(), second._as_root(), ridge)
            merged._drop_past()
    return merged
