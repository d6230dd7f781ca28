"""Arrays of the caller that JAX reads after the call has returned."""

from __future__ import annotations

from typing import Any

import numpy as np


def unshared(x: Any) -> Any:
    """Return a copy of a NumPy array, and anything else as it is.

    JAX reads a NumPy array in place if its memory is aligned, and only when the program that takes
    it begins, which may be after the call has returned; ``jnp.array`` is such a program too.  A
    caller that writes the next sample into the same array would change the result of this one.
    """
    return x.copy() if isinstance(x, np.ndarray) else x
