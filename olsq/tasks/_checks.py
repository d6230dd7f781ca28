"""Checks of the generators' arguments: whole numbers and reals."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from olsq.arrays.checks import as_float, is_number, shown

MOST_INTEGER = 2**31 - 1  # more sequences, tokens or dimensions would not fit in memory
MOST_REAL = 1e150  # squares of it are still finite


def check_integers(**bounds: tuple[Any, ...]) -> None:
    """Raise unless each ``name=(value, least)`` or ``name=(value, least, most)`` is within its
    bounds.

    Raises
    ------
    TypeError
        If a value is not a whole number; True and False are none.
    ValueError
        If one is out of range.
    """
    for name, (value, least, *upper) in bounds.items():
        most = upper[0] if upper else MOST_INTEGER
        try:
            number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
        except TypeError:
            number = None
        if number is None:
            raise TypeError(f"{name} must be an integer, got {shown(value)}")
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
        if number > most:
            raise ValueError(f"{name} must be at most {most}, got {value}")


def check_reals(**bounds: tuple[Any, float]) -> None:
    """Raise unless each ``name=(value, least)`` is a finite real number of at least ``least``.

    Raises
    ------
    TypeError
        If a value is not a real number; True and False are none.
    ValueError
        If one is out of range.
    """
    for name, (value, least) in bounds.items():
        if not is_number(value):
            raise TypeError(f"{name} must be a real number, got {shown(value)}")
        number = as_float(value)
        if not np.isfinite(number):
            raise ValueError(f"{name} must be finite, got {value}")
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
        if number > MOST_REAL:
            raise ValueError(f"{name} must be at most {MOST_REAL:g}, got {value}")
