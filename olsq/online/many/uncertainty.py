"""Uncertainty of a filter bank: leverage, prediction intervals, draws of the coefficients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag
from olsq.arrays.reals import real_array
from olsq.arrays.seeds import generator
from olsq.online.estimators.prediction import clip_to_finite
from olsq.online.estimators.uncertainty import noise_of_rows
from olsq.online.forms.rows import split_intercept
from olsq.online.forms.student import deviations, half_widths
from olsq.online.many.reading import BankReading
from olsq.online.many.rows import check_index, check_number
from olsq.online.many.state import READ_AT_ONCE
from olsq.online.rows import complex_rows
from olsq.online.rows.inputs import with_ones


class BankUncertainty(BankReading):
    """Leverage, widths of intervals, and draws for Thompson sampling."""

    def leverage(self, X: ArrayLike, *, which: ArrayLike | None = None) -> NDArray:
        """Compute ``x P x``, P the inverse information: a prediction's variance in units of sigma2.

        Parameters
        ----------
        X, which
            As in :meth:`predict`.

        Returns
        -------
        array (n,) or (n, T)
            inf for a row that points in a direction nothing is known about, NaN for one with a
            non-finite regressor.  P is not formed.

        Examples
        --------
        The upper confidence bounds of LinUCB, for all arms and one context:

        >>> import numpy as np, olsq
        >>> arms = olsq.FilterBank(4, n_features=2, ridge=1.0, fit_intercept=False)
        >>> context = np.array([1.0, 2.0])
        >>> arms.predict(context) + 0.5 * np.sqrt(arms.leverage(context))
        array([1.11803399, 1.11803399, 1.11803399, 1.11803399])
        """
        with self._locked():
            asked = self._asked(X, which)
            rows = asked.rows
            if self._kind.is_complex:  # both rows of a pair have the same leverage
                rows = complex_rows.embed_first(with_ones(rows, bool(self._first), np.complex128))
            leverages = asked.state.leverage(asked.filters, self._kind, rows, math.prod(asked.axes))
        leverages = leverages.reshape(asked.axes)
        return leverages[0] if asked.single else leverages

    def _deviation_before(
        self, X: ArrayLike, sample_weight: ArrayLike | None, which: ArrayLike | None
    ) -> NDArray:
        """Return the standard deviations of the observations that rows X come with, one for each
        filter asked, shaped as predictions.
        """
        asked = self._asked(X, which)
        rows, filters = asked.rows, asked.filters
        if self._kind.is_complex:
            rows = complex_rows.embed_first(with_ones(rows, bool(self._first), np.complex128))
        rows = np.broadcast_to(rows, (filters.size, rows.shape[1]))
        weights = None if sample_weight is None else np.reshape(sample_weight, -1)
        noise = noise_of_rows(weights, filters.size)
        out, _, _ = self._deviations(rows, filters, noise)
        if self._kind.is_complex:
            out = math.sqrt(2.0) * out
        if self.prior is None:
            out[(asked.state.seen[filters] == 0) & ~np.isnan(out[:, 0])] = np.inf
        out = clip_to_finite(out, self._dtype)
        out = out[:, 0] if self._n_targets == 0 else out
        return out[0] if asked.single else out

    def _deviations(
        self, rows: NDArray, filters: NDArray[np.int64], noise_of_row: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Compute standard deviations (n, m) at rows (n, d), each of its filter; return them, the
        degrees of freedom (b, m) of the filters asked, and each row's place (n,) among those.

        ``noise_of_row`` (n,) is the variance of each one's noise in units of ``sigma2_``; None for
        the deviations of the mean.
        """
        state, kind, noise = self._state_or_raise(), self._kind, self._known_noise()
        asked, place = np.unique(filters, return_inverse=True)
        sigma2, _, fit = state.statistics(asked, kind, state.estimates(asked, kind), noise)
        regressors, sandwich = np.ascontiguousarray(rows, np.float64), state.spread.shape[1] > 0
        spread = state.leverage(filters, kind, regressors, place.size, sandwich)[:, None]
        if noise_of_row is not None:
            spread = spread + noise_of_row[:, None]
        freedom = np.where(np.isfinite(noise), np.inf, fit.freedom)
        return deviations(spread, sigma2[place]), freedom, place

    def _reach(
        self,
        rows: NDArray,
        filters: NDArray[np.int64],
        level: float,
        noise_of_row: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Compute half of the width (n, m) of the intervals of rows (n, d), each of its filter.

        ``noise_of_row`` (n,) is the variance of each one's noise in units of ``sigma2_``; None for
        intervals of the mean.
        """
        out = np.empty((filters.size, self._state_or_raise().n_targets))
        for start in range(0, filters.size, READ_AT_ONCE):
            part = slice(start, start + READ_AT_ONCE)
            noise = None if noise_of_row is None else noise_of_row[part]
            deviation, freedom, place = self._deviations(rows[part], filters[part], noise)
            quantile = half_widths(np.ones(freedom.shape), freedom, level)  # one for each filter
            with np.errstate(invalid="ignore"):
                out[part] = quantile[place] * deviation
        out[np.isnan(out)] = np.inf  # no spread at all, and nothing to tell it from
        return out

    def sample_coef(
        self,
        rng: np.random.Generator | int | None = None,
        size: int = 1,
        *,
        sigma2: ArrayLike | None = None,
        which: ArrayLike | None = None,
        return_intercept: bool = False,
    ) -> Any:
        """Draw every filter's coefficients from their normal distribution (Thompson sampling).

        Parameters
        ----------
        rng : numpy Generator or seed, optional
        size : int, default 1
            Number of draws.
        sigma2 : number or array (n,) or (n, m), optional
            Noise variances, where they are known or chosen; default ``sigma2_``.
        which : int or array (b,) of int, optional
            The filters to draw for, instead of all n; an int is one filter, whose axis is left out.
        return_intercept : bool, default False

        Returns
        -------
        coef : array (size, n, d) or (size, n, m, d)
        intercept : array (size, n) or (size, n, m)
            Only with ``return_intercept``.

        Raises
        ------
        ValueError
            If a filter's rows do not determine its coefficients or noise variance (a positive ridge
            and ``sigma2=`` always do), or size or sigma2 is out of range.

        Notes
        -----
        As :meth:`RecursiveLeastSquares.sample_coef`; O(d^3) per filter and O(d^2) per draw.
        """
        check_number(size, "size")
        check_flag("return_intercept", return_intercept)
        with self._locked():
            state, kind = self._state_or_raise(), self._kind
            filters = np.arange(len(state)) if which is None else check_index(which, len(state))
            theta = state.theta(filters, kind)
            if sigma2 is None:
                noise = self._estimates(filters)[1]
            else:
                noise = _noise_variances(sigma2, filters.size, theta.shape[1])
            if not (np.isfinite(noise) & (noise >= 0)).all():
                raise ValueError(
                    "sigma2 must be finite and >= 0; where filters have too few rows for an "
                    "estimate give sigma2="
                )
            if kind.is_complex:  # of which each part has half
                noise = noise / 2.0
            u = generator(rng, "rng").standard_normal((size, *theta.shape))
            draws = state.draws(filters, kind, theta, np.sqrt(noise), u)
        lost = np.isnan(draws).any(axis=(0, 2, 3))
        if lost.any():
            raise ValueError(
                f"the coefficients of filter {filters[int(np.argmax(lost))]} are undetermined, so "
                "that they have no distribution: give a positive ridge"
            )
        draws = complex_rows.combine_coefficients(draws) if kind.is_complex else draws
        draws = draws[:, :, 0] if self._n_targets == 0 else draws
        if which is not None and np.ndim(which) == 0:
            draws = draws[:, 0]
        coef, constants = split_intercept(draws, self._first)
        return (coef, constants) if return_intercept else coef


def _noise_variances(sigma2: ArrayLike, b: int, m: int) -> NDArray[np.float64]:
    """Return sigma2 (b, m) of b filters."""
    variances = real_array(sigma2, "sigma2").astype(np.float64)
    variances = variances[:, None] if variances.ndim == 1 else variances
    if variances.ndim and variances.shape not in ((b, 1), (b, m)):
        raise ValueError(f"sigma2 must be a number or an array ({b},), got {variances.shape}")
    return np.broadcast_to(variances, (b, m))
