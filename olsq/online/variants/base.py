"""What the variants share: learning by the engine of the plain estimator, reading by their own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.checks import check_choice
from olsq.online.base import StreamingRegressor
from olsq.online.durations import Duration, is_duration, number_duration, parse_duration
from olsq.online.forms.limits import state_dtype_name
from olsq.online.learning import Origin
from olsq.online.options import check_forget, check_per_row, forget_or_half_life
from olsq.online.path import CoefficientPath
from olsq.online.reading import FittedAttributes
from olsq.online.variants.engine import VariantSwitch


class NotHere:
    """An attribute of the plain estimators that a variant does not have, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        if instance is None:
            return self
        raise AttributeError(f"{type(instance).__name__} has no {self.name}: {self.reason}")


_ERRORS = "the standard errors of least squares do not hold for its estimate"


class Variant(StreamingRegressor):
    """Base of the variants: rows go to a square-root state as they come, whatever is made of it.

    Subclasses give the parameters and ``_solve(engine)``, the coefficients (m, k) of the state,
    and ``_asked()``, the parameters that these depend on (they may change between rows).
    """

    ENGINE: ClassVar[Any] = VariantSwitch
    TIMED = "half_life"
    MISSING: ClassVar[tuple[str, ...]] = ("skip", "raise")
    RESIDUALS: ClassVar[bool] = False  # whether learning a row gives its a-priori residual
    _resolved_method = "sqrt"  # of the state, whose file says so
    ridge: Any = 0.0
    state_dtype: Any = "float64"
    forget: Any
    half_life: Any

    predict_interval: Any = NotHere(_ERRORS)
    leverage: Any = NotHere(_ERRORS)
    cov_params: Any = NotHere(_ERRORS)
    t_test: Any = NotHere(_ERRORS)
    wald_test: Any = NotHere(_ERRORS)
    sample_coef: Any = NotHere(_ERRORS)
    summary: Any = NotHere(_ERRORS)
    sigma2_: Any = NotHere(_ERRORS)
    coef_stderr_: Any = NotHere(_ERRORS)
    intercept_stderr_: Any = NotHere(_ERRORS)
    determined_: Any = NotHere(
        "what data determine is not a matter of least squares' coefficients here"
    )
    rank_: Any = NotHere("what data determine is not a matter of least squares' coefficients here")

    # -- to be given by subclasses ----------------------------------------------------------------

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        """Coefficients (m, k), the intercept's first where there is one."""
        raise NotImplementedError

    def _asked(self) -> Any:
        """What a solution depends on besides the state; compared by ``==``."""
        return None

    # -- learning ---------------------------------------------------------------------------------

    def partial_fit_path(self, *args: Any, **kwargs: Any) -> CoefficientPath:
        """Refused: every row of a path would be a solution of its own; loop over :meth:`step`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no path: loop over the rows with step or partial_fit, and "
            "read coef_ after each"
        )

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        with self._locked():
            super()._learn(*args, **kwargs)
            if not self.RESIDUALS and hasattr(self, "_engine"):
                self._residual = None

    def _check_parameters(self) -> None:
        check_choice(self.missing, "missing", self.MISSING)
        state_dtype_name(self.state_dtype)

    def _duration(self, timed: bool) -> Duration | None:
        if self.half_life is None:
            return None
        if is_duration(self.half_life):
            return parse_duration(self.half_life, "half_life")
        return number_duration(self.half_life, "half_life") if timed else None

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        factors = forget_or_half_life(self.forget, self.half_life) if forget is None else forget
        return check_per_row(check_forget(factors), n_rows, "forget")

    def _start(self, origin: Origin) -> Any:
        return self._start_of_size(origin, origin.ridge)

    def _start_of_size(self, origin: Origin, ridge: NDArray[np.float64]) -> Any:
        """The engine before any row, of as many columns as ``ridge`` (k,) has."""
        return self.ENGINE.start(
            "sqrt", ridge, origin.columns, intercept=origin.intercept, discounted=True,
            solving=True, precision=(state_dtype_name(self.state_dtype), origin.dtype.name),
        )  # fmt: skip

    # -- reading ----------------------------------------------------------------------------------

    @property
    def residual_(self) -> Any:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        if not self.RESIDUALS:
            self._engine_or_raise()
            raise AttributeError(
                f"{type(self).__name__} has no residual_: each row's would take a solution of its "
                "own; step(x, y) returns them one by one"
            )
        return FittedAttributes.residual_.fget(self)  # type: ignore[misc]

    def _theta(self) -> NDArray[np.float64]:
        self._engine_or_raise()
        with self._locked():
            self._check_parameters()
            groups = self._engine.groups
            parts = [self._solution(group.engine) for group in groups]
            if len(parts) == 1:
                return parts[0]
            order = np.argsort(np.concatenate([group.targets for group in groups]))
            return np.concatenate(parts)[order]

    def _solution(self, engine: Any) -> NDArray[np.float64]:
        """The coefficients of an engine, found once for a state and the parameters."""
        asked = self._asked()
        known, theta = engine.solution or (None, np.empty(0))
        # Targets that part take the solution of all along: too many rows.
        if not (engine.fresh and known == asked and len(theta) == engine.form.loss.size):
            theta = self._solve(engine)
            engine.solution, engine.fresh = (asked, theta), True
        return theta

    def predict(self, X: ArrayLike) -> Any:
        """Predictions with the present coefficients.

        Parameters
        ----------
        X : array (n, d)

        Returns
        -------
        array (n,) or (n, m)
            NaN for a row with a missing value; or a series or frame like X, see
            :meth:`set_output`.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            For bad shapes, and under ``missing="raise"`` for a row with a missing value.
        """
        with self._locked():
            self._form()
            rows = self._checked(X)
            return self._as_input(X, self._shaped_rows(self._mean(rows)))


def centred(form: Any, intercept: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """R (d, d) and z (m, d) of the slopes, once the intercept has been chosen for them.

    The first row of the factor is all that knows of the intercept, which fits it exactly.
    """
    first = int(intercept)
    R, z = form.R.astype(np.float64), form.z.astype(np.float64)
    return R[first:, first:], z[:, first:]


def with_intercept(form: Any, slopes: NDArray[np.float64], intercept: bool) -> NDArray[np.float64]:
    """Coefficients (m, k) from the slopes (m, d) and the intercept that belongs to them."""
    if not intercept:
        return slopes
    R, z = form.R.astype(np.float64), form.z.astype(np.float64)
    rest = z[:, 0] - slopes @ R[0, 1:]
    constant = rest / R[0, 0] if R[0, 0] != 0 else np.zeros_like(rest)
    return np.column_stack([constant, slopes])
