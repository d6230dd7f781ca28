"""What the streaming estimators share: the public edge, scikit-learn's conventions, reading."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online import inputs, statefile
from olsq.online.path import CoefficientPath
from olsq.online.rows import Rows, Trace
from olsq.online.statistics import noise_variance, standard_errors
from olsq.problem import check_ridge, check_weight

BLOCK_ROWS = 16384  # rows prepared at a time, so that a long array is never copied whole


class Engine(Protocol):
    """The state behind an estimator: a recursion or a rolling window."""

    @property
    def form(self) -> Any: ...
    @property
    def reports_residuals(self) -> bool: ...
    def copy(self) -> Any: ...
    def update(self, rows: Rows, residual: NDArray, trace: Trace) -> None: ...
    def arrays(self) -> dict[str, NDArray]: ...
    def describe(self) -> dict[str, Any]: ...


class StreamingRegressor:
    """Base of the estimators; subclasses give the parameters, ``_start`` and ``_gates``."""

    _estimator_type = "regressor"

    ridge: Any
    ridge_mode: str = "discounted"
    fit_intercept: bool
    missing: str

    # -- to be given by subclasses ----------------------------------------------------------------

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _start(self, ridge: NDArray, n_targets: int, dtype: np.dtype) -> Engine:
        raise NotImplementedError

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        raise NotImplementedError

    # -- scikit-learn's conventions ---------------------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [p for p in inspect.signature(cls).parameters if p != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the constructor, by name (``deep`` is there for scikit-learn)."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor; ValueError for a name it does not have."""
        for name, value in params.items():
            if name not in self._parameter_names():
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                    f"{self._parameter_names()!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(allow_nan=self.missing == "skip"),
            regressor_tags=RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_engine")

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
        collector = _PathCollector(n, m, full.shape[0], dtype) if traced else None
        used = n if mask is None else int(np.count_nonzero(mask))
        if used == n and n <= BLOCK_ROWS:
            blocks: Iterable[Any] = (slice(0, n),) if n else ()
        else:
            residual[:] = np.nan
            index = np.arange(n) if mask is None else np.flatnonzero(mask)
            blocks = (index[i : i + BLOCK_ROWS] for i in range(0, used, BLOCK_ROWS))
        for block in blocks:
            rows = self._prepare(rows_X, Y, gates, weights, block, dtype)
            trace = Trace.none(m, full.shape[0], dtype)
            if collector:
                trace = Trace.empty(rows.X.shape[0], m, full.shape[0], dtype)
            part = residual[block] if isinstance(block, slice) else np.empty(rows.Y.shape, dtype)
            engine.update(rows, part, trace)
            if not isinstance(block, slice):
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

    @property
    def _discounted(self) -> bool:
        return self.ridge_mode == "discounted"

    # -- reading ----------------------------------------------------------------------------------

    def _engine_or_raise(self) -> Engine:
        if not hasattr(self, "_engine"):
            raise inputs.not_fitted(self)
        return self._engine

    def _form(self) -> Any:
        return self._engine_or_raise().form

    def _coefficients(self) -> NDArray:
        theta = self._form().coefficients()
        return clip_to(theta, self._dtype)

    def _shaped(self, per_target: NDArray) -> Any:
        """Drop the target axis (the first) if y was one-dimensional."""
        return per_target[0] if self._n_targets == 0 else per_target

    @property
    def coef_(self) -> NDArray:
        """Coefficients (d,) or (m, d); minimum norm while undetermined, never NaN."""
        return self._shaped(self._coefficients()[:, self._first :]).copy()

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or (m,); 0 without one."""
        theta = self._coefficients()
        column = theta[:, 0] if self.fit_intercept else np.zeros_like(theta[:, 0])
        return self._shaped(column.copy())

    @property
    def _first(self) -> int:
        return 1 if self.fit_intercept else 0

    @property
    def residual_(self) -> NDArray:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        self._engine_or_raise()
        if self._residual is None:
            raise AttributeError(
                "residual_ was not kept: with residuals=False and method='information' rows are "
                "only accumulated. Use residuals=True, or partial_fit_path."
            )
        return self._residual[:, 0] if self._n_targets == 0 else self._residual

    @property
    def rank_(self) -> int:
        """Number of directions that data and ridge determine (the intercept counts as one)."""
        return int(self._form().rank)

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Which coefficients (d,) are determined; the others are minimum norm."""
        return self._form().determined()[self._first :]

    @property
    def sigma2_(self) -> Any:
        """Estimated noise variance, a number or (m,); inf without degrees of freedom for one."""
        return self._shaped(self._sigma2())

    def _sigma2(self) -> NDArray:
        form = self._form()
        decay = form.tally[2] if self._discounted else 1.0
        counts = np.array([*form.tally, form.rank])
        return noise_variance(
            form.loss, form.coefficients(), form.inverse_diagonal(), counts,
            decay * self._full_ridge,
        )  # fmt: skip

    def _standard_errors(self) -> NDArray:
        return standard_errors(self._sigma2(), self._form().inverse_diagonal())

    @property
    def coef_stderr_(self) -> NDArray:
        """Standard errors of ``coef_``, (d,) or (m, d); inf where undetermined.

        ``sqrt(sigma2_ P_jj)``: the ordinary least-squares standard error at forget = 1, the
        posterior standard deviation under discounting otherwise (West & Harrison 1997, 4.3).
        """
        return self._shaped(self._standard_errors()[:, self._first :])

    @property
    def intercept_stderr_(self) -> Any:
        """Standard error of ``intercept_``; 0 without one."""
        errors = self._standard_errors()
        return self._shaped(errors[:, 0] if self.fit_intercept else np.zeros(errors.shape[0]))

    @property
    def n_held_(self) -> int:
        """How often wind-up protection held a coefficient that forgetting would have lost."""
        return int(self._form().held[0])

    def predict(self, X: ArrayLike) -> NDArray:
        """Predictions (n,) or (n, m) with the present coefficients.

        A row with a non-finite regressor has no prediction: NaN for that row under
        ``missing="skip"``, ValueError under ``missing="raise"``.  Raises NotFittedError before the
        first sample.
        """
        theta = self._coefficients()
        rows = inputs.check_X(X, self, self.n_features_in_, allow_empty=False)
        inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        finite = np.isfinite(rows).all(1)
        if not finite.all():
            if self.missing == "raise":
                raise ValueError(
                    f"Input X contains NaN or infinity (first in row {int(np.argmin(finite))}); "
                    f"{type(self).__name__} predicts NaN for such rows with missing='skip'."
                )
            rows = np.where(finite[:, None], rows, np.nan)
        out = rows.astype(self._dtype, copy=False) @ theta[:, self._first :].T
        if self.fit_intercept:
            out += theta[:, 0]
        return out[:, 0] if self._n_targets == 0 else out

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination R^2 of ``predict(X)``, averaged over targets.

        1 is perfect, 0 is as good as the mean of y.
        """
        predicted = np.asarray(self.predict(X), np.float64)
        truth = np.asarray(inputs.check_y(y, self, predicted.shape[0], None), np.float64)
        truth = truth.reshape(truth.shape[0], -1)
        w = check_weight(sample_weight, truth.shape[0])
        rest = w @ (truth - predicted.reshape(truth.shape)) ** 2
        total = w @ (truth - (w @ truth) / w.sum()) ** 2
        constant = np.where(rest == 0, 1.0, 0.0)
        return float(np.mean(np.where(total > 0, 1.0 - rest / np.where(total > 0, total, 1.0), constant)))

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

    def _restore_engine(self, description: dict[str, Any], arrays: dict[str, NDArray]) -> Engine:
        raise NotImplementedError


class _PathCollector:
    """Puts the traces of one call's blocks together; a skipped row has the estimate before it."""

    def __init__(self, n: int, m: int, d: int, dtype: np.dtype) -> None:
        self.filled = np.zeros(n, np.bool_)
        self.coef = np.zeros((n, m, d), dtype)
        self.stderr = np.full((n, m, d), np.inf)
        self.sigma2 = np.full((n, m), np.inf)
        self.recursive = np.full((n, m), np.nan)

    def add(self, trace: Trace, block: Any, ridge: NDArray, discounted: bool) -> None:
        decayed = trace.counts[:, 2:3] * ridge if discounted else ridge[None]
        variance = trace.variance.astype(np.float64)
        sigma2 = noise_variance(
            trace.loss, trace.coef.astype(np.float64), variance, trace.counts, decayed
        )
        self.filled[block] = True
        self.coef[block] = trace.coef
        self.sigma2[block] = sigma2
        self.stderr[block] = standard_errors(sigma2, variance)
        self.recursive[block] = trace.recursive

    def path(self, residual: NDArray, intercept: bool, single: bool) -> CoefficientPath:
        if not self.filled.all():
            last = np.maximum.accumulate(np.where(self.filled, np.arange(self.filled.size), -1))
            carried = np.flatnonzero(~self.filled & (last >= 0))
            for array in (self.coef, self.sigma2, self.stderr):
                array[carried] = array[last[carried]]
        zero = np.zeros(self.coef.shape[:2], self.coef.dtype)
        first = 1 if intercept else 0
        path = CoefficientPath(
            coef=self.coef[:, :, first:],
            intercept=self.coef[:, :, 0] if intercept else zero,
            residual=residual,
            recursive_residual=self.recursive,
            sigma2=self.sigma2,
            stderr=self.stderr[:, :, first:],
            intercept_stderr=self.stderr[:, :, 0] if intercept else zero.astype(np.float64),
        )
        return CoefficientPath(*(a[:, 0] for a in path)) if single else path


def clip_to(values: NDArray, dtype: np.dtype) -> NDArray:
    """Cast to dtype; what float32 cannot hold becomes its largest number instead of infinity."""
    largest = np.finfo(dtype).max
    return np.clip(values, -largest, largest).astype(dtype)


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return value is default
    return type(value) is type(default) and value == default


def _plain(value: Any) -> Any:
    """A parameter as something JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
