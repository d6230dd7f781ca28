"""Check the arguments of a whole-sequence solve on NumPy arrays, with the error messages of the JAX
side.

Every array comes back as a fresh C-contiguous copy: kernels are compiled for one memory layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays import checks
from olsq.arrays.checks import (
    check_forget,
    check_real,
    check_streams,
    sequence_ridge_axes,
    shape_error,
)
from olsq.problem import Moments


def spread(name: str, x: Any, shape: tuple[int, ...], dtype: Any, meaning: str) -> NDArray:
    """Copy ``x`` broadcast to ``shape``, or raise an error that names the shape it should have."""
    x = np.asarray(x)
    if x.shape in (shape, ()):  # in a third of the time
        full = np.empty(shape, dtype)
        full[...] = x
        return full
    try:
        return np.array(np.broadcast_to(x, shape), dtype, order="C")
    except ValueError:
        raise shape_error(name, x.shape, shape, meaning) from None


def output_dtype(*arrays: NDArray) -> np.dtype:
    """Return the dtype of the outputs: that of the floating-point arrays, else float32."""
    floats = [x.dtype for x in arrays if x.dtype.kind not in "biu"]
    return np.result_type(*floats) if floats else np.dtype(np.float32)


def working_dtype(*arrays: NDArray) -> np.dtype:
    """Return float64 if any array has it, else float32; half precision is widened."""
    wide = np.result_type(output_dtype(*arrays), np.float32).itemsize > 4
    return np.dtype(np.float64 if wide else np.float32)


def check_gates(forget: Any, log_forget: Any, shape: tuple[int, ...]) -> NDArray:
    """Return checked forgetting factors (..., T) in float64."""
    check_forget(forget, log_forget)
    if log_forget is not None:
        logs = np.asarray(log_forget, np.float64)
        return spread("log_forget", np.exp(logs), shape, np.float64, "batch and time")
    return spread("forget", 1 if forget is None else forget, shape, np.float64, "batch and time")


def check_ridge(
    ridge: Any, ridge_mode: str, has_state: bool, batch: tuple[int, ...], length: int, d: int
) -> NDArray:
    """Return the checked ridge (..., 1 or T, d) in float64.

    Returns zeros where the state already holds it.
    """
    axes = sequence_ridge_axes(ridge, ridge_mode, has_state, batch, length, d)
    if axes is None:
        return np.zeros((*batch, 1, d))
    full = spread("ridge", ridge, axes[0], np.float64, axes[1])
    return full[..., None, :] if full.ndim == len(batch) + 1 else full


def check_weight(weight: Any, shape: tuple[int, ...]) -> NDArray:
    """Return checked sample weights (..., T) in float64."""
    checks.check_weight(weight)
    weight = 1 if weight is None else weight
    return spread("weight", weight, shape, np.float64, "batch and time")


def check_state(state: Any, batch: tuple[int, ...], d: int, m: int) -> Moments[NDArray[np.float64]]:
    """Copy the initial moments to float64; zeros without a state."""
    if state is None:
        return Moments(np.zeros((*batch, d, d)), np.zeros((*batch, m, d)))
    gram, cross = state
    return Moments(
        spread("state.gram", gram, (*batch, d, d), np.float64, "batch, d, d"),
        spread("state.cross", cross, (*batch, m, d), np.float64, "batch, m, d"),
    )


def has_unique_solution(gates: NDArray, weights: NDArray, d: int) -> NDArray:
    """Return a mask (..., T) of the discounted problem's tokens that have a unique answer.

    A gate of 0 forgets the ridge too: until d samples have come, counting its own, there is none.
    """
    total = np.cumsum(weights > 0, axis=-1)
    before = np.where(gates == 0, total - (weights > 0), -1)
    since = np.maximum.accumulate(before, axis=-1)
    return (since < 0) | (total - since >= d)


class Streams(NamedTuple):
    """Checked streams, B of them, T long: samples in the working dtype, the rest in float64."""

    keys: NDArray  # (B, T, d)
    values: NDArray  # (B, T, m)
    queries: NDArray  # (B, T, d)
    weight: NDArray  # (B, T)
    gates: NDArray  # (B, T)
    ridge: NDArray | None  # (B, 1 or T, d); None in the discounted problem, whose gram holds it
    gram: NDArray  # (B, d, d), before the first token: a solve advances it to the last
    cross: NDArray  # (B, m, d), likewise

    def part(self, part: slice) -> Streams:
        """Return some of the streams."""
        return Streams._make(None if x is None else x[part] for x in self)

    def arrays(self) -> tuple[NDArray, ...]:
        """Return the samples as kernels take them, with a ridge of 0 where it is inside gram."""
        ridge = np.zeros((1, 1, self.keys.shape[2])) if self.ridge is None else self.ridge
        return *self[:5], ridge

    def moments(self) -> tuple[NDArray, NDArray]:
        """Return the moments as kernels take them."""
        return self.gram, self.cross


def check(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    ridge: Any = None,
    ridge_mode: str = "fixed",
    state: Any = None,
) -> tuple[Streams, tuple[int, ...], np.dtype]:
    """Check every argument of :func:`olsq.online_lstsq`.

    Returns the streams, fresh arrays with one flat batch axis, the batch shape and the dtype of the
    outputs.
    """
    for name, x in (("keys", keys), ("values", values), ("queries", queries)):
        check_real(name, x)
    for name, x in zip(Moments._fields, state or (), strict=False):
        check_real(f"state.{name}", x)
    keys, values, queries = (np.asarray(a) for a in (keys, values, queries))
    batch, length, d, m = check_streams(keys, values, queries)
    moments = [] if state is None else [np.asarray(s) for s in state]
    out, dtype = output_dtype(keys, values, queries), working_dtype(keys, values, queries, *moments)
    gates = check_gates(forget, log_forget, (*batch, length))
    weights = check_weight(weight, (*batch, length))
    ridges = check_ridge(ridge, ridge_mode, state is not None, batch, length, d)
    gram, cross = check_state(state, batch, d, m)
    discounted = ridge_mode == "discounted"
    if discounted:
        gram += ridges * np.eye(d)  # 0 with a state, which holds its ridge
    arrays = (
        spread("keys", keys, (*batch, length, d), dtype, "batch, T, d"),
        spread("values", values, (*batch, length, m), dtype, "batch, T, m"),
        spread("queries", queries, (*batch, length, d), dtype, "batch, T, d"),
        weights,
        gates,
        ridges,
        gram,
        cross,
    )
    count = int(np.prod(batch, dtype=np.int64))
    streams = Streams._make(x.reshape(count, *x.shape[len(batch) :]) for x in arrays)
    return streams._replace(ridge=None) if discounted else streams, batch, out
