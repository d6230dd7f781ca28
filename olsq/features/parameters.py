"""Checks of builders' parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.checks import shown


def check_integer(name: str, value: Any, least: int) -> int:
    """An integer of at least ``least``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {shown(value)}")
    return int(value)


def check_lags(lags: Any, least: int) -> list[int]:
    """Lags from one number (1 up to it) or a sequence; each at least ``least``, none twice."""
    if isinstance(lags, (int, np.integer)):
        return list(range(1, check_integer("lags", lags, 1) + 1))
    if isinstance(lags, str) or not hasattr(lags, "__iter__"):
        raise ValueError(f"lags must be a number of lags or a sequence of them, got {shown(lags)}")
    values = [check_integer("every lag", lag, least) for lag in lags]
    if not values or len(set(values)) < len(values):
        raise ValueError(f"lags must be at least one, and none twice, got {shown(lags)}")
    return values
