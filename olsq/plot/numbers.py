"""Numbers for figures: positions, values rounded to their error, running sizes and quantiles."""

from __future__ import annotations

import itertools
import math
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

QUANTILE_ROWS = 60  # errors whose quantiles are taken together, at least
MOST_BLOCKS = 40


def positions(x: ArrayLike) -> NDArray:
    """Convert horizontal positions to an array of numbers, dates or text.

    Of times in a zone the clock of the zone, of pandas periods their beginning; ValueError for
    lengths of time, of which Matplotlib has no axis, and for other objects.
    """
    at: NDArray[Any] = np.asarray(x)
    if at.dtype == object:
        moments = [getattr(value, "start_time", value) for value in at.ravel()]
        if all(isinstance(moment, date) for moment in moments):
            clock = [m.replace(tzinfo=None) if isinstance(m, datetime) else m for m in moments]
            at = np.array(clock, "datetime64[us]").reshape(at.shape)
        elif all(isinstance(value, (int, float, np.number)) for value in moments):
            at = at.astype(np.float64)
    if at.dtype.kind not in "biufMUT":
        raise ValueError(f"x must contain numbers or dates, got {at.dtype}")
    return at


def positions_of_rows(rows: NDArray[np.int64], x: ArrayLike | None) -> NDArray:
    """Return the positions of some rows of the data: from ``x`` (n,), else row numbers from 1."""
    if x is None:
        return rows + 1
    at = positions(x)
    least = int(rows.max(initial=-1)) + 1
    if at.ndim != 1 or len(at) < least:
        raise ValueError(
            f"x must have shape (n,), one for each of at least {least} rows of the data, got "
            f"{at.shape}"
        )
    return at[rows]


def place(x: Any) -> str:
    """Format a position for a title: a row number, a year, a date."""
    if isinstance(x, np.datetime64):
        day = x.astype("datetime64[D]")
        return str(day) if x == day else str(x.astype("datetime64[m]")).replace("T", " ")
    if isinstance(x, str):
        return x.replace("$", r"\$")
    return f"{x:.7g}" if x % 1 else f"{x:,.0f}" if x >= 10_000 else f"{x:.0f}"


def rounded(value: float, error: float) -> str:
    """Format ``value ± error`` with as many digits as the error makes meaningful.

    The error keeps one significant digit, two if the first is 1 (rounding 0.14 to 0.1 would change
    it by 30 %), and the value ends at the same place.

    Examples
    --------
    >>> rounded(2.99961, 0.00213), rounded(-1.3852, 0.1372), rounded(3340.4, 212.0)
    ('3.000 ± 0.002', '−1.39 ± 0.14', '3300 ± 200')
    >>> rounded(6.02214e23, 4.1e18), rounded(3.0, 0.0), rounded(3.0, float("inf"))
    ('6.02214e+23 ± 4e+18', '3 ± 0', '3')
    """
    if not np.isfinite(error):
        return f"{value:.4g}".replace("-", "−", 1)
    if error == 0:
        return f"{value:.6g} ± 0".replace("-", "−", 1)
    exponent = math.floor(math.log10(error))
    first = error / 10.0**exponent
    # 1.96 is shown as 2, 0.0996 as 0.10: two digits only where both would be kept.
    digits = 2 if first < 1.95 else 1
    if first >= (9.5 if digits == 1 else 9.95):
        exponent, digits = exponent + 1, 2
    place = exponent - digits + 1  # power of ten of the last digit that is kept
    largest = max(abs(value), error)
    if largest >= 1e6 or place < -8:
        size = math.floor(math.log10(largest))
        shown = f"{value:.{max(size - place, 0)}e} ± {error:.{digits - 1}e}"
        return shown.replace("-", "−", 1) if value < 0 else shown
    value, error = (round(number, -place) + 0.0 for number in (value, error))
    decimals = max(-place, 0)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}".replace("-", "−")


def running_rms(square: NDArray, width: int) -> NDArray[np.float64]:
    """Compute the centred root mean square over ``width`` entries, leaving out NaN."""
    kernel = np.ones(min(width, max(len(square), 1)))
    finite = np.isfinite(square)
    total = np.convolve(np.where(finite, square, 0.0), kernel, mode="same")[: len(square)]
    count = np.convolve(finite.astype(float), kernel, mode="same")[: len(square)]
    return np.sqrt(np.maximum(total, 0.0) / np.where(count > 0.5, count, np.nan))


def running_quantiles(sample: NDArray) -> NDArray[np.float64] | None:
    """Compute the 5, 25, 75 and 95 % quantiles around each of n points, (n, 4).

    Quantiles of blocks of neighbours with at least QUANTILE_ROWS values of ``sample`` (n, k),
    joined by straight lines; None if there are too few values for two blocks.
    """
    n = len(sample)
    finite = np.isfinite(sample)
    total = int(finite.sum())
    n_blocks = min(total // QUANTILE_ROWS, n // 2, MOST_BLOCKS)
    if n_blocks < 2:
        return None
    cuts = np.linspace(0, n, n_blocks + 1).astype(int)
    centres, levels = [], []
    for start, stop in itertools.pairwise(cuts):
        values = sample[start:stop][finite[start:stop]]
        if values.size:
            centres.append((start + stop - 1) / 2)
            levels.append(np.quantile(values, (0.05, 0.25, 0.75, 0.95)))
    return np.column_stack(
        [np.interp(np.arange(n), centres, level) for level in zip(*levels, strict=True)]
    )
