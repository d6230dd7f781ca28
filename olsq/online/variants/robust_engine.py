"""The state of robust least squares: rows are weighted as they pass, the first ones together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import DECAY, WEIGHT
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.rows import Rows, Trace
from olsq.online.variants.engine import VariantSwitch
from olsq.online.variants.robust_kernels import (
    FEWEST,
    scales_of,
    slope_lengths,
    update,
    weight_of,
)

Rule = tuple[int, float, float, int]
COUNT, NEXT, HELD = 0, 1, 2  # of recent_at; HELD: first rows so far, -1 once they are done with
SMALLEST_GATE = 1e-200


class RobustSwitch(VariantSwitch):
    """A state, and the residuals that the running scale is made of.

    ``recent`` (w, m) is a ring of standardised a-priori residuals, ``recent_at`` (3,) how many
    there are, where the next one goes, and how many of the ``first`` rows (s, k + m + 2) are held:
    regressors, targets, gate, weight.  ``rejected`` (1,) counts the rows rejected in a row.
    ``ridge`` (k,) is what the state began with.  ``rule`` = (loss, threshold or degrees of freedom,
    quartile of the noise, the most rows rejected in a row) is given before each call;
    ``passed`` are the weights it gave, and ``places`` the rows of this call that first rows stand
    for: (first row, weights of a block, rows in it).
    """

    rule: Rule
    recent: NDArray[np.float64]
    recent_at: NDArray[np.int64]
    rejected: NDArray[np.int64]
    first: NDArray[np.float64]
    ridge: NDArray[np.float64]
    passed: tuple[NDArray[np.float64], ...] = ()
    places: tuple[tuple[int, NDArray, slice], ...] = ()

    def learns_in_steps(self, gate: float) -> bool:
        return gate == 0 or self.recent_at[HELD] >= 0  # the first rows wait to be learned together

    def begin(self, rule: Rule) -> None:
        """Begin a call, whose rows are weighted by ``rule``."""
        self.rule, self.passed, self.places = rule, (), ()

    def weights_passed(self) -> NDArray[np.float64]:
        """End a call; return the weights it gave to its rows."""
        passed, self.passed, self.places = self.passed, (), ()
        return passed[0] if len(passed) == 1 else np.concatenate([np.empty(0), *passed])

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
                self.rejected[:] = 0
            stop = n
            if t + 1 < n and (resets := np.flatnonzero(rows.gates[t + 1 :] == 0)).size:
                stop = t + 1 + int(resets[0])
            room = len(self.first) - self.recent_at[HELD]
            if self.recent_at[HELD] < 0 or not room:
                self._pass(rows, t, stop, residual, passed)
                t = stop
                continue
            stop = self._hold(rows, t, stop, int(room), passed)
            self._pass(rows, t, stop, residual, passed)
            if self.recent_at[HELD] == len(self.first):
                robust = self._start_again()
                for slot, block, part in self.places:
                    block[part] = robust[slot]
                self.places = ()
            t = stop

    def _hold(self, rows: Rows, t: int, stop: int, room: int, passed: NDArray) -> int:
        """Keep rows from t on as first rows while there is ``room``; return the row after them.

        Rows that repeat the one before them share its place, with what is left of their weights:
        the same information, so that a silent start does not use the places up.
        """
        held = int(self.recent_at[HELD])
        values = np.hstack([rows.X[t:stop], rows.Y[t:stop]])
        before = self.first[held - 1 : held, :-2] if held else np.full_like(values[:1], np.nan)
        new = (values != np.concatenate([before, values[:-1]])).any(axis=1)
        starts = np.flatnonzero(new)
        n = int(starts[room]) if len(starts) > room else len(values)
        edges = np.unique([0, *starts[:room], n])
        for i, end in pairwise(edges):
            gates, weights = rows.gates[t + i : t + end], rows.weights[t + i : t + end]
            left = np.append(np.cumprod(gates[::-1])[::-1], 1.0)  # of what was before each row
            gate, weight = left[0], float((left[1:] * weights).sum())
            if new[i]:
                held += 1
            else:
                gate, weight = (
                    gate * self.first[held - 1, -2],
                    weight + gate * self.first[held - 1, -1],
                )
            if gates.all():
                gate = max(gate, SMALLEST_GATE)  # a factor of 0 is a reset
            self.first[held - 1] = *values[i], gate, weight
            self.places += ((held - 1, passed, slice(t + i, t + end)),)
        self.recent_at[HELD] = held
        return t + n

    def _pass(self, rows: Rows, t: int, stop: int, residual: NDArray, passed: NDArray) -> None:
        """Learn rows t..stop, each weighted as it passes."""
        form = self.form
        while t < stop:
            t, held = update(
                form.in_kernels,
                tuple(rows),
                (t, stop),
                form.limits.square_root,
                residual,
                passed,
                (self.recent, self.recent_at, self.rejected),
                (*self.rule, self.ridge, int(form.intercept)),
            )
            if held:
                form.held += held
            if t < stop:  # a reset, or a direction that is new: no row to be judged by another
                form.update(rows, t, t + 1, residual, Trace.none(form.loss.size, form.D.size))
                t += 1

    def _start_again(self) -> NDArray[np.float64]:
        """Learn the first rows again with their M-estimate's weights; return the weights (s,)."""
        k, m = self.form.D.size, self.form.loss.size
        X, Y, gates, weights = np.split(self.first, [k, k + m, k + m + 1], axis=1)
        X, Y, gates, weights = X.copy(), Y.copy(), gates[:, 0].copy(), weights[:, 0].copy()
        left = np.append(np.cumprod(gates[::-1])[::-1], 1.0)  # of what was before each row
        robust, residual = weights_together(
            X, Y, left[1:] * weights, left[0] * self.ridge, self.rule, self.form._noise
        )
        form = FactorForm.start(self.ridge, m, self.form.intercept, self.form.precision)
        rows = Rows.of(X, Y, gates, weights * robust)
        form.absorb(rows, np.empty(Y.shape), Trace.none(m, k))
        form.held += self.form.held
        form.tally[:DECAY] = self.form.tally[:DECAY]  # the rows, some of which share a place
        self.form = form
        kept = residual[(weights > 0) & ~self._idle(rows, residual)][-len(self.recent) :]
        self.recent[: len(kept)] = kept
        self.recent_at[:] = len(kept), len(kept) % len(self.recent), -1
        self.rejected[:] = 0
        self.first[:] = 0.0
        return robust

    def _idle(self, rows: Rows, residual: NDArray) -> NDArray[np.bool_]:
        """Mask rows (n,) that fit exactly and say nothing of the slopes: the scale omits them."""
        form, length = self.form, np.empty(len(rows.X))
        first = int(form.intercept)
        slope_lengths(form.in_kernels, tuple(rows), form.limits.square_root, first, length)
        weight = form.tally[WEIGHT]
        return (residual == 0).all(axis=1) & (length * np.sqrt(weight) < 0.5)

    def scales(self) -> NDArray[np.float64]:
        """Return the running scale (m,); NaN while there are too few residuals."""
        out = np.full(self.recent.shape[1], np.nan)
        if self.recent_at[COUNT] >= FEWEST:
            scales_of(self.recent, int(self.recent_at[COUNT]), self.rule[2], out)
        return out

    def arrays(self) -> dict[str, NDArray]:
        names = "recent", "recent_at", "rejected", "first"
        return super().arrays() | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RobustSwitch:
        switch = super().restore(description, arrays)
        assert isinstance(switch, RobustSwitch)
        switch.recent, switch.recent_at = arrays["recent"], arrays["recent_at"]
        switch.first, switch.ridge = arrays["first"], arrays["full_ridge"]
        switch.rejected = arrays.get("rejected", np.zeros(1, np.int64))  # older files have none
        return switch

    def in_order(self) -> NDArray[np.float64]:
        """Return the residuals, the oldest first."""
        count, following, _ = self.recent_at
        return np.roll(self.recent, -int(following), axis=0)[len(self.recent) - count :]

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        both = super().merged(other, ridge, half_life)
        both.rule = other.rule
        size = len(other.recent)
        every = np.concatenate([self.in_order(), other.in_order()])[-size:]
        both.recent, both.rejected = np.zeros_like(other.recent), other.rejected.copy()
        both.recent[: len(every)] = every
        both.recent_at = np.array([len(every), len(every) % size, -1])
        both.first, both.ridge = np.zeros_like(other.first), other.ridge
        return both


