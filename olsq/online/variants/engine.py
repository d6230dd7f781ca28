"""The state of the variants, the solution last read from it, and paths of solutions.

A path needs a solution after every row, in one compiled loop where possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import form_switch
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.rows import Rows, Trace
from olsq.online.paths.arrays import predict_each
from olsq.online.paths.path import CoefficientPath
from olsq.online.variants.steps import ABSORBED, DONE


class VariantSwitch(FormSwitch):
    """A state that remembers the last solution: the next search starts there.

    ``solution`` is a cache (what it was read for, what was read).  A solution depends on the state
    and the parameters alone, not on where its search began, except where rounding decides:
    :class:`ConstrainedLeastSquares` writes it to its file.  ``fresh`` says whether it is of the
    state as it is now.
    """

    solution: tuple[Any, Any] | None = None
    fresh = False
    recorder: Any = None  # of the call that wants a solution after every row

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        self.fresh = False
        if self.recorder is None:
            super().update(rows, residual, trace, times)
        else:
            self.recorder.learn(self, rows, residual)

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        """Return the state of this one's rows followed by other's."""
        both = form_switch.merge(self, other, ridge, half_life)
        return type(self)(both.form, both.span)


# (engine, rows, first row, residuals (n, m), solutions (n, m, k)) -> how the walk ended and where.
Walk = Callable[[Any, Rows, int, NDArray, NDArray], tuple[int, int]]


class Recorder:
    """Solves after every row that the engines of one call learn, and keeps the solutions (n, m, k).

    ``walk`` is the compiled loop, ``solve`` the coefficients (m, k) of an engine.  Engines are
    copied while a call runs; what they record goes to one recorder, which is not.
    """

    def __init__(self, walk: Walk, solve: Callable[[Any], NDArray]) -> None:
        self.walk, self.solve = walk, solve
        self.size = 0  # k, which the first rows decide
        self.call: Any = None  # the rows, checked
        self.found: dict[int, list[NDArray]] = {}

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def learn(self, engine: Any, rows: Rows, residual: NDArray) -> None:
        """Let an engine learn the rows, one by one."""
        form = engine.form
        (n, m), d = residual.shape, rows.X.shape[1]
        out, t, none = np.empty((n, m, self.size)), 0, Trace.none(m, d)
        while t < n:
            ended, t = self.walk(engine, rows, t, residual, out)
            if ended == DONE:
                break
            if ended != ABSORBED:
                form.update(rows, t, t + 1, residual, none)
            engine.fresh = False
            out[t] = self.solve(engine)
            t += 1
        engine.fresh = False
        self.found.setdefault(id(engine), []).append(out)

    def path(self, groups: Any, before: NDArray, intercept: bool, dtype: Any) -> CoefficientPath:
        """Return the path of the call after the coefficients ``before`` (m, k).

        A row that was not learned has the coefficients before it.
        """
        X, Y, usable = self.call.X, self.call.Y, self.call.usable
        if usable is None:
            usable = np.ones(len(X), np.bool_)
        theta = np.empty((len(X), *before.shape))
        for targets, engine in groups:
            rows = usable if usable.ndim == 1 else usable[:, targets[0]]
            every = np.concatenate([before[targets][None], *self.found.get(id(engine), [])])
            theta[:, targets] = every[np.cumsum(rows)]
        path = path_of(theta, before, X, Y, intercept, dtype)
        path.residual[~usable] = np.nan
        if not self.call.one_target:
            return path
        return path.each(lambda array: array[:, 0])


def path_of(
    theta: NDArray, before: NDArray, X: NDArray, Y: NDArray, intercept: bool, dtype: Any
) -> CoefficientPath:
    """Build the path of coefficients theta (n, m, k) after ``before`` (m, k), with its residuals.

    There are no standard errors of them: the fields that say how sure least squares is are NaN.
    """
    first = int(intercept)
    last = np.concatenate([before[None], theta[:-1]]) if len(theta) else theta
    before_row = last[:, :, 0] if intercept else 0.0
    predicted = predict_each(last[:, :, first:], before_row, X)
    unknown = np.full(Y.shape, np.nan)
    columns = theta.astype(dtype), np.full(theta.shape, np.nan)
    constants = (Y - predicted).astype(dtype), unknown, unknown.copy()
    path = CoefficientPath.of_columns(columns, intercept, *constants)
    return path._replace(intercept_stderr=unknown.copy())
