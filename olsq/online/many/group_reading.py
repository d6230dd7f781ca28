"""Attributes and predictions of regressions by group."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.forms.locking import Locked
from olsq.online.inference.predicting import check_level
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import Clocks
from olsq.online.many.labels import MISSING, encode, taken_out
from olsq.online.rows import inputs
from olsq.online.rows.durations import half_life_duration
from olsq.online.rows.frames import check_same_index


def _of_the_bank(name: str) -> Any:
    """Make a property that reads the bank's attribute, for the groups that exist."""

    def read(self: GroupReading) -> NDArray:
        with self._locked():
            return getattr(self._bank_or_raise(), name)[: len(self)]

    return property(read, doc=getattr(FilterBank, name).__doc__)


class GroupReading(Locked):
    """Attributes and predictions of groups, computed from the bank of their states."""

    missing: str
    prior: Any
    half_life: Any
    noise_variance: Any = None
    get_params: Callable[..., dict[str, Any]]
    _clocks: Clocks | None
    _bank: FilterBank
    _places: dict[Any, int]  # the filter of every key, in order of appearance
    _residual: NDArray

    # -- groups -----------------------------------------------------------------------------------

    @property
    def groups_(self) -> list[Any]:
        """The keys, in order of appearance."""
        return list(self._asked("_places"))

    def keys(self) -> list[Any]:
        """Return the keys in order of appearance; none before the first row."""
        return list(self.__dict__.get("_places", {}))

    def __len__(self) -> int:
        return len(self.__dict__.get("_places", {}))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __contains__(self, key: Any) -> bool:
        return key in self.__dict__.get("_places", {})

    def __getitem__(self, key: Any) -> RecursiveLeastSquares:
        """Return the group of a key as an estimator with a copy of its state, which continues from
        there.

        Raises KeyError for a key that no row came with.
        """
        with self._locked():
            bank, group = self._bank_or_raise(), self._places[key]
            est: Any = bank[group]
            for name in FilterBank.CHANGEABLE:  # the bank has those of the last call
                setattr(est, name, getattr(self, name))
            if (names := getattr(self, "feature_names_in_", None)) is not None:
                est._origin = est._origin._replace(names=names)
                est.feature_names_in_ = names
            if self._clocks is not None:
                est._timing = self._clocks.timing(group)
                switch: Any = est._engine.engine
                switch.span = self._clocks.span(group)
            return est

    # -- reading ----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike, *, by: Any) -> NDArray:
        """Predict (n,) or (n, m), each row by the coefficients of its group.

        NaN for a row with a non-finite regressor, without a label, or of a group that has learnt no
        row; under ``missing="raise"`` a ValueError.  With a prior such groups predict its mean.
        """
        with self._locked():
            bank = self._bank_or_prior()
            X, by = taken_out(X, by)
            check_same_index(X=X, by=by)
            inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
            rows = inputs.check_X(X, self, bank.n_features_in_, allow_empty=True)
            places = self.__dict__.get("_places", {})
            codes, fresh = encode(by, rows.shape[0], places)
            known = codes != MISSING
            if self.prior is None:
                known &= codes < len(places)
            else:  # the first filter of another bank for all groups that are new
                bank = self._with_one_more(bank, len(places))
                codes = np.minimum(codes, len(places))
            if self.missing == "raise" and not known.all():
                row = int(np.argmin(known))
                what = "has no label" if codes[row] == MISSING else f"is {fresh[0]!r}, a new label,"
                raise ValueError(f"by {what} in row {row}; such rows predict NaN with 'skip'")
            if self.prior is None:  # a group whose rows were all skipped predicts nothing either
                known[known] = bank.n_samples_seen_[codes[known]] > 0
            found = bank.predict(rows[known], which=codes[known])
            out = np.full((known.size, *found.shape[1:]), np.nan, bank._dtype)
            out[known] = found
            return out

    def predict_interval(
        self, X: ArrayLike, level: float = 0.95, kind: str = "observation", *, by: Any
    ) -> tuple[NDArray, NDArray]:
        """Compute intervals around :meth:`predict`, each by its row's group.

        Parameters
        ----------
        X, by
            As in :meth:`predict`.
        level, kind
            As in :meth:`RecursiveLeastSquares.predict_interval`, whose formula this is.

        Returns
        -------
        lower, upper : arrays (n,) or (n, m)
            -inf and inf where a group's rows do not determine them; NaN where the prediction is.

        Raises
        ------
        ValueError
            As :meth:`predict`; if level or kind is not one of its choices.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X, y = np.array([[1.0], [1.0], [2.0], [2.0]]), [1.0, 1.2, 2.0, 2.2]
        >>> groups = olsq.GroupedLeastSquares(fit_intercept=False)
        >>> lower, upper = groups.partial_fit(X, y, by=[7] * 4).predict_interval([[3.0]], by=[7])
        >>> float(lower[0].round(3)), float(upper[0].round(3))
        (2.649, 3.711)
        """
        check_choice(kind, "kind", ("observation", "mean"))
        level = check_level(level)
        with self._locked():
            bank = self._bank_or_prior()
            mean = self.predict(X, by=by)
            X, by = taken_out(X, by)
            check_same_index(X=X, by=by)
            inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
            rows = inputs.check_X(X, self, bank.n_features_in_, allow_empty=True)
            places = self.__dict__.get("_places", {})
            codes, _ = encode(by, rows.shape[0], places)
            new = (codes >= len(places)) & np.isfinite(mean.reshape(len(mean), -1)).all(axis=1)
            asked = np.flatnonzero((codes != MISSING) & (codes < len(places)))
            reach = bank._reach(rows[asked], codes[asked], level, kind == "observation")
            lower, upper = mean.copy(), mean.copy()
            shape = (asked.size, *mean.shape[1:])
            with np.errstate(invalid="ignore"):
                lower[asked] -= reach.reshape(shape)
                upper[asked] += reach.reshape(shape)
            lower[new], upper[new] = -np.inf, np.inf
            return lower, upper

    coef_ = _of_the_bank("coef_")
    intercept_ = _of_the_bank("intercept_")
    n_samples_seen_ = _of_the_bank("n_samples_seen_")
    sigma2_ = _of_the_bank("sigma2_")
    coef_stderr_ = _of_the_bank("coef_stderr_")
    intercept_stderr_ = _of_the_bank("intercept_stderr_")
    rank_ = _of_the_bank("rank_")
    determined_ = _of_the_bank("determined_")
    n_held_ = _of_the_bank("n_held_")

    @property
    def residual_(self) -> NDArray:
        """A-priori residuals of the last call's rows; NaN in skipped rows."""
        return self._asked("_residual")

    # -- the state --------------------------------------------------------------------------------

    def _bank_or_raise(self) -> FilterBank:
        bank = self._asked("_bank")
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

    def _asked(self, name: str) -> Any:
        if "_bank" not in self.__dict__:
            raise inputs.not_fitted(self)
        return self.__dict__[name]

    def __sklearn_is_fitted__(self) -> bool:
        return "_bank" in self.__dict__
