"""Forgetting strategies in an estimator: their start, their factors, and changes of them."""

from __future__ import annotations

from typing import Any

from olsq.forgetting.base import Forgetting
from olsq.forgetting.by_row import ByTime
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.square_root import SquareRootForm


class ForgetsByStrategy(StreamingRegressor):
    """An estimator whose ``forget`` may be a strategy of :mod:`olsq.forgetting`."""

    forget: Any
    ridge_mode: str
    _resolved_method: Any  # a property of the estimator

    @property
    def forgetting_(self) -> dict[str, Any]:
        """Estimates of the strategy up to the last row, by name.

        "window", the steady-state window in rows for this estimator's coefficients; "factor" of
        that row, where it varies; "noise_variance", "statistic" and "breaks" of the strategies that
        judge errors (see :mod:`olsq.forgetting`).  Empty where rows have factors that no data
        decide.  A variance is a
        number, or an array (m,).  With ``missing="skip_target"`` of the first group of targets.
        """
        form = self._form()
        with self._locked():
            found = form.state() if isinstance(form, AdaptiveForm) else {}
        if "noise_variance" in found and self._origin.n_targets == 0:
            found["noise_variance"] = float(found["noise_variance"][0])
        return found

    @property
    def _drifts_in_time(self) -> bool:
        forget = self.forget
        return isinstance(forget, Forgetting) and not forget.weights_rows and bool(forget.length)

    def _timed_option(self) -> tuple[str, str]:
        forget = self.forget
        if not isinstance(forget, Forgetting) or forget.TIMED is None:
            return super()._timed_option()
        name = type(forget).__name__
        if forget.length is None:
            return f"forget={name}(...)", f"{name}(..., {forget.TIMED}='1h')"
        return f"{forget.TIMED}={forget.length!r}", f"{forget.TIMED}='1h'"

    def _factors_of(self, strategy: Forgetting, forget: Any) -> Any:
        """Return a strategy's factors, or those of the call where the strategy allows them."""
        method = self._resolved_method
        if isinstance(strategy, ByTime) and self.ridge_mode == "fixed" and method != "information":
            raise needs_information(method)
        if forget is None:
            return strategy.row_factor()
        if not strategy.weights_rows:
            raise ValueError(
                f"forget= of a call and forget={type(strategy).__name__}(...) of the estimator "
                "cannot be combined: leave it out, or make the estimator with a factor"
            )
        return forget

    def _forgetting_of(self, switch: FormSwitch) -> FormSwitch:
        """Convert the state before any row to the form that the strategy needs."""
        if isinstance(self.forget, Forgetting) and not self.forget.weights_rows:
            assert isinstance(switch.form, SquareRootForm)
            switch.form = AdaptiveForm.of(switch.form, self.forget)
        return switch

    def _check_frozen(self) -> None:
        super()._check_frozen()
        made_with = getattr(self._engine.form, "forget", None)
        now = self.forget
        if isinstance(now, Forgetting) and now.weights_rows:
            now = None
        if (now if isinstance(now, Forgetting) else None) != made_with:
            raise ValueError(
                f"forget is {self.forget!r} now, but this {type(self).__name__} has learned rows "
                f"with {'a factor for each row' if made_with is None else f'forget={made_with!r}'},"
                " which its state depends on: call fit to start anew, or set forget back"
            )


def needs_information(method: str) -> ValueError:
    """Return the error for forgetting under a fixed ridge with a method that cannot."""
    return ValueError(
        f"method={method!r} forgets the ridge with the data; ridge_mode='fixed' "
        "with forget < 1 needs method='information' (or 'auto') and a float64 state"
    )
