"""The estimator GroupedRollingLeastSquares: one rolling regression per key of a stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.forms.rows import clip_to
from olsq.online.forms.targets import TargetGroups
from olsq.online.many.bank import FilterBank
from olsq.online.many.by_key import ByKey
from olsq.online.many.clocks import time_rows
from olsq.online.many.group_windows import GroupWindows
from olsq.online.many.labels import MISSING, encode, known_key, written_key
from olsq.online.many.parallel import uninterrupted
from olsq.online.many.window_paths import PathOptions
from olsq.online.parameters import WindowParameters
from olsq.online.paths.collector import RobustErrors
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import inputs
from olsq.online.rows.options import check_noise_variance, check_weight, factors_of_rows
from olsq.online.rows.times import Clock, times_or_index


class GroupedRollingLeastSquares(WindowParameters, ByKey):
    """Rolling least squares by key: one window for every label that rows come with.

    Each group is a :class:`RollingLeastSquares` on the rows of its label; a label that was never
    seen starts one.

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
    r_squared_ : array (groups,) or (groups, m)
        As in their summaries: about a millisecond per group.
    n_samples_seen_ : array (groups,)
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call's rows, NaN in skipped ones.
    n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    O(d^2 + m d) time per row that comes or leaves, in one compiled loop over all groups of a call,
    which sorts its labels.  Memory is that of the rows in the windows, up to three times over, and
    O(d^2) per group.  With ``missing="skip_target"`` every target has a window of its own.  Several
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

    _windows: GroupWindows

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
        statistics: bool = True,
        robust: RobustErrors | None = None,
    ) -> CoefficientPath | None:
        before: GroupWindows | None = self.__dict__.get("_windows")
        alone = self._checked_alone()
        per_row = {"sample_weight": sample_weight, "forget": forget}
        X, by, times, named = self._taken_apart(X, y, by, times, **per_row)
        clocks = None if before is None else before.clocks
        learned = 0 if before is None else int(before.seen.sum())
        duration, parameter = alone._checked_duration(times, clocks, learned, forget)
        if duration is not None:
            times = times_or_index(times, X, y, duration, parameter)
        X = inputs.check_X(
            X, self, None if before is None else self.n_features_in_, allow_empty=True
        )
        n, n_targets = len(X), None if before is None else before.origin.n_targets
        y = inputs.check_y(y, self, n, n_targets)
        weights = None if sample_weight is None else check_weight(sample_weight, n)
        factors = None if forget is None else factors_of_rows(forget, n)
        codes, fresh = encode(by, n, {} if before is None else before.places)
        self._refuse_unlabelled(codes)
        fading, timed = alone._half_life_in_time(True), []
        if duration is not None:
            keys = [*self._known(), *fresh]
            half_life = math.inf if fading is None else float(fading.length)
            parts = y.shape[1] if alone.missing == "skip_target" and y.ndim == 2 else 1
            how = times, codes, keys, len(keys), duration, parameter, half_life
            timed = [time_rows(own, *how) for own in clocks or [None] * parts]
        labelled = codes != MISSING
        rows = slice(None) if labelled.all() else labelled
        codes = codes[rows]
        given = [a if a is None else a[rows] for a in (X, y, weights, factors)]
        call = alone._check_call(given[0], given[1], given[2], given[3], None)
        windows = GroupWindows.start(alone, alone._origin_of(call)) if before is None else before
        noise = check_noise_variance(self.noise_variance, windows.origin.columns)
        windows = windows.grown(fresh)
        calls = windows.calls_of(call, timed, fading is not None)
        row_times = timed[0].times if timed else None
        asked = None
        if want_path:
            asked = PathOptions(self.min_samples or 1, noise if statistics else None, robust)

        def learn(windows: GroupWindows) -> tuple[GroupWindows, Any, CoefficientPath | None]:
            return windows, *windows.learn(calls, codes, row_times, asked)

        # A copy learns many rows, so that an interrupt cannot leave half an update behind; that of
        # large windows would take longer than a few rows.
        if codes.size > windows.n_slots:
            windows, errors, path = learn(windows.copy())
        else:
            windows, errors, path = uninterrupted(lambda: learn(windows))
        residual = clip_to(errors.reshape(-1, *y.shape[1:]), np.result_type(X, np.float32))
        if timed:
            windows = windows._replace(clocks=[times_of_part.after for times_of_part in timed])
        state = {"_windows": windows, "n_features_in_": X.shape[1], **named}
        return self._settle_rows(labelled, residual, path, **state)

    def _checked_alone(self) -> RollingLeastSquares:
        """Return an estimator with the parameters, which are those that the states were made with.

        Raises ValueError or TypeError for others.
        """
        alone = RollingLeastSquares(**self.get_params())
        alone._check_parameters()
        if np.ndim(self.forget) > 0:
            raise ValueError(
                "forget must be a number, the same for all groups: give factors of rows to "
                "partial_fit(..., forget=)"
            )
        windows: GroupWindows | None = self.__dict__.get("_windows")
        if windows is not None:
            states = TargetGroups([], windows.parting)
            alone.__dict__.update(_origin=windows.origin, _engine=states)
            alone._check_frozen()
        return alone

    # -- groups -----------------------------------------------------------------------------------

    def _known(self) -> dict[Any, int]:
        windows: GroupWindows | None = self.__dict__.get("_windows")
        return {} if windows is None else windows.places

    def __getitem__(self, key: Any) -> RollingLeastSquares:
        """Return the group of a key as an estimator with a copy of its state, which continues from
        there.

        ``residual_`` is empty.  Raises KeyError for a key that no row came with.
        """
        with self._locked():
            windows = self._windows_or_raise()
            group = windows.places[known_key(key, windows.places)]
            return self._named(windows.estimator(self.get_params(), group))

    # -- reading ----------------------------------------------------------------------------------

    def _by_part(self, read: Callable[[FilterBank, NDArray[np.bool_]], NDArray]) -> NDArray:
        windows, fewest = self._windows_or_raise(), self.min_samples or 1
        n, origin, arrays = len(windows.places), windows.origin, []
        apart = windows.parting and origin.n_targets > 0
        noise = check_noise_variance(self.noise_variance, origin.columns)
        for stack, targets in zip(windows.stacks, windows.targets, strict=True):
            bank = FilterBank(
                n,
                fit_intercept=self.fit_intercept,
                missing="raise" if self.missing == "raise" else "skip",
                noise_variance=None if self.noise_variance is None else noise[targets],
            )
            state = stack.state.take(slice(0, n))
            n_targets = 0 if apart else origin.n_targets
            bank._settle(state, stack.kind, origin.n_features, n_targets, origin.dtype)
            arrays.append(read(bank, stack.samples[:n] < fewest))
        return np.stack(arrays, axis=1) if apart else arrays[0]

    @property
    def n_samples_seen_(self) -> NDArray[np.int64]:
        """Rows learned by each group (groups,), not only those in its window."""
        with self._locked():
            return self._windows_or_raise().seen[: len(self)].copy()

    # -- the state --------------------------------------------------------------------------------

    def _windows_or_raise(self) -> GroupWindows:
        self._check_fitted()
        return self._windows

    def _estimators(self) -> tuple[dict[Any, RollingLeastSquares], RollingLeastSquares]:
        """Return every group as an estimator, and one that has learned no row."""
        with self._locked():
            windows, parameters = self._windows_or_raise(), self.get_params()
            groups = {key: windows.estimator(parameters, i) for key, i in windows.places.items()}
            return groups, windows.estimator(parameters, None)

    def _settle(
        self, windows: dict[Any, RollingLeastSquares], like: RollingLeastSquares, zoned: Clock
    ) -> None:
        """Replace the state by estimators of the groups, which are ``like`` another one."""
        m = like._origin.n_targets
        self.__dict__.update(
            _windows=GroupWindows.of_estimators(windows, like, zoned),
            _residual=np.empty((0, m) if m else 0, like._origin.dtype),
            n_features_in_=like.n_features_in_,
        )

    @property
    def _zoned(self) -> Clock:
        """True if times so far have a time zone, False if not, None if there were no dates."""
        clocks = self._windows_or_raise().clocks
        return None if clocks is None else clocks[0].zoned

    def __sklearn_is_fitted__(self) -> bool:
        return "_windows" in self.__dict__

    def _copied(self) -> dict[str, Any]:
        return {"_windows": self._windows.copy()} if "_windows" in self.__dict__ else {}

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            # The file of each group, in line.  Files are multiples of eight bytes, and no file
            # holds arrays of bytes.  Without a key there is that of a window without rows.
            groups, blank = self._estimators()
            files = [window.to_bytes() for window in list(groups.values()) or [blank]]
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
