"""The estimator GroupedRollingLeastSquares: one rolling regression per key of a stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.many.by_key import ByKey
from olsq.online.many.labels import MISSING, encode, known_key, written_key
from olsq.online.parameters import WindowParameters
from olsq.online.paths.path import CoefficientPath, fill_rows, rows_like
from olsq.online.rows import inputs
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.options import check_weight, factors_of_rows
from olsq.online.rows.times import check_times_shape, of_frames, same_clock, times_and_zone
from olsq.progress import count_groups


def _of_each_window(name: str, empty: float = np.nan) -> Any:
    """Make a property that stacks the windows' attribute; ``empty`` where there is no estimate."""

    def read(self: GroupedRollingLeastSquares) -> NDArray:
        with self._locked():
            values = [_read_or_none(window, name) for window in self._windows_or_raise().values()]
            missing = np.full_like(getattr(self._of_one_row(), name), empty)
            if not values:
                return np.empty((0, *missing.shape), missing.dtype)
            return np.stack([missing if value is None else value for value in values])

    return property(read, doc=getattr(RollingLeastSquares, name).__doc__)


def _read_or_none(window: RollingLeastSquares, name: str) -> Any:
    return getattr(window, name) if window._has_estimate() else None


class GroupedRollingLeastSquares(WindowParameters, ByKey):
    """Rolling least squares by key: one window for every label that rows come with.

    Each group is a :class:`RollingLeastSquares` on the rows of its label; a label that was never
    seen starts one.  Of a whole table ``coefficient_path(..., by=, window=)`` is faster.

    Parameters
    ----------
    window, min_samples, ridge, fit_intercept, missing, window_of, noise_variance
    forget, half_life
        As in :class:`RollingLeastSquares`; a window of rows counts those of its group, and so does
        a half-life.
        ``missing="skip"`` also passes over rows without a label (NaN, None, NaT); "raise" refuses
        them.

    Attributes
    ----------
    groups_ : list
        The keys, in order of appearance; entry i of the arrays below is group i's.
    coef_, intercept_, sigma2_, coef_stderr_, intercept_stderr_, rank_, determined_ : arrays
        As in :class:`RollingLeastSquares`, groups first; NaN (rank 0) for groups without an
        estimate.
    n_samples_seen_ : array (groups,)
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call's rows, NaN in skipped ones.
    n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Time and memory are those of the windows, and some 0.1 ms for each group of a call.  Several
    threads may use one object.  No derivatives.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> stock = ["a", "b"] * 50
    >>> x = np.arange(100.0)[:, None] % 7
    >>> y = np.where(np.arange(100) % 2 == 0, 2.0, -1.0) * x[:, 0]
    >>> betas = olsq.GroupedRollingLeastSquares(window=20)
    >>> for rows in (slice(0, 60), slice(60, 100)):
    ...     _ = betas.partial_fit(x[rows], y[rows], by=stock[rows])
    >>> betas.coef_[:, 0].round(3)
    array([ 2., -1.])
    >>> betas.predict([[1.0], [1.0]], by=["b", "new"]).round(3)
    array([-1., nan])
    """

    _windows: dict[Any, RollingLeastSquares]  # of every key, in order of appearance
    _blank: RollingLeastSquares | None = None  # without rows, while there is no key
    _zoned: bool | None  # whether the times of a window of time have a time zone

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
        earlier = self.__dict__.get("_windows", {})
        fitted, parameters = self.__sklearn_is_fitted__(), self.get_params()
        alone = RollingLeastSquares(**parameters)
        alone._check_parameters()
        if np.ndim(self.forget) > 0:
            raise ValueError(
                "forget must be a number, the same for all groups: give factors of rows to "
                "partial_fit(..., forget=)"
            )
        per_row = {"sample_weight": sample_weight, "forget": forget}
        X, by, times, named = self._taken_apart(X, y, by, times, **per_row)
        if times is None and alone._duration(False) is not None:
            times = of_frames(X, y)
        zoned = self.__dict__.get("_zoned")
        if times is not None:
            times, zone = times_and_zone(times)
            if times.dtype.kind == "M":
                zoned = same_clock(zoned, zone is not None)
        d = self.n_features_in_ if fitted else None
        m = self._any_window()._origin.n_targets if fitted else None
        X = inputs.check_X(X, self, d, allow_empty=True)
        y = inputs.check_y(y, self, len(X), m)
        n, weights = len(X), check_weight(sample_weight, len(X))
        factors = None if forget is None else factors_of_rows(forget, n)
        if times is not None:
            check_times_shape(times, n)
        codes, fresh = encode(by, n, {key: place for place, key in enumerate(earlier)})
        self._refuse_unlabelled(codes)
        if fitted and fresh:  # groups of the call check their own parameters
            window = self._any_window()
            alone.__dict__.update(_origin=window._origin, _engine=window._engine)
            alone._check_frozen()
            alone = RollingLeastSquares(**parameters)
        keys = [*earlier, *fresh]
        windows, arrays = dict(earlier), None
        residual = np.full(y.shape, np.nan, np.result_type(X, np.float32))
        order = np.argsort(codes, kind="stable")
        runs = _runs(codes, order)
        for code, rows in count_groups(runs, "windows by group", len(keys)):
            key = keys[code]
            # A copy: of a call that fails nothing may stay.
            window = _copy_to_learn(earlier.get(key, alone), parameters)
            options = {} if times is None else {"times": times[rows]}
            if sample_weight is not None:
                options["sample_weight"] = weights[rows]
            if factors is not None:
                options["forget"] = factors[rows]
            try:
                if want_path:
                    part = window.partial_fit_path(X[rows], y[rows], **options)
                    arrays = rows_like(part, n) if arrays is None else arrays
                    fill_rows(arrays, rows, part)
                else:
                    window.partial_fit(X[rows], y[rows], **options)
            except ValueError as error:
                raise type(error)(f"group {key!r}: {error}") from None
            residual[rows] = window._residual[:, 0] if y.ndim == 1 else window._residual
            windows[key] = window
        blank = None if windows else self._blank
        if not windows and blank is None:  # no row has a label
            call = alone._check_call(X, y, None, None, None)
            origin = alone._origin_of(call)
            alone._settle(origin, alone._engine_of(origin))
            blank = alone
        if want_path and arrays is None:
            zeros = np.zeros((1, X.shape[1]), X.dtype), np.zeros((1, *y.shape[1:]))
            shapes = RollingLeastSquares(1, ridge=0.0, fit_intercept=self.fit_intercept)
            arrays = rows_like(shapes.partial_fit_path(*zeros), n)
        self.__dict__.update(
            _windows=windows,
            _blank=blank,
            _residual=residual,
            _zoned=zoned,
            n_features_in_=X.shape[1],
            metadata_=self.__dict__.get("metadata_", {}),
            **named,
        )
        return None if arrays is None else CoefficientPath.of_arrays(arrays)

    # -- groups -----------------------------------------------------------------------------------

    def _known(self) -> dict[Any, RollingLeastSquares]:
        return self.__dict__.get("_windows", {})

    def __getitem__(self, key: Any) -> RollingLeastSquares:
        """Return the group of a key as an estimator with a copy of its state, which continues from
        there.

        Raises KeyError for a key that no row came with.
        """
        with self._locked():
            windows = self._windows_or_raise()
            return self._named(copy.copy(windows[known_key(key, windows)]))

    # -- reading ----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike, *, by: Any) -> NDArray:
        """Predict (n,) or (n, m), each row by the coefficients of its group.

        NaN for a row with a non-finite regressor, without a label, or of a group without an
        estimate; under ``missing="raise"`` a ValueError.
        """
        return self._by_group(X, by, lambda window, rows, _: [window.predict(rows)])[0]

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
            As in :meth:`RollingLeastSquares.predict_interval`.

        Returns
        -------
        lower, upper : arrays (n,) or (n, m)
            NaN where the prediction is.
        """
        check_same_index(X=X, sample_weight=sample_weight)
        per_row = None if sample_weight is None else check_weight(sample_weight, len(X))  # pyright: ignore[reportArgumentType]

        def interval(window: RollingLeastSquares, X: NDArray, rows: NDArray) -> Any:
            weights = None if per_row is None else per_row[rows]
            return window.predict_interval(X, level, kind, sample_weight=weights)

        lower, upper = self._by_group(X, by, interval, 2)
        return lower, upper

    def _by_group(
        self,
        X: Any,
        by: Any,
        ask: Callable[[RollingLeastSquares, NDArray, NDArray[np.int64]], Any],
        results: int = 1,
    ) -> list[NDArray]:
        """Return what ``ask`` gives for each group's rows, NaN for rows without an estimate.

        ``ask`` receives the window, its rows of X, and their numbers.
        """
        with self._locked():
            windows = self._windows_or_raise()
            X, codes, _ = self._rows_asked(X, by, self.n_features_in_)
            origin = self._any_window()._origin
            shape = (len(X),) if origin.n_targets == 0 else (len(X), origin.n_targets)
            results_of_rows = [np.full(shape, np.nan, origin.dtype) for _ in range(results)]
            by_place = list(windows.values())
            for code, rows in _runs(codes, np.argsort(codes, kind="stable")):
                if code < len(by_place) and by_place[code]._has_estimate():
                    answers = ask(by_place[code], X[rows], rows)
                    for array, answer in zip(results_of_rows, answers, strict=True):
                        array[rows] = answer
            return results_of_rows

    coef_ = _of_each_window("coef_")
    intercept_ = _of_each_window("intercept_")
    sigma2_ = _of_each_window("sigma2_")
    coef_stderr_ = _of_each_window("coef_stderr_")
    intercept_stderr_ = _of_each_window("intercept_stderr_")
    rank_ = _of_each_window("rank_", 0)
    determined_ = _of_each_window("determined_", 0)

    @property
    def n_samples_seen_(self) -> NDArray[np.int64]:
        """Rows learned by each group (groups,), not only those in its window."""
        with self._locked():
            windows = self._windows_or_raise().values()
            return np.array([window.n_samples_seen_ for window in windows], np.int64)

    # -- the state --------------------------------------------------------------------------------

    def _windows_or_raise(self) -> dict[Any, RollingLeastSquares]:
        self._check_fitted()
        # They may have changed since a group's last row.
        changeable = {name: getattr(self, name) for name in self.CHANGEABLE}
        for window in self._windows.values():
            window.__dict__.update(changeable)
        return self._windows

    def _any_window(self) -> RollingLeastSquares:
        """Return a window of these features and targets."""
        window = next(iter(self._windows.values()), self._blank)
        assert window is not None
        return window

    def _of_one_row(self) -> RollingLeastSquares:
        """Return a window that has an estimate, for the shapes of its attributes."""
        origin = self._any_window()._origin
        y = np.zeros((1, origin.n_targets) if origin.n_targets else 1)
        one = RollingLeastSquares(
            1, ridge=0.0, fit_intercept=self.fit_intercept, missing=self.missing
        )
        return one.fit(np.zeros((1, origin.n_features), origin.dtype), y)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.__dict__.get("_windows")) or self._blank is not None

    def _copied(self) -> dict[str, Any]:
        windows = {key: copy.copy(window) for key, window in self._known().items()}
        return {"_windows": windows} if "_windows" in self.__dict__ else {}

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            # The file of each group, in line.  Files are multiples of eight bytes, and no file
            # holds arrays of bytes.  Without a key there is that of a window without rows.
            windows = map(copy.copy, self._windows_or_raise().values() or [self._any_window()])
            # Parameters may have changed since a group's last row; all files hold the same.
            parameters = self.get_params()
            files = [window.set_params(**parameters).to_bytes() for window in windows]
            words = [np.frombuffer(file, np.int64) for file in files]
            names = getattr(self, "feature_names_in_", None)
            header = {
                "estimator": type(self).__name__,
                "keys": list(map(written_key, self)),
                "feature_names": None if names is None else list(names),
                "zoned": self._zoned,
                "metadata": metadata or {},
            }
            ends = np.cumsum([word.size for word in words])
            return header, {"states": np.concatenate(words), "ends": ends}


def _copy_to_learn(window: RollingLeastSquares, parameters: dict[str, Any]) -> Any:
    """Copy a group's window for its next rows, with these parameters.

    Unlike ``copy.copy`` it keeps which parameters were checked: one row is learned in less time
    than they are checked in.
    """
    other = object.__new__(RollingLeastSquares)
    other.__dict__.update(window.__dict__, **parameters)
    other.__dict__.pop("_lock", None)
    if "_engine" in other.__dict__:
        other._engine = window._engine.copy()
    return other


def _runs(
    codes: NDArray[np.int64], order: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Iterate over the codes from 0 on that occur, each with its rows in order."""
    first = int(np.count_nonzero(codes == MISSING))
    ends = np.flatnonzero(np.diff(codes[order], append=-2)) + 1
    for end in ends[ends > first].tolist():
        yield int(codes[order[end - 1]]), order[first:end]
        first = end
