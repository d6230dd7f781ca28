"""The estimator RollingLeastSquares: the last rows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice, check_flag, check_rows_held, is_integer, shown
from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Origin
from olsq.online.conventions import locked
from olsq.online.estimators.inference import Inference
from olsq.online.forms.form import Form
from olsq.online.inference.robust import errors_in_window
from olsq.online.parameters import WindowParameters
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import inputs
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.durations import (
    NUMBERS,
    Duration,
    any_duration,
    half_life_duration,
    is_window_of_time,
)
from olsq.online.rows.options import forget_or_half_life
from olsq.online.windows.window import RollingWindow


class RollingLeastSquares(WindowParameters, Inference):
    """Least squares over the last ``window`` rows of a stream, solved again after every row.

    Parameters
    ----------
    window : int, float, str or timedelta, default 250
        Length of the window: a whole number of rows; or a time, text such as "90D", "36h" or
        "15min", a timedelta, or with ``times`` that are numbers a float in their unit.  A window of
        time holds the rows in ``(t - window, t]``, t the time of the last row, as pandas'
        ``rolling("90D")`` does (numbers to four roundings: times 0.1 apart put three rows into
        a window of 0.3, always); months and years have no fixed length and are refused.
    min_samples : int, optional
        Below that many samples in the window there is no estimate: ``predict`` and the attributes
        raise NotFittedError, rows of a path are NaN.  Default 1: minimum norm until determined.
        With ``missing="skip_target"`` a target with fewer samples is NaN (rank 0), and the others
        are not.
    ridge : float or array (d,), default 0
        Penalty on the squared coefficients, never on the intercept, in units of the regressors
        squared; 0 for ordinary least squares.
    fit_intercept : bool, default True
    missing : {"skip", "raise", "skip_target"}
        What to do with a row that has a non-finite value; see :class:`RecursiveLeastSquares`.
    window_of : {"samples", "positions"}, optional
        What ``window`` counts.  "samples": rows that can be learned; one with a missing value or of
        weight 0 is passed over, so the window reaches back to the last ``window`` usable rows.
        The default, for data of every kind: every window determines as many coefficients as the
        one before, and a half-life counts the same rows.  "positions": all rows; such a row counts
        but is not learned, so the window is the last ``window`` periods, as in pandas'
        ``rolling(window)``, R's ``rollapply`` and statsmodels' ``RollingOLS(missing="drop")``.
        Not for windows of time: there a row that cannot be learned only moves the window on.
    noise_variance : float or array (m,), optional
        The variance of the noise, where it is known; see :class:`RecursiveLeastSquares`.
    forget : float or array (n,), default 1
        Forgetting factor in [0, 1] inside the window: row i weighs its weight times the product of
        the factors after i while it is inside, and nothing afterwards.  A 0 empties the window.  An
        array gives one factor for each row of every call.
    half_life : float, str or timedelta, optional
        Instead of ``forget``: the number of samples after which a weight has halved, or a time,
        text such as "20D" or a timedelta; with a window that is a number of time, a number in the
        same unit.  See :class:`RecursiveLeastSquares`.

    Attributes
    ----------
    coef_, intercept_, residual_, sigma2_, coef_stderr_, intercept_stderr_, rank_, determined_
        As in :class:`RecursiveLeastSquares`, for the rows in the window.
    n_samples_seen_ : int
        All samples learned, not only those in the window.

    Notes
    -----
    O(d^2 + m d) time per row that comes or leaves; O(window (d + m) + d^2) memory (of time: for
    the most rows that the window has held, up to twice over); computed in float64 whatever the
    dtype of X.  A row enters the factor with its weight and leaves it with minus its weight.  Rows
    that leave take digits with them: a bound on the error of every column and target says when the
    factor is made anew from the window's rows, O(window d^2), so that the estimate never drifts.
    While coefficients are undetermined, or nearly (fewer rows than coefficients, dependent
    columns), every row makes it anew.  Rows that fade are learned with weights that grow.  The
    ridge does not fade.  Under ``window_of="positions"`` a row that is not learned counts for the
    fading too.  Complex rows: see :class:`RecursiveLeastSquares`; the window counts each once.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> x = np.arange(400.0)[:, None] % 7
    >>> y = np.where(np.arange(400) < 200, 1.0, 3.0) * x[:, 0]
    >>> est = olsq.RollingLeastSquares(window=100).fit(x, y)
    >>> float(est.coef_[0].round(6))
    3.0
    """

    ENGINE = RollingWindow
    ROW_BY_ROW: ClassVar[bool] = True
    TIMED = "window"
    TAKES_COMPLEX = True

    def _duration(self, timed: bool) -> Duration | None:
        return self._window_in_time() or self._half_life_in_time(timed)

    def _window_in_time(self) -> Duration | None:
        """Return the window as a length of time; None if it counts rows."""
        return any_duration(self.window, "window") if is_window_of_time(self.window) else None

    def _half_life_in_time(self, timed: bool) -> Duration | None:
        window = self._window_in_time()
        return half_life_duration(self.half_life, window is not None and window.kind == NUMBERS)

    @property
    def _fades(self) -> bool:
        """True if the parameters have rows fade inside the window."""
        return self.half_life is not None or not np.all(np.asarray(self.forget) == 1)

    def _timed_option(self) -> tuple[str, str]:
        if self._window_in_time() is None and self.half_life is not None:
            return f"half_life={self.half_life!r}", "half_life='90D'"
        return super()._timed_option()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.window_of is not None:
            check_choice(self.window_of, "window_of", ("samples", "positions"))
        timed = self._window_in_time() is not None
        for name, value in (("window", self.window), ("min_samples", self.min_samples)):
            if (value is None and name == "min_samples") or (timed and name == "window"):
                continue
            if not is_integer(value, 1):
                raise ValueError(
                    f"{name} must be a positive whole number of rows, got {shown(value)}"
                )
        if not timed:
            check_rows_held("window", self.window)
        if timed and self.window_of is not None:
            raise ValueError(
                f"window_of applies to windows of rows; window={self.window!r} is a length of "
                "time: leave window_of out"
            )
        if self.min_samples is not None and not timed and self.min_samples > self.window:
            raise ValueError(
                f"min_samples ({self.min_samples}) must not exceed window ({self.window})"
            )

        forget_or_half_life(self.forget, self.half_life)
        kinds = {d.kind for d in (self._window_in_time(), self._half_life_in_time(True)) if d}
        if len(kinds) > 1:
            raise ValueError(
                f"window={self.window!r} and half_life={self.half_life!r}: one is a length between "
                "dates and the other between numbers; give both in the unit of the times"
            )
        if isinstance(self.forget, Forgetting):
            raise ValueError(
                f"forget={type(self.forget).__name__}(...) and window cannot be combined: rows in "
                "a window fade by a factor; give forget a number or one for each row, or half_life"
            )

    def _own_factors(self) -> Any:
        in_time = self._half_life_in_time(True) is not None  # factors come with the times
        return 1.0 if in_time else super()._own_factors()

    def _start(self, origin: Origin) -> RollingWindow:
        length = self._window_in_time() or int(self.window)
        positions = self.window_of == "positions" or (self.window_of is None and origin.in_time)
        return RollingWindow.start(
            length,
            origin.ridge,
            origin.columns,
            origin.intercept,
            origin.dtype.name,
            positions and isinstance(length, int),
            origin.is_complex,
        )

    @property
    def _fewest(self) -> int:
        return self.min_samples or 1

    def _form(self) -> Any:
        form = super()._form()
        if (count := self._samples_held()) < self._fewest:
            raise inputs.not_fitted(
                self, f"{count} of min_samples={self._fewest} rows seen: no estimate yet"
            )
        return form

    def _samples_held(self) -> int:
        """Return the number of samples in the window, for the target that has the most."""
        return max(samples for _, samples in self._samples_of_targets())

    def _samples_of_targets(self) -> list[tuple[NDArray[np.int64], int]]:
        """List the groups of targets with the number of their samples in the window."""
        pair = 2 if self._origin.is_complex else 1
        groups: Any = self._engine.groups
        return [(targets, engine.n_samples // pair) for targets, engine in groups]

    def _only_estimates(self, values: NDArray) -> NDArray:
        """Return values (m, ...) with NaN (0, False) for targets that have no estimate."""
        few = [targets for targets, n in self._samples_of_targets() if n < self._fewest]
        if not few:
            return values
        values = np.array(values)
        values[np.concatenate(few)] = np.nan if values.dtype.kind in "fc" else 0
        return values

    def _by_target(self, read: Callable[[Form], NDArray]) -> NDArray:
        return self._only_estimates(super()._by_target(read))

    def _per_target(self, read: Callable[[Form], Any]) -> Any:
        values = super()._per_target(read)
        return self._only_estimates(values) if self._has_targets_apart else values

    def _statistics(self) -> tuple[NDArray, NDArray]:
        sigma2, errors = super()._statistics()
        return self._only_estimates(sigma2), self._only_estimates(errors)

    def _has_estimate(self) -> bool:
        return super()._has_estimate() and self._samples_held() >= self._fewest

    def _log_weight_sums(self) -> NDArray[np.float64]:
        sums = np.zeros(self._origin.columns)
        for targets, engine in self._engine.groups:
            assert isinstance(engine, RollingWindow)
            sums[targets] = engine.log_weight_sum()
        return sums

    def _log_weights_after(self, *_: Any, **__: Any) -> None:
        """Return None: the window keeps its rows, and with them their weights."""

    def _log_weights_after_row(self, *_: Any) -> None:
        """Return None, as :meth:`_log_weights_after` does."""

    @locked
    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
        times: Any = None,
        statistics: bool = True,
        cov: str = "nonrobust",
        maxlags: int | None = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        In rows with fewer than ``min_samples`` samples in their window, everything except the
        residuals is NaN.  ``cov`` and ``maxlags`` say which standard errors the path has, as in
        :func:`coefficient_path`; :meth:`cov_params` gives those of the last row.
        """
        robust = errors_in_window(cov, maxlags, self.window)
        if robust is not None:
            instead = "use cov='nonrobust' for circular noise"
            refuse_complex_data(f"cov={cov!r}", instead, X=X, y=y)
            if "_origin" in self.__dict__ and self._origin.is_complex:
                raise TypeError(f"coef_ is complex, and cov={cov!r} takes real rows: {instead}")
        statistics = check_flag("statistics", statistics)
        options = {"forget": forget, "times": times, "statistics": statistics}
        return self._path(X, y, sample_weight, robust=robust, **options)
