"""What the streaming estimators share: learning at the public edge, and saving."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import frozen, inputs, statefile
from olsq.online.collector import PathCollector, joined
from olsq.online.conventions import EstimatorConventions
from olsq.online.forms.limits import state_dtype_name
from olsq.online.forms.rows import Rows, Trace, clip_to
from olsq.online.path import CoefficientPath
from olsq.online.reading import Engine, FittedReading
from olsq.online.targets import Group, TargetGroups
from olsq.problem import LARGEST, check_ridge, check_weight

_STORED = {name: np.dtype(name) for name in ("float64", "float32")}
BLOCK_ENTRIES = 131072  # regressors prepared at a time: what fits a core's cache


class StreamingRegressor(EstimatorConventions, FittedReading):
    """Base of the estimators; subclasses give the parameters, ``_start`` and ``_gates``."""

    ridge: Any
    state_dtype: Any
    # May change between rows: they decide what is done with the next row, not what the state is.
    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"forget", "half_life", "missing"})
    _fewest = 0  # samples below which there is no estimate

    # -- to be given by subclasses ----------------------------------------------------------------

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _start(self, ridge: NDArray, n_targets: int, dtype: np.dtype, in_time: bool) -> Engine:
        """The engine before any row; ``dtype`` is that of the data, ``in_time`` whether they have
        an index of their own."""
        raise NotImplementedError

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        raise NotImplementedError

    def _restore_engine(self, description: dict[str, Any], arrays: dict[str, NDArray]) -> Engine:
        raise NotImplementedError

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn the rows of X, y in order.

        Parameters
        ----------
        X : array (n, d)
        y : array (n,) or (n, m)
        sample_weight : array (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As :meth:`partial_fit`; also if no row is left to learn from.  An estimator that was
            fitted before is unchanged then.
        """
        self._learn(X, y, sample_weight, None, restart=True, traced=False)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
    ) -> Self:
        """Learn the rows of X, y in order, after everything learnt before.

        Parameters
        ----------
        X : array (n, d)
            Regressors; n may be 0.  The first call decides the dtype of what comes out: float32
            for float32, otherwise float64.  All is computed in float64, a block of rows at a time.
        y : array (n,) or (n, m)
        sample_weight : array (n,), optional
            Weights >= 0.  A row of weight 0 teaches nothing but lets forgetting go on.
        forget : float or array (n,), optional
            Forgetting factors for these rows instead of the estimator's own.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad shapes, values out of range, non-finite rows under ``missing="raise"``; for a
            parameter that is no longer what the state was made with (only ``forget``,
            ``half_life``, ``missing`` and ``min_samples`` may change between rows, ``missing`` not
            to or from "skip_target").  All checks come first: after an error the state is what it
            was.
        """
        self._learn(X, y, sample_weight, forget, restart=False, traced=False)
        return self

    def partial_fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
    ) -> CoefficientPath:
        """Learn like :meth:`partial_fit` and return the coefficients after every row.

        Returns
        -------
        CoefficientPath
            O(n d) memory, for these rows only.
        """
        path = self._learn(X, y, sample_weight, forget, restart=False, traced=True)
        assert path is not None
        return path

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, forget: Any, *, restart: bool, traced: bool
    ) -> CoefficientPath | None:
        with self._locked():
            return self._learn_alone(X, y, sample_weight, forget, restart=restart, traced=traced)

    def _learn_alone(
        self, X: Any, y: Any, sample_weight: Any, forget: Any, *, restart: bool, traced: bool
    ) -> CoefficientPath | None:
        fitted: bool = not restart and hasattr(self, "_engine")
        if fitted:
            self._check_frozen()
        self._check_parameters()
        known = self.n_features_in_ if fitted else None
        rows_X = inputs.check_X(X, self, known, allow_empty=fitted)
        n, d = rows_X.shape
        rows_y = inputs.check_y(y, self, n, self._n_targets if fitted else None)
        names = inputs.feature_names(X) if type(X) is not np.ndarray else None
        if fitted and names is not None:
            inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        weights = check_weight(sample_weight, n)
        if restart and not weights.any():
            raise ValueError("sample_weight is zero in every row; no row is left to learn from")
        gates = self._gates(forget, n)
        usable = self._usable(rows_X, rows_y, None if sample_weight is None else weights)
        if not fitted:
            if usable is not None and not usable.any():
                raise inputs.no_usable_row(rows_y)
            ridge = check_ridge(self.ridge, d)
            dtype = np.dtype(np.float32 if rows_X.dtype == np.float32 else np.float64)
            inputs.check_ridge_size(ridge, self._stored)
            full = np.concatenate([[0.0], ridge]) if self.fit_intercept else ridge
            m = 1 if rows_y.ndim == 1 else rows_y.shape[1]
            in_time = inputs.has_index(X) or inputs.has_index(y)
            engine: Any = self._start(full, m, dtype, in_time)
            if self.missing == "skip_target":
                engine = TargetGroups([Group(np.arange(m), engine)])
        else:
            dtype, m, in_time = self._dtype, max(self._n_targets, 1), self._in_time
            full = self._full_ridge
            # Long calls, and those that feed several engines, work on a copy, so that an interrupt
            # cannot leave half an update behind.
            copied = n > full.shape[0] or isinstance(self._engine, TargetGroups)
            engine = self._engine.copy() if copied else self._engine
        Y = rows_y.reshape(n, m)
        residual = np.empty((n, m), dtype)
        collectors: list[PathCollector] = []
        if isinstance(engine, TargetGroups):
            if usable is not None:
                engine = engine.split(usable)
            parts = engine.groups
        else:
            parts = [Group(np.arange(m), engine)]
        for targets, part in parts:
            every = len(targets) == m
            mask = None if usable is None else usable if usable.ndim == 1 else usable[:, targets[0]]
            data = rows_X, Y if every else Y[:, targets], gates, weights
            collector = None
            if traced:
                collector = PathCollector(n, len(targets), full.size, dtype, self.cov == "sandwich")
                if fitted and mask is not None:
                    collector.begin(part.form, *self._form_statistics(part.form))
                collectors.append(collector)
            errors = residual if every else np.empty((n, len(targets)), dtype)
            self._feed(part, data, mask, full, errors, collector)
            if not every:
                residual[:, targets] = errors
        if not fitted:
            self._made_with = frozen.snapshot(self)
            self.n_features_in_ = d
            self._n_targets = 0 if rows_y.ndim == 1 else m
            self._dtype, self._in_time = dtype, in_time
            self._full_ridge = full
            self.n_samples_seen_ = 0
            self.metadata_: dict[str, Any] = {}
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            if names is not None:
                self.feature_names_in_ = names
        self._engine = engine
        seen = weights > 0
        if usable is not None:
            seen &= usable if usable.ndim == 1 else usable.any(axis=1)
        self.n_samples_seen_ += int(np.count_nonzero(seen))
        self._residual = residual if traced or engine.reports_residuals else None
        if not traced:
            return None
        for collector in collectors:
            collector.finish(self._fewest)
        path = joined(collectors, [part.targets for part in parts], residual, self.fit_intercept)
        return CoefficientPath(*(a[:, 0] for a in path)) if self._n_targets == 0 else path

    @property
    def _stored(self) -> np.dtype:
        """In what the state is stored between calls."""
        return _STORED[state_dtype_name(self.state_dtype)]

    def _check_frozen(self) -> None:
        """Raise ValueError if a parameter is no longer what the state was made with."""
        frozen.check(self, self._made_with)
        by_target = isinstance(self._engine, TargetGroups)
        if (self.missing == "skip_target") != by_target:
            old = "missing='skip_target'" if by_target else "another choice than 'skip_target'"
            kind = type(self).__name__
            raise ValueError(
                f"missing is {self.missing!r} now, but this {kind} has learnt rows with {old}, "
                "and its state cannot change over: call fit to start anew, or set missing back"
            )

    def _usable(self, X: NDArray, y: NDArray, weights: NDArray | None) -> NDArray[np.bool_] | None:
        """Which rows (n,) can be learnt, or (n, m) if by target; None if all can."""
        stored = self._stored
        if stored == np.float32:
            inputs.check_magnitudes({"X": X, "y": y}, LARGEST[stored])
        if self.missing != "skip_target":
            return inputs.usable_rows(X, y, weights, self.missing, self, stored)
        given = np.isfinite(y if y.ndim == 2 else y[:, None])
        if given.all():
            rows = inputs.usable_rows(X, y, weights, "skip", self, stored)
            return None if rows is None else rows[:, None] & given
        known = np.where(np.isfinite(y), y, y.dtype.type(0))
        rows = inputs.usable_rows(X, known, weights, "skip", self, stored)
        return given if rows is None else rows[:, None] & given

    def _feed(
        self, engine: Engine, data: tuple[NDArray, ...], mask: NDArray[np.bool_] | None,
        full: NDArray, residual: NDArray, collector: PathCollector | None,
    ) -> None:  # fmt: skip
        """Give an engine the rows of a call; ``residual`` (n, m) receives the a-priori errors."""
        X, Y, gates, weights = data
        n, m = Y.shape
        # Where rows are places in time, a missing one takes its place in the window, empty.
        empty = mask if getattr(engine, "positions", False) else None
        if mask is not None:
            residual[:] = np.nan
        for block in _blocks(n, None if empty is not None else mask, full.size):
            rows = self._prepare(X, Y, gates, weights, block, empty)
            trace = Trace.none(m, full.size)
            if collector:
                trace = collector.trace(block, rows.X.shape[0])
            part = np.empty(rows.Y.shape)
            engine.update(rows, part, trace)
            residual[block] = clip_to(part, residual.dtype)
            if collector:
                collector.add(trace, block, full, self.ridge_mode == "discounted")
        if empty is not None:
            residual[~empty] = np.nan
            if collector:
                collector.recursive[~empty] = np.nan

    def _prepare(
        self, X: NDArray, Y: NDArray, gates: NDArray, weights: NDArray, block: Any,
        usable: NDArray[np.bool_] | None,
    ) -> Rows:  # fmt: skip
        """The rows of a block in float64, with the intercept's column of ones.

        Those that are not ``usable`` (n,) become rows of zeros and weight 0.
        """
        chosen, targets, weights = X[block], Y[block], weights[block]
        if usable is not None:
            ok = usable[block]
            chosen, targets = (np.where(ok[:, None], a, 0.0) for a in (chosen, targets))
            weights = np.where(ok, weights, 0.0)
        if self.fit_intercept:
            rows = np.empty((chosen.shape[0], X.shape[1] + 1))
            rows[:, 0] = 1
            rows[:, 1:] = chosen
        else:
            rows = np.ascontiguousarray(chosen, np.float64)
        return Rows(rows, np.ascontiguousarray(targets, np.float64), gates[block], weights)

    def __copy__(self) -> Self:
        """A copy with a state of its own: ``copy.copy`` must not tie two streams together."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__())
        if hasattr(self, "metadata_"):
            other.metadata_ = copy.deepcopy(self.metadata_)
        return other

    # -- saving -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the whole state to one file, atomically; :func:`olsq.load` resumes bit for bit.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only after the new one is on disk.
        metadata : dict, optional
            Anything JSON can hold; comes back as ``metadata_``.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            If a parameter is no longer what the state was made with.
        OSError
            If the file cannot be written; an existing one is untouched then.
        """
        self._engine_or_raise()
        with self._locked():
            self._check_frozen()
            header, arrays = self._written(metadata)
            arrays = {name: array.copy() for name, array in arrays.items()}
        statefile.write(path, header, arrays)

    def _written(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Header and arrays of the state file."""
        names = getattr(self, "feature_names_in_", None)
        header = {
            "estimator": type(self).__name__,
            "parameters": {k: _plain(v) for k, v in self.get_params().items()},
            "n_features": self.n_features_in_,
            "n_targets": self._n_targets,
            "dtype": self._dtype.name,
            "n_samples_seen": self.n_samples_seen_,
            "feature_names": None if names is None else list(names),
            "in_time": self._in_time,
            "engine": self._engine.describe(),
            "metadata": metadata or {},
        }
        arrays = self._engine.arrays() | {"full_ridge": self._full_ridge}
        if self._residual is not None:
            arrays["last_residual"] = self._residual
        return header, arrays

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._made_with = frozen.snapshot(self)
        self.n_features_in_ = header["n_features"]
        self._n_targets = header["n_targets"]
        self._dtype = np.dtype(header["dtype"])
        self.n_samples_seen_ = header["n_samples_seen"]
        self.metadata_ = header["metadata"]
        self._full_ridge = arrays["full_ridge"]
        self._residual = arrays.get("last_residual")
        if header["feature_names"] is not None:
            self.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
        self._in_time = header["in_time"]
        if "groups" in header["engine"]:
            self._engine = TargetGroups.restore(header["engine"], arrays, self._restore_engine)
        else:
            self._engine = self._restore_engine(header["engine"], arrays)


def _blocks(n: int, mask: NDArray[np.bool_] | None, d: int) -> Iterable[Any]:
    """The usable rows of a call in pieces that fit the cache: slices, or indices under a mask."""
    size = max(64, BLOCK_ENTRIES // d)
    for start in range(0, n, size):
        stop = min(start + size, n)
        if mask is None or mask[start:stop].all():
            yield slice(start, stop)
        elif mask[start:stop].any():
            yield start + np.flatnonzero(mask[start:stop])


def _plain(value: Any) -> Any:
    """A parameter as something JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.dtype, type)):  # state_dtype
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value
