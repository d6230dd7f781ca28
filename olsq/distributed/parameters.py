"""Check the parameters of distributed fits: the estimator they describe, what cannot be merged."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from olsq.distributed.work import Work
from olsq.online import RecursiveLeastSquares, RollingLeastSquares
from olsq.online.pieces import pieces, tails

# Parameters whose states, fitted on pieces separately, merge into the state of the whole.
MERGEABLE = {
    "forget", "half_life", "ridge", "ridge_mode", "fit_intercept", "method", "missing",
    "residuals", "state_dtype", "cov", "prior",
}  # fmt: skip


def make_work(parameters: dict[str, Any], columns: dict[str, Any], by: bool, rolling: bool) -> Work:
    """Build the work on partitions from checked parameters.

    Raises TypeError for names that no estimator has, ValueError for values out of range and for
    parameters whose states do not merge.
    """
    kind = RollingLeastSquares if rolling else RecursiveLeastSquares
    known = set(inspect.signature(kind).parameters)
    if rolling:
        wrong = {"forget", "half_life"} & parameters.keys()
        if wrong:
            raise ValueError(
                "window and forget (or half_life) cannot be combined: give one of them"
            )
    unknown = sorted(parameters.keys() - known)
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not a parameter of {kind.__name__}: {sorted(known)}")
    if not rolling:
        check_mergeable(parameters)
    estimator: Any = kind(**parameters)
    if rolling:
        tails.check(estimator)
    else:
        pieces.check(estimator)
    return Work(estimator.get_params(deep=False), columns, rolling, by)


def check_mergeable(parameters: dict[str, Any]) -> None:
    """Raise ValueError for parameters without an associative merge."""
    default = inspect.signature(RecursiveLeastSquares).parameters
    for name in parameters.keys() - MERGEABLE:
        value = parameters[name]
        if value is not default[name].default and value != default[name].default:
            raise ValueError(
                f"{name}={value!r} has no associative merge: what a row does depends on the state "
                "that it meets, which a partition learnt apart from those before it does not know. "
                "Feed the partitions in order to one estimator: for part in X.partitions: "
                "est.partial_fit(...)"
            )
    if np.ndim(parameters.get("forget", 1.0)) > 0:
        raise ValueError("forget must be a number, or a Dask array with X's rows")
