"""A builder's class and parameters as plain data: what files hold, and what must not change."""

from __future__ import annotations

from typing import Any

import numpy as np

_PLAIN = (str, int, float, bool, type(None))


def described(builder: Any) -> dict[str, Any]:
    """``{"builder": class, "parameters": {...}}`` with lists, numbers, text and builders only."""
    values = builder.get_params(deep=False)
    parameters = {name: plain(value) for name, value in values.items()}
    return {"builder": type(builder).__name__, "parameters": parameters}


def plain(value: Any) -> Any:
    """A parameter's value as data that JSON can hold; text where it cannot."""
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
