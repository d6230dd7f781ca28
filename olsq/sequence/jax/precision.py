"""Matrix products in full precision, whatever the device's default is.

A GPU's default multiplies float32 in TF32, a TPU's in bfloat16: ten and eight bits, of which a
factor or a residual keeps none after a few squares.  A CPU multiplies in float32 anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

Function = TypeVar("Function", bound=Callable[..., Any])


def in_full_precision(function: Function) -> Function:
    """Decorate ``function`` so that its matrix products and their derivatives are exact float32.

    Derivatives inherit the precision of the products that they are derivatives of.
    """

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return exact  # type: ignore[return-value]
