"""A RecursiveLeastSquares before its first row: from a ridge, prior, moments or strategy."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting
from olsq.forgetting.by_row import ByTime
from olsq.online.calls.call import Origin
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.form_switch import FormSwitch, resolve_method
from olsq.online.forms.limits import state_dtype_name
from olsq.online.forms.moments import check as check_moments
from olsq.online.forms.moments import factor_of, switch_from, switch_from_prior
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.targets import TargetGroups
from olsq.online.rows import complex_rows
from olsq.online.rows.inputs import check_ridge_size
from olsq.online.rows.options import check_ridge
from olsq.problem import Moments


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


class StartsFromKnowledge(ForgetsByStrategy):
    """An estimator whose state starts from a ridge, from a prior, or from the moments of rows."""

    method: str
    missing: str
    residuals: bool
    prior: Any

    @classmethod
    def from_moments(
        cls, moments: Moments, *, ridge_mode: str, fit_intercept: bool, **parameters: Any
    ) -> Self:
        """Make an estimator that continues from moments, as if it had learned their rows.

        Parameters
        ----------
        moments : Moments
            ``Solution.state`` of :func:`olsq.online_lstsq`, or :meth:`moments` of an estimator:
            gram (k, k) and cross (m, k), NumPy or JAX, without batch axes.  Of float32 moments
            what comes out is float32.
        ridge_mode : {"discounted", "fixed"}
            What the moments are: with "discounted" they hold what is left of their ridge, and
            ``ridge`` only serves a later ``fit``; with "fixed" ``ridge`` is added at the solve.
        fit_intercept : bool
            Whether their first column is the intercept's, a regressor of ones; k is d + 1 then.
        **parameters
            The constructor's other parameters.

        Returns
        -------
        RecursiveLeastSquares
            Fitted.  One target (m = 1) is a one-dimensional y.

        Raises
        ------
        TypeError, ValueError
            If ``moments`` are no moments: shapes, non-finite or complex numbers, a gram that is
            not symmetric and positive semidefinite; or a parameter is out of range.

        Notes
        -----
        Moments do not hold the squared targets or the number of rows.  So ``sigma2_`` and the
        standard errors are inf until ``forget=0`` drops the moments; ``n_samples_seen_`` and
        ``n_held_`` count from here; ``residual_`` is empty and there are no feature names.  A
        singular gram goes to the square-root form for method "covariance" too; the solution is
        of minimum norm until rows determine it.  (Of float32 moments, "sqrt" tells dependent
        regressors from rounding error best, "information" worst.)  O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
        >>> start = olsq.RecursiveLeastSquares(forget=0.9).fit(X[:50], y[:50])
        >>> est = olsq.RecursiveLeastSquares.from_moments(start.moments(), **start.get_params())
        >>> bool(np.allclose(est.partial_fit(X[50:], y[50:]).coef_, start.fit(X, y).coef_))
        True
        """
        make: Any = cls
        est: Self = make(ridge_mode=ridge_mode, fit_intercept=fit_intercept, **parameters)
        est._check_parameters()
        if np.ndim(est.forget) == 0:
            est._gates(None, 1)  # refuses what the first row would
        est._begin(check_moments(moments, bool(fit_intercept)))
        return est

    def _begin(self, moments: Moments) -> None:
        gram, cross = moments
        first, discounted = int(bool(self.fit_intercept)), self.ridge_mode == "discounted"
        d, m = gram.shape[0] - first, cross.shape[0]
        ridge = np.concatenate([np.zeros(first), check_ridge(self.ridge, d)])
        both_float32 = gram.dtype == np.float32 and cross.dtype == np.float32
        dtype = np.dtype(np.float32 if both_float32 else np.float64)
        check_ridge_size(ridge, np.dtype(state_dtype_name(self.state_dtype)))
        if discounted:  # the gram holds it
            ridge = np.zeros_like(ridge)
        origin = self._make_origin(d, 0 if m == 1 else m, dtype, ridge)
        switch = switch_from(moments, self._resolved_method, ridge, **self._form_options(origin))
        switch = self._forgetting_of(switch)
        engine = TargetGroups.together(switch, m, self.missing == "skip_target")
        self._settle(origin, engine, residual=np.empty((0, m), dtype))

    def _start_ridge(self, n_features: int) -> NDArray[np.float64]:
        if self.prior is None:
            return super()._start_ridge(n_features)
        return np.zeros(n_features + int(bool(self.fit_intercept)))

    def _start(self, origin: Origin) -> FormSwitch:
        if self.prior is not None:
            prior = complex_rows.embed_prior(self.prior) if origin.is_complex else self.prior
            R, z, _ = factor_of(prior, origin.intercept)
            if z.shape != (origin.columns, origin.ridge.size):
                part = 2 if origin.is_complex else 1
                raise ValueError(
                    f"the prior is of {z.shape[1] // part} coefficients and {z.shape[0]} targets; "
                    f"these rows have {origin.ridge.size // part} (the intercept counts) and "
                    f"{origin.columns}"
                )
            options = self._form_options(origin)
            del options["discounted"], options["sandwich"]
            return self._forgetting_of(switch_from_prior(R, z, self._resolved_method, **options))
        switch = FormSwitch.start(
            self._resolved_method, origin.ridge, origin.columns, **self._form_options(origin)
        )
        return self._forgetting_of(switch)

    def _before_first_row(self, X: Any = None) -> Self | None:
        if self.prior is None or hasattr(self, "_engine"):
            return None
        self._check_parameters()
        is_complex = self._sees_complex(X)
        if is_complex:
            self._refuse_for_complex()
            R, z, one_target = factor_of(complex_rows.embed_prior(self.prior), False)
        else:
            R, z, one_target = factor_of(self.prior, bool(self.fit_intercept))
        k, m = R.shape[0] // (2 if is_complex else 1), z.shape[0]
        d = k - int(bool(self.fit_intercept))
        other, dtype = copy.copy(self), np.dtype(np.float64)
        origin = other._make_origin(
            d, 0 if one_target else m, dtype, other._start_ridge(d), is_complex=is_complex
        )
        engine = TargetGroups.together(other._start(origin), m, False)
        other._settle(origin, engine, residual=np.empty((0, m)))
        return other

    def _form_options(self, origin: Origin) -> dict[str, Any]:
        return {
            "intercept": origin.intercept,
            "discounted": origin.discounted,
            "solving": bool(self.residuals),
            "sandwich": origin.sandwich,
            "precision": (state_dtype_name(self.state_dtype), origin.dtype.name),
        }

    @property
    def _resolved_method(self) -> str:
        if isinstance(self.forget, Forgetting) and not self.forget.weights_rows:
            return "sqrt"
        return resolve_method(self.method, state_dtype_name(self.state_dtype), self.ridge_mode)
