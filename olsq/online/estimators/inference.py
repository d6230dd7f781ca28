"""Covariance of the coefficients, draws of them, tests of hypotheses, and the summary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from olsq.arrays.checks import check_flag, check_integer, check_rows_held
from olsq.arrays.seeds import generator
from olsq.online.estimators.uncertainty import Uncertainty
from olsq.online.forms.form import Form
from olsq.online.forms.rows import split_intercept
from olsq.online.forms.student import check_level, deviations, half_widths
from olsq.online.inference import robust
from olsq.online.inference.restrictions import Contrasts, WaldTest, restrictions
from olsq.online.inference.summary import Summary, f_probability, summarise
from olsq.online.rows import complex_rows
from olsq.online.rows.options import check_variances
from olsq.threads import one_blas_thread


class Inference(Uncertainty):
    """Covariance of the coefficients, draws, tests, and the summary."""

    def cov_params(
        self, kind: str | None = None, *, lags: int | None = None, data: Any = None
    ) -> NDArray[np.float64]:
        """Compute the covariance matrix of the coefficients, the intercept first if there is one.

        Parameters
        ----------
        kind : {"HC0", "HC1", "HC2", "HC3", "hac"}, optional
            In capitals or not.
            For noise whose variance differs from row to row (White), or that is correlated
            too (Newey-West); by default what ``cov`` says.
        lags : int, optional
            For "hac": over how many rows noise is correlated.  Default: Newey and West's choice,
            ``4 (n / 100)^(2/9)`` rounded down, of n rows.
        data : (X, y), (X, y, sample_weight) or (X, y, sample_weight, times)
            For a ``kind``: the rows learned, or the last ones that still count, in order.  They are
            weighted by the estimator's forgetting factors.  Not for a rolling window, which has its
            own rows, nor with a strategy that leaves rows without weights.

        Returns
        -------
        array (k, k), or (m, k, k) with several targets
            float64; k is d, or d + 1 with an intercept.  The square root of its diagonal is
            ``intercept_stderr_`` and ``coef_stderr_``.  Of complex coefficients complex128 and
            Hermitian, ``E[error error^H]`` under circular noise.  An undetermined coefficient has
            inf on the diagonal and NaN in the rest of its row and column.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            For a kind or lags that are none, a recursion without data, or data that are not the
            rows learned.

        Notes
        -----
        ``sigma2_ P``, or ``sigma2_ P S P`` with ``cov="sandwich"``, ``sigma2_`` being the
        ``noise_variance`` where it is known; statsmodels' ``cov_params()``
        of OLS and WLS at forget = 1 without a ridge, and its robust ones of the same name (without
        small-sample factors except HC1).  O(d^3); with rows O(n d^2 (lags + 1)).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False)
        >>> est.fit(np.eye(2)[[0, 0, 1, 1]], [1.0, 3.0, 5.0, 7.0]).cov_params().round(6)
        array([[1., 0.],
               [0., 1.]])
        """
        self._form()
        if kind is not None:
            complex_rows.refuse_complex(
                self._origin, f"cov_params(kind={kind!r})", "leave kind out for circular noise"
            )
        if kind is None:
            if lags is not None or data is not None:
                raise ValueError("lags and data are for a kind of covariance: give kind= too")
            with self._at_work():
                return self._shaped(self._covariances())
        kind, lags = robust.check_kind(kind, lags)
        with self._at_work():
            theta, k = self._theta(), self._origin.ridge.size
            covariances = np.empty((self._origin.columns, k, k))
            for targets, form, rows in robust.weighed_rows(self, data):
                for i, j in enumerate(targets):
                    P = robust.covariance(form, theta[j], rows, i, kind, lags)
                    covariances[j] = without_undetermined(P, ~form.determined())
            covariances[np.isnan(theta).any(axis=1)] = np.nan  # below min_samples
            return self._shaped(covariances)

    def _covariances(self) -> NDArray:
        """Compute the covariances (m, k, k) of all targets."""
        k, sandwich = self._origin.ridge.size, self._origin.sandwich

        def of_form(form: Form) -> NDArray:
            rows = _deviations(form, np.eye(k), sandwich)
            P = without_undetermined(rows @ rows.T, ~form.determined())
            return np.broadcast_to(P, (form.loss.size, k, k))

        P, sigma2 = self._by_target(of_form), self._statistics()[0][:, None, None]
        if self._origin.is_complex:  # sigma2 is of both parts
            sigma2 = sigma2 / 2.0
        covariances = scaled_covariance(P, sigma2)
        return (
            complex_rows.combine_covariance(covariances) if self._origin.is_complex else covariances
        )

    def t_test(self, restriction: Any, value: ArrayLike = 0.0, *, level: float = 0.95) -> Contrasts:
        """Test linear combinations of the coefficients, each on its own, by Student's t.

        By the normal distribution where ``noise_variance`` is known: degrees of freedom are inf.

        Parameters
        ----------
        restriction : array (k,) or (r, k), or str
            The combinations R, rows over the d coefficients, or over the intercept and the d
            coefficients.  Or a text such as ``"a - b"`` or ``"a = b, c = 2"`` of feature names
            (``x0``, ``x1``, ... without names, ``Intercept``), which needs the package formulaic.
        value : number or array (r,), default 0
            What ``R theta`` is held against.
        level : float, default 0.95
            Of the confidence bounds.

        Returns
        -------
        Contrasts

        Raises
        ------
        NotFittedError, ValueError
            Before the first sample; for shapes that do not fit, an unknown name or level.

        Notes
        -----
        Errors as :meth:`cov_params`, degrees of freedom as :meth:`predict_interval`.  Equal to
        statsmodels' ``t_test`` of OLS and WLS at forget = 1 without a ridge.  O(r d^2 + d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False)
        >>> test = est.fit(np.eye(2)[[0, 0, 1, 1]], [1.0, 3.0, 5.0, 7.0]).t_test([1.0, -1.0])
        >>> float(test.effect[0].round(6)), float(test.statistic[0].round(4))
        (-4.0, -2.8284)
        """
        level = check_level(level)
        self._form()
        complex_rows.refuse_complex(self._origin, "t_test", "use coef_stderr_ and cov_params")
        with self._at_work():
            R, value = self._restrictions(restriction, value)
            effect = self._theta() @ R.T - value
            spread = self._by_target(lambda form: self._variances(form, R))
            error, freedom = deviations(spread, self._statistics()[0][:, None]), self._freedom()
            reach = half_widths(error, freedom[:, None], level)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                t = np.where(effect == 0, 0.0, effect / error)
            p = np.where(np.isinf(error), 1.0, 2 * stdtr(_positive(freedom)[:, None], -np.abs(t)))
            both = effect - reach, effect + reach
            parts = (effect, error, t, p, *both, freedom)
            return Contrasts(*(self._shaped(part) for part in parts))

    def wald_test(self, restriction: Any, value: ArrayLike = 0.0) -> WaldTest:
        """Test linear restrictions ``R theta = value`` together, by an F test.

        Parameters
        ----------
        restriction, value
            As for :meth:`t_test`.

        Returns
        -------
        WaldTest
            ``(R theta - value)^T (R V R^T)^-1 (R theta - value) / r`` with V of
            :meth:`cov_params`, and the probability of a larger one under F(r, freedom); r times
            the statistic is chi-squared where ``noise_variance`` is known.

        Raises
        ------
        NotFittedError, ValueError
            As :meth:`t_test`; also if the restrictions depend on each other, or rows so far do not
            determine one of them.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False)
        >>> test = est.fit(np.eye(2)[[0, 0, 1, 1]], [1.0, 3.0, 5.0, 7.0]).wald_test(np.eye(2))
        >>> float(test.statistic.round(6)), test.restrictions
        (20.0, 2)
        """
        self._form()
        complex_rows.refuse_complex(self._origin, "wald_test", "use coef_stderr_ and cov_params")
        with self._at_work():
            R, value = self._restrictions(restriction, value)
            effect = self._theta() @ R.T - value
            sigma2, freedom = self._statistics()[0], self._freedom()
            r, sandwich = R.shape[0], self._origin.sandwich

            def of_form(form: Form) -> NDArray:
                unknown = np.flatnonzero(np.isinf(self._variances(form, R)[0]))
                if unknown.size:
                    raise ValueError(
                        f"rows so far do not determine restriction {unknown[0]}: test the others"
                    )
                factor: Any = np.linalg.qr(_deviations(form, R, sandwich).T, mode="r")
                scale = np.linalg.norm(factor, axis=0)
                if r > factor.shape[0] or _rank(factor / scale) < r:
                    raise ValueError(
                        "restriction has rows that depend on each other: leave out those that "
                        "follow from the others"
                    )
                return np.broadcast_to(factor, (form.loss.size, r, r))

            roots = np.linalg.solve(
                self._by_target(of_form).transpose(0, 2, 1), effect[:, :, None]
            )[:, :, 0]
            with np.errstate(divide="ignore"):
                F = (roots**2).sum(1) / r / sigma2
            p = np.where(freedom > 0, f_probability(r, freedom, F), 1.0)
            parts = (self._shaped(part) for part in (F, p, freedom))
            statistic, pvalue, df = (x if np.ndim(x) else x[()] for x in parts)
            return WaldTest(statistic, pvalue, r, df)

    @one_blas_thread
    def summary(self, *, level: float = 0.95) -> Summary:
        """Summarise the regression as a table to print or to show in a notebook.

        Parameters
        ----------
        level : float, default 0.95
            Of the confidence bounds.

        Returns
        -------
        Summary
            Its numbers are attributes; ``str`` gives the text, notebooks show HTML.

        Raises
        ------
        NotFittedError, ValueError
            Before the first sample; for a level that is none.

        Notes
        -----
        At forget = 1 without a ridge every number is that of statsmodels' OLS (or WLS, of the same
        weights).  Under forgetting rows count by their forgetting weights.  O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X = np.arange(8.0)[:, None]
        >>> y = 2 * X[:, 0] + 1 + np.tile([0.1, -0.1], 4)
        >>> found = olsq.RecursiveLeastSquares().fit(X, y).summary()
        >>> found.names, found.coef.round(3)
        (['Intercept', 'x0'], array([1.033, 1.99 ]))
        """
        self._form()
        complex_rows.refuse_complex(self._origin, "summary", "use coef_, coef_stderr_ and sigma2_")
        with self._at_work():
            return summarise(self, check_level(level))

    def sample_coef(
        self,
        rng: np.random.Generator | int | None = None,
        size: int = 1,
        *,
        sigma2: ArrayLike | None = None,
        return_intercept: bool = False,
    ) -> Any:
        """Draw coefficients from their normal distribution, for Thompson sampling.

        Parameters
        ----------
        rng : numpy Generator or seed, optional
        size : int, default 1
            Number of draws.
        sigma2 : number or array (m,), optional
            The noise variance, where it is known or chosen (the v^2 of Thompson sampling);
            ``sigma2_`` by default, which needs more rows than coefficients.
        return_intercept : bool, default False
            Whether to return the draws of the intercept too.

        Returns
        -------
        coef : array (size, d) or (size, m, d)
            float64; targets are drawn independently of each other.
        intercept : array (size,) or (size, m)
            Only with ``return_intercept``.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            If rows so far do not determine all coefficients or the noise variance (a positive
            ridge and ``sigma2=`` do from the first row on), or size or sigma2 is out of range.

        Notes
        -----
        ``theta + sqrt(sigma2) B u`` with u standard normal and ``B B^T = P``, by the triangular
        factor of the state; with ``cov="sandwich"`` of covariance ``P S P``.  O(d^2) per draw and
        O(d^3) per call.  Reference: Agrawal & Goyal 2013, algorithm 1.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(ridge=1.0, fit_intercept=False)
        >>> est.fit(np.eye(2), [1.0, 2.0]).sample_coef(0, size=1000, sigma2=1.0).std(0).round(1)
        array([0.7, 0.7])
        """
        check_integer("size", size, 0)
        check_rows_held("size", size)
        check_flag("return_intercept", return_intercept)
        rng = generator(rng, "rng")
        if (other := self._before_first_row()) is not None:
            options: dict[str, Any] = {"sigma2": sigma2, "return_intercept": return_intercept}
            return other.sample_coef(rng, size, **options)
        self._form()
        with self._at_work():
            noise = self._noise_to_draw(sigma2)
            k, sandwich = self._origin.ridge.size, self._origin.sandwich

            def of_form(form: Form) -> NDArray:
                if not (form.full_rank and form.determined().all()):
                    raise ValueError(
                        "rows so far do not determine all coefficients (see determined_), so that "
                        "there is no distribution to draw from; use a positive ridge, or wait"
                    )
                W = rng.standard_normal((form.loss.size * size, k))
                return form.deviations(W, sandwich).reshape(form.loss.size, size, k)

            if self._origin.is_complex:  # of which each part has half
                noise = noise / 2.0
            spread = np.sqrt(noise)[:, None, None] * self._by_target(of_form)
            draws = self._real_theta()[:, None] + spread
            if self._origin.is_complex:
                draws = complex_rows.combine_coefficients(draws)
            shaped = draws[0] if self._origin.n_targets == 0 else draws.transpose(1, 0, 2)
            coef, constants = split_intercept(shaped, self._first)
            coef = np.ascontiguousarray(coef)
            return (coef, constants.copy()) if return_intercept else coef

    def _noise_to_draw(self, sigma2: ArrayLike | None) -> NDArray[np.float64]:
        """Return the noise variances (m,) to draw with."""
        if sigma2 is None:
            noise = self._statistics()[0]
            if np.isinf(noise).any():
                raise ValueError(
                    "rows so far do not determine the noise variance: give sigma2=, or wait for "
                    "more rows than coefficients"
                )
            return noise
        return check_variances(sigma2, "sigma2", self._origin.columns)

    def _restrictions(self, restriction: Any, value: ArrayLike) -> tuple[NDArray, NDArray]:
        """Return R (r, k) over intercept and coefficients, and the values (r,)."""
        names = self._coefficient_names()
        return restrictions(restriction, value, names, self.n_features_in_)

    def _variances(self, form: Form, R: NDArray) -> NDArray[np.float64]:
        """Compute variances (m, r) of the combinations R (r, k), in units of the noise variance."""
        variances = form.sandwich_leverage(R) if self._origin.sandwich else form.leverage(R)
        return np.broadcast_to(variances, (form.loss.size, R.shape[0]))


def scaled_covariance(P: NDArray, scale: NDArray | float) -> NDArray[np.float64]:
    """Multiply covariances (..., k, k) by a scale that may be inf, which gives inf and NaN."""
    diagonal = np.broadcast_to(np.eye(P.shape[-1], dtype=bool), P.shape)
    with np.errstate(invalid="ignore"):
        scaled = np.where(np.isinf(scale), np.where(diagonal, np.inf, np.nan), scale * P)
    return np.where(np.isinf(P), np.inf, scaled)


def _deviations(form: Form, R: NDArray, sandwich: bool) -> NDArray[np.float64]:
    """Compute rows whose products are the covariances of the combinations R (r, k)."""
    return form.solved(R) @ form.spread.T if sandwich else form.whitened(R)[0]


def without_undetermined(P: NDArray, unknown: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Set a covariance (k, k) to inf on the diagonal, and NaN beside it, where unknown."""
    P[unknown] = P[:, unknown] = np.nan
    P[unknown, unknown] = np.inf
    return P


def _rank(factor: NDArray) -> int:
    values = np.linalg.svd(factor, compute_uv=False)
    return int((values > 1e-10 * values[0]).sum())


def _positive(freedom: NDArray) -> NDArray[np.float64]:
    return np.where(freedom > 0, freedom, 1.0)
