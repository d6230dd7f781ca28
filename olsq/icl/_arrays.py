"""Conversions and checks of arguments in this package."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import shown


def floating(value: Any) -> Array:
    """Convert ``value`` to a floating-point array; integers become the default float."""
    array = jnp.asarray(value)
    return array.astype(jnp.result_type(array, 1.0))


def shaped(name: str, value: Any, shape: tuple[int | str, ...]) -> Array:
    """Convert ``value`` as floating, or raise ValueError unless its last axes are ``shape``.

    A letter in ``shape`` allows any size, and stands for the axis in the message.
    """
    array = floating(value)
    end = array.shape[max(array.ndim - len(shape), 0) :]
    fits = len(end) == len(shape) and all(
        isinstance(want, str) or want == size for want, size in zip(shape, end, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(size) for size in shape)
        raise ValueError(f"{name} must have shape (..., {wanted}), got {array.shape}")
    return array


def matrix(name: str, value: Any) -> Array:
    """Convert ``value`` to a floating matrix, or raise ValueError."""
    array = floating(value)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix, got shape {array.shape}")
    return array


def at_least(least: int, **sizes: int) -> None:
    """Raise ValueError unless every size is an integer of at least ``least``."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {shown(size)}")
