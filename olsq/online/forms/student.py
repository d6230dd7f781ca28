"""t statistics, p-values and confidence intervals of estimates with standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array


def t_values(coef: NDArray[Any], stderr: NDArray[np.float64]) -> NDArray[Any]:
    """Return coefficients over their standard errors; NaN where undetermined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isfinite(stderr), coef / stderr, np.nan)


def p_values(t: NDArray[np.float64], freedom: Any) -> NDArray[np.float64]:
    """Return the two-sided p-values of t statistics; ``freedom`` may be inf (normal)."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(t), 2 * stdtr(np.maximum(freedom, 1e-300), -np.abs(t)), np.nan)


def t_quantile(freedom: Any, level: float) -> NDArray[np.float64]:
    """Return the quantile of Student's t for intervals at a level; inf below one degree of freedom.

    Quantiles of a fraction of a degree grow beyond all numbers: less than one is no information.
    """
    freedom = np.asarray(freedom)
    enough = freedom >= 1 - 1e-9  # counts of forgotten rows have rounding errors
    quantile = stdtrit(np.where(enough, freedom, 1.0), 0.5 + 0.5 * level)
    return np.where(enough, quantile, np.where(np.isnan(freedom), np.nan, np.inf))


def half_widths(stderr: NDArray[np.float64], freedom: Any, level: float) -> NDArray[np.float64]:
    """Return half of the widths of confidence intervals; inf below one degree of freedom, and where
    there is no standard error.
    """
    with np.errstate(invalid="ignore"):
        widths = stderr * t_quantile(freedom, level)
    return np.where(np.isnan(widths), np.inf, widths)  # 0 * inf: no spread, no degrees of freedom


def deviations(spread: NDArray[np.float64], sigma2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``sqrt(sigma2 spread)``; inf where either is, also beside a 0."""
    with np.errstate(invalid="ignore"):
        out = np.sqrt(sigma2) * np.sqrt(spread)
    out[np.isinf(spread) | (np.isinf(sigma2) & ~np.isnan(spread))] = np.inf
    return out


def t_inference(
    coef: NDArray[np.float64], stderr: NDArray[np.float64], freedom: Any, level: float
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Compute t statistics, their p-values, and lower and upper confidence bounds (...,).

    t and p are NaN, and bounds infinite, where a coefficient is undetermined (stderr inf).
    """
    t, reach = t_values(coef, stderr), half_widths(stderr, freedom, level)
    return t, p_values(t, freedom), coef - reach, coef + reach


def check_level(level: Any) -> float:
    """Return ``level`` as a float; raise ValueError unless it lies between 0 and 1."""
    number = real_array(level, "level")
    if number.ndim or not 0 < number < 1:
        raise ValueError(
            f"level must be a number between 0 and 1, such as 0.95, got {shown(level)}"
        )
    return float(number)
