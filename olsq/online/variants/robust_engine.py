"""The state of robust least squares: rows are weighted as they pass, the first ones together."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.variants.engine import VariantSwitch
from olsq.online.variants.robust_kernels import scales_of, update
from olsq.online.variants.robust_start import weights_together

COUNT, NEXT, HELD = 0, 1, 2  # of recent_at; HELD: first rows so far, -1 once they are done with


class RobustSwitch(VariantSwitch):
    """A square-root state, and the residuals that the running scale is made of.

    ``recent`` (w, m) is a ring of standardised a-priori residuals, ``recent_at`` (3,) how many
    there are, where the next one goes, and how many of the ``first`` rows (s, k + m + 2) are held:
    regressors, targets, gate, weight.  ``ridge`` (k,) is what the state began with.  ``rule`` =
    (loss, threshold or degrees of freedom, quartile of the noise) is given before each call;
    ``passed`` are the weights it gave.
    """

    rule: tuple[int, float, float]
    recent: NDArray[np.float64]
    recent_at: NDArray[np.int64]
    first: NDArray[np.float64]
    ridge: NDArray[np.float64]
    passed: tuple[NDArray[np.float64], ...] = ()

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        self.fresh = False
        n, passed = rows.X.shape[0], np.ones(rows.X.shape[0])
        self.passed = (*self.passed, passed)
        t = 0
        while t < n:
            if rows.gates[t] == 0:  # a new start, for the scale too
                self.recent_at[:] = 0, 0, 0
            resets = np.flatnonzero(rows.gates[t + 1 :] == 0)
            stop = t + 1 + int(resets[0]) if resets.size else n
            room = len(self.first) - self.recent_at[HELD]
            if self.recent_at[HELD] < 0 or not room:
                self._pass(rows, t, stop, residual, passed)
                t = stop
                continue
            stop = min(stop, t + int(room))
            place = slice(self.recent_at[HELD], self.recent_at[HELD] + stop - t)
            self.first[place] = np.column_stack([a[t:stop] for a in rows])
            self._pass(rows, t, stop, residual, passed)
            self.recent_at[HELD] += stop - t
            if self.recent_at[HELD] == len(self.first):
                self._revise(self._start_again(), stop)
            t = stop

    def _pass(self, rows: Rows, t: int, stop: int, residual: NDArray, passed: NDArray) -> None:
        """Learn rows t..stop, each weighted as it passes."""
        form = self.form
        form.widen()
        while t < stop:
            t, held = update(
                form.R, form.z, form.columns, form.tally, form.loss, *rows, t, stop,
                form.limits.square_root, residual, passed, self.recent, self.recent_at, self.rule,
            )  # fmt: skip
            form.held += held
            if t < stop:  # a reset, or a direction that is new: no row to be judged by another
                form._take_alone(rows, t, residual, Trace.none(*form.z.shape))
                t += 1
        form.narrow()

    def _revise(self, robust: NDArray[np.float64], stop: int) -> None:
        """Note the weights (s,) of the first rows, up to ``stop`` of this block, where they passed
        in this call."""
        for block in reversed(self.passed):
            end = stop if block is self.passed[-1] else len(block)
            size = min(end, len(robust))
            block[end - size : end], robust = robust[len(robust) - size :], robust[: -size or None]
            if size < end or not len(robust):
                return

    def _start_again(self) -> NDArray[np.float64]:
        """Weigh the first rows together, and learn them with these weights from the beginning;
        returns the weights (s,)."""
        k, m = self.form.z.shape[1], self.form.loss.size
        X, Y, gates, weights = np.split(self.first, [k, k + m, k + m + 1], axis=1)
        X, Y, gates, weights = X.copy(), Y.copy(), gates[:, 0].copy(), weights[:, 0].copy()
        left = np.append(np.cumprod(gates[::-1])[::-1], 1.0)  # of what was before each row
        robust, residual = weights_together(
            X, Y, left[1:] * weights, left[0] * self.ridge, self.rule
        )
        form = SquareRootForm.start(self.ridge, m, self.form.intercept, self.form.precision)
        form.absorb(Rows.of(X, Y, gates, weights * robust), np.empty(Y.shape), Trace.none(m, k))
        form.held += self.form.held
        self.form = form
        kept = residual[weights > 0][-len(self.recent) :]
        self.recent[: len(kept)] = kept
        self.recent_at[:] = len(kept), len(kept) % len(self.recent), -1
        self.first[:] = 0.0
        return robust

    def scales(self) -> NDArray[np.float64]:
        """The running scale (m,); NaN while there are too few residuals."""
        out = np.empty(self.recent.shape[1])
        known = scales_of(self.recent, int(self.recent_at[COUNT]), self.rule[2], out)
        return out if known else np.full(out.size, np.nan)

    def arrays(self) -> dict[str, NDArray]:
        own = {"recent": self.recent, "recent_at": self.recent_at, "first": self.first}
        return super().arrays() | own

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RobustSwitch:
        switch = super().restore(description, arrays)
        assert isinstance(switch, RobustSwitch)
        switch.recent, switch.recent_at = arrays["recent"], arrays["recent_at"]
        switch.first, switch.ridge = arrays["first"], arrays["full_ridge"]
        return switch

    def in_order(self) -> NDArray[np.float64]:
        """The residuals, the oldest first."""
        count, following, _ = self.recent_at
        return np.roll(self.recent, -int(following), axis=0)[len(self.recent) - count :]

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        both = super().merged(other, ridge, half_life)
        both.rule = other.rule
        size = len(other.recent)
        every = np.concatenate([self.in_order(), other.in_order()])[-size:]
        both.recent = np.zeros_like(other.recent)
        both.recent[: len(every)] = every
        both.recent_at = np.array([len(every), len(every) % size, -1])
        both.first, both.ridge = np.zeros_like(other.first), other.ridge
        return both
