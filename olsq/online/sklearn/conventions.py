"""Parameters, tags and repr of estimators in scikit-learn's conventions."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Self

import numpy as np

from olsq.arrays.brief import MOST_CHARACTERS, brief
from olsq.arrays.checks import check_choice
from olsq.online.sklearn.routing import MetadataRouting

MISSING = ("skip", "raise", "skip_target")


def check_cov(cov: object) -> None:
    """Raise ValueError for an unknown choice of ``cov=``, with the reason why HAC is none."""
    if isinstance(cov, str) and cov.lower() in ("hac", "newey-west", "nw"):
        raise ValueError(
            f"cov={cov!r} is not offered: Newey-West weighs the residuals of all rows at the "
            "present coefficients, which a stream of bounded memory no longer has (exact sums "
            "would take O(d^4) numbers a lag). Use 'sandwich', or give the rows to "
            "cov_params(kind='hac', lags=, data=(X, y)); a rolling window has its own."
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
