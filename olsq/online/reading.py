"""What an estimator can be asked: coefficients, statistics, predictions."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import inputs
from olsq.online.moments import moments_of
from olsq.online.rows import Rows, Trace, clip_to
from olsq.online.statistics import statistics
from olsq.problem import Moments, check_weight


class Engine(Protocol):
    """The state behind an estimator: a recursion or a rolling window."""

    @property
    def form(self) -> Any: ...
    @property
    def reports_residuals(self) -> bool: ...
    def copy(self) -> Any: ...
    def update(self, rows: Rows, residual: NDArray, trace: Trace) -> None: ...
    def arrays(self) -> dict[str, NDArray]: ...
    def describe(self) -> dict[str, Any]: ...


class FittedReading:
    """Attributes and predictions of a fitted estimator, computed from its engine when asked."""

    fit_intercept: bool
    ridge_mode: str = "discounted"
    missing: str
    n_features_in_: int
    _engine: Engine
    _n_targets: int  # 0 for a one-dimensional y
    _dtype: np.dtype
    _full_ridge: NDArray  # with the intercept's zero
    _residual: NDArray | None

    @property
    def _discounted(self) -> bool:
        return self.ridge_mode == "discounted"

    def _engine_or_raise(self) -> Engine:
        if not hasattr(self, "_engine"):
            raise inputs.not_fitted(self)
        return self._engine

    def _form(self) -> Any:
        return self._engine_or_raise().form

    def _coefficients(self) -> NDArray:
        return clip_to(self._form().coefficients(), self._dtype)

    def _shaped(self, per_target: NDArray) -> Any:
        """Drop the target axis (the first) if y was one-dimensional."""
        return per_target[0] if self._n_targets == 0 else per_target

    @property
    def coef_(self) -> NDArray:
        """Coefficients (d,) or (m, d); minimum norm while undetermined, never NaN."""
        return self._shaped(self._coefficients()[:, self._first :]).copy()

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or (m,); 0 without one."""
        theta = self._coefficients()
        column = theta[:, 0] if self.fit_intercept else np.zeros_like(theta[:, 0])
        return self._shaped(column.copy())

    @property
    def _first(self) -> int:
        return 1 if self.fit_intercept else 0

    @property
    def residual_(self) -> NDArray:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        self._engine_or_raise()
        if self._residual is None:
            raise AttributeError(
                "residual_ was not kept: with residuals=False and method='information' rows are "
                "only accumulated. Use residuals=True, or partial_fit_path."
            )
        return self._residual[:, 0] if self._n_targets == 0 else self._residual

    @property
    def rank_(self) -> int:
        """Number of directions that data and ridge determine (the intercept counts as one)."""
        return int(self._form().rank)

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Which coefficients (d,) data and ridge determine.

        The others are of minimum norm, or held at their last value by wind-up protection.
        """
        return self._form().determined()[self._first :]

    @property
    def sigma2_(self) -> Any:
        """Estimated noise variance, a number or (m,); inf without degrees of freedom for one."""
        self._form()
        return self._shaped(self._statistics()[0])

    def _statistics(self) -> tuple[NDArray, NDArray]:
        """sigma2 (m,) and standard errors (m, d), the intercept's first if there is one."""
        form = self._engine_or_raise().form
        coef, loss = form.coefficients()[None], np.array(form.loss)[None]
        counts = np.array([[*form.tally, form.rank]])
        sigma2, stderr = np.empty_like(loss), np.empty_like(coef)
        statistics(
            loss, coef, form.inverse_diagonal()[None], counts, self._full_ridge, self._discounted,
            sigma2, stderr,
        )  # fmt: skip
        return sigma2[0], stderr[0]

    @property
    def coef_stderr_(self) -> NDArray:
        """Standard errors of ``coef_``, (d,) or (m, d); inf where undetermined.

        ``sqrt(sigma2_ P_jj)``: the ordinary least-squares standard error at forget = 1, the
        posterior standard deviation under discounting otherwise (West & Harrison 1997, 4.3).
        """
        self._form()
        return self._shaped(self._statistics()[1][:, self._first :])

    @property
    def intercept_stderr_(self) -> Any:
        """Standard error of ``intercept_``; 0 without one."""
        self._form()
        errors = self._statistics()[1]
        return self._shaped(errors[:, 0] if self.fit_intercept else np.zeros(errors.shape[0]))

    @property
    def n_held_(self) -> int:
        """How often wind-up protection held a coefficient that forgetting would have lost."""
        return int(self._form().held[0])

    def moments(self) -> Moments:
        """The state as moments, for :func:`olsq.online_lstsq`, :func:`olsq.query` or an estimator.

        Returns
        -------
        Moments
            NumPy, float64 whatever the dtype of the state: gram (k, k) and cross (m, k), m = 1
            for a one-dimensional y.  k is d, or d + 1 with an intercept, whose column is the
            *first*: put a 1 before each key or query, and a 0 before the ridge.

        Raises
        ------
        NotFittedError
            Before the first sample.

        Notes
        -----
        The gram holds what is left of a discounted ridge (and a rolling window's ridge): query
        with no ridge.  With ``ridge_mode="fixed"`` it does not: query with that ridge.  It also
        holds what wind-up protection added.  Left behind are the sums behind ``sigma2_`` and
        standard errors, the number of rows, and, except from "information", digits: the gram
        squares the condition number.  O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> est = olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=False).fit(X, [1.0, 2.0, 3.0])
        >>> est.moments().gram.round(12)
        array([[2., 1.],
               [1., 2.]])
        """
        return moments_of(self._form(), self._full_ridge, self._discounted)

    def predict(self, X: ArrayLike) -> NDArray:
        """Predictions (n,) or (n, m) with the present coefficients.

        A row with a non-finite regressor has no prediction: NaN for that row under
        ``missing="skip"``, ValueError under ``missing="raise"``.  Raises NotFittedError before the
        first sample.
        """
        theta = self._coefficients()
        rows = inputs.check_X(X, self, self.n_features_in_, allow_empty=False)
        inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        finite = np.logical_and.reduce(np.isfinite(rows), axis=1)
        if not finite.all():
            if self.missing == "raise":
                raise ValueError(
                    f"Input X contains NaN or infinity (first in row {int(np.argmin(finite))}); "
                    f"{type(self).__name__} predicts NaN for such rows with missing='skip'."
                )
            rows = np.where(finite[:, None], rows, np.nan)
        out = rows.astype(self._dtype, copy=False) @ theta[:, self._first :].T
        if self.fit_intercept:
            out += theta[:, 0]
        return out[:, 0] if self._n_targets == 0 else out

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination R^2 of ``predict(X)``, averaged over targets.

        1 is perfect, 0 is as good as the mean of y.
        """
        predicted = np.asarray(self.predict(X), np.float64)
        truth = np.asarray(inputs.check_y(y, self, predicted.shape[0], None), np.float64)
        truth = truth.reshape(truth.shape[0], -1)
        w = check_weight(sample_weight, truth.shape[0])
        rest = w @ (truth - predicted.reshape(truth.shape)) ** 2
        total = w @ (truth - (w @ truth) / w.sum()) ** 2
        constant = np.where(rest == 0, 1.0, 0.0)
        return float(
            np.mean(np.where(total > 0, 1.0 - rest / np.where(total > 0, total, 1.0), constant))
        )
