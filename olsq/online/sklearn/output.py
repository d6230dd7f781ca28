"""Convert predictions and residuals to the caller's kind of frame, where requested.

scikit-learn's regressors return arrays, and some of its meta-estimators rely on that
(``TransformedTargetRegressor`` reshapes predictions, which a series cannot be).  So arrays are the
default here too.
"""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import NDArray

from olsq.arrays.checks import check_choice
from olsq.online.rows import frames
from olsq.online.rows.frames import Labels


class FrameOutput:
    """The method ``set_output``, and the conversion of results to frames."""

    _origin: Any

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
        >>> est = olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=False)
        >>> est.set_output(predict="input").fit(X, pd.Series([2.0, 4.0], X.index, name="y"))
        RecursiveLeastSquares(ridge=0.0, fit_intercept=False)
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
