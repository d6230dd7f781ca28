"""Checks of the arguments of :func:`olsq.tune`, before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array
from olsq.online.known_rows import fewest_rows
from olsq.tuning.objective import ForecastLoss


def check_bounds(name: str, bounds: Any, above: float | None) -> None:
    """Raise unless ``bounds`` is an ascending pair, positive (``above`` 0) or not negative."""
    if bounds is None:
        return
    pair = real_array(bounds, name)
    rule = "positive" if above is not None else ">= 0"
    if pair.shape != (2,):
        raise ValueError(f"{name} must be two numbers (low, high), got {bounds!r}")
    low, high = float(pair[0]), float(pair[1])
    fits = low <= high and math.isfinite(low) and (low > 0 if above is not None else low >= 0)
    if not fits or high <= 0:
        raise ValueError(
            f"{name} must be (low, high) with low finite, {rule}, and at most high, got {bounds!r}"
        )


def check_burn_in(
    burn_in: int | None, n_coefs: int, horizon: int, weights: NDArray, complete: NDArray
) -> int:
    """Return how many complete rows of positive weight to leave out at the start."""
    if burn_in is not None and not (isinstance(burn_in, (int, np.integer)) and burn_in >= 0):
        raise ValueError(f"burn_in must be an integer >= 0, got {shown(burn_in)}")
    have = int(np.count_nonzero(weights[complete] > 0))
    skip = fewest_rows(n_coefs, horizon, have) if burn_in is None else int(burn_in)
    if have <= skip:
        raise ValueError(
            f"X and y have {have} complete rows of positive weight, and burn_in leaves out the "
            f"first {skip}: no row is left to score. Give more rows or a smaller burn_in"
        )
    return skip


def check_y_range(y_range: Any, Y: NDArray, problem: ForecastLoss) -> NDArray[np.float64]:
    """Return the range (m, 2) in the units of the scaled data."""
    if y_range is None:
        learned = problem.Y[problem.learned]
        return np.stack([learned.min(axis=0), learned.max(axis=0)], axis=1)
    m = Y.shape[1]
    try:
        low, high = (np.broadcast_to(real_array(end, "y_range"), (m,)) for end in y_range)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y_range must be (low, high), numbers or one per target ({m}): {error}"
        ) from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ValueError(f"y_range must be finite with low <= high, got {y_range!r}")
    return np.ldexp(np.stack([low, high], axis=1), -(problem.loss_unit // 2))
