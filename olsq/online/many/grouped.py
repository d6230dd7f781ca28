"""A regression for every key of a stream, with groups that appear as they come."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import frozen, inputs
from olsq.online.conventions import EstimatorConventions
from olsq.online.frames import Labels, check_same_index
from olsq.online.many import files as bank_files
from olsq.online.many.bank import FilterBank
from olsq.online.many.group_reading import GroupReading
from olsq.online.many.labels import MISSING, encode, taken_out
from olsq.online.many.paths import path_of, spread_out
from olsq.online.path import CoefficientPath
from olsq.online.saving import Saved
from olsq.reals import real_array

NAME = "GroupedLeastSquares"


class GroupedLeastSquares(EstimatorConventions, GroupReading, Saved):
    """Recursive least squares by key: one regression for every label that rows come with.

    Each group is a :class:`RecursiveLeastSquares` on the rows of its label; a label that was never
    seen starts one.  All are learnt together, in a :class:`FilterBank` that grows.

    Parameters
    ----------
    forget, half_life, ridge, fit_intercept, method, missing, state_dtype, cov, prior
        As in :class:`FilterBank`, the same for all groups.  ``missing="skip"`` also passes over
        rows without a label (NaN, None, NaT); "raise" refuses them.

    Attributes
    ----------
    groups_ : list
        The keys, in order of appearance; entry i of the arrays below is group i's.
    coef_, intercept_, n_samples_seen_, sigma2_, coef_stderr_, intercept_stderr_, rank_,
    determined_, n_held_ : arrays, groups first
        As in :class:`FilterBank`.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call's rows, NaN in skipped ones.
    n_features_in_, metadata_

    Notes
    -----
    O(d^2 + m d) time a row and memory a group; a call sorts its labels.  Several threads may use
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

    CHANGEABLE = FilterBank.CHANGEABLE
    n_features_in_: int
    metadata_: dict[str, Any]
    _bank: FilterBank
    _places: dict[Any, int]  # the filter of every key, in order of appearance
    _residual: NDArray

    def __init__(
        self,
        *,
        forget: Any = 1.0,
        half_life: Any = None,
        ridge: Any = 1e-3,
        fit_intercept: bool = True,
        method: str = "auto",
        missing: str = "skip",
        state_dtype: Any = "float64",
        cov: str = "posterior",
        prior: Any = None,
    ) -> None:
        self.forget = forget
        self.half_life = half_life
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.method = method
        self.missing = missing
        self.state_dtype = state_dtype
        self.cov = cov
        self.prior = prior

    # -- learning ---------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        by: Any,
        forget: ArrayLike | None = None,
    ) -> Self:
        """Learn the rows of X, y, each for its group, in order.

        Parameters
        ----------
        X : array (n, d)
        y : array (n,) or (n, m)
        sample_weight : array (n,), optional
        by : sequence (n,) or str
            The label of every row: numbers, text, dates, tuples, a categorical, anything that can
            be the key of a dict.  Or the name of the column of a frame X that holds them, which is
            no regressor then.
        forget : float or array (n,), optional
            Forgetting factors for these rows; a row's multiplies what its own group learnt before.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As :meth:`RecursiveLeastSquares.partial_fit`, and for labels that are not one per row or
            cannot be keys.  After an error the states are what they were.
        """
        with self._locked():
            self._learn(X, y, sample_weight, by, forget)
        return self

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        by: Any,
        forget: ArrayLike | None = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return every row's estimate of its group.

        Returns
        -------
        CoefficientPath
            For these rows, where they are; NaN in rows without a label.  Over the blocks of a
            stream it is what ``coefficient_path(..., by=)`` of all rows gives, with this object's
            ridge and intercept.  O(n d) memory.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> groups = olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=False)
        >>> _ = groups.partial_fit([[1.0], [1.0]], [2.0, 5.0], by=["a", "b"])
        >>> groups.partial_fit_path([[1.0], [1.0]], [4.0, 5.0], by=["a", "b"]).coef[:, 0]
        array([3., 5.])
        """
        labels = Labels.of(taken_out(X, by)[0], y)  # refuses rows that are not in line
        with self._locked():
            path = self._learn(X, y, sample_weight, by, forget, want_path=True)
            assert path is not None
            return path.labelled(labels._replace(intercept=bool(self.fit_intercept)))

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, by: Any
    ) -> Self:
        """Forget every group and learn as :meth:`partial_fit` does."""
        with self._locked():
            fresh = type(self)(**self.get_params())
            fresh._learn(X, y, sample_weight, by, None)
            self.__dict__.update(fresh.__getstate__())
        return self

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, by: Any, forget: Any, *, want_path: bool = False
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
        X, by = taken_out(X, by)
        check_same_index(X=X, y=y, by=by, sample_weight=sample_weight, forget=forget)
        X, y = inputs.check_X(X, self, None, allow_empty=fitted), real_array(y, "y")
        codes, fresh = encode(by, X.shape[0], places)
        for key in fresh:
            places[key] = len(places)
        labelled = codes != MISSING
        if not labelled.all():
            if self.missing == "raise":
                raise ValueError(
                    f"by has no label in row {int(np.argmin(labelled))}; such rows are passed over "
                    "with missing='skip'"
                )
            if y.shape[:1] != X.shape[:1]:
                inputs.check_y(y, self, X.shape[0], None)  # refuses it
            chosen = [
                a if a is None or np.ndim(a) == 0 else np.asarray(a)[labelled]
                for a in (X, y, sample_weight, forget)
            ]
            X, y, sample_weight, forget = chosen
        bank = self._grown(len(places))
        names = ("forget", "half_life", "missing")
        bank.set_params(**{name: getattr(self, name) for name in names})
        path = bank._learn(
            X, y, sample_weight, forget, codes[labelled], want_path=want_path
        )
        residual = np.full((labelled.size, *bank.residual_.shape[1:]), np.nan, bank._dtype)
        residual[labelled] = bank.residual_
        self.__dict__.update(
            _bank=bank, _places=places, _residual=residual, n_features_in_=bank.n_features_in_,
            metadata_=self.__dict__.get("metadata_", {}),
        )  # fmt: skip
        if path is None:
            return None
        one_target = bank._n_targets == 0
        found = path_of(
            path, bank.residual_.reshape(path.sigma2.shape), intercept=bool(bank._first),
            dtype=bank._dtype, one_target=one_target,
        )  # fmt: skip
        return found if labelled.all() else spread_out(found, labelled)

    def _grown(self, groups: int) -> FilterBank:
        """The bank with room for so many groups; there is room to spare, so that few calls grow it.

        Spare filters have seen nothing, so that a call which fails leaves nothing behind.
        """
        if "_bank" not in self.__dict__:
            return FilterBank(max(groups, 1), **self.get_params())
        bank = self._bank
        if groups > len(bank):
            bank.grow(max(groups - len(bank), len(bank) // 2))
        return bank

    # -- the state --------------------------------------------------------------------------------

    def _check_frozen(self) -> None:
        """Raise ValueError if a parameter is no longer what the states were made with."""
        names = self._bank._made_with.keys() & set(self._parameter_names())
        frozen.check(self, frozen.MadeWith({name: self._bank._made_with[name] for name in names}))

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copy take along: states of its own, and no lock."""
        with self._locked():
            state = self.__dict__.copy()
            if "_bank" in state:
                state |= {"_bank": copy.copy(self._bank), "_places": dict(self._places)}
        state.pop("_lock", None)
        return state

    def __copy__(self) -> Self:
        """A copy with states of its own."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__())
        if "metadata_" in other.__dict__:
            other.metadata_ = copy.deepcopy(self.metadata_)
        return other

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            bank = self._bank_or_raise()
            self._check_frozen()
            header, arrays = bank_files.written(bank, metadata)
            header |= {"estimator": NAME, "keys": [_written(key) for key in self._places]}
            return header, {name: array.copy() for name, array in arrays.items()}


def read(header: dict[str, Any], arrays: dict[str, NDArray]) -> GroupedLeastSquares:
    """The groups that header and arrays are of; ValueError if they cannot be."""
    bank = bank_files.read(FilterBank, header, arrays)
    if not isinstance(header.get("keys"), list):
        raise ValueError("keys must be a list")
    keys = [_read(key) for key in header["keys"]]  # none before the first row with a label
    if not len(keys) <= len(bank) or len(set(keys)) < len(keys):
        raise ValueError("keys cannot be those of the groups")
    names = GroupedLeastSquares._parameter_names()
    groups = GroupedLeastSquares(**{k: v for k, v in bank.get_params().items() if k in names})
    groups.__dict__.update(
        _bank=bank, _places={key: i for i, key in enumerate(keys)},
        _residual=np.empty((0,) if bank._n_targets == 0 else (0, bank._n_targets), bank._dtype),
        n_features_in_=bank.n_features_in_, metadata_=bank.metadata_,
    )  # fmt: skip
    return groups


def _written(key: Any) -> Any:
    """A key as JSON holds it: a tuple as a list."""
    if isinstance(key, tuple):
        return [_written(part) for part in key]
    if type(key) not in (str, int, float, bool):
        raise TypeError(
            f"a state file holds keys that are text, numbers, booleans or tuples of these, not "
            f"{type(key).__name__} {key!r}; use str(label) as the label"
        )
    return key


def _read(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(_read(part) for part in key)
    if type(key) not in (str, int, float, bool):
        raise ValueError(f"{key!r} cannot be a key")
    return key
