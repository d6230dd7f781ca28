"""Checks of the arguments shared by both backends, and the layout of batches."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from olsq.arrays.checks import broadcast_shapes, check_choice, check_real, concrete, holds_jax
from olsq.arrays.reals import real_array
from olsq.arrays.unshared import unshared


def backend_of(*arrays: Any) -> Any:
    """Return ``olsq.linalg.jax`` if any of the arrays is JAX's, else ``olsq.linalg.numpy``."""
    if holds_jax(*arrays):
        from olsq.linalg import jax as forms
    else:
        from olsq.linalg import numpy as forms
    return forms


def prepare(**arrays: Any) -> list[Any]:
    """Convert the arguments to arrays of one backend and one dtype, float32 or float64.

    Raises
    ------
    TypeError
        For what is not real.
    ValueError
        For a number that is not finite, in NumPy; JAX carries it on.
    """
    for name, x in arrays.items():
        check_real(name, x)
    if holds_jax(*arrays.values()):
        import jax.numpy as jnp

        converted = [jnp.asarray(unshared(x)) for x in arrays.values()]
        floats = [x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else float for x in converted]
        dtype = jnp.result_type(jnp.float32, *floats)  # no half precision
        return [x.astype(dtype) for x in converted]
    converted = [real_array(x, name) for name, x in arrays.items()]
    for name, x in zip(arrays, converted, strict=True):
        if not np.isfinite(x).all():
            first = np.unravel_index(int(np.argmin(np.isfinite(x))), x.shape)
            raise ValueError(
                f"{name} must be finite; got {float(x[first])} at {list(map(int, first))}"
            )
    dtype = np.result_type(*converted)
    return [x.astype(dtype, copy=False) for x in converted]


def check_square(factor: Any) -> int:
    """Return the width d of a factor (..., d, d); raise if it is not square."""
    shape = factor.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"factor must be square, of shape (..., d, d), got {shape}")
    return shape[-1]


def as_rows(name: str, x: Any, base: Any, width: int, columns: bool) -> Any:
    """Convert new vectors to rows (..., p, width): one for each matrix of the batch, or p of them.

    ``x`` has one axis fewer than ``base`` (one vector per matrix), or as many: (..., width, p)
    where they are ``columns``, else (..., p, width).
    """
    if x.ndim == base.ndim - 1:
        rows = x[..., None, :]
    elif x.ndim == base.ndim:
        rows = x.swapaxes(-1, -2) if columns else x
    else:
        rows = None
    if rows is None or rows.shape[-1] != width:
        many = f"(..., {width}, p)" if columns else f"(..., p, {width})"
        raise ValueError(
            f"{name} must have shape (..., {width}), one vector for each matrix, or {many}, with "
            f"{base.ndim - 1} or {base.ndim} axes here; got {x.shape}"
        )
    return rows


def flatten_batch(names: str, *arrays: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Broadcast the leading axes of matrices and flatten them to one; also return their shape."""
    try:
        batch = broadcast_shapes(*(x.shape[:-2] for x in arrays))
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise ValueError(f"the leading axes of {names} do not broadcast: {shapes}") from None
    count = math.prod(batch)
    return [_spread(x, batch).reshape(count, *x.shape[-2:]) for x in arrays], batch


def _spread(x: Any, batch: tuple[int, ...]) -> Any:
    """Broadcast ``x`` to all the leading axes of the batch."""
    if x.shape[:-2] == batch:
        return x
    if holds_jax(x):
        import jax.numpy as jnp

        return jnp.broadcast_to(x, (*batch, *x.shape[-2:]))
    return np.broadcast_to(x, (*batch, *x.shape[-2:]))


def check_pair(Q: Any, R: Any) -> tuple[int, int]:
    """Return m and n of a factorisation, full or economic; raise if Q and R do not fit."""
    fits = Q.ndim >= 2 and R.ndim == Q.ndim and Q.shape[-1] == R.shape[-2]
    if fits:
        (m, q), n = Q.shape[-2:], R.shape[-1]
        if q == m or q == n < m:
            return m, n
    raise ValueError(
        "Q and R must be full, (..., m, m) and (..., m, n), or economic, (..., m, n) and "
        f"(..., n, n) with m > n; got {Q.shape} and {R.shape}"
    )


def check_which(which: str) -> None:
    """Raise unless ``which`` is "row" or "col"."""
    check_choice(which, "which", ("row", "col"))


def check_place(k: Any, size: int, count: int, what: str) -> Any:
    """Return the first of ``count`` entries to delete from ``size``.

    With ``count`` 0 it is the place to insert at.

    Negative positions count from the end, as in SciPy. A tracer is not checked.
    """
    if holds_jax(k) and concrete(k) is None:
        import jax.numpy as jnp

        return jnp.where(k < 0, k + size, k)
    try:
        place = operator.index(k)
    except TypeError:
        raise TypeError(f"k must be an integer, got {k!r}") from None
    first = place + size if place < 0 else place
    if not 0 <= first <= size - count:
        last, of_what = size - count, f"{size} {what}{'s' * (size != 1)}"
        if last < 0:
            raise ValueError(f"p must be at most the {of_what}, got {count}")
        raise ValueError(f"k must lie from {-size} to {last} for {of_what}, got {place}")
    return first


def check_count(p: Any) -> int:
    """Return the number of rows or columns to delete, as an int; raise if it is negative."""
    try:
        count = operator.index(p)
    except TypeError:
        raise TypeError(f"p must be an integer, got {p!r}") from None
    if count < 0:
        raise ValueError(f"p must be >= 0, got {count}")
    return count
