"""State of an estimator: initialise, copy, save and restore it, and predict from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice
from olsq.arrays.reals import real_array
from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Call, Origin
from olsq.online.conventions import Estimator
from olsq.online.files import frozen
from olsq.online.forms.form import Form
from olsq.online.forms.rows import clip_to, split_intercept
from olsq.online.forms.targets import Engine, TargetGroups
from olsq.online.rows import complex_rows, frames, inputs
from olsq.online.rows.durations import Duration, half_life_duration
from olsq.online.rows.frames import Labels, check_same_index
from olsq.online.rows.options import (
    check_noise_variance,
    check_ridge,
    check_weight,
    factors_of_rows,
    forget_or_half_life,
    plain_parameters,
)
from olsq.online.rows.sparse import SparseRows, rows_or_array
from olsq.online.rows.times import Timing
from olsq.threads import threads_for

BLOCK_ROWS = 4096  # rows of a prediction that are float64 at a time


class RowsLearned(TypedDict, total=False):
    """Attributes of an estimator that tell of the rows it has learned."""

    _residual: NDArray | None
    n_samples_seen_: int
    _log_weights: NDArray | None
    _timing: Timing | None
    _constant_values: NDArray | None


class EstimatorState(Estimator):
    """State of a streaming estimator, and what is read from any; subclasses define ``_start``."""

    forget: Any
    half_life: Any
    ridge: Any
    ridge_mode: str = "discounted"
    cov: str = "posterior"
    prior: Any = None
    noise_variance: Any = None
    n_samples_seen_: int
    metadata_: dict[str, Any]
    _engine: TargetGroups
    _origin: Origin
    _residual: NDArray | None
    _log_weights: NDArray | None
    ENGINE: ClassVar[Any]  # the kind of state, an Engine
    TIMED: ClassVar[str]  # the parameter that may be a length of time
    TAKES_COMPLEX: ClassVar[bool] = False  # rows; else they are refused
    _fewest = 0  # samples below which there is no estimate
    _constant_values: NDArray | None = None  # see calls/history.py
    _timing: Timing | None = None  # of the rows so far, if they are told apart by time

    # -- to be given by subclasses --------------------------------------------------------------

    def _start(self, origin: Origin) -> Engine:
        """Return the engine before any row."""
        raise NotImplementedError

    @property
    def _strategy(self) -> Forgetting | None:
        """The strategy that needs a form of its own; None where it weighs rows, or is a factor."""
        forget = self.forget
        return forget if isinstance(forget, Forgetting) and not forget.weights_rows else None

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        """Return the forgetting factors of rows: those of the call, or the estimator's own."""
        return factors_of_rows(self._own_factors() if forget is None else forget, n_rows)

    def _own_factors(self) -> Any:
        return forget_or_half_life(self.forget, self.half_life)

    def _duration(self, timed: bool) -> Duration | None:
        """Return the parameter ``TIMED`` as a length of time; None if it counts rows.

        ``timed`` says whether rows have times: a plain number may be either.
        """
        return half_life_duration(self.half_life, timed)

    def _half_life_in_time(self, timed: bool) -> Duration | None:
        """Return the half-life as a length of time; None if there is none, or it counts rows."""
        return self._duration(timed) if self.TIMED == "half_life" else None

    @property
    def _forgets_in_time(self) -> bool:
        """True if forgetting factors are computed from the times of rows."""
        in_time = self._half_life_in_time(self._timing is not None) is not None
        return in_time and not self._drifts_in_time

    @property
    def _drifts_in_time(self) -> bool:
        """True if coefficients drift by the times of rows."""
        return False

    def _timed_option(self) -> tuple[str, str]:
        """Return, for messages, the present value of the parameter ``TIMED`` and an example in
        time.
        """
        return f"{self.TIMED}={getattr(self, self.TIMED, None)!r}", f"{self.TIMED}='90D'"

    # -- beginning ------------------------------------------------------------------------------

    def _origin_of(self, call: Call) -> Origin:
        """Return the properties that the first rows fix."""
        d, m = call.complex_features or call.X.shape[1], call.Y.shape[1]
        ridge = self._start_ridge(d)
        dtype = np.dtype(np.float32 if np.real(call.X).dtype == np.float32 else np.float64)
        n_targets = 0 if call.one_target else m
        return self._make_origin(
            d,
            n_targets,
            dtype,
            ridge,
            names=call.names,
            targets=call.targets,
            is_complex=call.complex_features > 0,
        )

    def _start_ridge(self, n_features: int) -> NDArray[np.float64]:
        """Return the ridge (k,) of the state before any row, the intercept's zero first."""
        ridge = check_ridge(self.ridge, n_features)
        inputs.check_ridge_size(ridge, self._stored)
        return np.concatenate([[0.0], ridge]) if self.fit_intercept else ridge

    def _make_origin(
        self,
        n_features: int,
        n_targets: int,
        dtype: np.dtype,
        ridge: NDArray,
        in_time: bool = False,
        names: NDArray | None = None,
        targets: tuple[str, ...] | None = None,
        is_complex: bool = False,
    ) -> Origin:
        """Build the origin of a state from these properties and the parameters.

        ``ridge`` (k,) is that of the coefficients; of complex ones both parts have it.
        """
        intercept = bool(self.fit_intercept)
        return Origin(
            n_features,
            n_targets,
            dtype,
            in_time,
            np.tile(ridge, 2) if is_complex else ridge,
            names,
            is_complex=is_complex,
            complex_intercept=intercept and is_complex,
            intercept=intercept and not is_complex,
            discounted=self.ridge_mode == "discounted",
            sandwich=self.cov == "sandwich",
            made_with=frozen.snapshot(self),
            targets=targets,
        )

    def _engine_of(self, origin: Origin, switch: Engine | None = None) -> TargetGroups:
        """Return the engine of all targets together: ``switch``, or that before any row."""
        switch = self._start(origin) if switch is None else switch
        return TargetGroups.together(switch, origin.columns, self.missing == "skip_target")

    def _settle(
        self,
        origin: Origin,
        engine: TargetGroups,
        metadata: dict[str, Any] | None = None,
        **rows_learned: Unpack[RowsLearned],
    ) -> None:
        """Replace the estimator's state; every fitted estimator is made here.

        ``rows_learned`` are the attributes that tell of the rows, if there were any.
        """
        dtype = origin.dtype
        dtype = np.result_type(dtype, np.complex64) if origin.is_complex else dtype
        no_rows: RowsLearned = {
            "_residual": np.empty((0, origin.columns), dtype),
            "n_samples_seen_": 0,
            "_log_weights": None,
            "_timing": None,
            "_constant_values": None,
        }
        self.__dict__.pop("feature_names_in_", None)
        names = {} if origin.names is None else {"feature_names_in_": origin.names}
        self.__dict__.update(  # all at once, so that an interrupt finds all or nothing
            {**no_rows, **names, **rows_learned},
            _origin=origin,
            _engine=engine,
            n_features_in_=origin.n_features,
            metadata_=metadata or {},
        )

    def _precision(self, origin: Origin) -> tuple[str, str]:
        """Return the dtypes, by name, of the state and of the rows."""
        return self._stored_name, origin.dtype.name

    def _check_frozen(self) -> None:
        """Raise ValueError if a parameter is no longer what the state was made with."""
        frozen.check(self, self._origin.made_with)
        by_target = self._engine.parting
        if (self.missing == "skip_target") != by_target:
            old = "missing='skip_target'" if by_target else "another choice than 'skip_target'"
            kind = type(self).__name__
            raise ValueError(
                f"missing is {self.missing!r} now, but this {kind} has learned rows with {old}, "
                "which its state depends on: call fit to start anew, or set missing back"
            )

    def _no_values(self) -> NDArray[np.float64] | None:
        """Return the values of columns before any row; None where no intercept is looked for."""
        unasked = self.fit_intercept or self.prior is not None
        return None if unasked else np.empty(0)

    def _log_weight_sums(self) -> NDArray[np.float64]:
        """Return the forgotten log weights (m,) as numbers, zeros while all weights were 1."""
        return np.zeros(self._origin.columns) if self._log_weights is None else self._log_weights

    def _copied(self) -> dict[str, Any]:
        return {"_engine": self._engine.copy()} if hasattr(self, "_engine") else {}

    # -- reading -----------------------------------------------------------------------------------

    def _engine_or_raise(self) -> Any:
        if not hasattr(self, "_engine"):
            raise inputs.not_fitted(self)
        return self._engine

    def _form(self) -> Any:
        return self._engine_or_raise().form

    def _by_target(self, read: Callable[[Form], NDArray]) -> NDArray:
        """Return ``read`` of the form, (m, ...), by group where targets miss different rows."""
        with self._at_work():
            self._form()
            return self._engine.by_target(read)

    def _per_target(self, read: Callable[[Form], Any]) -> Any:
        """Return a value shared by all targets; one each with ``missing="skip_target"``."""
        with self._at_work():
            form = self._form()
            if not self._engine.parting or self._origin.n_targets == 0:
                return read(form)
            return self._engine.for_each(read)

    def _real_theta(self) -> NDArray:
        """Return the coefficients (m, k) of the engine's rows, of both parts if complex."""
        return self._by_target(lambda form: form.coefficients())

    def _theta(self) -> NDArray:
        theta = self._real_theta()
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _coefficients(self) -> NDArray:
        """Return the coefficients (m, k) in the dtype of the data."""
        theta = clip_to(self._real_theta(), self._origin.dtype)
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _shaped(self, per_target: NDArray) -> Any:
        """Drop the target axis (the first) if y was one-dimensional."""
        return per_target[0] if self._origin.n_targets == 0 else per_target

    @property
    def _first(self) -> int:
        return self._origin.first

    def _known_noise(self, origin: Origin) -> NDArray[np.float64]:
        """Return the known variances (m,) of the engine's rows, inf where they are estimated."""
        noise = check_noise_variance(self.noise_variance, origin.columns)
        return noise / 2.0 if origin.is_complex else noise

    def _slopes(self) -> NDArray[np.floating]:
        """Return the coefficients (d,) or (m, d) without the intercept's."""
        return self._shaped(self._coefficients()[:, self._first :]).copy()

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or (m,); 0 without one."""
        return self._shaped(split_intercept(self._coefficients(), self._first)[1].copy())

    @property
    def residual_(self) -> Any:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        self._engine_or_raise()
        if self._residual is None:
            raise AttributeError(
                "residual_ was not kept: with residuals=False and method='information' rows are "
                "only accumulated. Use residuals=True, or partial_fit_path."
            )
        values = self._residual[:, 0] if self._origin.n_targets == 0 else self._residual
        residual, labels = self.__dict__.get("_labelled_residual", (None, None))
        # Rows that came the short way are arrays, and later than the labels.
        return values if residual is not self._residual else self._labelled(labels, values)

    @property
    def n_held_(self) -> int:
        """Number of times wind-up protection held a coefficient that forgetting would have lost."""
        with self._at_work():
            self._form()
            return int(sum(form.held[0] for form in self._engine.forms))

    # -- predicting --------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> Any:
        """Predict rows with the present coefficients.

        Parameters
        ----------
        X : array (n, d)

        Returns
        -------
        array (n,) or (n, m)
            NaN for a row with a missing value; or a series or frame like X, see
            :meth:`set_output`.

        Raises
        ------
        NotFittedError
            Before the first sample.
        ValueError
            For bad shapes, and under ``missing="raise"`` for a row with a missing value.
        """
        with self._locked():
            self._form()
            return self._as_input(X, self._shaped_rows(self._mean(self._checked(X))))

    def _checked(self, X: Any) -> NDArray:
        """Check the rows of X (n, d); those with a missing value become NaN."""
        convert: Callable[[Any, str], NDArray] = rows_or_array
        if self._origin.is_complex:
            convert = complex_rows.complex_array
        elif getattr(self, "TAKES_COMPLEX", False) and complex_rows.holds_complex(X):
            raise complex_rows.real_model(type(self).__name__, "X")
        rows = inputs.check_X(X, self, self.n_features_in_, allow_empty=False, convert=convert)
        inputs.check_feature_names(X, getattr(self, "feature_names_in_", None))
        sparse = isinstance(rows, SparseRows)
        finite = rows.finite_rows() if sparse else np.logical_and.reduce(np.isfinite(rows), axis=1)
        if finite.all():
            return rows
        if self.missing == "raise":
            raise ValueError(
                f"Input X contains NaN or infinity (first in row {int(np.argmin(finite))}); "
                f"{type(self).__name__} predicts NaN for such rows with missing='skip'."
            )
        return np.where(finite[:, None], rows, rows.dtype.type(np.nan))

    def _mean(self, rows: NDArray) -> NDArray[np.float64]:
        """Predict checked rows, (n, m)."""
        theta, first = self._theta(), self._first
        out = np.empty((rows.shape[0], theta.shape[0]), theta.dtype)
        with threads_for(*rows.shape):
            for start in range(0, rows.shape[0], BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                out[part] = rows[part].astype(theta.dtype, copy=False) @ theta[:, first:].T
        if first:
            out += theta[:, 0]
        return out

    def _shaped_rows(self, values: NDArray) -> NDArray:
        """Cast (n, m) to the data's dtype, without the axis of targets if y was one-dimensional."""
        dtype = self._origin.dtype
        if values.dtype.kind == "c":
            parts = np.real(values), np.imag(values)
            out = complex_rows.joined(*(clip_to_finite(part, dtype) for part in parts))
        else:
            out = clip_to_finite(values, dtype)
        return out[:, 0] if self._origin.n_targets == 0 else out

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2 of ``predict(X)``, averaged over targets.

        1 is perfect, 0 is as good as the mean of y.  Rows with a non-finite value do not count
        under ``missing="skip"`` and are a ValueError under ``missing="raise"``; so are no rows.
        """
        check_same_index(X=X, y=y, sample_weight=sample_weight)
        predicted = np.asarray(self.predict(X))
        both, convert = np.float64, real_array
        if predicted.dtype.kind == "c":
            both, convert = np.complex128, complex_rows.complex_array
        predicted = predicted.astype(both)
        truth = inputs.check_y(y, self, predicted.shape[0], None, convert).astype(both)
        truth = truth.reshape(truth.shape[0], -1)
        predicted = predicted.reshape(truth.shape)
        w = check_weight(sample_weight, truth.shape[0])
        complete = np.isfinite(truth).all(axis=1) & np.isfinite(predicted).all(axis=1)
        weighted = np.isfinite(w)
        if not (complete & weighted).all():
            name = "sample_weight" if complete.all() else "y"
            complete &= weighted
            if self.missing == "raise":
                raise ValueError(
                    f"Input {name} contains NaN or infinity (first in row "
                    f"{int(np.argmin(complete))}); {type(self).__name__} leaves such rows out of "
                    "the score with missing='skip'."
                )
            truth, predicted, w = truth[complete], predicted[complete], w[complete]
        if not w.any():
            raise ValueError("no row is left to score: all have a missing value or weight 0")
        unexplained = w @ np.abs(truth - predicted) ** 2
        total = w @ np.abs(truth - (w @ truth) / w.sum()) ** 2
        constant = np.where(unexplained == 0, 1.0, 0.0)
        return float(
            np.mean(
                np.where(total > 0, 1.0 - unexplained / np.where(total > 0, total, 1.0), constant)
            )
        )

    def set_output(self, *, predict: str | None = None, transform: str | None = None) -> Self:
        """Choose the kind of the results of :meth:`predict`, its intervals and ``residual_``.

        Parameters
        ----------
        predict : {"default", "input"}, optional
            "default": arrays, as all of scikit-learn's regressors return.  "input": for a frame a
            series (one target) or a frame (several, a column each) of the same library, pandas',
            Polars' or Arrow's, with the index of X and the names of the targets; arrays for
            arrays.  None leaves it as it is.
        transform : None
            For scikit-learn, which sets it on every step of a pipeline; there is no ``transform``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For another choice.

        Notes
        -----
        Kept by ``sklearn.base.clone``, copies and pickles; not part of the state, so not in files.
        "input" works in ``Pipeline``, ``cross_val_score``, ``cross_val_predict`` and grids, not as
        the regressor of a ``TransformedTargetRegressor`` that is given frames, which reshapes
        predictions.

        Examples
        --------
        >>> import pandas as pd, olsq
        >>> X = pd.DataFrame({"a": [1.0, 2.0]}, index=["one", "two"])
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False)
        >>> est.set_output(predict="input").fit(X, pd.Series([2.0, 4.0], X.index, name="y"))
        RecursiveLeastSquares(fit_intercept=False)
        >>> round(float(est.predict(X)["two"]), 6)
        4.0
        """
        if predict is not None:
            check_choice(predict, "predict", ("default", "input"))
            # By this name scikit-learn's clone takes it along.
            self._sklearn_output_config = {"predict": predict}
        return self

    @property
    def _frames_out(self) -> bool:
        return self.__dict__.get("_sklearn_output_config", {}).get("predict") == "input"

    def _as_input(self, X: Any, values: Any) -> Any:
        """Convert an array (n,) or (n, m), or a tuple of them, to the kind of X if requested."""
        if not self._frames_out:
            return values
        labels = Labels.of(X)
        if isinstance(values, tuple):
            return tuple(self._labelled(labels, part) for part in values)
        return self._labelled(labels, values)

    def _labelled(self, labels: Labels, values: NDArray) -> Any:
        if labels.kind is None:
            return values
        targets = self._origin.targets
        if values.ndim == 1:
            return frames.series(values, targets[0] if targets else None, labels)
        names = targets or tuple(f"y{k}" for k in range(values.shape[1]))
        return frames.frame(dict(zip(names, values.T, strict=True)), labels)

    # -- saving ---------------------------------------------------------------------------------

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            self._engine_or_raise()
            self._check_frozen()
            header, arrays = self._written(metadata)
            return header, {name: array.copy() for name, array in arrays.items()}

    def _written(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return header and arrays of the state file."""
        names = getattr(self, "feature_names_in_", None)
        header = {
            "estimator": type(self).__name__,
            "parameters": plain_parameters(self),
            "n_features": self.n_features_in_,
            "n_targets": self._origin.n_targets,
            "dtype": self._origin.dtype.name,
            "n_samples_seen": self.n_samples_seen_,
            "feature_names": None if names is None else list(names),
            "in_time": self._origin.in_time,
            "engine": self._engine.describe(),
            "metadata": metadata or {},
        }
        if self._origin.targets is not None:
            header["target_names"] = list(self._origin.targets)
        if self._timing is not None:
            header |= {"timing": list(self._timing[:3]), "zoned": self._timing.zoned}
        if self._origin.is_complex:
            header["complex"] = True
        arrays = self._engine.arrays() | {"full_ridge": self._origin.ridge}
        if self._residual is not None:
            arrays["last_residual"] = self._residual
            if self._origin.is_complex:  # real and imaginary part of a target beside each other
                arrays["last_residual"] = self._residual.view(self._origin.dtype)
        if self._log_weights is not None:
            arrays["log_weights"] = self._log_weights
        if self._constant_values is not None:
            arrays["constant_values"] = self._constant_values
        return header, arrays

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        names, is_complex = header["feature_names"], header.get("complex", False)
        ridge, residual = arrays["full_ridge"], arrays.get("last_residual")
        if is_complex:
            ridge = ridge[: ridge.size // 2]
            if residual is not None:
                residual = residual.view(np.result_type(residual.dtype, np.complex64))
        origin = self._make_origin(
            header["n_features"],
            header["n_targets"],
            np.dtype(header["dtype"]),
            ridge,
            header["in_time"],
            None if names is None else np.asarray(names, dtype=object),
            tuple(header["target_names"]) if "target_names" in header else None,
            is_complex,
        )
        engine = TargetGroups.restore(header["engine"], arrays, origin.columns, self.ENGINE.restore)
        self._settle(
            origin,
            engine,
            header["metadata"],
            _residual=residual,
            n_samples_seen_=header["n_samples_seen"],
            _log_weights=arrays.get("log_weights"),
            _constant_values=arrays.get("constant_values"),
            _timing=(
                Timing(*header["timing"], zoned=header.get("zoned")) if "timing" in header else None
            ),
        )


def clip_to_finite(values: NDArray, dtype: np.dtype) -> NDArray:
    """Clip as :func:`clip_to` does, but keep infinities, which mean "not determined"."""
    return np.where(np.isinf(values), values, clip_to(values, dtype)).astype(dtype)
