"""Predictions for new rows, their standard errors and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice, check_flag
from olsq.arrays.reals import real_array
from olsq.online.calls import one_row
from olsq.online.estimators.coefficients import Coefficients
from olsq.online.estimators.prediction import BLOCK_ROWS, clip_to_finite
from olsq.online.forms.form import Form
from olsq.online.forms.rows import split_intercept
from olsq.online.forms.statistics import counts_of, statistics_of
from olsq.online.forms.student import check_level, deviations, half_widths
from olsq.online.rows import complex_rows
from olsq.online.rows.complex_rows import holds_complex
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.options import check_weight
from olsq.online.rows.sparse import SparseRows
from olsq.threads import threads_for


class Uncertainty(Coefficients):
    """Standard errors of coefficients and predictions, which are those of least squares."""

    def _before_first_row(self, X: Any = None) -> Self | None:
        """Return a fitted copy that predicts from the prior, or None without one or after a row.

        It is one of complex coefficients if the prior or the rows ``X`` are complex.
        """
        return None

    @property
    def rank_(self) -> Any:
        """Number of directions that data and ridge determine (the intercept counts as one).

        With ``missing="skip_target"`` and several targets an array (m,).
        """
        part = 2 if self._engine_or_raise() and self._origin.is_complex else 1
        return self._per_target(lambda form: int(form.rank) // part)

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Mask (d,) of the coefficients that data and ridge determine.

        The others are of minimum norm, or held at their last value by wind-up protection.  With
        ``missing="skip_target"`` and several targets an array (m, d).
        """
        determined = self._per_target(lambda form: form.determined())
        if self._origin.is_complex:
            k = determined.shape[-1] // 2
            determined = determined[..., :k] & determined[..., k:]
        return determined[..., self._first :]

    @property
    def sigma2_(self) -> Any:
        """Estimated noise variance, a number or (m,); inf without degrees of freedom for one.

        With ``noise_variance`` the number given there.
        Of complex rows ``E |noise|^2``, the sum of the variances of both parts: n complex rows are
        2n real ones, and d coefficients 2d, so that at forget = 1 without a ridge it is
        ``sum |e|^2 / (n - d)``.
        """
        return self._shaped(self._statistics()[0])

    @property
    def coef_stderr_(self) -> NDArray[np.floating]:
        """Standard errors of ``coef_``, (d,) or (m, d); inf where undetermined.

        ``sqrt(sigma2_ P_jj)``: the ordinary least-squares standard error at forget = 1, the
        posterior standard deviation under discounting otherwise (West & Harrison 1997, 4.3).  With
        ``cov="sandwich"`` ``sqrt(sigma2_ (P S P)_jj)``, the spread of the estimates themselves.
        Of a complex coefficient ``sqrt(E |error|^2)``, under circular noise; the real and the
        imaginary part have each ``1 / sqrt(2)`` of that.
        """
        return self._shaped(self._statistics()[1][:, self._first :])

    @property
    def intercept_stderr_(self) -> Any:
        """Standard error of ``intercept_``; 0 without one."""
        return self._shaped(split_intercept(self._statistics()[1], self._first)[1])

    def _statistics(self) -> tuple[NDArray, NDArray]:
        """Return sigma2 (m,) and standard errors (m, d), the intercept's first if there is one."""
        with self._locked():
            self._form()
            origin, noise = self._origin, self._known_noise(self._origin)
            how = origin.ridge, origin.discounted, origin.sandwich
            both = np.empty((origin.columns, 1 + origin.ridge.size))
            for targets, engine in self._engine.groups:
                statistics = statistics_of(engine.form, *how, noise[targets])
                both[targets] = np.column_stack(statistics[:2])
        if origin.is_complex:
            return 2.0 * both[:, 0], complex_rows.combine_errors(both[:, 1:])
        return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1:])

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict rows with the present coefficients.

        Parameters
        ----------
        X : array (n, d)
        return_std : bool, default False
            Whether to return the standard deviation of an observation at each row too, as
            scikit-learn's ``BayesianRidge`` does: ``sqrt(sigma2_ (1 + x . P x))``.  For that of
            the mean alone see :meth:`predict_interval` and :meth:`leverage`.

        Returns
        -------
        prediction : array (n,) or (n, m)
            Or a series or frame like X; see :meth:`set_output`.
        std : array (n,) or (n, m)
            Only with ``return_std``; inf where rows so far do not determine it.  With
            ``cov="sandwich"`` ``x . P S P x`` takes the place of ``x . P x``.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            For bad shapes, and under ``missing="raise"`` for a row with a non-finite regressor,
            which else has no prediction: NaN for that row.

        Notes
        -----
        O(m d) per row; with ``return_std`` O(d^2 + m d), and O(d^3) once per call while
        coefficients are undetermined and with ``ridge_mode="fixed"``.  No derivatives.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X, y = np.array([[1.0], [1.0], [2.0], [2.0]]), [1.0, 1.2, 2.0, 2.2]
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
        >>> mean, std = est.predict([[3.0]], return_std=True)
        >>> float(mean[0].round(6)), float(std[0].round(6))
        (3.18, 0.166933)
        """
        return_std = return_std is not False and check_flag("return_std", return_std)
        if not return_std:
            with self._at_work():
                if (short := one_row.predict(self, X)) is not None:
                    return short
        if (other := self._before_first_row(X)) is not None:
            return self._as_input(X, other.predict(X, return_std))
        if not return_std:
            return super().predict(X)
        with self._at_work():
            self._form()
            rows = self._checked(X)
            mean = self._shaped_rows(self._mean(rows))
            deviation = self._shaped_rows(self._deviation(rows, "observation"))
            return self._as_input(X, (mean, deviation))

    def _deviation_before(self, X: Any, sample_weight: Any) -> Any:
        row = complex_rows.complex_array(X, "x") if holds_complex(X) else real_array(X, "x")
        if not np.isfinite(row).all():
            return np.nan
        if not self._has_estimate():
            return np.inf
        with self._at_work():
            other = self._before_first_row(X) or self
            deviation = other._deviation(other._checked(X), "observation", sample_weight)
            deviation = other._shaped_rows(deviation)[0]
        return np.where(np.isnan(deviation), np.inf, deviation)  # of targets without an estimate

    def predict_interval(
        self,
        X: ArrayLike,
        level: float = 0.95,
        kind: str = "observation",
        *,
        sample_weight: ArrayLike | None = None,
    ) -> tuple[Any, Any]:
        """Compute intervals around :meth:`predict`.

        Parameters
        ----------
        X : array (n, d)
        level : float in (0, 1), default 0.95
            Probability that an interval covers what it is for.
        kind : {"observation", "mean"}
            For a new observation at x, or for its mean.
        sample_weight : number or array (n,), optional
            Weights >= 0 of the new observations, whose noise has the variance ``sigma2_ / weight``.
            Default: 1.

        Returns
        -------
        lower, upper : arrays (n,) or (n, m)
            -inf and inf where rows so far do not determine them, or leave less than one degree of
            freedom; NaN in a row of X with a missing value.

        Raises
        ------
        NotFittedError, ValueError
            As :meth:`predict`; if level or kind is not one of its choices.

        Notes
        -----
        ``x . coef -+ q sqrt(sigma2_ (x . P x + 1 / w))``, without 1 / w for the mean, with q from
        Student's t distribution: exact for independent normal noise at forget = 1 without a ridge,
        the intervals of statsmodels' ``get_prediction``.  Its degrees of freedom are
        ``(sum zeta)^2 / sum zeta^2 - k`` with zeta the forgetting weights (Satterthwaite) and k the
        effective number of coefficients: n - k at forget = 1.  With a known ``noise_variance`` q
        is the normal distribution's.

        Under forgetting, intervals for the mean are right for ``cov="sandwich"`` if the noise's
        variance is the same all along, and else too wide (see ``cov``); a ridge pulls the
        coefficients to 0, which no interval knows of.  Neither do they know where coefficients
        will go next.  O(d^2) per row, as ``predict(return_std=True)``.

        Complex rows: the bounds are complex, and the real and the imaginary part has each an
        interval of its own at ``level``, under circular noise (parts of equal variance that are
        not correlated).  A disc that holds the complex number with probability ``level`` has the
        radius ``s sqrt(F)``, s of ``return_std`` and F the quantile of ``F(2, 2 (n - k))``.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X, y = np.array([[1.0], [1.0], [2.0], [2.0]]), [1.0, 1.2, 2.0, 2.2]
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
        >>> lower, upper = est.predict_interval([[3.0]], level=0.9, kind="mean")
        >>> float(lower[0].round(4)), float(upper[0].round(4))
        (2.9096, 3.4504)
        """
        check_choice(kind, "kind", ("observation", "mean"))
        level = check_level(level)
        check_weight_of_interval(kind, sample_weight)
        if (other := self._before_first_row(X)) is not None:
            found = other.predict_interval(X, level, kind, sample_weight=sample_weight)
            return self._as_input(X, found)
        with self._at_work():
            self._form()
            rows = self._checked(X)
            mean = self._mean(rows)
            check_same_index(X=X, sample_weight=sample_weight)
            deviation = self._deviation(rows, kind, sample_weight)
            reach = half_widths(deviation, self._freedom(), level)
            if self._origin.is_complex:  # each part has half of the variance
                reach, means = reach / np.sqrt(2.0), np.stack([mean.real, mean.imag])
            else:
                means = mean
            lower, upper = means - reach, means + reach
            if self._origin.is_complex:
                lower, upper = complex_rows.joined(*lower), complex_rows.joined(*upper)
            return self._as_input(X, (self._shaped_rows(lower), self._shaped_rows(upper)))

    def leverage(self, X: ArrayLike) -> NDArray[np.floating]:
        """Compute ``x^T P x`` of each row, the variance of its prediction in units of the noise
        variance.

        Parameters
        ----------
        X : array (n, d)
            Without the intercept's 1.

        Returns
        -------
        array (n,)
            inf for a row that points in a direction which rows so far do not determine; NaN for
            one with a missing value.  (n, m) with ``missing="skip_target"`` and several targets.

        Raises
        ------
        NotFittedError, ValueError
            As :meth:`predict`.

        Notes
        -----
        By the triangular factor that the state is held in, so that no condition number is squared.
        ``sqrt`` of it is the width of LinUCB's bonus (Li et al. 2010, eq. 4).  O(d^2) per row, and
        O(d^3) once per call with ``ridge_mode="fixed"``.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(ridge=1.0, fit_intercept=False)
        >>> est.fit(np.eye(2)[[0, 0, 1]], [1.0, 2.0, 3.0]).leverage(np.eye(2)).round(4)
        array([0.3333, 0.5   ])
        """
        if (other := self._before_first_row(X)) is not None:
            return other.leverage(X)
        self._form()
        with self._at_work():
            rows = self._checked(X)
            leverages = np.asarray(
                self._per_target(lambda form: self._by_block(form.leverage, rows))
            )
            return clip_to_finite(
                leverages.T if leverages.ndim == 2 else leverages, self._origin.dtype
            )

    def _by_block(
        self, read: Callable[[NDArray[np.float64]], NDArray[np.float64]], rows: NDArray
    ) -> NDArray[np.float64]:
        """Compute ``read`` (n,) of checked rows with the intercept's 1, some thousand at a time."""
        out = np.full(rows.shape[0], np.nan)
        finite = rows.finite_rows() if isinstance(rows, SparseRows) else np.isfinite(rows).all(1)
        finite_places = np.flatnonzero(finite)
        for start in range(0, finite_places.size, BLOCK_ROWS):
            block = finite_places[start : start + BLOCK_ROWS]
            regressors = np.ones((block.size, rows.shape[1] + self._first), rows.dtype)
            regressors[:, self._first :] = rows[block]
            if self._origin.is_complex:  # both rows of a pair have the same leverage
                regressors = complex_rows.embed_first(regressors)
            with threads_for(*regressors.shape):
                out[block] = read(np.asarray(regressors, np.float64))
        return out

    def _deviation(
        self, rows: NDArray, kind: str, sample_weight: Any = None
    ) -> NDArray[np.float64]:
        """Compute standard deviations (n, m) of the mean, or of an observation, at checked rows."""
        sandwich = self._origin.sandwich

        def of_form(form: Form) -> NDArray:
            read = form.sandwich_leverage if sandwich else form.leverage
            return np.broadcast_to(self._by_block(read, rows), (form.loss.size, rows.shape[0]))

        spread = self._by_target(of_form).T
        if kind == "observation":
            spread = spread + noise_of_rows(sample_weight, len(spread))[:, None]
        return deviations(spread, self._statistics()[0])

    def _freedom(self) -> NDArray[np.float64]:
        """Return the degrees of freedom (m,) of ``sigma2_``; inf of one that is known."""
        ridge, discounted = self._origin.ridge, self._origin.discounted

        def of_form(form: Form) -> NDArray:
            return np.full(form.loss.size, counts_of(form, ridge, discounted).freedom)

        is_known = np.isfinite(self._known_noise(self._origin))
        return np.where(is_known, np.inf, self._by_target(of_form))


def check_weight_of_interval(kind: str, sample_weight: Any) -> None:
    """Raise ValueError for weights of an interval for the mean, which has no noise of its own."""
    if kind == "mean" and sample_weight is not None:
        raise ValueError("sample_weight is of new observations: leave it out with kind='mean'")


def noise_of_rows(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Return the variances (n,) of the noise of new rows, in units of that of weight 1."""
    with np.errstate(divide="ignore", over="ignore"):
        return 1.0 / check_weight(sample_weight, n_rows)
