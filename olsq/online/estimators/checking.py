"""A call of an estimator, checked whole before anything changes: its rows, factors and times."""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.arrays.reals import real_array
from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Call
from olsq.online.calls.checked import Checked
from olsq.online.estimators.prediction import Prediction
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.durations import Duration
from olsq.online.rows.frames import check_same_index, column_names
from olsq.online.rows.options import check_weight, without_missing
from olsq.online.rows.sparse import rows_or_array
from olsq.online.rows.times import Timing, times_of_call


class CheckedCalls(Prediction):
    """Checks of the arguments with which rows are learned."""

    def _check_call(
        self, X: Any, y: Any, sample_weight: Any, forget: Any, checked: Checked | None
    ) -> Call:
        """Check a call's arguments and return its rows; ``checked`` is None for the first ones."""
        origin, factor = (None, None) if checked is None else (checked.origin, checked.factor)
        fitted = origin is not None
        is_complex = origin.is_complex if origin else self._sees_complex(X, y)
        if self.TAKES_COMPLEX and fitted and not is_complex:
            for name, values in (("X", X), ("y", y)):
                if complex_rows.holds_complex(values):
                    raise complex_rows.real_model(type(self).__name__, name)
        if is_complex:
            self._refuse_for_complex()
        convert = complex_rows.complex_array if is_complex else real_array
        rows_X = inputs.check_X(
            X,
            self,
            origin.n_features if origin else None,
            allow_empty=True,
            convert=convert if is_complex else rows_or_array,
        )
        n = rows_X.shape[0]
        rows_y = inputs.check_y(y, self, n, origin.n_targets if origin else None, convert)
        names = inputs.feature_names(X) if type(X) is not np.ndarray else None
        if fitted and names is not None:
            inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        if fitted and type(y) is not np.ndarray:
            inputs.check_target_names(y, origin.targets)
        bare = type(X) is np.ndarray and type(y) is np.ndarray and sample_weight is forget is None
        if not bare:  # a microsecond, which a single row would notice
            gates = self.forget if forget is None else forget
            check_same_index(X=X, y=y, sample_weight=sample_weight, forget=gates)
        weights = check_weight(sample_weight, n)
        has_factor = forget is None and factor is not None
        gates = np.full(n, factor) if has_factor else self._gates(forget, n)
        heavy = None if sample_weight is None else weights
        X_parts, y_parts = rows_X, rows_y
        if is_complex:
            X_parts, y_parts = complex_rows.real_parts(rows_X), complex_rows.real_parts(rows_y)
        usable = inputs.rows_to_learn(X_parts, y_parts, heavy, self.missing, self)
        weights = without_missing(weights)
        skips = usable is not None and rows_y.ndim == 2 and self.missing == "skip"
        # First rows of which none is usable are refused, with the same hint.
        if usable is not None and skips and (fitted or usable.any()):
            inputs.warn_of_lost_rows(rows_y, usable)
        if is_complex and usable is not None and usable.ndim == 2:
            usable = usable[:, 0::2] & usable[:, 1::2]  # a target needs both of its parts
        Y = rows_y if rows_y.ndim == 2 else rows_y[:, None]
        targets = None if fitted else column_names(y, "y")
        call = Call(rows_X, Y, gates, weights, usable, rows_y.ndim == 1, names, targets)
        return self._embedded(call) if is_complex else call

    def _in_time(
        self, call: Call, times: Any, X: Any, y: Any, forget: Any, fitted: bool
    ) -> tuple[Call, Timing | None]:
        """Return the call with its times, and the stream's times after it; unchanged where rows
        count.
        """
        if times is not None:
            check_same_index(X=X, y=y, times=times)
        before = self._timing if fitted else None
        learned = self.n_samples_seen_ if fitted else 0
        timed = times is not None or before is not None
        duration, value = self._checked_duration(times, before, learned, forget)
        if duration is None:
            return call, None
        fading = self._half_life_in_time(timed)
        countable = not isinstance(self.forget, Forgetting)
        pair = 2 if call.complex_features else 1
        row_times, timing = times_of_call(
            times, X, y, len(call.Y) // pair, duration, before, value, countable=countable
        )
        if timing is None and self.TIMED == "half_life":  # no row has come yet
            return call, None
        row_times = np.repeat(row_times, pair)
        if self._drifts_in_time:
            return call._replace(times=row_times, unit=duration.length), timing
        half_life = None if fading is None else fading.length
        return call._replace(times=row_times, half_life=half_life), timing

    def _checked_duration(
        self, times: Any, before: Any, learned: int, forget: Any
    ) -> tuple[Duration | None, str]:
        """Return the parameter that is a length of time, None if rows count, and its name and value
        for messages.

        ``before`` are the times so far, None if there were none; ``learned`` rows came before.
        Raises ValueError for times that are not called for, and factors beside a half-life in time.
        """
        duration = self._duration(times is not None or before is not None)
        value, example = self._timed_option()
        if duration is None and times is None:
            return None, value
        if duration is None:
            raise ValueError(
                f"times are not used with {value}, which counts rows: leave times out, or give a "
                f"length of time such as {example}"
            )
        if before is None and learned > 0:
            raise ValueError(
                f"{value} is a length of time, but this {type(self).__name__} has learned rows "
                "without times: call fit to start anew"
            )
        fading = self._half_life_in_time(times is not None or before is not None)
        if forget is not None and fading is not None:
            shown = value if self.TIMED == "half_life" else f"half_life={self.half_life!r}"
            raise ValueError(f"forget and {shown}, a length of time, cannot be combined")
        return duration, value

    def _sees_complex(self, *data: Any) -> bool:
        """Test whether the first rows, or the prior, make this a model of complex coefficients."""
        if not self.TAKES_COMPLEX:
            return False
        return complex_rows.prior_is_complex(self.prior) or any(
            map(complex_rows.holds_complex, data)
        )

    def _refuse_for_complex(self) -> None:
        """Raise ValueError for parameters that complex rows cannot be learned with."""
        if (forget := self._strategy) is not None:
            raise ValueError(
                f"forget={type(forget).__name__}(...) is a strategy for real rows, and X or y is "
                "complex. Complex data not supported with it: give forget a factor or one for each "
                "row, or use half_life"
            )

    def _embedded(self, call: Call) -> Call:
        """Replace the rows of a complex call by their pairs of real rows.

        The regressors stay complex: each block of them is embedded where it is learned.
        """
        X = inputs.with_ones(call.X, bool(self.fit_intercept), call.X.dtype)
        usable = None if call.usable is None else np.repeat(call.usable, 2, axis=0)
        return call._replace(
            X=X,
            Y=complex_rows.embed_targets(call.Y),
            gates=complex_rows.embed_gates(call.gates),
            weights=np.repeat(call.weights, 2),
            usable=usable,
            complex_features=call.X.shape[1],
        )
