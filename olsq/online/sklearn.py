"""scikit-learn's conventions: parameters, tags, repr, frames of results, metadata routing.

scikit-learn's regressors return arrays, and some of its meta-estimators rely on that
(``TransformedTargetRegressor`` reshapes predictions, which a series cannot be).  So arrays are the
default here too; ``set_output`` asks for frames.

https://scikit-learn.org/stable/metadata_routing.html; scikit-learn is imported when it asks.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import MOST_CHARACTERS, brief
from olsq.arrays.checks import check_choice
from olsq.online.rows import frames
from olsq.online.rows.frames import Labels

# What a meta-estimator may be asked to pass on, by method.
METADATA = {
    "fit": ("sample_weight", "times"),
    "partial_fit": ("sample_weight", "forget", "times"),
    "predict": ("return_std",),
    "score": ("sample_weight",),
}
MISSING = ("skip", "raise", "skip_target")


class MetadataRouting:
    """Methods ``set_fit_request`` and the like, and how scikit-learn reads the requests."""

    def set_fit_request(
        self,
        *,
        sample_weight: bool | str | None = "$UNCHANGED$",
        times: bool | str | None = "$UNCHANGED$",
    ) -> Self:
        """Ask meta-estimators to pass ``sample_weight`` or ``times`` on to ``fit``.

        Parameters
        ----------
        sample_weight, times : bool, str or None
            True: pass it on; False: do not; None: raise an error if it is given; a name: pass on
            what is given by that name.

        Returns
        -------
        self

        Raises
        ------
        RuntimeError
            Unless ``sklearn.set_config(enable_metadata_routing=True)``.
        """
        return self._request("fit", sample_weight=sample_weight, times=times)

    def set_partial_fit_request(
        self,
        *,
        sample_weight: bool | str | None = "$UNCHANGED$",
        forget: bool | str | None = "$UNCHANGED$",
        times: bool | str | None = "$UNCHANGED$",
    ) -> Self:
        """Ask meta-estimators to pass metadata on to ``partial_fit``; see
        :meth:`set_fit_request`."""
        requests = {"sample_weight": sample_weight, "forget": forget, "times": times}
        return self._request("partial_fit", **requests)

    def set_predict_request(self, *, return_std: bool | str | None = "$UNCHANGED$") -> Self:
        """Ask meta-estimators to pass ``return_std`` on to ``predict``; see
        :meth:`set_fit_request`."""
        return self._request("predict", return_std=return_std)

    def set_score_request(self, *, sample_weight: bool | str | None = "$UNCHANGED$") -> Self:
        """Ask meta-estimators to pass ``sample_weight`` on to ``score``; see
        :meth:`set_fit_request`."""
        return self._request("score", sample_weight=sample_weight)

    def get_metadata_routing(self) -> Any:
        """Return the requests made so far, a ``sklearn.utils.metadata_routing.MetadataRequest``."""
        return self._get_metadata_request()

    def _request(self, method: str, **requests: Any) -> Self:
        from sklearn import get_config

        if not get_config().get("enable_metadata_routing", False):
            raise RuntimeError(
                "This method is only available when metadata routing is enabled. You can enable it "
                "using sklearn.set_config(enable_metadata_routing=True)."
            )
        every = self._get_metadata_request()
        for name, alias in requests.items():
            if alias != "$UNCHANGED$":
                getattr(every, method).add_request(param=name, alias=alias)
        self._metadata_request = every
        return self

    def _get_metadata_request(self) -> Any:
        made = self.__dict__.get("_metadata_request")
        if made is not None:
            return copy.deepcopy(made)
        from sklearn.utils.metadata_routing import MetadataRequest

        every = MetadataRequest(owner=type(self).__name__)
        for method, names in METADATA.items():
            for name in names:
                getattr(every, method).add_request(param=name, alias=None)
        return every


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


def check_cov(cov: object) -> None:
    """Raise ValueError for an unknown choice of ``cov=``, and why HC0 to HAC are none."""
    if isinstance(cov, str) and cov.lower() in ("hac", "newey-west", "nw"):
        raise ValueError(
            f"cov={cov!r} is not offered: Newey-West weighs the residuals of all rows at the "
            "present coefficients, which a stream of bounded memory no longer has (exact sums "
            "would take O(d^4) numbers a lag). Use 'sandwich', or give the rows to "
            "cov_params(kind='hac', lags=, data=(X, y)); with window= they are offered."
        )
    if isinstance(cov, str) and cov.lower() in ("hc0", "hc1", "hc2", "hc3"):
        raise ValueError(
            f"cov={cov!r} weighs the residuals of all rows at the present coefficients, which only "
            "a window still has: give window=, or the rows to cov_params("
            f"kind={cov!r}, data=(X, y)); 'sandwich' is for forgetting"
        )
    check_choice(cov, "cov", ("posterior", "sandwich"))


@functools.cache
def _signature(cls: type) -> dict[str, inspect.Parameter]:
    """Return the constructor's parameters, cached since every call of an estimator needs them."""
    return {name: p for name, p in inspect.signature(cls).parameters.items() if name != "self"}


class Parameters:
    """Parameters by name, and a repr, for classes that only store parameters."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(_signature(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name (``deep`` is there for scikit-learn)."""
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
        defaults = _signature(type(self))
        changed = [
            f"{name}={_short(value)}"
            for name, value in self.get_params().items()
            if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def _short(value: Any) -> str:
    """Return the repr of a parameter, or what it is where that takes lines."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS and "\n" not in text else brief(value)


class EstimatorConventions(MetadataRouting, Parameters):
    """Parameters, metadata and tags of a regressor."""

    _estimator_type = "regressor"
    missing: str

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(allow_nan=self.missing != "raise"),
            regressor_tags=RegressorTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_engine")


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return value is default
    return type(value) is type(default) and value == default
