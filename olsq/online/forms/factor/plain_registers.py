"""The functions of :mod:`.registers` in NumPy, for kernels that run uncompiled.

Tests run them so, because Python checks every index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def _lanes(array: Vector, entry: int, lanes: int) -> Vector:
    part = array.reshape(-1)[entry : entry + lanes]
    if entry < 0 or part.size != lanes:
        raise IndexError(f"{lanes} entries from {entry} on leave an array of {array.size}")
    return part


def load4(array: Vector, entry: int) -> Vector:
    return _lanes(array, entry, 4).copy()


def load8(array: Vector, entry: int) -> Vector:
    return _lanes(array, entry, 8).copy()


def store(array: Vector, entry: int, v: Vector) -> None:
    _lanes(array, entry, v.size)[:] = v


def zero4() -> Vector:
    return np.zeros(4)


def zero8() -> Vector:
    return np.zeros(8)


def fill4(number: float) -> Vector:
    return np.full(4, number)


def add_scaled(v: Vector, x: float, w: Vector) -> Vector:
    return v + x * w


def add_product(v: Vector, x: Vector, w: Vector) -> Vector:
    return v + x * w


def fma(x: float, y: float, z: float) -> float:
    return x * y + z


def plus(v: Vector, w: Vector) -> Vector:
    return v + w


def times(v: Vector, w: Vector) -> Vector:
    return v * w


def divide(v: Vector, w: Vector) -> Vector:
    return v / w


def where_above(a: Vector, b: Vector, v: Vector, w: Vector) -> Vector:
    return np.where(a > b, v, w)


def transposed(a: Vector, b: Vector, c: Vector, d: Vector) -> tuple[Vector, ...]:
    return tuple(np.array([a, b, c, d]).T.copy())


def total(v: Vector) -> Any:
    return (v[0] + v[2]) + (v[1] + v[3])
