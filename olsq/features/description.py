"""Describe a builder's class and parameters as plain data, for files and to detect changes."""

from __future__ import annotations

from typing import Any

import numpy as np

_PLAIN = (str, int, float, bool, type(None))


def described(builder: Any) -> dict[str, Any]:
    """Return ``{"builder": class, "parameters": {...}}`` of plain data only."""
    values = builder.get_params(deep=False)
    parameters = {name: plain(value) for name, value in values.items()}
    return {"builder": type(builder).__name__, "parameters": parameters}


def plain(value: Any) -> Any:
    """Convert a parameter's value to data that JSON can hold, or to its repr."""
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return described(value) if hasattr(value, "_build") else repr(value)
