"""Check forgetting, ridge and weights; convert parameters to arrays, or to what files hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import as_float, is_number, refuse, shown
from olsq.arrays.reals import real_array
from olsq.forgetting.base import Forgetting
from olsq.online.rows.complex_rows import packed_prior, prior_is_complex
from olsq.online.rows.durations import is_duration, parse_duration
from olsq.problem import Moments


def check_forget(forget: ArrayLike, name: str = "forget") -> NDArray[np.float64]:
    """Return the forgetting factors as float64; raise ValueError if any is outside [0, 1]."""
    if isinstance(forget, Forgetting):
        raise TypeError(
            f"{name} must be a number or an array here; strategies such as {type(forget).__name__} "
            "are for RecursiveLeastSquares and coefficient_path"
        )
    gates = real_array(forget, name).astype(np.float64, copy=False)
    if gates.ndim == 0 and 0.0 <= gates <= 1.0:
        return gates
    refuse(
        name, gates, lambda g: ~((g >= 0) & (g <= 1)), "lie in [0, 1] (1 forgets nothing, 0 resets)"
    )
    return gates


def factors_of_rows(factors: Any, n_rows: int) -> NDArray[np.float64]:
    """Return a forgetting factor, or one for each row, as factors (n_rows,) in [0, 1]."""
    if type(factors) is float and 0.0 <= factors <= 1.0:  # the usual case, row by row
        return np.full(n_rows, factors)
    return check_per_row(check_forget(factors), n_rows, "forget")


def forget_from_half_life(half_life: float) -> float:
    """Return the forgetting factor that halves a sample's weight every ``half_life`` samples.

    Examples
    --------
    >>> from olsq.online.rows.options import forget_from_half_life
    >>> round(forget_from_half_life(10.0) ** 10, 12)
    0.5
    """
    if not (is_number(half_life) and half_life > 0):
        raise ValueError(f"half_life must be a positive number of samples, got {shown(half_life)}")
    return float(2.0 ** (-1.0 / as_float(half_life)))


def forget_or_half_life(forget: Any, half_life: Any, *, in_time: bool = True) -> Any:
    """Return the factors that the two parameters mean, of which one may be given.

    A half-life in time gives 1, since its factors come with the times; where ``in_time`` is False
    it is refused.
    """
    if half_life is None:
        return forget
    if not (np.ndim(forget) == 0 and forget == 1):
        raise ValueError("forget and half_life cannot be combined: give one of them")
    if in_time and is_duration(half_life):
        parse_duration(half_life, "half_life")
        return 1.0
    return forget_from_half_life(half_life)


def check_ridge(ridge: ArrayLike, n_features: int, *, name: str = "ridge") -> NDArray[np.float64]:
    """Return the ridge as a float64 vector (n_features,); refuse negative or non-finite ones."""
    vector = real_array(ridge, name).astype(np.float64, copy=False)
    if vector.ndim > 1 or (vector.ndim == 1 and vector.shape[0] != n_features):
        raise ValueError(
            f"{name} must be a number or one number per feature ({n_features}), got an array of "
            f"shape {vector.shape}"
        )
    if not (np.isfinite(vector).all() and (vector >= 0).all()):
        raise ValueError(f"{name} must be finite and >= 0, got {shown(ridge)}")
    # A copy that can be written, whatever was passed: kernels are compiled for one kind of array.
    return np.full(n_features, vector)


def check_variances(value: ArrayLike, name: str, n_targets: int) -> NDArray[np.float64]:
    """Return noise variances >= 0 as a float64 vector, one for each of ``n_targets``."""
    variances = real_array(value, name).astype(np.float64)
    if variances.ndim > 1 or variances.size not in (1, n_targets):
        raise ValueError(
            f"{name} must be a number or one number per target ({n_targets}), got an array of "
            f"shape {variances.shape}"
        )
    if not (np.isfinite(variances).all() and (variances >= 0).all()):
        raise ValueError(f"{name} must be finite and >= 0, got {shown(value)}")
    return np.broadcast_to(variances, (n_targets,))


def check_noise_variance(value: ArrayLike | None, n_targets: int) -> NDArray[np.float64]:
    """Return the known noise variances (n_targets,); inf where they are to be estimated."""
    if value is None:
        return np.full(n_targets, np.inf)
    variances = check_variances(value, "noise_variance", n_targets)
    if not variances.all():
        raise ValueError(
            f"noise_variance must be > 0, got {shown(value)}; None estimates it from the residuals"
        )
    return variances


def check_per_row(value: ArrayLike, n_rows: int, name: str) -> NDArray[np.float64]:
    """Return a scalar or (n_rows,) argument as a contiguous float64 vector (n_rows,)."""
    vector = real_array(value, name).astype(np.float64, copy=False)
    if vector.ndim == 0:
        return np.full(n_rows, vector)
    if vector.ndim > 1 or vector.shape[0] != n_rows:
        raise ValueError(
            f"{name} must be a number or one number per row ({n_rows}), got an array of shape "
            f"{vector.shape}"
        )
    return np.ascontiguousarray(vector)


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Return the sample weights (n_rows,), NaN where missing; refuse negative or infinite ones."""
    if sample_weight is None:
        return np.ones(n_rows)
    weights = check_per_row(sample_weight, n_rows, "sample_weight")
    refuse("sample_weight", weights, lambda w: (w < 0) | np.isinf(w), "be finite and >= 0")
    return weights


def check_weight_of_row(sample_weight: ArrayLike | None) -> NDArray[np.float64] | None:
    """Return the weight of one row, a number, as an array (); None for none."""
    if sample_weight is None:
        return None
    weight = real_array(sample_weight, "sample_weight")
    if weight.ndim > 0:
        raise ValueError(f"sample_weight must be a number, got an array of shape {weight.shape}")
    return weight


def without_missing(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace missing weights by 0, for rows that are marked as ones not to learn."""
    lost = np.isnan(weights)
    return np.where(lost, 0.0, weights) if lost.any() else weights


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON can hold them."""
    return {name: plain(value, name) for name, value in estimator.get_params().items()}


def plain(value: Any, name: str) -> Any:
    """Convert a parameter to a value that JSON can hold."""
    if name == "prior" and prior_is_complex(value):
        return packed_prior(value)
    if isinstance(value, Moments):
        return {name: plain(np.asarray(part), name) for name, part in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [plain(part, name) for part in value]
    if isinstance(value, Forgetting):
        return value.to_dict()
    if is_duration(value) and not isinstance(value, str):  # text that is read back exactly
        return f"{parse_duration(value, name).length}ns"
    if isinstance(value, np.ndarray) or hasattr(value, "to_numpy"):  # series of factors too
        return np.asarray(value).tolist()
    return value.item() if isinstance(value, np.generic) else value
