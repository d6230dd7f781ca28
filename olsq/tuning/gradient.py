"""Minimise the one-step-ahead loss: a coarse grid of starts, then L-BFGS-B with exact gradients.

The search is over ``z = (log memory, log ridge)`` with ``memory = 1 / (1 - forget)``, in which the
loss bends about equally everywhere, and of ``log(loss)``, so that tolerances are relative.  forget
= 1 and ridge = 0 are at infinity there; they are tried at the end.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.rows.options import forget_from_half_life
from olsq.tuning.objective import ForecastLoss

GRID_MEMORIES, GRID_RIDGES = 12, 6
CURVE_POINTS = 33
LOOKS = 3
LEAST_HALF_LIFE = 0.25  # forget = 1 / 16
LEAST_RIDGE, MOST_RIDGE = 1e-8, 100.0  # relative to a row's weight, and to that of all rows
SAME = 1e-9  # relative difference of losses below which the simpler of two is taken


class SearchRange(NamedTuple):
    """Search range of one of the two parameters, in the search's units.

    ``limit`` says whether the value at infinity (forget = 1, ridge = 0) is allowed; ``fixed`` is a
    value that is not searched.
    """

    low: float
    high: float
    limit: bool
    fixed: float | None = None


def memory_of(forget: float) -> float:
    """Return the effective memory ``1 / (1 - forget)``, in rows."""
    return math.inf if forget == 1 else 1.0 / (1.0 - forget)


def forget_of(memory: float) -> float:
    """Return the forgetting factor of a memory, the inverse of :func:`memory_of`."""
    return 1.0 - 1.0 / memory


def memory_range(
    problem: ForecastLoss, forget: float | None, bounds: tuple[float, float] | None
) -> SearchRange:
    """Return the memories to search: at least as many rows as there are coefficients."""
    longest = 100.0 * len(problem.X)
    if bounds is None:
        least = forget_from_half_life(LEAST_HALF_LIFE)
        low, high, limit = max(memory_of(least), float(problem.n_coefs)), longest, True
    else:
        low, limit = memory_of(forget_from_half_life(bounds[0])), math.isinf(bounds[1])
        high = longest if limit else memory_of(forget_from_half_life(bounds[1]))
    return SearchRange(low, max(low, high), limit, forget)


def ridge_range(
    problem: ForecastLoss, ridge: float | None, bounds: tuple[float, float] | None
) -> SearchRange:
    """Return the ridges to search, around the mean square of a regressor.

    ``ridge`` is in scaled units.
    """
    scale = problem.ridge_scale
    low, high = LEAST_RIDGE * scale, MOST_RIDGE * scale * len(problem.X)
    limit = True
    if bounds is not None:
        limits = [float(np.ldexp(b, -problem.ridge_unit)) for b in bounds]
        limit = limits[0] == 0
        high = limits[1] if math.isfinite(limits[1]) else max(high, limits[0])
        low = min(low, high) if limit else limits[0]
    return SearchRange(low, high, limit, ridge)


class SearchResult(NamedTuple):
    """Best point of a search, and how it ended."""

    forget: float
    ridge: float
    loss: float
    at_bound: tuple[str, ...]
    message: str


def minimise(
    problem: ForecastLoss, memories: SearchRange, ridges: SearchRange, starts: int
) -> SearchResult:
    """Find the smallest loss within both ranges."""
    search = _Search(problem, memories, ridges)
    free = search.free
    converged, best = True, search.parameters_at(search.start_points()[0])
    if free:
        for start in search.start_points()[:starts]:
            place, fine = search.descend(start)
            if search.objective(*place) < search.objective(*best):
                best, converged = place, fine
        best = search.improve_along_curves(best)
    return search.finish(best, converged)


class _Search:
    """Coordinates, starts and descents of one search."""

    def __init__(self, problem: ForecastLoss, memories: SearchRange, ridges: SearchRange) -> None:
        self.problem, self.memories, self.ridges = problem, memories, ridges
        self.free = [r for r in (memories, ridges) if r.fixed is None and r.low < r.high]
        # Differences below this are rounding; it also keeps log(0) away.
        spread = float(problem.scored @ np.einsum("tj,tj->t", problem.Y, problem.Y))
        self.rounding = max((64 * np.finfo(float).eps) ** 2 * spread, np.finfo(float).tiny)
        self._grid: list[NDArray] | None = None

    def objective(self, forget: float, ridge: float) -> float:
        """Return the objective of the search, the log of the loss."""
        return math.log(self.problem.loss(forget, ridge) + self.rounding)

    def parameters_at(self, z: NDArray) -> tuple[float, float]:
        """Convert coordinates of the free parameters to (forget, ridge)."""
        left = list(z)
        values = []
        for search in (self.memories, self.ridges):
            if search in self.free and search.fixed is None:
                values.append(float(np.clip(math.exp(left.pop(0)), search.low, search.high)))
            else:
                values.append(search.low)
        forget = self.memories.fixed
        ridge = self.ridges.fixed
        return (
            forget_of(values[0]) if forget is None else forget,
            values[1] if ridge is None else ridge,
        )

    def start_points(self) -> list[NDArray]:
        """Return the coordinates of a coarse grid's local minima, the best first."""
        if self._grid is not None:
            return self._grid
        counts = {id(self.memories): GRID_MEMORIES, id(self.ridges): GRID_RIDGES}
        axes = []
        for search in self.free:
            low, high = math.log(search.low), math.log(search.high)
            if search is self.memories:  # a memory beyond the data is as good as forget = 1
                high = min(high, max(low, math.log(2.0 * len(self.problem.X))))
            axes.append(np.linspace(low, high, counts[id(search)]))
        mesh = np.stack(np.meshgrid(*axes, indexing="ij"), -1) if axes else np.empty((1, 0))
        shape = mesh.shape[:-1]
        flat = mesh.reshape(math.prod(shape), len(axes))
        heights = np.array([self.objective(*self.parameters_at(z)) for z in flat]).reshape(shape)
        lowest = np.ones(shape, bool)
        for axis in range(len(axes)):
            rows = np.moveaxis(heights, axis, 0)
            low = np.moveaxis(lowest, axis, 0)
            low[1:] &= rows[1:] <= rows[:-1]
            low[:-1] &= rows[:-1] <= rows[1:]
        order = np.argsort(np.where(lowest, heights, np.inf), axis=None, kind="stable")
        self._grid = [flat[i] for i in order[: int(lowest.sum())]]
        return self._grid

    def slope(self, z: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Compute the objective and its gradient in the coordinates."""
        forget, ridge = self.parameters_at(z)
        slopes = self.problem.slope(forget, ridge)
        # d forget / d log memory = 1 / memory; d ridge / d log ridge = ridge
        by = {
            id(self.memories): slopes.forget * (1 - forget),
            id(self.ridges): slopes.ridge * ridge,
        }
        gradient = np.array([by[id(search)] for search in self.free]) / (
            slopes.loss + self.rounding
        )
        if not np.isfinite(gradient).all():  # a system that is singular to rounding
            gradient = self._differences(z)
        return math.log(slopes.loss + self.rounding), gradient

    def _differences(self, z: NDArray) -> NDArray[np.float64]:
        """Approximate the gradient by central differences."""

        def objective(z: NDArray) -> float:
            return self.objective(*self.parameters_at(z))

        step = 1e-4 * np.eye(len(z))
        return np.array([(objective(z + s) - objective(z - s)) / 2e-4 for s in step])

    def descend(self, start: NDArray) -> tuple[tuple[float, float], bool]:
        """Descend from a start; return the end, never higher than the start, and whether it
        converged.
        """
        from scipy.optimize import minimize

        limits = [(math.log(search.low), math.log(search.high)) for search in self.free]
        result: Any = minimize(
            self.slope,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": 60, "ftol": 1e-12, "gtol": 1e-7},
        )
        end = self.parameters_at(result.x)
        fine = bool(result.success) or float(np.abs(result.jac).max(initial=0.0)) < 1e-4
        begin = self.parameters_at(start)
        if self.objective(*end) <= self.objective(*begin):
            return end, fine
        return begin, False

    def improve_along_curves(self, best: tuple[float, float]) -> tuple[float, float]:
        """Continue from lower points on the two curves through the best, while there are any.

        The curves are finer than the grid, and are reported in any case.
        """
        for _ in range(LOOKS):
            at, tried = SearchResult(*best, 0.0, (), ""), [best]
            for search, along in (
                (self.memories, losses_by_forget),
                (self.ridges, losses_by_ridge),
            ):
                if any(search is free for free in self.free):
                    tried += list(zip(*along(self.problem, search, at)[:2], strict=True))
            lower = min(((float(f), float(r)) for f, r in tried), key=lambda p: self.objective(*p))
            if self.objective(*lower) > self.objective(*best) - 1e-6:
                break
            memory, ridge = min(memory_of(lower[0]), self.memories.high), lower[1]
            by = {id(self.memories): memory, id(self.ridges): ridge}
            start = [math.log(min(max(by[id(r)], r.low), r.high)) for r in self.free]
            end, _ = self.descend(np.array(start))
            best = min(lower, end, key=lambda p: self.objective(*p))
        return best

    def finish(self, best: tuple[float, float], converged: bool) -> SearchResult:
        """Try the ends of the ranges, and describe in words where the smallest loss is."""
        for forgets_nothing, no_ridge in ((True, False), (False, True), (True, True)):
            if forgets_nothing and (not self.memories.limit or self.memories.fixed is not None):
                continue
            if no_ridge and (not self.ridges.limit or self.ridges.fixed is not None):
                continue
            place = 1.0 if forgets_nothing else best[0], 0.0 if no_ridge else best[1]
            if self.problem.loss(*place) <= self.problem.loss(*best) * (1 + SAME) + self.rounding:
                best = place
        if best[0] == 1 and best[1] > 0 and self.ridges.fixed is None and self.memories.limit:
            best = self._optimise_ridge(best)
        at_bound, words = self._describe_ends(*best)
        if not converged:
            words.append(
                "the search stopped before the slope was zero: look at .curve, or pass bounds"
            )
        return SearchResult(*best, self.problem.loss(*best), at_bound, "; ".join(words))

    def _optimise_ridge(self, best: tuple[float, float]) -> tuple[float, float]:
        """Optimise the ridge without forgetting, from the one found with a little forgetting."""
        if self.memories.fixed is not None:
            return best
        fixed = _Search(self.problem, self.memories._replace(fixed=1.0), self.ridges)
        if not fixed.free:
            return best
        end, _ = fixed.descend(np.log([np.clip(best[1], self.ridges.low, self.ridges.high)]))
        return end if self.problem.loss(*end) < self.problem.loss(*best) else best

    def _describe_ends(self, forget: float, ridge: float) -> tuple[tuple[str, ...], list[str]]:
        """Return the names of the parameters at an end of their range, and messages about them."""
        names, words = [], []
        if self.problem.loss(forget, ridge) <= self.rounding:
            words.append("the loss is zero to rounding: the rows do not say more")
        if self.memories.fixed is not None:
            words.append("forget was given")
        elif forget == 1:
            names.append("forget")
            words.append("forget = 1, an end of its range: the loss is least without forgetting")
        elif self._is_at_end(memory_of(forget), self.memories):
            names.append("forget")
            words.append(
                f"half_life is at an end of its range (forget = {forget:.6g}): "
                "the loss may be less beyond it"
            )
        if self.ridges.fixed is not None:
            words.append("ridge was given")
        elif ridge == 0:
            names.append("ridge")
            words.append("ridge = 0, an end of its range: the loss is least without a ridge")
        elif self._is_at_end(ridge, self.ridges):
            names.append("ridge")
            words.append("ridge is at an end of its range: the loss may be less beyond it")
        if not names and self.free:
            words.insert(0, "the loss is least inside both ranges")
        return tuple(names), words

    @staticmethod
    def _is_at_end(value: float, search: SearchRange) -> bool:
        return value <= search.low * (1 + 1e-6) or value >= search.high * (1 - 1e-6)


def losses_by_forget(
    problem: ForecastLoss, memories: SearchRange, at: SearchResult
) -> tuple[NDArray, ...]:
    """Return forgetting factors, ridges and losses along the forgetting factor."""
    high = min(memories.high, max(memories.low, 4.0 * len(problem.X)))
    grid = {forget_of(m) for m in np.geomspace(memories.low, high, CURVE_POINTS)}
    grid |= {at.forget} | ({1.0} if memories.limit else set())
    forgets = np.sort(list(grid))
    return forgets, np.full(forgets.shape, at.ridge), _losses(problem, forgets, at.ridge)


def losses_by_ridge(
    problem: ForecastLoss, ridges: SearchRange, at: SearchResult
) -> tuple[NDArray, ...]:
    """Return forgetting factors, ridges and losses along the ridge."""
    grid = set(np.geomspace(ridges.low, ridges.high, CURVE_POINTS).tolist())
    grid |= {at.ridge} | ({0.0} if ridges.limit else set())
    values = np.sort(list(grid))
    losses = np.array([problem.loss(at.forget, r) for r in values])
    return np.full(values.shape, at.forget), values, losses


def _losses(problem: ForecastLoss, forgets: NDArray, ridge: float) -> NDArray[np.float64]:
    return np.array([problem.loss(f, ridge) for f in forgets])
