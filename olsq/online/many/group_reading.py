"""Attributes and predictions of regressions by group."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.many.bank import FilterBank
from olsq.online.many.by_key import ByKey, of_groups
from olsq.online.many.clocks import Clocks
from olsq.online.many.labels import known_key
from olsq.online.many.panel_fit import PanelFit
from olsq.online.many.panels import fit_panel
from olsq.online.rows.durations import half_life_duration


class GroupReading(ByKey):
    """Attributes and predictions of groups, computed from the bank of their states."""

    prior: Any
    half_life: Any
    _clocks: Clocks | None = None  # of all filters, if the half-life is a length of time
    _bank: FilterBank
    _places: dict[Any, int]  # the filter of every key, in order of appearance

    # -- groups -----------------------------------------------------------------------------------

    def _known(self) -> dict[Any, int]:
        return self.__dict__.get("_places", {})

    def __getitem__(self, key: Any) -> RecursiveLeastSquares:
        """Return the group of a key as an estimator with a copy of its state, which continues from
        there.

        Raises KeyError for a key that no row came with.
        """
        with self._locked():
            bank, group = self._bank_or_raise(), self._places[known_key(key, self._places)]
            est = self._named(bank[group])
            for name in FilterBank.CHANGEABLE:  # the bank has those of the last call
                setattr(est, name, getattr(self, name))
            if self._clocks is not None:
                est._timing = self._clocks.timing(group)
                switch: Any = est._engine.engine
                switch.span = self._clocks.span(group)
            return est

    # -- reading ----------------------------------------------------------------------------------

    def _n_columns(self) -> int:
        return self._bank_or_prior().n_features_in_

    def _rows_asked(self, X: Any, by: Any) -> tuple[NDArray, NDArray[np.int64], NDArray[np.bool_]]:
        rows, codes, answered = super()._rows_asked(X, by)
        if self.prior is None:  # a group whose rows were all skipped predicts nothing either
            answered[answered] = self._bank.n_samples_seen_[codes[answered]] > 0
        return rows, codes, answered

    def _by_part(self, read: Callable[[FilterBank, NDArray[np.bool_]], NDArray]) -> NDArray:
        bank = self._bank_or_prior()
        if self.prior is not None:  # new groups are as a filter that has learned nothing
            bank = self._with_one_more(bank, len(self))
        return read(bank, np.zeros(len(bank), np.bool_))

    # -- panels -----------------------------------------------------------------------------------

    def pooled(self, cov: str = "nonrobust") -> PanelFit:
        """Fit one regression to the rows of all groups, from the groups' states.

        Parameters
        ----------
        cov : {"nonrobust", "cluster"}, default "nonrobust"
            Standard errors for noise that is independent from row to row with one variance, or
            for noise that is correlated in any way within a group and has any variances (clustered
            by group; Liang & Zeger 1986).

        Returns
        -------
        PanelFit

        Raises
        ------
        NotFittedError
            Before the first row.
        ValueError
            If the groups have forgotten rows, or have a ridge or a prior; for another ``cov``, and
            for "cluster" with fewer than two groups.

        Notes
        -----
        "nonrobust" is ordinary (weighted) least squares of all rows.  "cluster" has the factor
        ``G / (G - 1) (N - 1) / (N - k)`` for G groups, and G - 1 degrees of freedom: linearmodels'
        ``PooledOLS`` with ``cov_type="clustered", group_debias=True``, statsmodels' and Stata's.
        No row is needed: states that were saved, merged or learned on many machines answer the
        same.  O(d^2 + d m) memory and O(d^3) time per group.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> rng = np.random.default_rng(0)
        >>> X, firm = rng.standard_normal((300, 2)), np.repeat(np.arange(30), 10)
        >>> y = X @ [1.0, -1.0] + rng.standard_normal(30)[firm] + rng.standard_normal(300)
        >>> fit = olsq.GroupedLeastSquares().fit(X, y, by=firm).pooled(cov="cluster")
        >>> fit.coef.round(1), fit.stderr.round(2)
        (array([ 0.9, -0.8]), array([0.1 , 0.09]))
        """
        with self._locked():
            return fit_panel(self, self._bank_or_raise(), cov, within=False)

    def within(self, cov: str = "nonrobust", *, effects: str = "group") -> PanelFit:
        """Fit one regression with an intercept for every group (fixed effects), from the states.

        Parameters
        ----------
        cov : {"nonrobust", "cluster"}, default "nonrobust"
            As in :meth:`pooled`.
        effects : {"group"}, default "group"
            Intercepts by group.  Two-way effects need several passes over the rows and are
            refused; columns of 0 and 1 in X serve where the second key has few values.

        Returns
        -------
        PanelFit
            ``effects`` holds the intercepts.  A regressor that is constant within every group is
            undetermined: its ``stderr`` is inf.

        Raises
        ------
        NotFittedError, ValueError
            As :meth:`pooled`; also if the groups were learned with ``fit_intercept=False``.

        Notes
        -----
        The within estimator: least squares of the rows about the means of their groups, with
        ``N - G - k`` degrees of freedom; nothing is subtracted, so that large means cost no digits.
        "cluster" (Arellano 1987) has the factor ``G / (G - 1) (N - 1) / (N - k)``: linearmodels'
        ``PanelOLS`` with entity effects and ``group_debias=True``.  Stata and fixest count
        ``k + 1`` coefficients.  Groups of one row say nothing about the coefficients; they count
        in N and G.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> rng = np.random.default_rng(0)
        >>> X, firm = rng.standard_normal((300, 2)), np.repeat(np.arange(30), 10)
        >>> y = X @ [1.0, -1.0] + 1e6 * firm + 0.1 * rng.standard_normal(300)
        >>> groups = olsq.GroupedLeastSquares().fit(X, y, by=firm)
        >>> groups.within(cov="cluster").coef.round(2)
        array([ 1.  , -0.99])
        """
        with self._locked():
            return fit_panel(self, self._bank_or_raise(), cov, within=True, effects=effects)

    n_samples_seen_ = of_groups("n_samples_seen_", 0)
    n_held_ = of_groups("n_held_", 0)

    # -- the state --------------------------------------------------------------------------------

    def _bank_or_raise(self) -> FilterBank:
        self._check_fitted()
        bank = self._bank
        bank.noise_variance = self.noise_variance  # which may have changed since the last row
        return bank

    def _bank_or_prior(self) -> FilterBank:
        """Return the bank; before the first row one that knows the prior, where there is one."""
        if "_bank" in self.__dict__ or self.prior is None:
            return self._bank_or_raise()
        bank = FilterBank(1, **self._bank_parameters())
        bank._state_or_raise()
        return bank

    def _bank_parameters(self) -> dict[str, Any]:
        """Return the bank's parameters, whose half-lives count rows."""
        timed = half_life_duration(self.half_life, self._clocks is not None) is not None
        return self.get_params() | ({"half_life": None} if timed else {})

    def _with_one_more(self, bank: FilterBank, n: int) -> FilterBank:
        """Return a bank whose filter n has learned nothing, if need be a spare one of this."""
        return bank if len(bank) > n else copy.copy(bank).grow(1)

    def __sklearn_is_fitted__(self) -> bool:
        return "_bank" in self.__dict__
