"""Draws of the coefficients from their posterior distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import shown
from olsq.online.forms.form import Form
from olsq.online.inference.predicting import Predictions
from olsq.online.rows import complex_rows
from olsq.online.rows.options import check_variances


class Draws(Predictions):
    """Draws of the coefficients, for Thompson sampling."""

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
        factor of the state; with ``cov="sandwich"`` of covariance ``P S P``.  O(d^2) a draw and
        O(d^3) a call.  Reference: Agrawal & Goyal 2013, algorithm 1.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> est = olsq.RecursiveLeastSquares(ridge=1.0, fit_intercept=False)
        >>> est.fit(np.eye(2), [1.0, 2.0]).sample_coef(0, size=1000, sigma2=1.0).std(0).round(1)
        array([0.7, 0.7])
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"size must be a whole number of draws, got {shown(size)}")
        generator = np.random.default_rng(rng)
        if (other := self._before_first_row()) is not None:
            options: dict[str, Any] = {"sigma2": sigma2, "return_intercept": return_intercept}
            return other.sample_coef(generator, size, **options)
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
                W = generator.standard_normal((form.loss.size * size, k))
                if sandwich:
                    W, _ = form.whitened(W @ form.spread.astype(np.float64))
                return form.unwhitened(W).reshape(form.loss.size, size, k)

            if self._origin.is_complex:  # of which each part has half
                noise = noise / 2.0
            spread = np.sqrt(noise)[:, None, None] * self._by_target(of_form)
            draws = self._real_theta()[:, None] + spread
            if self._origin.is_complex:
                draws = complex_rows.combine_coefficients(draws)
            shaped = draws[0] if self._origin.n_targets == 0 else draws.transpose(1, 0, 2)
            coef = np.ascontiguousarray(shaped[..., self._first :])
            if not return_intercept:
                return coef
            nothing = np.zeros(shaped.shape[:-1], shaped.dtype)
            first = shaped[..., 0].copy() if self._first else nothing
            return coef, first

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
