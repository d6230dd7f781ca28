"""Random rows of every container, ordinary and not, for calls of estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp

NAMES = ["a", "b", "c", "d"]
MODERATE, ODD = 7, 9  # how many sorts of odd numbers there are


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], complex_rows: bool, most: int = ODD
) -> Any:
    """Draw ordinary numbers, or with a chance of 1 in 4 some that are not.

    ``most`` is MODERATE if none may be so large or small that squares leave the range, and 0 if all
    are to be ordinary.
    """
    values = rng.standard_normal(shape)
    if complex_rows:
        values = values + 1j * rng.standard_normal(shape)
    odd = int(rng.integers(36))
    odd = ODD if odd >= most else odd
    if odd == 0:
        values[...] = 0.0
    elif odd == 1 and values.ndim > 1 and values.size:
        values[..., -1] = values[..., 0]
    elif odd == 2:
        values = np.round(values)
    elif odd in (3, 4) and values.size:
        values.flat[int(rng.integers(values.size))] = pick(rng, np.nan, np.inf, -np.inf)
    elif odd == 5:
        values[...] = np.nan
    elif odd == 6 and values.ndim > 1 and values.size:
        values[..., 0] = 1.0
    elif odd == 7 and values.size:
        values.flat[int(rng.integers(values.size))] = pick(rng, 1e160, 1e155, 1e100, 1e300, 1e40)
    elif odd == 8:
        values = values * pick(rng, 1e-170, 1e-300, 1e-30, 1e30)
    return values


def contained(rng: np.random.Generator, values: Any, names: list[str], how: str) -> Any:
    """Return an array in another container."""
    one = values.ndim == 1
    match how:
        case "list":
            return values.tolist()
        case "float32":
            with np.errstate(over="ignore"):
                return values.astype(np.complex64 if np.iscomplexobj(values) else np.float32)
        case "fortran":
            return np.asfortranarray(values)
        case "read-only":
            values.flags.writeable = False
            return values
        case "strided":
            return np.repeat(values, 2, axis=0)[::2]
        case "pandas":
            return pd.Series(values, name="y") if one else pd.DataFrame(values, columns=names)
        case "pandas, another order" if not one:
            return pd.DataFrame(values, columns=names[::-1])
        case "pandas, another index":
            index = np.arange(len(values)) + 5
            if one:
                return pd.Series(values, index, name="y")
            return pd.DataFrame(values, index, columns=names)
        case "polars" if not np.iscomplexobj(values):
            return pl.Series("y", values) if one else pl.DataFrame(values, schema=names)
        case "sparse" if not one:
            return sp.csr_array(values)
        case "masked":
            return np.ma.masked_array(values, rng.random(values.shape) < 0.2)
        case "object":
            return values.astype(object)
        case "text":
            return values.astype(str)
        case "complex":
            return values + 0j
        case "transposed":
            return values.T
        case "one axis more":
            return values[None]
        case "one axis less":
            return values.reshape(-1)
        case "too short":
            return values[:-1]
        case "too wide" if not one:
            return np.hstack([values, values[:, :1]])
        case "too narrow" if not one:
            return values[:, :-1]
        case "nothing":
            return None
        case "integers" if np.isfinite(values).all() and np.abs(values).max(initial=0) < 1e9:
            return np.real(values).astype(np.int64)
        case "boolean":
            return np.real(values) > 0
    return values


USUAL = [
    "list",
    "float32",
    "fortran",
    "read-only",
    "strided",
    "pandas",
    "polars",
    "sparse",
    "masked",
    "object",
    "integers",
    "boolean",
    "pandas, another index",
]
WRONG = [
    "pandas, another order",
    "text",
    "complex",
    "transposed",
    "one axis more",
    "nothing",
    "one axis less",
    "too short",
    "too wide",
    "too narrow",
]


def container(rng: np.random.Generator) -> str:
    """Draw the kind of a container: mostly a plain array, rarely one that is an error."""
    draw = rng.random()
    return "array" if draw < 0.62 else pick(rng, *USUAL) if draw < 0.93 else pick(rng, *WRONG)


def weights(rng: np.random.Generator, shape: tuple[int, ...], most: int = ODD) -> Any:
    """Draw sample weights, mostly none."""
    draw = rng.random()
    if draw < 0.7:
        return None
    values = rng.exponential(size=shape)
    if draw < 0.85:
        return contained(rng, values, NAMES, container(rng)) if values.ndim == 1 else values
    bad = pick(rng, np.nan, 0.0, -1.0, np.inf, *([1e300, 1e-300] if most == ODD else []))
    if draw < 0.95 and values.size:
        values.flat[int(rng.integers(values.size))] = bad
        return values
    return pick(rng, 2.0, bad, "x", np.ones(3), np.zeros(shape), values.reshape(-1, 1), True)


def factors(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Draw forgetting factors of a call, mostly none."""
    draw = rng.random()
    if draw < 0.8:
        return None
    values = rng.uniform(0.5, 1.0, shape)
    if draw < 0.92:
        return pick(rng, 0.9, 1.0, values, values, values.tolist(), 0.0)
    bad = pick(rng, np.nan, -0.1, 1.5, np.inf)
    if values.size:
        values.flat[-1] = bad
    return pick(rng, bad, values, "x", np.full(3, 0.9), 1 + 0j, True)


class Clock:
    """Times of a stream: dates, or numbers."""

    def __init__(self, dates: bool) -> None:
        self.dates, self.now = dates, 0.0

    def times(self, rng: np.random.Generator, n: int, used: bool) -> Any:
        """Draw the times of n rows; rarely such as are an error."""
        draw = rng.random()
        if draw < 0.12 if used else draw < 0.96:
            return None
        gaps = rng.choice([0.0, 0.25, 1.0, 1.0, 3.0, 40.0], n)
        days = self.now + np.cumsum(gaps)
        dates = self.dates
        if rng.random() < 0.9:
            self.now = days[-1] if n else self.now
        elif rng.random() < 0.5:
            days = days[::-1] if rng.random() < 0.5 else days - 500.0
        else:
            dates = not dates
        if rng.random() < 0.03:
            days = np.append(days, 1e4)
        if rng.random() < 0.03 and n:
            days[-1] = np.nan
        if not dates:
            return pick(rng, days, days.tolist(), np.nan_to_num(days).astype(int))
        with np.errstate(invalid="ignore"):
            stamps = np.datetime64("2024-01-01", "ns") + (days * 24).astype("timedelta64[h]")
        stamps[np.isnan(days)] = np.datetime64("NaT", "ns")
        if rng.random() < 0.05:
            return pd.DatetimeIndex(stamps).tz_localize("UTC")
        return pick(
            rng, stamps, stamps, pd.DatetimeIndex(stamps), pl.Series(stamps), stamps.tolist()
        )
