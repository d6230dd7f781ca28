"""Transforms of formulaic that standardise, for columns that may not vary."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np


@functools.cache
def guarded_transforms() -> dict[str, Any]:
    """Return formulaic's transforms that standardise, for columns that may not vary."""
    from formulaic import transforms
    from formulaic.transforms.poly import poly as formulaic_poly

    @transforms.stateful_transform
    def scale(
        data: Any, center: Any = True, scale: Any = True, ddof: float = 1, _state: Any = None
    ) -> Any:
        learns = "center" not in _state
        scaled = transforms.scale(data, center, scale, ddof, _state=_state)
        if not learns or center is not True or not is_constant(data):
            return scaled
        # The mean of equal numbers is off by a rounding, and their standard deviation is that.
        _state["center"] = np.asarray(data).flat[0]
        _state["scale"] = None if scale is True else _state["scale"]
        return transforms.scale(data, center, scale, ddof, _state=_state)

    @transforms.stateful_transform
    def center(data: Any, _state: Any = None) -> Any:
        return scale(data, scale=False, _state=_state)

    @transforms.stateful_transform
    def standardize(
        x: Any, center: Any = True, rescale: Any = True, ddof: float = 0, _state: Any = None
    ) -> Any:
        return scale(x, center, rescale, ddof, _state=_state)

    @transforms.stateful_transform
    def poly(x: Any, degree: int = 1, raw: bool = False, _state: Any = None) -> Any:
        values = np.asarray(x, np.float64)
        few = np.unique(values[~np.isnan(values)]).size <= degree or is_constant(x)
        if not raw and "alpha" not in _state and few:
            raise ValueError(
                f"poly of degree {degree} needs more than {degree} different values to learn from"
            )
        return formulaic_poly(x, degree, raw, _state=_state)

    return {"scale": scale, "center": center, "standardize": standardize, "poly": poly}


def is_constant(values: Any) -> bool:
    """Test whether numbers spread by no more than the rounding errors of their mean."""
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    size = np.abs(values).max(initial=0.0)
    return bool(np.ptp(values) <= 4 * np.finfo(np.float64).eps * size) if values.size else False


def holds_nan(state: Any) -> bool:
    """Test whether what a transform has learned contains NaN."""
    if isinstance(state, dict):
        return any(map(holds_nan, state.values()))
    return isinstance(state, (float, np.ndarray)) and bool(np.isnan(state).any())