MEDIAN_STEPS, STEPS = 30, 50


def weights_together(
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    weights: NDArray[np.float64],
    ridge: NDArray[np.float64],
    rule: Rule,
    noise: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute robust weights (n,) of rows X (n, k), Y (n, m), and the residuals (n, m) in scale.

    ``weights`` (n,) are those of forgetting and of the samples, ``ridge`` (k,) what is left of it,
    ``noise`` the relative rounding error of fitted values; residuals below it are 0.
    Iteratively reweighted least squares: first for least absolute residuals, which a minority of
    outliers does not move far, from there for the loss of ``rule``, its scale that of the
    residuals, raised by ``sqrt(n / (n - k))`` for what the fit has taken from them.
    """
    kind, parameter, quartile, _ = rule
    counted = weights > 0
    raised = np.sqrt(counted.sum() / max(counted.sum() - X.shape[1], 1))
    robust, scale = np.ones(len(X)), np.empty(Y.shape[1])
    residual = _residuals(X, Y, weights, ridge, noise)
    for step in range((MEDIAN_STEPS + STEPS) if counted.any() else 0):
        if step == MEDIAN_STEPS:
            exact = _exact_residuals(X, Y, weights, ridge, noise, residual)
            if exact is not None:
                return np.array([weight_of(r, 0 * scale, kind, parameter) for r in exact]), exact
        scales_of(residual[counted], int(counted.sum()), quartile, scale)
        scale *= raised
        before = robust
        if step < MEDIAN_STEPS:
            with np.errstate(divide="ignore"):  # a scale of 0: outliers from an exact fit
                sizes = np.divide(residual, scale, out=np.zeros_like(Y), where=residual != 0)
            robust = 1.0 / np.maximum(np.sqrt((sizes**2).mean(1)), 1e-3)
        else:
            robust = np.array([weight_of(r, scale, kind, parameter) for r in residual])
        residual = _residuals(X, Y, weights * robust, ridge, noise)
        if step > MEDIAN_STEPS and np.abs(robust - before).max() < 1e-10:
            break
    return robust, raised * residual


def _exact_residuals(
    X: NDArray, Y: NDArray, weights: NDArray, ridge: NDArray, noise: float, residual: NDArray
) -> NDArray[np.float64] | None:
    """Compute the residuals (n, m) from a plane on which all rows lie but a minority; None where
    the steps from ``residual`` (n, m) do not lead to one.

    Each step fits the half of the rows that is nearest to the last fit (Rousseeuw & Van Driessen
    2006, concentration).
    """
    counted = np.flatnonzero(weights > 0)
    half = (len(counted) + X.shape[1] + 1) // 2
    if half <= X.shape[1]:  # so few rows lie on a plane always
        return None
    before = None
    for _ in range(STEPS):
        distance = (residual[counted] ** 2).sum(axis=1)
        near = np.sort(counted[np.argsort(distance, kind="stable")[:half]])
        if before is not None and (near == before).all():
            break
        own = np.zeros_like(weights)
        own[near] = weights[near]
        residual, before = _residuals(X, Y, own, ridge, noise), near
        if not residual[near].any():
            return residual
    return None


def _residuals(
    X: NDArray, Y: NDArray, weights: NDArray, ridge: NDArray, noise: float
) -> NDArray[np.float64]:
    """Compute the residuals (n, m) of weighted ridge regression of minimum norm."""
    root = np.sqrt(weights)[:, None]
    A = np.vstack([root * X, np.diag(np.sqrt(ridge))])
    B = np.vstack([root * Y, np.zeros((ridge.size, Y.shape[1]))])
    length = np.linalg.norm(A, axis=0)
    length[length == 0] = 1.0
    fitted = X @ (np.linalg.lstsq(A / length, B, rcond=None)[0] / length[:, None])
    residual = Y - fitted
    residual[np.abs(residual) <= noise * (np.abs(Y) + np.abs(fitted))] = 0.0
    return residual
