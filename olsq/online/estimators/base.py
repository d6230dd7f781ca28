"""The base class of the estimators: check a call, absorb its rows, commit the new state last."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag
from olsq.arrays.reals import real_array
from olsq.online.calls import one_row
from olsq.online.calls.checked import check_once, checked_now
from olsq.online.calls.history import values_after_call
from olsq.online.calls.learning import Absorbed, absorb
from olsq.online.estimators.checking import CheckedCalls
from olsq.online.estimators.state import RowsLearned
from olsq.online.files.frozen import Unchanged
from olsq.online.forms.counting import learn_logs
from olsq.online.forms.rows import Rows, Trace, read_only
from olsq.online.paths.collector import RobustErrors, combine_path
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.frames import Labels
from olsq.online.rows.options import check_weight_of_row
from olsq.online.rows.times import named_times, with_times
from olsq.threads import threads_for


class StreamingRegressor(CheckedCalls):
    """Base of the estimators; subclasses define the parameters, ``_start`` and ``_gates``."""

    ROW_BY_ROW: ClassVar[bool] = False  # whether :meth:`_learn_row` may take a row
    RESIDUALS: ClassVar[bool] = True  # whether learning a row gives its a-priori residual

    # -- learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        times: Any = None,
    ) -> Self:
        """Forget everything and learn the rows of X, y in order.

        Parameters
        ----------
        X : array or frame (n, d)
        y : array or series (n,), or array or frame (n, m)
        sample_weight : array (n,), optional
        times : array (n,), optional
            See :meth:`partial_fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As :meth:`partial_fit`; also if no row is left to learn from.  An estimator that was
            fitted before is unchanged then.
        """
        self._learn(X, y, sample_weight, None, times, restart=True, want_path=False)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
        times: Any = None,
    ) -> Self:
        """Learn the rows of X, y in order, after everything learned before.

        Parameters
        ----------
        X : array (n, d)
            Regressors; n may be 0.  The first call decides the dtype of what comes out: float32
            for float32, otherwise float64.  All is computed in float64, a block of rows at a time.
            A first call may hold no row that can be learned, or no row at all: the estimator is
            fitted then, and what it predicts is its prior, or 0.
        y : array (n,) or (n, m)
        sample_weight : array (n,), optional
            Weights >= 0.  A row of weight 0 is not learned, but forgetting goes on; a missing
            weight (NaN) is a missing value.
        forget : float or array (n,), optional
            Forgetting factors for these rows instead of the estimator's own.
        times : array, series or index (n,), optional
            When the rows were, for a window or half-life that is a length of time: dates, or
            numbers if the length is one; none missing, none before the one before it (several rows
            may be at one time), also across calls.  Dates all have a time zone, or all have none;
            lengths of time since an origin (timedelta64) do in their place.
            Default: the index of X, or else of y, if it is one of dates.  Or the name of a level of
            that index (pandas).

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad shapes, values out of range, times that are missing, go back or are not called
            for, non-finite rows under ``missing="raise"``; for a
            parameter that is no longer what the state was made with (only ``forget``,
            ``half_life``, ``missing`` and ``min_samples`` may change between rows, ``missing`` not
            to or from "skip_target").  All checks come first: after an error the state is what it
            was.
        """
        if sample_weight is None and forget is None and times is None:
            with self._locked():
                if one_row.learn(self, X, y, predicts=False) is not None:
                    return self
        self._learn(X, y, sample_weight, forget, times, restart=False, want_path=False)
        return self

    def step(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: float | None = None,
        time: Any = None,
        return_std: bool = False,
    ) -> tuple[Any, ...]:
        """Predict one row, then learn it, as :meth:`predict` and :meth:`partial_fit` do.

        Parameters
        ----------
        x : array (d,) or (1, d)
        y : number, or array (m,) with several targets
        sample_weight : number, optional
            Weight >= 0 of the row; see :meth:`partial_fit`.
        time : date or number, optional
            When it was, for a window or half-life in time; see :meth:`partial_fit`.
        return_std : bool, default False
            Whether to return the standard deviation of the prediction's error too, as
            :meth:`predict` does, for an observation of this ``sample_weight``.

        Returns
        -------
        prediction : number or array (m,)
            Made before the row is learned; 0, or the prior's, while there is no estimate.  NaN
            where x has a missing value.
        residual : number or array (m,)
            ``y - prediction``; NaN where the row cannot be learned.
        std : number or array (m,)
            Only with ``return_std``: known before the row is learned; inf while rows before do not
            determine it.

        Raises
        ------
        ValueError, TypeError
            As :meth:`partial_fit`.

        Notes
        -----
        The fastest way to feed a stream row by row, in float64 arrays: some microseconds more than
        the O(d^2) of the arithmetic.  Feeding many rows per call is faster still.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False, ridge=1.0)
        >>> est.step(np.array([1.0]), 2.0)
        (0.0, 2.0)
        >>> est.step(np.array([1.0]), 2.0)
        (1.0, 1.0)
        """
        X = x[None] if type(x) is np.ndarray and x.ndim == 1 else np.atleast_2d(x)
        fitted = "_origin" in self.__dict__
        if type(x) is not np.ndarray:
            inputs.check_row_names(x, getattr(self, "feature_names_in_", None))
        several = self._origin.n_targets > 0 if fitted else np.size(y) > 1
        Y = np.array(y, ndmin=2 if several else 1, subok=True)
        if X.shape[0] != 1 or Y.shape[0] != 1:
            raise ValueError(
                f"step takes one row, got x of shape {np.shape(x)} and y of shape {np.shape(y)}"
            )
        if return_std is not False and check_flag("return_std", return_std):
            with self._locked():
                weight = check_weight_of_row(sample_weight)
                deviation = self._deviation_before(X, weight)
                deviation = np.full(np.shape(Y[0]), deviation)
                learned = self.step(x, y, sample_weight=sample_weight, time=time)
                return (*learned, deviation if several else deviation.item())
        with self._locked():
            short = one_row.learn(self, X, Y, sample_weight) if time is None else None
            if short is not None:
                return short[0], (short[1][0].copy() if several else short[1].item())
            has_estimate = self._has_estimate()
            if has_estimate:
                before = self._predict_or_zero(X)
            else:
                row = complex_rows.complex_array(X, "x") if self._sees_complex(X, Y) else None
                row = real_array(X, "x") if row is None else row
                zero = row.dtype.type(0.0 if np.isfinite(row).all() else np.nan)
                before = np.full(np.shape(Y[0]), zero)
            weight = check_weight_of_row(sample_weight)
            is_complex = self._sees_complex(X, Y)
            truth = complex_rows.complex_array(Y, "y") if is_complex else real_array(Y, "y")
            self.partial_fit(X, Y, weight, times=None if time is None else [time])
            keeps_residual = has_estimate and self._residual is not None
            first = np.where(np.isfinite(truth[0]), truth[0] - before, np.nan)
            residual = self.residual_[0] if keeps_residual else first
            if several and keeps_residual and self._engine.parting:  # some had no estimate yet
                residual = np.where(before == 0, first, residual)
            if weight is not None and np.isnan(weight):
                residual = np.full_like(residual, np.nan)
        return (before, residual) if several else (before.item(), residual.item())

    def _deviation_before(self, X: Any, sample_weight: Any) -> Any:
        """Return the standard deviation of the observation that a row X (1, d) comes with."""
        raise TypeError(f"{type(self).__name__} has no standard deviations: leave return_std out")

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
        times: Any = None,
        statistics: bool = True,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        ``statistics=False`` leaves out noise variances and standard errors, which read NaN then.

        Returns
        -------
        CoefficientPath
            O(n d) memory, for these rows only.
        """
        statistics = check_flag("statistics", statistics)
        options = {"forget": forget, "times": times, "statistics": statistics}
        return self._path(X, y, sample_weight, **options)

    def _path(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        forget: Any,
        times: Any,
        **options: Any,
    ) -> CoefficientPath:
        """Learn, and return the path; ``options`` as of :meth:`_learn`."""
        labels, times = Labels.of(X, y), named_times(times, X, y)
        path = self._learn(
            X,
            y,
            sample_weight,
            forget,
            times,
            restart=False,
            want_path=True,
            **options,
        )
        assert path is not None
        return path.labelled(self._labels(with_times(labels, times)))

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        forget: Any,
        times: Any,
        *,
        restart: bool,
        want_path: bool,
        statistics: bool = True,
        robust: RobustErrors | None = None,
    ) -> CoefficientPath | None:
        with self._locked():
            times = named_times(times, X, y)
            fitted = not restart and hasattr(self, "_engine")
            checked = check_once(self) if fitted else None
            if checked is None:
                unchanged = Unchanged.of(self, None)
                self._check_parameters()
            else:
                unchanged = checked.unchanged
            call = self._check_call(X, y, sample_weight, forget, checked)
            if restart:
                inputs.check_size(call.X.shape, self, None, allow_empty=False)
            if restart and call.nothing_usable:
                raise inputs.no_usable_row(call.Y)
            timing = None
            if times is not None or checked is None or checked.factor is None:
                call, timing = self._in_time(call, times, X, y, forget, fitted)
            labels = Labels.of(X, y) if self._frames_out else None
            if restart and not call.weights.any():
                raise ValueError("sample_weight is zero in every row; no row is left to learn from")
            if checked is not None:
                origin, samples, engine = checked.origin, self.n_samples_seen_, self._engine
                # A copy learns the rows, so that an interrupt cannot leave half an update behind.
                # The copy of a large state would take longer than a few rows.
                if engine.parting or len(call.Y) > engine.engine.rows_in_place:
                    engine = engine.copy()
            else:
                origin, samples = self._origin_of(call), 0
                engine = self._engine_of(origin)
            noise = self._known_noise(origin) if checked is None else checked.noise
            values = self._constant_values if fitted else self._no_values()
            # Rows before the first row of a complex one's pair, which is shown with the second.
            fewest = max(2 * self._fewest - 1, 0) if origin.is_complex else self._fewest
            with threads_for(len(call.X), max(call.X.shape[1], self._columns())):
                absorbed = absorb(
                    engine,
                    call,
                    origin,
                    began=fitted,
                    want_path=want_path,
                    fewest=fewest,
                    noise=noise if statistics else None,
                    constant_values=values,
                    robust=robust,
                )
            values = values_after_call(values, call)
            logs = self._log_weights_after(absorbed, began=fitted, weighted=sample_weight)
            has_residuals = want_path or engine.form.reports_residuals
            residual, path = absorbed.residual if has_residuals else None, absorbed.path
            if origin.is_complex:
                residual = None if residual is None else complex_rows.combine_rows(residual)
                path = None if path is None else combine_path(path, origin.first)
            after: RowsLearned = {
                "_residual": residual,
                "n_samples_seen_": samples + call.n_samples,
                "_log_weights": logs,
                "_timing": timing,
                "_constant_values": values,
            }
            if timing is None and fitted and self._timing is not None:  # rows count again
                state: Any
                for _, state in absorbed.engine.groups:
                    state.span = None
            if fitted:
                self.__dict__.update(after, _engine=absorbed.engine)
            else:
                self._settle(origin, absorbed.engine, **after)
            if labels is not None:
                self._labelled_residual = residual, labels
            if checked is None or checked.timed is (timing is None):
                unchanged = unchanged._replace(state=self._origin)
                self._checked_parameters = checked_now(self, unchanged)
            return path

    def _learn_row(
        self, rows: Rows, errors: NDArray, *, predicts: bool
    ) -> tuple[Any, NDArray] | None:
        """Learn one checked row (a pair, of complex rows) in a state that has begun.

        Returns what was predicted and the a-priori residual, one row each; the prediction may be
        anything unless it is asked for.  ``errors`` (1, m), or (2, m), are NaN until the engine has
        learned the row.  None where the row has to go the general way, with nothing changed.
        """
        engine = self._engine.groups[0].engine
        if engine.learns_in_steps(rows.gates.item(0)):
            return None
        engine.update(rows, errors, Trace.none(rows.Y.shape[1], rows.X.shape[1]))
        return (rows.Y - errors if predicts else None), errors

    def _log_weights_after_row(
        self, gate: float, weight: float | None
    ) -> NDArray[np.float64] | None:
        """Return what :meth:`_log_weights_after` does, for one row that all targets have."""
        return self._log_weight_sums() * gate + (0.0 if weight is None else math.log(weight))

    def _log_weights_after(
        self, absorbed: Absorbed, *, began: bool, weighted: Any
    ) -> NDArray[np.float64] | None:
        """Return the forgotten sum of the logarithms of the weights (m,); None while all were 1."""
        if weighted is None and not (began and self._log_weights is not None):
            return None
        before = self._log_weight_sums() if began else np.zeros(absorbed.residual.shape[1])
        after = before.copy()
        for (targets, _), call in zip(absorbed.engine.groups, absorbed.calls, strict=True):
            usable = slice(None) if call.usable is None else call.usable
            rows = (
                read_only(np.ascontiguousarray(a[usable])) for a in (call.factors, call.weights)
            )
            gates, weights = rows
            none = np.zeros(len(targets), np.int64)
            learn_logs(after, (np.asarray(targets), none, none + len(gates)), gates, weights)
        return after
