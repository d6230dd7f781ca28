"""Least squares over the last rows of a stream."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from olsq.checks import check_choice
from olsq.online import inputs
from olsq.online import rolling_kernels as kernels
from olsq.online.base import StreamingRegressor
from olsq.online.conventions import MISSING
from olsq.online.forms import covariance, kinds
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.limits import DOUBLE, state_dtype_name
from olsq.online.forms.rows import Rows, Trace, clip_to
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import COUNT
from olsq.online.learning import Origin
from olsq.online.path import CoefficientPath
from olsq.online.reading import locked
from olsq.reals import real_array

TOLERATED_ERROR = 1e-10  # bound on P's accumulated relative error at which it is rebuilt
TOLERATED_ROUNDINGS = 4000  # the same for the square-root form, in units of the rounding error


class RollingWindow:
    """The rows in the window and the solution for them, all in float64.

    ``form`` is updated and downdated row by row: a covariance form where that is accurate, else a
    square-root form; where coefficients are undetermined it is made anew from the window's rows.
    """

    ARRAYS = ("ring_X", "ring_Y", "ring_w", "place", "monitor", "ridge")
    PER_TARGET: ClassVar[dict[str, int]] = {"ring_Y": 1}

    def __init__(
        self, ring_X: NDArray, ring_Y: NDArray, ring_w: NDArray, place: NDArray, monitor: NDArray,
        ridge: NDArray, form: SquareRootForm | CovarianceForm,
    ) -> None:  # fmt: skip
        self.ring_X, self.ring_Y, self.ring_w = ring_X, ring_Y, ring_w
        self.place, self.monitor, self.ridge, self.form = place, monitor, ridge, form

    @classmethod
    def start(
        cls, window: int, ridge: NDArray, n_targets: int, intercept: bool,
        precision: tuple[str, str] = DOUBLE, stored: DTypeLike = np.float64,
        positions: bool = False,
    ) -> RollingWindow:  # fmt: skip
        d = ridge.shape[0]
        return cls(
            np.zeros((window, d), stored), np.zeros((window, n_targets), stored), np.zeros(window),
            np.array([0, 0, int(positions)]), np.zeros(2), ridge,
            SquareRootForm.start(ridge, n_targets, intercept, precision),
        )  # fmt: skip

    @property
    def positions(self) -> bool:
        """Whether a row of weight 0 takes a place in the window."""
        return bool(self.place[kernels.POSITIONS])

    def copy(self) -> RollingWindow:
        return copy.deepcopy(self)

    def rows(self) -> Rows:
        """The window's rows, oldest first."""
        count, slot, _ = self.place
        order = (slot - count + np.arange(count)) % self.ring_w.size
        X, Y = (a[order].astype(np.float64, copy=False) for a in (self.ring_X, self.ring_Y))
        return Rows(X, Y, np.ones(count), self.ring_w[order])

    def update(self, rows: Rows, residual: NDArray, trace: Trace) -> None:
        n = rows.X.shape[0]
        if self.ring_X.dtype != np.float64:  # what leaves the window must be what entered it
            X, Y = (clip_to(a, self.ring_X.dtype).astype(np.float64) for a in rows[:2])
            rows = rows._replace(X=X, Y=Y)
        ring = self.ring_X, self.ring_Y, self.ring_w, self.place
        t = 0
        while t < n:
            form = self.form
            data = (*ring, rows.X, rows.Y, rows.weights, t, n)
            if isinstance(form, CovarianceForm):
                limits = form.limits.leverage, form.limits.inflation, TOLERATED_ERROR
                t, answer = kernels.update(
                    form.P, form.theta, form.columns, form.tally, form.loss, self.monitor, *data,
                    limits, residual, trace.arrays,
                )  # fmt: skip
            elif self.place[kernels.FILLED] < self.ring_w.size:
                t, answer = self._fill(form, rows, t, residual, trace), kernels.DONE
            elif form.full_rank:
                t, answer = kernels.update_square_root(
                    form.R, form.z, form.columns, form.tally, form.loss, self.monitor, *data,
                    self._tolerated_roundings, residual, trace.arrays,
                )  # fmt: skip
            else:
                self._absorb(form, rows, t, t + 1, residual, trace)
                t, answer = t + 1, kernels.REBUILD
            if answer == kernels.REBUILD:
                self.rebuild()
                if trace.wanted:
                    trace.write(t - 1, self.form)

    @property
    def _tolerated_roundings(self) -> float:
        # A rebuild costs as much as a window of rows: no more than one in four windows for it.
        return max(TOLERATED_ROUNDINGS, 8 * self.ring_w.size) * float(np.finfo(np.float64).eps)

    def _fill(
        self, form: SquareRootForm, rows: Rows, t: int, residual: NDArray, trace: Trace
    ) -> int:
        """Absorb rows while the window fills, up to the next attempt at the covariance form."""
        d, count = self.ridge.size, int(self.place[kernels.FILLED])
        step = max(8, d // 8)
        attempt = max(d + step, (count // step + 1) * step)
        stop = min(rows.X.shape[0], t + min(attempt, self.ring_w.size) - count)
        self._absorb(form, rows, t, stop, residual, trace)
        if self.place[kernels.FILLED] == attempt:
            self._adopt(form)
        return stop

    def _absorb(
        self, form: SquareRootForm, rows: Rows, t: int, stop: int, residual: NDArray, trace: Trace
    ) -> None:
        """Rows t..stop into the form and the ring; none leaves the form."""
        form.update(rows, t, stop, residual, trace)
        count, slot, _ = self.place
        kept = np.arange(t, stop)
        if not self.positions:
            kept = kept[rows.weights[t:stop] > 0]
        slots = (slot + np.arange(kept.size)) % self.ring_w.size
        self.ring_X[slots], self.ring_Y[slots] = rows.X[kept], rows.Y[kept]
        self.ring_w[slots] = rows.weights[kept]
        self.place[:2] = (
            min(count + kept.size, self.ring_w.size),
            (slot + kept.size) % self.ring_w.size,
        )

    def rebuild(self) -> None:
        """Solve for the window's rows from nothing; covariance form if that is accurate."""
        rows = self.rows()
        n, (m, d) = rows.X.shape[0], (self.ring_Y.shape[1], self.ridge.size)
        form = SquareRootForm.start(self.ridge, m, self.form.intercept, self.form.precision)
        form.update(rows, 0, n, np.empty((n, m)), Trace.none(m, d))
        self._adopt(form)

    def _adopt(self, form: SquareRootForm) -> None:
        """Take over a square-root form, as a covariance form if that is accurate."""
        # Accurate means: a whole window of rows fits into the tolerated error.
        per_window = 4 * self.ring_w.size * float(np.finfo(np.float64).eps)
        margin = max(16.0, form.limits.inflation * per_window / TOLERATED_ERROR)
        self.form = covariance.from_square_root(form, margin) or form
        self.monitor[:] = 0.0, form.loss.max()

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        own = {name: getattr(self, name) for name in self.ARRAYS}
        return own | {f"form_{name}": array for name, array in self.form.arrays().items()}

    def describe(self) -> dict[str, Any]:
        return self.form.describe()

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RollingWindow:
        own = {name.removeprefix("form_"): array for name, array in arrays.items()}
        form: Any = kinds.restore(description, own)
        return cls(*[arrays[name] for name in cls.ARRAYS], form=form)


def merge(first: RollingWindow, second: RollingWindow) -> RollingWindow:
    """The window over first's rows and then second's."""
    window = first.ring_w.size
    both = [
        np.concatenate(pair)[-window:] for pair in zip(first.rows(), second.rows(), strict=True)
    ]
    count = both[0].shape[0]
    merged = RollingWindow.start(
        window, first.ridge, first.ring_Y.shape[1], first.form.intercept, first.form.precision,
        first.ring_X.dtype, first.positions,
    )  # fmt: skip
    merged.ring_X[:count], merged.ring_Y[:count] = both[0], both[1]
    merged.ring_w[:count] = both[3]
    merged.place[:2] = count, count % window
    merged.rebuild()
    return merged


class RollingLeastSquares(StreamingRegressor):
    """Least squares over the last ``window`` rows of a stream, solved again after every row.

    Parameters
    ----------
    window : int, default 250
        Length of the window.
    min_samples : int, optional
        Below that many samples in the window there is no estimate: ``predict`` and the attributes
        raise NotFittedError, rows of a path are NaN.  Default 1: minimum norm until determined.
    ridge : float or array (d,), default 1e-3
        Penalty on the squared coefficients, never on the intercept; 0 for ordinary least squares.
    fit_intercept : bool, default True
    missing : {"skip", "raise", "skip_target"}
        What to do with a row that has a non-finite value; see :class:`RecursiveLeastSquares`.
    window_of : {"samples", "positions"}, optional
        What ``window`` counts.  "samples": rows that can be learnt; one with a missing value or of
        weight 0 is passed over, so the window reaches back to the last ``window`` usable rows.
        "positions": all rows; such a row takes a place and is empty, so the window is the last
        ``window`` periods, as in pandas' ``rolling(window)``, R's ``rollapply`` and statsmodels'
        ``RollingOLS(missing="drop")``.  Default: "positions" if X or y of the first call has an
        index of its own (pandas), else "samples".  Rows of weight 0 never count as samples.
    state_dtype : {"float64", "float32"}
        In what the window's rows are kept; "float32" halves the memory, loses nothing of float32
        rows, and rounds float64 rows as they come in.  The solution is in float64 either way.

    Attributes
    ----------
    coef_, intercept_, residual_, sigma2_, coef_stderr_, intercept_stderr_, rank_, determined_
        As in :class:`RecursiveLeastSquares`, for the rows in the window.
    n_samples_seen_ : int
        All samples learnt, not only those in the window.

    Notes
    -----
    O(d^2 + m d) time per row; O(window (d + m) + d^2) memory; computed in float64 whatever the
    dtype of X.  Each row is added by a rank-one update and the oldest removed by a downdate; a
    running bound on the error of both triggers a rebuild from the window's rows (O(window d^2)),
    so that the estimate never drifts.  Nearly collinear windows are kept in square-root form
    (several times slower); where coefficients are undetermined every row is a rebuild.

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
        state_dtype: Any = "float64",
        window_of: str | None = None,
    ) -> None:
        self.window = window
        self.min_samples = min_samples
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.missing = missing
        self.state_dtype = state_dtype
        self.window_of = window_of

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"min_samples", "missing"})
    ENGINE = RollingWindow

    def _check_parameters(self) -> None:
        check_choice(self.missing, "missing", MISSING)
        if self.window_of is not None:
            check_choice(self.window_of, "window_of", ("samples", "positions"))
        state_dtype_name(self.state_dtype)
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
        if forget is not None and not np.all(real_array(forget, "forget") == 1):
            raise ValueError("a rolling window does not forget gradually: leave forget out")
        return np.ones(n_rows)

    def _start(self, origin: Origin) -> RollingWindow:
        stored = state_dtype_name(self.state_dtype)
        coarse = "float32" if "float32" in (stored, origin.dtype.name) else "float64"
        return RollingWindow.start(
            int(self.window), origin.ridge, origin.columns, origin.intercept, ("float64", coarse),
            stored, self.window_of == "positions" or (self.window_of is None and origin.in_time),
        )  # fmt: skip

    @property
    def _fewest(self) -> int:
        return self.min_samples or 1

    def _form(self) -> Any:
        form = super()._form()
        count = min(int(f.tally[COUNT]) for f in self._engine.forms)
        if count < self._fewest:
            raise inputs.not_fitted(
                self, f"{count} of min_samples={self._fewest} rows seen: no estimate yet"
            )
        return form

    def _log_weight_sums(self) -> NDArray[np.float64]:
        sums = np.zeros(self._origin.columns)
        for targets, engine in self._engine.groups:
            weights = engine.rows().weights
            sums[targets] = np.log(weights[weights > 0]).sum()
        return sums

    def _log_weights_after(self, *_: Any, **__: Any) -> None:
        """The window's rows are there: nothing to carry along."""

    @locked
    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        Rows with fewer than ``min_samples`` samples in their window are NaN in everything but the
        residuals.
        """
        return super().partial_fit_path(X, y, sample_weight, forget=forget)
