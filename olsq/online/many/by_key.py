"""Base class of regressions by group: learning, keys, labels of calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice
from olsq.online.conventions import Estimator
from olsq.online.estimators.uncertainty import check_weight_of_interval, noise_of_rows
from olsq.online.forms.student import check_level
from olsq.online.many.bank import FilterBank
from olsq.online.many.labels import MISSING, encode, known_key, taken_out, with_groups
from olsq.online.paths.arrays import fill_rows, rows_like
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import inputs
from olsq.online.rows.frames import Labels, check_same_index
from olsq.online.rows.times import named_times, with_times


def of_groups(name: str, empty: float = np.nan) -> Any:
    """Make a property that reads all groups' attribute; ``empty`` where there is no estimate."""

    def read(self: ByKey) -> NDArray:
        def of_part(bank: FilterBank, few: NDArray[np.bool_]) -> NDArray:
            values = np.array(getattr(bank, name))
            values[few] = empty
            return values[: len(self)]

        with self._locked():
            self._check_fitted()
            return self._by_part(of_part)

    return property(read, doc=getattr(FilterBank, name).__doc__)


class ByKey(Estimator):
    """Base of the regressions by group, whose ``_learn``, ``_known`` and ``self[key]`` differ."""

    feature_names_in_: NDArray[np.object_]
    metadata_: dict[str, Any]
    noise_variance: Any
    prior: Any = None
    n_features_in_: int
    _residual: NDArray
    _learn: Callable[..., CoefficientPath | None]

    def _known(self) -> Collection[Any]:
        """Return the keys so far, in order of appearance."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        """Return the estimator of one group."""
        raise NotImplementedError

    # -- learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        by: Any,
        times: Any = None,
    ) -> Self:
        """Forget every group and learn as :meth:`partial_fit` does."""
        with self._locked():
            fresh = type(self)(**self.get_params())
            fresh._learn(X, y, sample_weight, by, times)
            shape = len(fresh._residual), fresh.n_features_in_
            inputs.check_size(shape, self, None, allow_empty=False)
            self.__dict__.pop("feature_names_in_", None)
            self.__dict__.update(fresh.__getstate__())
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        by: Any,
        forget: ArrayLike | None = None,
        times: Any = None,
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
            Forgetting factors for these rows; a row's multiplies what its own group learned before.
        times : array, series or index (n,), optional
            When the rows were, for a window or half-life that is a length of time: dates, or
            numbers if the length is one.  They go up within every group, also across calls, but not
            from one group to the next.  Default: the index of X, or else of y, if it is one of
            dates.  Or, like ``by``, the name of a level of that index (pandas).

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As :meth:`RecursiveLeastSquares.partial_fit`, and for labels that are not one per row or
            cannot be keys.  After an error the states are what they were.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> groups = olsq.GroupedLeastSquares(half_life="1D", fit_intercept=False)
        >>> days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "datetime64[D]")
        >>> _ = groups.partial_fit([[1.0]] * 3, [1.0, 5.0, 4.0], by=["a", "b", "a"], times=days)
        >>> groups.coef_[:, 0].round(3)  # of "a": 1 and 4, two days apart, with weights 1/4 and 1
        array([3.4, 5. ])
        """
        with self._locked():
            self._learn(X, y, sample_weight, by, times, forget)
        return self

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        by: Any,
        forget: ArrayLike | None = None,
        times: Any = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return every row's estimate of its group.

        Returns
        -------
        CoefficientPath
            For these rows, where they are; NaN in rows without a label.  Over the blocks of a
            stream it is what ``coefficient_path(..., by=)`` of all rows gives, with this object's
            parameters.  O(n d) memory.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> groups = olsq.GroupedLeastSquares(fit_intercept=False)
        >>> _ = groups.partial_fit([[1.0], [1.0]], [2.0, 5.0], by=["a", "b"])
        >>> groups.partial_fit_path([[1.0], [1.0]], [4.0, 5.0], by=["a", "b"]).coef[:, 0]
        array([3., 5.])
        """
        labels = Labels.of(taken_out(X, by)[0], y)  # refuses rows that are not in line
        times = named_times(times, X, y)
        with self._locked():
            path = self._learn(X, y, sample_weight, by, times, forget, want_path=True)
            assert path is not None
            labels = with_times(labels, times, in_order=False)
            labels = with_groups(labels, taken_out(X, by)[1], by if isinstance(by, str) else None)
            return path.labelled(labels._replace(intercept=bool(self.fit_intercept)))

    def _taken_apart(
        self, X: Any, y: Any, by: Any, times: Any, **per_row: Any
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Return X without its labels, the labels, times, and the names of first features.

        Raises ValueError for arguments whose rows are not in line, or other features.
        """
        times = named_times(times, X, y)
        X, by = taken_out(X, by)
        check_same_index(X=X, y=y, by=by, times=times, **per_row)
        names, fitted_names = inputs.feature_names(X), getattr(self, "feature_names_in_", None)
        inputs.check_feature_names(X, fitted_names)
        first = names is not None and not self.__sklearn_is_fitted__()
        return X, by, times, {"feature_names_in_": names} if first else {}

    def _refuse_unlabelled(self, codes: NDArray[np.int64]) -> None:
        """Raise ValueError for a row to learn that has no label, with ``missing="raise"``."""
        if self.missing == "raise" and (codes == MISSING).any():
            raise ValueError(
                f"by has no label in row {int(np.argmax(codes == MISSING))}; such rows are passed "
                "over with missing='skip'"
            )

    def _settle_rows(
        self,
        labelled: NDArray[np.bool_],
        residual: NDArray,
        path: CoefficientPath | None,
        **state: Any,
    ) -> CoefficientPath | None:
        """Set the state after a call; return the path of its rows, NaN without a label."""
        every_residual = np.full((labelled.size, *residual.shape[1:]), np.nan, residual.dtype)
        every_residual[labelled] = residual
        metadata = self.__dict__.get("metadata_", {})
        self.__dict__.update(state, _residual=every_residual, metadata_=metadata)
        if path is None or labelled.all():
            return path
        every_row = rows_like(path, labelled.size)
        fill_rows(every_row, labelled, path)
        return CoefficientPath.of_arrays(every_row)

    # -- groups -----------------------------------------------------------------------------------

    @property
    def groups_(self) -> list[Any]:
        """The keys, in order of appearance."""
        self._check_fitted()
        return self.keys()

    def keys(self) -> list[Any]:
        """Return the keys in order of appearance; none before the first row."""
        return list(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __contains__(self, key: Any) -> bool:
        try:
            known_key(key, self._known())
        except KeyError:
            return False
        return True

    def _named(self, estimator: Any) -> Any:
        """Give the estimator of one group the names of the features."""
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            estimator._origin = estimator._origin._replace(names=names)
            estimator.feature_names_in_ = names
        return estimator

    # -- reading ----------------------------------------------------------------------------------

    coef_ = of_groups("coef_")
    intercept_ = of_groups("intercept_")
    sigma2_ = of_groups("sigma2_")
    coef_stderr_ = of_groups("coef_stderr_")
    intercept_stderr_ = of_groups("intercept_stderr_")
    rank_ = of_groups("rank_", 0)
    determined_ = of_groups("determined_", 0)

    @property
    def r_squared_(self) -> NDArray[np.float64]:
        """R squared (groups,) or (groups, m), that of ``summary()`` of every group alone; NaN where
        there is no estimate.  O(d^3) per group, about a millisecond.
        """
        with self._locked():
            coef = self.coef_
            shares = np.full(coef.shape[:-1], np.nan)
            for i, key in enumerate(self.keys()):
                estimated = ~np.isnan(coef[i]).any(axis=-1)
                if estimated.any():
                    values = [fit.r_squared for fit in self[key].summary().fits]
                    shares[i] = np.where(estimated, values if coef.ndim == 3 else values[0], np.nan)
            return shares

    def predict(self, X: ArrayLike, *, by: Any) -> NDArray:
        """Predict (n,) or (n, m), each row by the coefficients of its group.

        NaN for a row with a non-finite regressor, without a label, or of a group without an
        estimate; under ``missing="raise"`` a ValueError.  With a prior groups that have learned no
        row predict its mean.
        """
        return self._by_group(X, by, lambda bank, *rows: [bank.predict(rows[0], which=rows[1])])[0]

    def predict_interval(
        self,
        X: ArrayLike,
        level: float = 0.95,
        kind: str = "observation",
        *,
        by: Any,
        sample_weight: ArrayLike | None = None,
    ) -> tuple[NDArray, NDArray]:
        """Compute intervals around :meth:`predict`, each by its row's group.

        Parameters
        ----------
        X, by
            As in :meth:`predict`.
        level, kind, sample_weight
            As in :meth:`RecursiveLeastSquares.predict_interval`, whose formula this is.

        Returns
        -------
        lower, upper : arrays (n,) or (n, m)
            -inf and inf where a group's rows do not determine them, or leave less than one degree
            of freedom; NaN where the prediction is.

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
        check_weight_of_interval(kind, sample_weight)
        check_same_index(X=X, sample_weight=sample_weight)

        def interval(
            bank: FilterBank, X: NDArray, groups: NDArray[np.int64], rows: NDArray[np.bool_]
        ) -> list[NDArray]:
            mean = bank.predict(X, which=groups)
            noise = noise_of_rows(sample_weight, rows.size)[rows] if kind == "observation" else None
            reach = bank._reach(X, groups, level, noise).reshape(mean.shape)
            with np.errstate(invalid="ignore"):
                return [mean - reach, mean + reach]

        lower, upper = self._by_group(X, by, interval, 2)
        return lower, upper

    def _by_group(
        self, X: Any, by: Any, ask: Callable[..., list[NDArray]], results: int = 1
    ) -> list[NDArray]:
        """Return what ``ask`` gives for rows of groups with an estimate, NaN for the others.

        ``ask`` receives a bank, its rows of X, their groups, and a mask of them among all rows.
        """
        with self._locked():
            X, codes, answered = self._rows_asked(X, by)

            def of_part(bank: FilterBank, few: NDArray[np.bool_]) -> NDArray:
                rows = answered.copy()
                rows[answered] = ~few[codes[answered]]
                shape = (results, len(X), bank._n_targets)[: 3 if bank._n_targets else 2]
                out = np.full(shape, np.nan, bank._dtype)
                out[:, rows] = ask(bank, X[rows], codes[rows], rows)
                return np.moveaxis(out, 0, -1)

            return list(np.moveaxis(self._by_part(of_part), -1, 0))

    def _by_part(self, read: Callable[[FilterBank, NDArray[np.bool_]], NDArray]) -> NDArray:
        """Return what ``read`` gives of all groups as a bank, with the targets in axis 1.

        It also receives a mask of the groups without an estimate.
        """
        raise NotImplementedError

    def _n_columns(self) -> int:
        self._check_fitted()
        return self.n_features_in_

    def _rows_asked(self, X: Any, by: Any) -> tuple[NDArray, NDArray[np.int64], NDArray[np.bool_]]:
        """Return rows to predict, the number of each one's group, and which groups are known.

        New labels have the number of groups so far, and are known if there is a prior.
        Raises ValueError for what is not known, with ``missing="raise"``.
        """
        d = self._n_columns()
        X, by = taken_out(X, by)
        check_same_index(X=X, by=by)
        inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        rows = inputs.check_X(X, self, d, allow_empty=True)
        places = {key: place for place, key in enumerate(self._known())}
        codes, fresh = encode(by, rows.shape[0], places)
        codes = np.minimum(codes, len(places))
        answered = (codes != MISSING) & ((codes < len(places)) | (self.prior is not None))
        if self.missing == "raise" and not answered.all():
            row = int(np.argmin(answered))
            what = "has no label" if codes[row] == MISSING else f"is {fresh[0]!r}, a new label,"
            raise ValueError(f"by {what} in row {row}; such rows predict NaN with 'skip'")
        return rows, codes, answered

    @property
    def residual_(self) -> NDArray:
        """A-priori residuals of the last call's rows; NaN in skipped rows."""
        self._check_fitted()
        return self._residual.copy()

    # -- the state --------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise inputs.not_fitted(self)
