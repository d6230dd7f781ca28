"""Checks of the arguments of :func:`olsq.tune`, before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_integer
from olsq.arrays.reals import real_array
from olsq.online.known_rows import fewest_rows
from olsq.online.rows.durations import DATES, Duration, elapsed_times, is_duration, parse_duration
from olsq.online.rows.times import check_kind, named_times, read_times, times_or_index
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


def read_half_lives(bounds: Any) -> tuple[Any, Any]:
    """Return the pair of half-lives to search between, in rows or as durations; None without any.

    The upper bound may be inf in either case.
    """
    if bounds is None:
        return None, None
    pair = list(bounds) if np.ndim(bounds) == 1 else [bounds]
    if not any(map(is_duration, pair)):
        check_bounds("half_life_bounds", bounds, above=0.0)
        return float(pair[0]), float(pair[1])
    name = "half_life_bounds"
    endless = pair[1:] == [math.inf]
    if len(pair) != 2 or not all(map(is_duration, pair[: 2 - endless])):
        raise ValueError(
            f"{name} must be (low, high), both numbers of rows or both lengths of time such as "
            f"'10D', got {bounds!r}"
        )
    low = parse_duration(pair[0], name)
    high = math.inf if endless else parse_duration(pair[1], name)
    if isinstance(high, Duration) and high.length < low.length:
        raise ValueError(f"{name} must be (low, high) with low at most high, got {bounds!r}")
    return low, high


def read_stamps(
    times: Any, X: Any, y: Any, n_rows: int, lengths: dict[str, Any]
) -> NDArray[Any] | None:
    """Return the times (n,) of the rows, if one of these parameters is a length of time."""
    in_time = {name: length for name, length in lengths.items() if isinstance(length, Duration)}
    stamps = named_times(times, X, y)
    for name, length in in_time.items():
        stamps = times_or_index(stamps, X, y, length, name)
    if stamps is None:
        return None
    read = read_times(stamps, n_rows)
    for name, length in in_time.items():
        check_kind(read.kind, length, name)
    return read.values


def units_of_time(
    half_life: Any, times: NDArray[Any] | None, complete: NDArray[np.bool_]
) -> tuple[Any, NDArray[np.float64] | None]:
    """Return the mean time between complete rows, and what passed before each (n,) in this unit.

    None for a ``half_life`` that is no duration.
    """
    if not isinstance(half_life, Duration):
        return None, None
    assert times is not None
    elapsed = elapsed_times(times, complete, np.empty(0))
    unit = elapsed.sum() / max(np.count_nonzero(complete) - 1, 1)
    if half_life.kind == DATES:
        unit = max(round(unit), 1)
    if not elapsed.any():
        raise ValueError(
            "half_life_bounds are lengths of time, but all rows have the same time: give numbers "
            "of rows"
        )
    return np.timedelta64(unit, "ns") if half_life.kind == DATES else float(unit), elapsed / unit


def in_steps(half_lives: tuple[Any, Any], step: Any) -> tuple[float, float]:
    """Convert half-lives that are durations to multiples of ``step``."""
    unit = step.astype(np.int64).item() if isinstance(step, np.timedelta64) else step
    low, high = (h.length / unit if isinstance(h, Duration) else h for h in half_lives)
    return low, high


def check_burn_in(
    burn_in: int | None, n_coefs: int, horizon: int, weights: NDArray, complete: NDArray
) -> int:
    """Return how many complete rows of positive weight to leave out at the start."""
    check_integer("burn_in", burn_in, 0, optional=True)
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
