"""Arrays as text, for the notes of a checkpoint."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray


def packed(values: NDArray[np.float64]) -> str:
    """The values, whatever the shape, bit for bit."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")


def unpacked(text: str) -> NDArray[np.float64]:
    """Undo :func:`packed`; a vector of its own."""
    return np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)
