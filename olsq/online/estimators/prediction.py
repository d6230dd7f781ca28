"""Predictions of any streaming estimator, their score, and their conversion to frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice
from olsq.arrays.reals import real_array
from olsq.online.estimators.state import EstimatorState
from olsq.online.forms.rows import clip_to
from olsq.online.rows import complex_rows, frames, inputs
from olsq.online.rows.frames import Labels, check_same_index
from olsq.online.rows.options import check_weight
from olsq.online.rows.sparse import SparseRows, rows_or_array
from olsq.threads import threads_for

BLOCK_ROWS = 4096  # rows of a prediction that are float64 at a time


class Prediction(EstimatorState):
    """Predictions and residuals, as arrays or as frames like the rows."""

    @property
    def residual_(self) -> Any:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        self._engine_or_raise()
        if self._residual is None:
            raise AttributeError(
                "residual_ was not kept: with residuals=False and ridge_mode='fixed' rows are "
                "learned without a solution for each. Use residuals=True, or partial_fit_path."
            )
        values = (self._residual[:, 0] if self._origin.n_targets == 0 else self._residual).copy()
        residual, labels = self.__dict__.get("_labelled_residual", (None, None))
        # Rows that came the short way are arrays, and later than the labels.
        return values if residual is not self._residual else self._labelled(labels, values)

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

    def _predict_or_zero(self, X: Any) -> Any:
        """Predict the row X (1, d); 0 for targets without an estimate beside others with one."""
        prediction = np.asarray(self.predict(X))[0]
        if np.isnan(prediction).any() and np.isfinite(np.asarray(X, prediction.dtype)).all():
            prediction = np.where(np.isnan(prediction), 0, prediction)
        return prediction

    def _has_estimate(self) -> bool:
        """Test whether :meth:`predict` has something to predict with."""
        return "_engine" in self.__dict__

    def _labels(self, labels: Labels) -> Labels:
        """Complete the labels of a call's results with the names of the first call."""
        names = self._origin.names
        if labels.features is None and names is not None:
            labels = labels._replace(features=tuple(names))
        if labels.targets is None:
            labels = labels._replace(targets=self._origin.targets)
        return labels._replace(intercept=bool(self._origin.first))


def clip_to_finite(values: NDArray, dtype: np.dtype) -> NDArray:
    """Clip as :func:`clip_to` does, but keep infinities, which mean "not determined"."""
    return np.where(np.isinf(values), values, clip_to(values, dtype)).astype(dtype)
