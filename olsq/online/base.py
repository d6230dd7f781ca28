"""What the streaming estimators share: learning at the public edge, and saving."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import inputs, statefile
from olsq.online.collector import PathCollector
from olsq.online.conventions import EstimatorConventions
from olsq.online.path import CoefficientPath
from olsq.online.reading import Engine, FittedReading
from olsq.online.rows import Rows, Trace, clip_to
from olsq.problem import check_ridge, check_weight

BLOCK_ENTRIES = 131072  # regressors prepared at a time: what fits a core's cache


class StreamingRegressor(EstimatorConventions, FittedReading):
    """Base of the estimators; subclasses give the parameters, ``_start`` and ``_gates``."""

    ridge: Any

    # -- to be given by subclasses ----------------------------------------------------------------

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _start(self, ridge: NDArray, n_targets: int, dtype: np.dtype) -> Engine:
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
            Regressors; n may be 0.  The first call decides the dtype of the state: float32 for
            float32, otherwise float64.
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
            For bad shapes, values out of range, non-finite rows under ``missing="raise"``.  All
            checks come first: after an error the state is what it was.
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
        fitted = not restart and hasattr(self, "_engine")
        if not fitted:
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
        mask = inputs.usable_rows(rows_X, rows_y, self.missing, self)
        if not fitted:
            if mask is not None and not mask.any():
                raise inputs.no_usable_row(rows_y)
            ridge = check_ridge(self.ridge, d)
            dtype = np.dtype(np.float32 if rows_X.dtype == np.float32 else np.float64)
            full = np.concatenate([[0.0], ridge]) if self.fit_intercept else ridge
            m = 1 if rows_y.ndim == 1 else rows_y.shape[1]
            engine = self._start(full, m, dtype)
        else:
            dtype, m = self._dtype, max(self._n_targets, 1)
            full = self._full_ridge
            # Long calls work on a copy, so that an interrupt cannot leave half an update behind.
            engine = self._engine.copy() if n > full.shape[0] else self._engine
        Y = rows_y.reshape(n, m)
        residual = np.empty((n, m), dtype)
        collector = PathCollector(n, m, full.shape[0], dtype) if traced else None
        if collector and fitted and mask is not None and not mask[0]:
            theta = clip_to(engine.form.coefficients(), dtype)
            collector.begin(theta, *self._statistics())
        used = n if mask is None else int(np.count_nonzero(mask))
        if mask is not None:
            residual[:] = np.nan
        for block in _blocks(n, mask, full.shape[0]):
            rows = self._prepare(rows_X, Y, gates, weights, block, dtype)
            trace = Trace.none(m, full.shape[0], dtype)
            if collector:
                trace = collector.trace(block, rows.X.shape[0])
            part = np.empty(rows.Y.shape, dtype)
            engine.update(rows, part, trace)
            residual[block] = part
            if collector:
                collector.add(trace, block, full, self._discounted)
        if not fitted:
            self.n_features_in_ = d
            self._n_targets = 0 if rows_y.ndim == 1 else m
            self._dtype = dtype
            self._full_ridge = full
            self.n_samples_seen_ = 0
            self.metadata_: dict[str, Any] = {}
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            if names is not None:
                self.feature_names_in_ = names
        self._engine = engine
        self.n_samples_seen_ += used
        self._residual = residual if traced or engine.reports_residuals else None
        if collector is None:
            return None
        return collector.path(residual, self.fit_intercept, single=self._n_targets == 0)

    def _prepare(
        self, X: NDArray, Y: NDArray, gates: NDArray, weights: NDArray, block: Any, dtype: np.dtype
    ) -> Rows:
        """The rows of a block in the state's dtype, with the intercept's column of ones."""
        chosen = X[block]
        if self.fit_intercept:
            rows = np.empty((chosen.shape[0], X.shape[1] + 1), dtype)
            rows[:, 0] = 1
            rows[:, 1:] = chosen
        else:
            rows = np.ascontiguousarray(chosen, dtype)
        return Rows(rows, np.ascontiguousarray(Y[block], dtype), gates[block], weights[block])

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
        OSError
            If the file cannot be written; an existing one is untouched then.
        """
        self._engine_or_raise()
        names = getattr(self, "feature_names_in_", None)
        header = {
            "estimator": type(self).__name__,
            "parameters": {k: _plain(v) for k, v in self.get_params().items()},
            "n_features": self.n_features_in_,
            "n_targets": self._n_targets,
            "dtype": self._dtype.name,
            "n_samples_seen": self.n_samples_seen_,
            "feature_names": None if names is None else list(names),
            "engine": self._engine.describe(),
            "metadata": metadata or {},
        }
        arrays = self._engine.arrays() | {"full_ridge": self._full_ridge}
        if self._residual is not None:
            arrays["last_residual"] = self._residual
        statefile.write(path, header, arrays)

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.n_features_in_ = header["n_features"]
        self._n_targets = header["n_targets"]
        self._dtype = np.dtype(header["dtype"])
        self.n_samples_seen_ = header["n_samples_seen"]
        self.metadata_ = header["metadata"]
        self._full_ridge = arrays["full_ridge"]
        self._residual = arrays.get("last_residual")
        if header["feature_names"] is not None:
            self.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
        self._engine = self._restore_engine(header["engine"], arrays)


def _blocks(n: int, mask: NDArray[np.bool_] | None, d: int) -> Iterable[Any]:
    """The usable rows of a call in pieces that fit the cache: slices, or indices under a mask."""
    size = max(64, BLOCK_ENTRIES // d)
    if mask is None:
        return (slice(i, min(i + size, n)) for i in range(0, n, size))
    index = np.flatnonzero(mask)
    return (index[i : i + size] for i in range(0, index.size, size))


def _plain(value: Any) -> Any:
    """A parameter as something JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
