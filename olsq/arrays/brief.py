"""Short reprs of results that hold arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

MOST_NUMBERS = 16  # longer arrays are shown by shape and dtype
MOST_CHARACTERS = 200  # longer reprs of other values are cut


def brief_repr(self: Any) -> str:
    """Return the fields of a named tuple or data class, one a line where there are arrays.

    Small arrays are shown as they are, others by shape and dtype.  Meant as ``__repr__``.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> olsq.Moments(np.zeros((50, 50)), np.zeros((1, 50)))
    Moments(gram=(50, 50) float64, cross=(1, 50) float64)
    """
    names = getattr(self, "_fields", None)
    if names is None:
        names = [field.name for field in dataclasses.fields(self) if field.repr]
    shown = [f"{name}={brief(getattr(self, name))}" for name in names]
    kind = type(self).__name__
    line = f"{kind}({', '.join(shown)})"
    if len(line) <= 100 and "\n" not in line:
        return line
    return f"{kind}(\n    " + ",\n    ".join(shown) + ",\n)"


def brief(value: Any) -> str:
    """Return a value's repr, or the shape, dtype or length of a large one."""
    if isinstance(value, dict):
        items = ", ".join(f"{key!r}: {brief(entry)}" for key, entry in value.items())
        return f"{{{items}}}" if len(items) <= MOST_CHARACTERS else f"dict of {len(value)}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        if isinstance(value, np.ndarray) and value.size <= MOST_NUMBERS and value.ndim <= 1:
            text = " ".join(repr(value).split())
            if len(text) <= MOST_CHARACTERS:
                return text
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not shape):
            return repr(value)
        return f"{shape} {dtype}"
    text = repr(value)
    if hasattr(value, "_fields"):
        return text.replace("\n", "\n    ")
    if isinstance(value, (tuple, list)) and len(text) > MOST_CHARACTERS:
        return f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
