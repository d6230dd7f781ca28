"""Least squares over the last rows of a stream."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import _rolling_kernels as kernels
from olsq.online import covariance, inputs
from olsq.online.base import Engine, StreamingRegressor
from olsq.online.covariance import CovarianceForm
from olsq.online.path import CoefficientPath
from olsq.online.rows import Rows, Trace
from olsq.online.square_root import SquareRootForm
from olsq.problem import check_choice

TOLERATED_ERROR = 1e-9  # bound on the accumulated relative error at which P is rebuilt


class RollingWindow:
    """The rows in the window and the solution for them, all in float64.

    ``form`` is a covariance form updated and downdated row by row while that is accurate, else a
    square-root form made anew from the window's rows.
    """

    reports_residuals = True
    ARRAYS = ("ring_X", "ring_Y", "ring_w", "place", "monitor", "ridge")

    def __init__(
        self, ring_X: NDArray, ring_Y: NDArray, ring_w: NDArray, place: NDArray, monitor: NDArray,
        ridge: NDArray, form: SquareRootForm | CovarianceForm,
    ) -> None:  # fmt: skip
        self.ring_X, self.ring_Y, self.ring_w = ring_X, ring_Y, ring_w
        self.place, self.monitor, self.ridge, self.form = place, monitor, ridge, form

    @classmethod
    def start(cls, window: int, ridge: NDArray, n_targets: int, intercept: bool) -> RollingWindow:
        d = ridge.shape[0]
        return cls(
            np.zeros((window, d)), np.zeros((window, n_targets)), np.zeros(window),
            np.zeros(2, np.int64), np.zeros(2), ridge,
            SquareRootForm.start(ridge, n_targets, np.float64, intercept),
        )  # fmt: skip

    def copy(self) -> RollingWindow:
        return copy.deepcopy(self)

    def rows(self) -> Rows:
        """The window's rows, oldest first."""
        count, slot = self.place
        order = (slot - count + np.arange(count)) % self.ring_w.size
        return Rows(self.ring_X[order], self.ring_Y[order], np.ones(count), self.ring_w[order])

    def update(self, rows: Rows, residual: NDArray, trace: Trace) -> None:
        t, n = 0, rows.X.shape[0]
        X, Y = rows.X.astype(np.float64, copy=False), rows.Y.astype(np.float64, copy=False)
        while t < n:
            form = self.form
            if isinstance(form, CovarianceForm):
                limits = form.limits.leverage, form.limits.inflation, TOLERATED_ERROR
                t, answer = kernels.update(
                    form.P, form.theta, form.columns, form.tally, form.loss, self.monitor,
                    self.ring_X, self.ring_Y, self.ring_w, self.place, X, Y, rows.weights, t, n,
                    limits, residual, trace.arrays,
                )  # fmt: skip
                if answer == kernels.REBUILD:
                    self.rebuild()
                    self._record(trace, t - 1)
            else:
                self._push_square_root(Rows(X, Y, rows.gates, rows.weights), t, residual, trace)
                t += 1

    def _push_square_root(self, rows: Rows, t: int, residual: NDArray, trace: Trace) -> None:
        """One row in the square-root form: absorbed while the window fills, else made anew."""
        form = self.form
        assert isinstance(form, SquareRootForm)
        row = Rows(*(a[t : t + 1] for a in rows))
        count, slot = self.place
        window = self.ring_w.size
        m, d = form.z.shape
        alone = Trace.empty(1, m, d) if trace.wanted else Trace.none(m, d)
        error = np.empty((1, m))
        self.ring_X[slot], self.ring_Y[slot], self.ring_w[slot] = rows.X[t], rows.Y[t], rows.weights[t]
        self.place[:] = min(count + 1, window), (slot + 1) % window
        form.update(row, 0, 1, error, alone)
        residual[t] = error[0]
        if trace.wanted:
            trace.recursive[t] = alone.recursive[0]
        if count == window:
            self.rebuild()
        elif count >= d and (count - d) % max(8, d // 8) == 0:
            self._adopt(form)
        self._record(trace, t)

    def rebuild(self) -> None:
        """Solve for the window's rows from nothing; covariance form if that is accurate."""
        rows = self.rows()
        n, (m, d) = rows.X.shape[0], (self.ring_Y.shape[1], self.ridge.size)
        form = SquareRootForm.start(self.ridge, m, np.float64, self.form.intercept)
        form.update(rows, 0, n, np.empty((n, m)), Trace.none(m, d))
        self._adopt(form)

    def _adopt(self, form: SquareRootForm) -> None:
        """Take over a square-root form, as a covariance form if that is accurate."""
        self.form = covariance.from_square_root(form) or form
        self.monitor[:] = 0.0, form.loss.max()

    def _record(self, trace: Trace, t: int) -> None:
        if trace.wanted:
            trace.coef[t] = self.form.coefficients()
            trace.variance[t] = self.form.inverse_diagonal()
            trace.loss[t] = self.form.loss
            trace.counts[t] = (*self.form.tally, self.form.rank)

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        own = {name: getattr(self, name) for name in self.ARRAYS}
        return own | {f"form_{k}": getattr(self.form, k) for k in self.form.ARRAYS}

    def describe(self) -> dict[str, Any]:
        return {"form": self.form.name, "arguments": {"intercept": self.form.intercept}}

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RollingWindow:
        kind: type[Any] = SquareRootForm if description["form"] == "sqrt" else CovarianceForm
        form = kind(**{k: arrays[f"form_{k}"] for k in kind.ARRAYS}, **description["arguments"])
        return cls(*(arrays[name] for name in cls.ARRAYS), form)


def merge(first: RollingWindow, second: RollingWindow) -> RollingWindow:
    """The window over first's rows and then second's."""
    window = first.ring_w.size
    both = [np.concatenate(pair)[-window:] for pair in zip(first.rows(), second.rows(), strict=True)]
    count = both[0].shape[0]
    merged = RollingWindow.start(window, first.ridge, first.ring_Y.shape[1], first.form.intercept)
    merged.ring_X[:count], merged.ring_Y[:count] = both[0], both[1]
    merged.ring_w[:count] = both[3]
    merged.place[:] = count, count % window
    merged.rebuild()
    return merged


class RollingLeastSquares(StreamingRegressor):
    """Least squares over the last ``window`` rows of a stream, solved again after every row.

    Parameters
    ----------
    window : int, default 250
        Rows that count.  Skipped rows do not enter the window.
    min_samples : int, optional
        Below that many rows in the window there is no estimate: ``predict`` and the attributes
        raise NotFittedError, rows of a path are NaN.  Default 1: minimum norm until determined.
    ridge : float or array (d,), default 1e-3
        Penalty on the squared coefficients, never on the intercept; 0 for ordinary least squares.
    fit_intercept : bool, default True
    missing : {"skip", "raise"}
        What to do with a row that has a non-finite value.

    Attributes
    ----------
    coef_, intercept_, residual_, sigma2_, coef_stderr_, intercept_stderr_, rank_, determined_
        As in :class:`RecursiveLeastSquares`, for the rows in the window.
    n_samples_seen_ : int
        All rows learnt, not only those in the window.

    Notes
    -----
    O(d^2 + m d) time per row; O(window (d + m) + d^2) memory; computed in float64 whatever the
    dtype of X.  Each row is added by a rank-one update and the oldest removed by a downdate; a
    running bound on the error of both triggers a rebuild from the window's rows (O(window d^2))
    before 1e-9 is reached, so that the estimate never drifts.  Where the window's regressors are
    undetermined or nearly collinear, every row is such a rebuild, by orthogonal rotations.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> x = np.arange(400.0)[:, None] % 7
    >>> y = np.where(np.arange(400) < 200, 1.0, 3.0) * x[:, 0]
    >>> est = olsq.RollingLeastSquares(window=100, ridge=0.0).fit(x, y)
    >>> float(est.coef_[0].round(6))
    3.0
    """

    def __init__(
        self,
        window: int = 250,
        min_samples: int | None = None,
        *,
        ridge: Any = 1e-3,
        fit_intercept: bool = True,
        missing: str = "skip",
    ) -> None:
        self.window = window
        self.min_samples = min_samples
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.missing = missing

    def _check_parameters(self) -> None:
        check_choice(self.missing, "missing", ("skip", "raise"))
        for name, value in (("window", self.window), ("min_samples", self.min_samples)):
            if value is None and name == "min_samples":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a positive whole number of rows, got {value!r}")
        if self.min_samples is not None and self.min_samples > self.window:
            raise ValueError(
                f"min_samples ({self.min_samples}) must not exceed window ({self.window})"
            )

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        if forget is not None and not np.all(np.asarray(forget) == 1):
            raise ValueError("a rolling window does not forget gradually: leave forget out")
        return np.ones(n_rows)

    def _start(self, ridge: NDArray, n_targets: int, dtype: np.dtype) -> Engine:
        return RollingWindow.start(int(self.window), ridge, n_targets, bool(self.fit_intercept))

    def _restore_engine(self, description: dict[str, Any], arrays: dict[str, NDArray]) -> Engine:
        return RollingWindow.restore(description, arrays)

    def _form(self) -> Any:
        form = super()._form()
        count = int(self._engine.place[0])
        if count < (self.min_samples or 1):
            raise inputs.not_fitted(
                self, f"{count} of min_samples={self.min_samples} rows seen: no estimate yet"
            )
        return form

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        Rows before ``min_samples`` are NaN in everything but ``residual``.
        """
        before = int(self._engine.place[0]) if hasattr(self, "_engine") else 0
        seen = self.n_samples_seen_ if hasattr(self, "_engine") else 0
        path = super().partial_fit_path(X, y, sample_weight, forget=forget)
        need = (self.min_samples or 1) - before
        if need > 1 and self.n_samples_seen_ > seen:
            used = np.cumsum(np.isfinite(path.residual.reshape(path.residual.shape[0], -1)[:, 0]))
            for array in (path.coef, path.intercept, path.sigma2, path.stderr, path.intercept_stderr):
                array[used < need] = np.nan
        return path
