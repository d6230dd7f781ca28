"""Encode arrays as text for the notes of a checkpoint."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray


def pack(values: NDArray[np.float64]) -> str:
    """Encode the values, whatever the shape, as text that holds every bit."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")


def unpack(text: str) -> NDArray[np.float64]:
    """Decode the text made by :func:`pack` into a vector."""
    return np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)
