"""Predictions for new rows, their standard errors and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from olsq.arrays.checks import check_choice
from olsq.arrays.reals import real_array
from olsq.online.calls import one_row
from olsq.online.forms.form import Form
from olsq.online.forms.rows import clip_to
from olsq.online.forms.statistics import counts_of
from olsq.online.forms.student import check_level
from olsq.online.inference.attributes import FittedAttributes
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.options import check_weight
from olsq.online.rows.sparse import SparseRows, rows_or_array
from olsq.threads import threads_for

BLOCK_ROWS = 4096  # rows of a prediction that are float64 at a time


class Predictions(FittedAttributes):
    """Predictions of a fitted estimator, with standard errors and intervals."""

    _as_input: Callable[..., Any]

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
        O(m d) a row; with ``return_std`` O(d^2 + m d), and O(d^3) once a call but for
        ``method="covariance"`` and a determined ``method="sqrt"``.  No derivatives.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X, y = np.array([[1.0], [1.0], [2.0], [2.0]]), [1.0, 1.2, 2.0, 2.2]
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
        >>> mean, std = est.predict([[3.0]], return_std=True)
        >>> float(mean[0].round(6)), float(std[0].round(6))
        (3.18, 0.166933)
        """
        if not return_std:
            with self._at_work():
                if (short := one_row.predict(self, X)) is not None:
                    return short
        if (other := self._before_first_row(X)) is not None:
            return self._as_input(X, other.predict(X, return_std))
        with self._at_work():
            self._form()
            rows = self._checked(X)
            mean = self._shaped_rows(self._mean(rows))
            if not return_std:
                return self._as_input(X, mean)
            deviation = self._shaped_rows(self._deviation(rows, "observation"))
            return self._as_input(X, (mean, deviation))

    def predict_interval(
        self, X: ArrayLike, level: float = 0.95, kind: str = "observation"
    ) -> tuple[Any, Any]:
        """Compute intervals around :meth:`predict`.

        Parameters
        ----------
        X : array (n, d)
        level : float in (0, 1), default 0.95
            Probability that an interval covers what it is for.
        kind : {"observation", "mean"}
            For a new observation of weight 1 at x, or for its mean.

        Returns
        -------
        lower, upper : arrays (n,) or (n, m)
            -inf and inf where rows so far do not determine them; NaN in a row of X with a missing
            value.

        Raises
        ------
        NotFittedError, ValueError
            As :meth:`predict`; if level or kind is not one of its choices.

        Notes
        -----
        ``x . coef -+ q sqrt(sigma2_ (x . P x + 1))``, without the 1 for the mean, with q from
        Student's t distribution: exact for independent normal noise at forget = 1 without a ridge,
        the intervals of statsmodels' ``get_prediction``.  Its degrees of freedom are
        ``(sum zeta)^2 / sum zeta^2 - k`` with zeta the forgetting weights (Satterthwaite) and k the
        effective number of coefficients: n - k at forget = 1.  With a known ``noise_variance`` q
        is the normal distribution's.

        Under forgetting, intervals for the mean are right for ``cov="sandwich"`` if the noise's
        variance is the same all along, and else too wide (see ``cov``); a ridge pulls the
        coefficients to 0, which no interval knows of.  Neither do they know where coefficients
        will go next.  O(d^2) a row, as ``predict(return_std=True)``.

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
        if (other := self._before_first_row(X)) is not None:
            return self._as_input(X, other.predict_interval(X, level, kind))
        with self._at_work():
            self._form()
            rows = self._checked(X)
            mean = self._mean(rows)
            reach = self._quantile(level) * self._deviation(rows, kind)
            if self._origin.is_complex:  # each part has half of the variance
                reach, means = reach / np.sqrt(2.0), np.stack([mean.real, mean.imag])
            else:
                means = mean
            unknown = ~np.isfinite(reach)  # NaN: no spread at all, and nothing to tell it from
            lower = np.where(unknown, -np.inf, means - reach)
            upper = np.where(unknown, np.inf, means + reach)
            for bound in (lower, upper):
                bound[np.isnan(means)] = np.nan
            if self._origin.is_complex:
                lower, upper = complex_rows.joined(*lower), complex_rows.joined(*upper)
            return self._as_input(X, (self._shaped_rows(lower), self._shaped_rows(upper)))

    def leverage(self, X: ArrayLike) -> NDArray[np.floating]:
        """Compute ``x . P x`` of each row, the variance of its prediction in units of the noise
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
        By the triangular factor, or P, that the state is held in, so that no condition number is
        squared.  ``sqrt`` of it is the width of LinUCB's bonus (Li et al. 2010, eq. 4).  O(d^2) a
        row; O(d^3) once a call for method "information".

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
            found = np.asarray(self._per_target(lambda form: self._by_block(form.leverage, rows)))
            return clip_to_finite(found.T if found.ndim == 2 else found, self._origin.dtype)

    def _checked(self, X: Any) -> NDArray:
        """Check the rows of X (n, d); those with a missing value become NaN."""
        convert: Callable[[Any, str], NDArray] = rows_or_array
        if self._origin.is_complex:
            convert = complex_rows.complex_array
        elif getattr(self, "TAKES_COMPLEX", False) and complex_rows.holds_complex(X):
            raise complex_rows.real_model(type(self).__name__, "X")
        rows = inputs.check_X(X, self, self.n_features_in_, allow_empty=False, convert=convert)
        inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        sparse = isinstance(rows, SparseRows)
        finite = rows.finite_rows() if sparse else np.logical_and.reduce(np.isfinite(rows), axis=1)
        if finite.all():
            return rows
        if self.missing == "raise":
            raise ValueError(
                f"Input X contains NaN or infinity (first in row {int(np.argmin(finite))}); "
                f"{type(self).__name__} predicts NaN for such rows with missing='skip'."
            )
        return np.where(finite[:, None], rows, rows.dtype.type(np.nan))

    def _mean(self, rows: NDArray) -> NDArray[np.float64]:
        """Predict checked rows, (n, m)."""
        theta, first = self._theta(), self._first
        out = np.empty((rows.shape[0], theta.shape[0]), theta.dtype)
        with threads_for(*rows.shape):
            for start in range(0, rows.shape[0], BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                out[part] = rows[part].astype(theta.dtype, copy=False) @ theta[:, first:].T
        if first:
            out += theta[:, 0]
        return out

    def _by_block(
        self, read: Callable[[NDArray[np.float64]], NDArray[np.float64]], rows: NDArray
    ) -> NDArray[np.float64]:
        """Compute ``read`` (n,) of checked rows with the intercept's 1, some thousand at a time."""
        out = np.full(rows.shape[0], np.nan)
        finite = rows.finite_rows() if isinstance(rows, SparseRows) else np.isfinite(rows).all(1)
        known = np.flatnonzero(finite)
        for start in range(0, known.size, BLOCK_ROWS):
            block = known[start : start + BLOCK_ROWS]
            whole = np.ones((block.size, rows.shape[1] + self._first), rows.dtype)
            whole[:, self._first :] = rows[block]
            if self._origin.is_complex:  # both rows of a pair have the same leverage
                whole = complex_rows.embed_first(whole)
            with threads_for(*whole.shape):
                out[block] = read(np.asarray(whole, np.float64))
        return out

    def _shaped_rows(self, values: NDArray) -> NDArray:
        """Cast (n, m) to the data's dtype, without the axis of targets if y was one-dimensional."""
        dtype = self._origin.dtype
        if values.dtype.kind == "c":
            parts = np.real(values), np.imag(values)
            out = complex_rows.joined(*(clip_to_finite(part, dtype) for part in parts))
        else:
            out = clip_to_finite(values, dtype)
        return out[:, 0] if self._origin.n_targets == 0 else out

    def _deviation(self, rows: NDArray, kind: str) -> NDArray[np.float64]:
        """Compute standard deviations (n, m) of the mean, or of an observation, at checked rows."""
        sandwich = self._origin.sandwich

        def of_form(form: Form) -> NDArray:
            read = form.sandwich_leverage if sandwich else form.leverage
            return np.broadcast_to(self._by_block(read, rows), (form.loss.size, rows.shape[0]))

        spread = self._by_target(of_form).T + (1.0 if kind == "observation" else 0.0)
        sigma2 = self._statistics()[0]
        with np.errstate(invalid="ignore"):
            deviation = np.sqrt(sigma2) * np.sqrt(spread)
        deviation[np.isinf(spread) | (np.isinf(sigma2) & ~np.isnan(spread))] = np.inf
        return deviation

    def _freedom(self) -> NDArray[np.float64]:
        """Return the degrees of freedom (m,) of ``sigma2_``; inf of one that is known."""
        ridge, discounted = self._origin.ridge, self._origin.discounted

        def of_form(form: Form) -> NDArray:
            return np.full(form.loss.size, counts_of(form, ridge, discounted).freedom)

        known = np.isfinite(self._known_noise(self._origin))
        return np.where(known, np.inf, self._by_target(of_form))

    def _quantile(self, level: float) -> NDArray[np.float64]:
        """Return Student's t quantile q (m,) with probability ``level`` in -q .. q; inf without
        freedom, and the normal distribution's for a known noise variance.
        """
        freedom = self._freedom()
        known = freedom > 0
        quantile = stdtrit(np.where(known, freedom, 1.0), 0.5 + 0.5 * level)
        return np.where(known, quantile, np.inf)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2 of ``predict(X)``, averaged over targets.

        1 is perfect, 0 is as good as the mean of y.  Rows with a non-finite value do not count
        under ``missing="skip"`` and are a ValueError under ``missing="raise"``; so are no rows.
        """
        check_same_index(X=X, y=y, sample_weight=sample_weight)
        predicted = np.asarray(self.predict(X))
        both, convert = np.float64, real_array
        if predicted.dtype.kind == "c":
            both, convert = np.complex128, complex_rows.complex_array
        predicted = predicted.astype(both)
        truth = inputs.check_y(y, self, predicted.shape[0], None, convert).astype(both)
        truth = truth.reshape(truth.shape[0], -1)
        predicted = predicted.reshape(truth.shape)
        w = check_weight(sample_weight, truth.shape[0])
        known = np.isfinite(truth).all(axis=1) & np.isfinite(predicted).all(axis=1)
        weighted = np.isfinite(w)
        if not (known & weighted).all():
            name = "sample_weight" if known.all() else "y"
            known &= weighted
            if self.missing == "raise":
                raise ValueError(
                    f"Input {name} contains NaN or infinity (first in row "
                    f"{int(np.argmin(known))}); {type(self).__name__} leaves such rows out of the "
                    "score with missing='skip'."
                )
            truth, predicted, w = truth[known], predicted[known], w[known]
        if not w.any():
            raise ValueError("no row is left to score: all have a missing value or weight 0")
        rest = w @ np.abs(truth - predicted) ** 2
        total = w @ np.abs(truth - (w @ truth) / w.sum()) ** 2
        constant = np.where(rest == 0, 1.0, 0.0)
        return float(
            np.mean(np.where(total > 0, 1.0 - rest / np.where(total > 0, total, 1.0), constant))
        )


def clip_to_finite(values: NDArray, dtype: np.dtype) -> NDArray:
    """Clip as :func:`clip_to` does, but keep infinities, which mean "not determined"."""
    return np.where(np.isinf(values), values, clip_to(values, dtype)).astype(dtype)
