"""Checks of a local least-squares problem that NumPy and JAX share: shapes, ranges, options."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from olsq.arrays.checks import (
    broadcast_shapes,
    check_flag,
    check_forget,
    check_integer,
    check_order,
    check_real,
    check_ridge,
    check_tolerance,
    refuse,
    shape_error,
)

QUERY_AXES = "batch and queries"
KEY_AXES = "batch and keys"
FORMED = 12  # up to so many features each query's matrix is formed at once: cheaper than any steps


class Sizes(NamedTuple):
    """Sizes of a checked problem."""

    batch: tuple[int, ...]
    keys: int  # N
    queries: int  # T
    d: int
    m: int


def check_arrays(keys: Any, values: Any, queries: Any, causal: bool) -> Sizes:
    """Check the shapes of keys (..., N, d), values (..., N, m), queries (..., T, d); return the
    sizes.
    """
    shapes = {"keys": keys.shape, "values": values.shape, "queries": queries.shape}
    told = ", ".join(f"{n} {s}" for n, s in shapes.items())
    for name, shape in shapes.items():
        if len(shape) < 2:
            raise ValueError(
                f"{name} must have shape (..., T, features), got {shape}; one row is "
                f"{name}[None, :], one feature is {name}[:, None]"
            )
    if shapes["keys"][-2] != shapes["values"][-2]:
        raise ValueError(f"keys and values must have the same length on axis -2, got {told}")
    if causal and shapes["keys"][-2] != shapes["queries"][-2]:
        raise ValueError(
            "with causal=True, query t sees keys 0 to t, so queries must have the length of keys "
            f"on axis -2; got {told}; give causal=False to let every query see all keys"
        )
    if shapes["keys"][-1] != shapes["queries"][-1]:
        raise ValueError(f"queries must have the width of keys, got {told}")
    try:
        batch = broadcast_shapes(*(s[:-2] for s in shapes.values()))
    except ValueError:
        raise ValueError(
            f"the leading axes of keys, values and queries do not broadcast: {told}"
        ) from None
    count, d = shapes["keys"][-2:]
    return Sizes(batch, count, shapes["queries"][-2], d, shapes["values"][-1])


def check_numbers(
    ridge: Any, scale: Any, forget: Any, log_forget: Any, log_weight: Any, *, causal: bool
) -> None:
    """Check the ranges of ridge, scale, gates and log weights, where they are concrete."""
    if ridge is None:
        raise ValueError(
            "ridge is needed: a number, or one per query; 0.01 is a start for unit keys"
        )
    check_ridge(ridge)
    if scale is not None:
        refuse("scale", scale, np.isinf, "be finite")
    if not causal and (forget is not None or log_forget is not None):
        raise ValueError(
            "leave forget and log_forget out with causal=False, where there is no time: use "
            "log_weight, one log weight per key"
        )
    check_forget(forget, log_forget)
    if log_weight is not None:
        refuse("log_weight", log_weight, np.isposinf, "be finite or -inf (which leaves a key out)")


def check_options(window: Any, tol: Any, max_steps: Any, segment_ids: Any, causal: bool) -> None:
    """Check the arguments that are not arrays: window, tolerance, steps."""
    check_flag("causal", causal)
    if window is not None:
        check_integer("window", window, 1, bits=31)
        if not causal:
            raise ValueError("leave window out with causal=False: it counts tokens back in time")
    if segment_ids is not None and not causal:
        raise ValueError("leave segment_ids out with causal=False: they divide a stream in time")
    if tol is not None:
        check_tolerance(tol)
    check_integer("max_steps", max_steps, 0, optional=True, bits=31)


def check_segment_ids(ids: Any, shape: tuple[int, ...]) -> None:
    """Check that segment ids are whole numbers (batch, time) that never decrease in time."""
    check_real("segment_ids", ids)
    dtype = getattr(ids, "dtype", None) or np.asarray(ids).dtype
    if dtype.kind not in "iu":
        raise ValueError(f"segment_ids must be whole numbers, got {dtype}")
    try:
        fits = np.broadcast_shapes(np.shape(ids), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise shape_error("segment_ids", np.shape(ids), shape, "batch and time")
    check_order(ids)


def largest_squares(dtype: Any) -> tuple[float, float]:
    """Return the largest squared norms of a key and of a query that count as finite.

    Where one key has all the weight, a solution is as long as the key over the ridge, and its
    product with the system a cube, of which rounding leaves a part.
    """
    most = float(np.finfo(dtype).max)
    return (most / 2**24) ** (2 / 3), most / 16


def largest_value(dtype: Any) -> float:
    """Return the largest number in a value that counts as finite: it is summed, never squared."""
    return float(np.finfo(dtype).max) / 2**24


def most_steps(max_steps: int | None, d: int) -> int:
    """Return the largest number of steps: d suffice without rounding, several times d with it."""
    return 10 * d + 50 if max_steps is None else int(max_steps)


def trial_steps(d: int) -> int:
    """Return the number of plain conjugate-gradient steps before each query's own matrix is formed.

    Forming and inverting them costs about as much as so many steps
    (``benchmarks/reports/local_preconditioners.py``), so that no query costs much more than twice
    the cheaper way.
    """
    return max(8, d)
