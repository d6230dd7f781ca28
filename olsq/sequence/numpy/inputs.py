"""Checks of a whole-sequence solve for NumPy arrays, in the words that the JAX side uses.

Every array comes back as a fresh C-contiguous copy: kernels are compiled for one memory layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.checks import check_real, refuse_values
from olsq.problem import RIDGE_MODES, Moments, check_choice


def refuse(name: str, x: NDArray, wrong: NDArray, rule: str) -> None:
    """Raise ValueError if any entry of ``x`` is ``wrong``; NaN never is, it is data."""
    refuse_values(name, x, wrong, rule)


def numbers(name: str, x: Any) -> NDArray:
    """``x`` as a float64 array; TypeError unless it holds real numbers."""
    check_real(name, x)
    return np.asarray(x, np.float64)


def spread(name: str, x: Any, shape: tuple[int, ...], dtype: Any, meaning: str) -> NDArray:
    """A copy of ``x`` broadcast to ``shape``, or an error that says what was wanted."""
    x = np.asarray(x)
    try:
        return np.array(np.broadcast_to(x, shape), dtype, order="C")
    except ValueError:
        raise ValueError(
            f"{name} has shape {x.shape}, which does not broadcast to {shape} ({meaning})"
        ) from None


def output_dtype(*arrays: NDArray) -> np.dtype:
    """Dtype of the outputs: that of the floating-point arrays, float32 if none is."""
    floats = [x.dtype for x in arrays if x.dtype.kind not in "biu"]
    return np.result_type(*floats) if floats else np.dtype(np.float32)


def working_dtype(*arrays: NDArray) -> np.dtype:
    """float64 if any array is, else float32: half precision is never solved in."""
    wide = np.result_type(output_dtype(*arrays), np.float32).itemsize > 4
    return np.dtype(np.float64 if wide else np.float32)


def check_gates(forget: Any, log_forget: Any, shape: tuple[int, ...]) -> NDArray:
    """Forgetting factors (..., T) in float64."""
    if log_forget is not None:
        if forget is not None:
            raise ValueError("give forget or log_forget, not both: they are the same gates")
        logs = numbers("log_forget", log_forget)
        refuse("log_forget", logs, logs > 0, "be <= 0 (it is the log of a factor)")
        return spread("log_forget", np.exp(logs), shape, np.float64, "batch and time")
    gates = numbers("forget", 1.0 if forget is None else forget)
    wrong = (gates < 0) | (gates > 1)
    refuse("forget", gates, wrong, "lie in [0, 1] (1 forgets nothing, 0 resets)")
    return spread("forget", gates, shape, np.float64, "batch and time")


def check_ridge(
    ridge: Any, ridge_mode: str, has_state: bool, batch: tuple[int, ...], length: int, d: int
) -> NDArray:
    """Ridge (..., 1 or T, d) in float64; zeros where the state already holds it."""
    check_choice(ridge_mode, "ridge_mode", RIDGE_MODES)
    if ridge_mode == "discounted" and has_state:
        if ridge is not None:
            raise ValueError(
                "ridge must be left out when a state is given in the discounted problem: the "
                "state's gram already holds the ridge, forgotten with the data"
            )
        return np.zeros((*batch, 1, d))
    if ridge is None:
        raise ValueError(
            "ridge is needed: a number, (d,), batch axes and d, or batch axes, T and d; start "
            "with the size of keys' mean square"
        )
    ridge = numbers("ridge", ridge)
    refuse("ridge", ridge, (ridge < 0) | np.isinf(ridge), "be finite and >= 0")
    if ridge.ndim != len(batch) + 2:
        return spread("ridge", ridge, (*batch, d), np.float64, "batch and features")[..., None, :]
    if ridge_mode == "discounted" and ridge.shape[-2] != 1:
        raise ValueError(
            f"ridge has shape {ridge.shape}, one per token; the discounted problem has one "
            "ridge, at the start of the stream: give (..., d)"
        )
    time = 1 if ridge.shape[-2] == 1 else length
    shape = (*batch, time, d)
    return spread("ridge", ridge, shape, np.float64, "batch, time and features")


def check_weight(weight: Any, shape: tuple[int, ...]) -> NDArray:
    """Sample weights (..., T) in float64."""
    weight = numbers("weight", 1.0 if weight is None else weight)
    refuse("weight", weight, weight < 0, "be >= 0 (0 leaves a sample out)")
    return spread("weight", weight, shape, np.float64, "batch and time")


def check_state(state: Any, batch: tuple[int, ...], d: int, m: int) -> Moments:
    """Initial moments in float64, of their own memory."""
    if state is None:
        return Moments(np.zeros((*batch, d, d)), np.zeros((*batch, m, d)))
    gram, cross = state
    return Moments(
        spread("state.gram", gram, (*batch, d, d), np.float64, "batch, d, d"),
        spread("state.cross", cross, (*batch, m, d), np.float64, "batch, m, d"),
    )


def answerable(gates: NDArray, weights: NDArray, d: int) -> NDArray:
    """Which tokens (..., T) of the discounted problem have a unique answer.

    A gate of 0 takes the ridge away too: until d samples came, counting its own, there is none.
    """
    total = np.cumsum(weights > 0, axis=-1)
    before = np.where(gates == 0, total - (weights > 0), -1)
    since = np.maximum.accumulate(before, axis=-1)
    return (since < 0) | (total - since >= d)
