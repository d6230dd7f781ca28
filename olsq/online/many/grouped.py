"""The estimator GroupedLeastSquares: one regression per key of a stream."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.masked import fill_masked
from olsq.arrays.reals import real_array
from olsq.forgetting.base import Forgetting
from olsq.online.files import frozen
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import time_rows
from olsq.online.many.group_reading import GroupReading
from olsq.online.many.labels import MISSING, encode, written_key
from olsq.online.parameters import FilterParameters
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import inputs
from olsq.online.rows.durations import Duration, half_life_duration
from olsq.online.rows.options import check_forget, forget_or_half_life, plain
from olsq.online.rows.times import times_or_index


@dataclass(eq=False, repr=False, match_args=False)
class GroupedLeastSquares(FilterParameters, GroupReading):
    """Recursive least squares by key: one regression for every label that rows come with.

    Each group is a :class:`RecursiveLeastSquares` on the rows of its label; a label that was never
    seen starts one.  All are learned together, in a :class:`FilterBank` that grows.

    Parameters
    ----------
    half_life : int, float, str or timedelta, optional
        As in :class:`RecursiveLeastSquares`: a number of rows of the group, or a length of time
        ("30D", or a number where ``times`` are numbers).  Each group forgets by the time since
        its own last row.
    forget, ridge, fit_intercept, method, missing, cov, prior, noise_variance
        As in :class:`FilterBank`, the same for all groups.  ``missing="skip"`` also passes over
        rows without a label (NaN, None, NaT); "raise" refuses them.

    Attributes
    ----------
    groups_ : list
        The keys, in order of appearance; entry i of the arrays below is group i's.
    coef_, intercept_, n_samples_seen_, sigma2_, coef_stderr_, intercept_stderr_, rank_,
    determined_, n_held_ : arrays, groups first
        As in :class:`FilterBank`.
    r_squared_ : array (groups,) or (groups, m)
        As in their summaries: about a millisecond per group.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call's rows, NaN in skipped ones.
    n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    O(d^2 + m d) time per row and memory a group; a call sorts its labels.  Several threads may use
    one object.  No derivatives.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> shop = rng.choice(["north", "south"], 200)
    >>> X = rng.standard_normal((200, 1))
    >>> y = np.where(shop == "north", 2.0, -1.0) * X[:, 0]
    >>> groups = olsq.GroupedLeastSquares(ridge=1e-6).partial_fit(X, y, by=shop)
    >>> sorted(groups.keys())
    ['north', 'south']
    >>> groups["south"].coef_.round(3)
    array([-1.])
    >>> groups.predict([[1.0], [1.0]], by=["north", "south"]).round(3)
    array([ 2., -1.])
    """

    # -- learning ---------------------------------------------------------------------------------

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        by: Any,
        times: Any,
        forget: Any = None,
        *,
        want_path: bool = False,
    ) -> CoefficientPath | None:
        fitted = "_bank" in self.__dict__
        if np.ndim(self.forget) > 0 or np.ndim(self.half_life) > 0 or np.ndim(self.ridge) > 1:
            raise ValueError(
                "forget and half_life must be a number and ridge a number or an array (d,), the "
                "same for all groups"
            )
        if fitted:
            self._check_frozen()
        places: dict[Any, int] = dict(self._places) if fitted else {}
        per_row = {"sample_weight": sample_weight, "forget": forget}
        X, by, times, named = self._taken_apart(X, y, by, times, **per_row)
        times, duration = self._times_of(times, X, y, forget)
        X, y = inputs.check_X(X, self, None, allow_empty=True), real_array(y, "y")
        codes, fresh = encode(by, X.shape[0], places)
        for key in fresh:
            places[key] = len(places)
        labelled = codes != MISSING
        if not labelled.all():
            self._refuse_unlabelled(codes)
            if y.shape[:1] != X.shape[:1]:
                inputs.check_y(y, self, X.shape[0], None)  # refuses it
            labelled_rows = [
                a if a is None or np.ndim(a) == 0 else np.asarray(fill_masked(a))[labelled]
                for a in (X, y, sample_weight, forget)
            ]
            X, y, sample_weight, forget = labelled_rows
        bank, timed = self._grown(len(places)), None
        if duration is not None:
            parameter, keys, n = f"half_life={self.half_life!r}", list(places), len(bank)
            timed = time_rows(
                self._clocks, times, codes, keys, n, duration, parameter, duration.length
            )
        self._pass_parameters(bank)
        path = bank._learn(
            X, y, sample_weight, forget, codes[labelled], want_path=want_path, timed=timed
        )
        assert bank._residual is not None
        return self._settle_rows(
            labelled,
            bank._residual,
            path,
            _bank=bank,
            _places=places,
            n_features_in_=bank.n_features_in_,
            _clocks=None if timed is None else timed.after,
            **named,
        )

    def _times_of(self, times: Any, X: Any, y: Any, forget: Any) -> tuple[Any, Duration | None]:
        """Return the times of a call as given, and the half-life; None if it counts rows."""
        duration = half_life_duration(self.half_life, times is not None or self._clocks is not None)
        value = f"half_life={self.half_life!r}"
        if duration is None:
            if times is not None:
                if isinstance(self.forget, Forgetting):
                    strategy: Any = self.forget
                    check_forget(strategy)  # refuses a strategy: it may be one in time
                raise ValueError(
                    f"times are not used with {value}: leave times out, or give a length of time "
                    "such as half_life='90D'"
                )
            return None, None
        forget_or_half_life(self.forget, self.half_life)  # refuses both
        if forget is not None:
            raise ValueError(f"forget and {value}, a length of time, cannot be combined")
        if self._clocks is None and "_bank" in self.__dict__ and self.n_samples_seen_.any():
            raise ValueError(
                f"{value} is a length of time, but this GroupedLeastSquares has learned rows "
                "without times: call fit to start anew"
            )
        return times_or_index(times, X, y, duration, value), duration

    def _grown(self, groups: int) -> FilterBank:
        """Return the bank with room for so many groups, and spare ones: few calls grow it."""
        if "_bank" not in self.__dict__:
            return FilterBank(max(groups, 1), **self._bank_parameters())
        bank = self._bank
        if groups > len(bank):  # a copy: of a call that fails nothing may stay
            bank = copy.copy(bank).grow(max(groups - len(bank), len(bank) // 2))
        return bank

    # -- the state --------------------------------------------------------------------------------

    def _pass_parameters(self, bank: FilterBank) -> None:
        """Set the parameters of the bank that may have changed since the last call."""
        parameters = self._bank_parameters()
        bank.set_params(**{name: parameters[name] for name in self.CHANGEABLE})

    def _check_frozen(self) -> None:
        """Raise ValueError if a parameter is no longer what the states were made with."""
        names = self._bank._made_with.keys() & set(self._parameter_names())
        frozen.check(self, {name: self._bank._made_with[name] for name in names})

    def _copied(self) -> dict[str, Any]:
        if "_bank" not in self.__dict__:
            return {}
        return {"_bank": copy.copy(self._bank), "_places": dict(self._places)}

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            self._check_fitted()
            self._check_frozen()
            self._pass_parameters(self._bank)
            header, arrays = self._bank._snapshot(metadata)
            # A half-life in time is the groups' alone.
            header["parameters"] |= {k: plain(getattr(self, k), k) for k in self.CHANGEABLE}
            header |= {"estimator": "GroupedLeastSquares", "keys": list(map(written_key, self))}
            if (names := getattr(self, "feature_names_in_", None)) is not None:
                header["feature_names"] = list(names)
            if self._clocks is not None:
                header |= {"times": self._clocks.kind, "zoned": self._clocks.zoned}
                arrays["times"] = self._clocks.values.copy()
            return header, arrays
