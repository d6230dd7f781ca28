"""Validation that needs neither NumPy's nor JAX's side: what counts as a real number."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_real(name: str, x: Any) -> None:
    """Raise TypeError unless ``x`` holds real numbers: booleans, integers, floats of any width.

    Complex numbers, text, dates and times, structured and object arrays are refused: a cast would
    drop half of a complex number without a word, and read numbers out of text.  Asks for the dtype
    only, so that it serves JAX arrays and tracers too, and costs a microsecond.
    """
    if isinstance(x, (bool, int, float)):  # also integers too long for any dtype
        return
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype):  # lists, and arrays of libraries with dtypes of their own
        try:
            dtype = np.asarray(x).dtype
        except TypeError as error:
            if _traced(x):  # JAX checks these when it makes an array of them
                return
            raise TypeError(f"{name} must be an array of real numbers: {error}") from None
        except ValueError:
            raise ValueError(
                f"{name} must be an array of real numbers; its rows differ in length or depth"
            ) from None
    if not np.can_cast(dtype, np.float64, "same_kind"):
        advice = {
            "c": "; split complex data into real and imaginary parts",
            "O": "; convert it with .astype(float), which says what is not a number",
        }.get(dtype.kind, "")
        raise TypeError(f"{name} must be real, got {dtype}{advice}")


def refuse_values(name: str, x: Any, wrong: Any, rule: str) -> None:
    """Raise ValueError if any entry of ``x`` is ``wrong``, with the first one and where it is."""
    if not np.any(wrong):
        return
    x, wrong = np.asarray(x), np.asarray(wrong)
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f" at [{', '.join(map(str, first))}]" if first else ""
    raise ValueError(f"{name} must {rule}; got {float(x[first])!r}{where}")


def _traced(x: Any) -> bool:
    """Whether ``x`` is a nest of lists with a tracer of JAX in it, which has no numbers yet."""
    if isinstance(x, (list, tuple)):
        return any(_traced(part) for part in x)
    return hasattr(x, "aval") and isinstance(x.dtype, np.dtype)
