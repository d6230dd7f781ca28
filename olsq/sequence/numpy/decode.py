"""Decode one token at a time for NumPy states: moments, and a carried inverse for queries.

The same steps as :mod:`olsq.sequence.jax.decode`, in kernels: a token costs microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import (
    check_forget,
    check_moment_shapes,
    check_real,
    check_ridge,
    check_token_shapes,
    check_weight,
)
from olsq.problem import DecodeState, Moments
from olsq.sequence.numpy import decode_kernels as kernels
from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.decode_kernels import REFRESH_BELOW, REFRESH_EVERY

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
TOLERANCE = {SINGLE: 1e-7, DOUBLE: 1e-14}  # of a query's residual


def start_decoding(state: Moments, *, ridge: ArrayLike | None = None) -> DecodeState[NDArray[Any]]:
    """Run :func:`olsq.sequence.start_decoding` for NumPy states."""
    moments = Moments(*(part.copy() for part in _as_moments(state)))
    batch, d = moments.gram.shape[:-2], moments.gram.shape[-1]
    ridges = _as_ridge(0.0 if ridge is None else ridge, (*batch, d), moments.gram.dtype)
    inverse = np.zeros_like(moments.gram)
    kernels.refresh_inverses(
        addresses(),
        _flat(moments.gram, 2),
        _flat(ridges, 1),
        np.ones(inverse[..., 0, 0].size),
        _flat(inverse, 2),
    )
    age = np.int32(0)
    return DecodeState(moments, ridges, inverse, np.ones(batch, moments.gram.dtype), age)


def update(
    state: Moments | DecodeState,
    key: ArrayLike,
    value: ArrayLike,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
) -> Moments[NDArray[Any]] | DecodeState[NDArray[Any]]:
    """Run :func:`olsq.update` for NumPy states."""
    if type(forget) is float and type(weight) is float and 0 <= forget <= 1 and 0 <= weight < 1e300:
        new = _update_one(state, key, value, forget, weight)
        if new is not None:
            return new
    check_real("key", key)
    check_real("value", value)
    moments = state.moments if isinstance(state, DecodeState) else _as_moments(state)
    gram, cross = moments
    d, m, dtype = gram.shape[-1], cross.shape[-2], gram.dtype
    key, value = np.asarray(key, dtype), np.asarray(value, dtype)
    check_token_shapes(key.shape, value.shape, d, m)
    gate = _checked(check_forget, forget, 1.0)
    w = _checked(check_weight, weight, math.inf)
    batch = gram.shape[:-2]
    if key.ndim > 1 or value.ndim > 1 or batch or gate.ndim or w.ndim:
        batch = np.broadcast_shapes(batch, key.shape[:-1], value.shape[:-1], gate.shape, w.shape)
    gram, cross = _fresh(gram, (*batch, d, d)), _fresh(cross, (*batch, m, d))
    key, value = _spread(key, (*batch, d)), _spread(value, (*batch, m))
    gate, w = _spread(gate, batch), _spread(w, batch)
    kernels.absorb_tokens(
        _flat(gram, 2), _flat(cross, 2), _flat(key, 1), _flat(value, 1), gate.ravel(), w.ravel()
    )
    new = Moments(gram, cross)
    if not isinstance(state, DecodeState):
        return new
    inverse = _fresh(state.inverse, (*batch, d, d))
    since = np.broadcast_to(state.gate_product, batch) * gate.astype(dtype)
    age = np.int32(int(state.age) + 1)
    ridge = _spread(state.ridge, (*batch, d))
    fresh = age >= REFRESH_EVERY or (since < REFRESH_BELOW).any()
    if fresh or not kernels.update_inverses(
        _flat(inverse, 2), _flat(key, 1), gate.ravel(), w.ravel()
    ):
        ahead = np.array([kernels.ridge_head_start(each) for each in since.ravel()], np.float64)
        kernels.refresh_inverses(
            addresses(), _flat(gram, 2), _flat(ridge, 1), ahead, _flat(inverse, 2)
        )
        since, age = np.ones_like(since), np.int32(0)
    return DecodeState(new, ridge, inverse, np.asarray(since), age)


def query(
    state: Moments | DecodeState,
    query: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    tol: float | None = None,
) -> NDArray:
    """Run :func:`olsq.query` for NumPy states."""
    if type(state) is DecodeState and ridge is None:
        value = _query_one(state, query, tol)
        if value is not None:
            return value
    check_real("query", query)
    moments = state.moments if isinstance(state, DecodeState) else _as_moments(state)
    gram, cross = moments
    d, m, dtype = gram.shape[-1], cross.shape[-2], gram.dtype
    q = np.asarray(query, dtype)
    if q.shape[-1:] != (d,):
        raise ValueError(f"query must end in ({d},), got {q.shape}")
    batch = gram.shape[:-2]
    if q.ndim > 1 or batch:
        batch = np.broadcast_shapes(batch, q.shape[:-1])
    parts = _spread(gram, (*batch, d, d)), _spread(cross, (*batch, m, d)), _spread(q, (*batch, d))
    gram, cross, q = _flat(parts[0], 2), _flat(parts[1], 2), _flat(parts[2], 1)
    value = np.empty((q.shape[0], m), dtype)
    if not isinstance(state, DecodeState):
        ridges = _as_ridge(0.0 if ridge is None else ridge, (*batch, d), dtype)
        kernels.solve_densely_all(addresses(), gram, cross, q, _flat(ridges, 1), value)
        return value.reshape(*batch, m)
    if ridge is not None:
        raise ValueError("leave ridge out: the state is a DecodeState, which has its own")
    if tol is None:
        tol = TOLERANCE[dtype]
    ridges = _spread(state.ridge, (*batch, d))
    inverse = _spread(state.inverse, (*batch, d, d))
    kernels.solve_carried_all(
        gram, cross, q, _flat(ridges, 1), _flat(inverse, 2), tol, 4 * d, value
    )
    return value.reshape(*batch, m)


def merge_moments(
    first: Moments, second: Moments, *, forget: ArrayLike = 1.0
) -> Moments[NDArray[Any]]:
    """Run :func:`olsq.sequence.merge_moments` for NumPy states."""
    gate = _checked(check_forget, forget, 1.0)[..., None, None]
    first, second = _as_moments(first), _as_moments(second)
    with np.errstate(invalid="ignore"):
        parts = (
            (gate * np.where((gate == 0) & ~np.isfinite(a), 0, a)).astype(a.dtype) + b
            for a, b in zip(first, second, strict=True)
        )
        return Moments(*parts)


def _plain(dtype: np.dtype, *arrays: tuple[Any, tuple[int, ...]]) -> bool:
    """Test whether these are C-contiguous NumPy arrays of this dtype and these shapes."""
    for x, shape in arrays:
        if not (type(x) is np.ndarray and x.dtype is dtype and x.shape == shape):
            return False
        if not x.flags.c_contiguous:
            return False
    return True


def _update_one(
    state: Any, key: Any, value: Any, gate: float, weight: float
) -> Moments[NDArray[Any]] | DecodeState[NDArray[Any]] | None:
    """Update one stream by one token where nothing needs conversion or broadcasting.

    Returns None otherwise.
    """
    carried = type(state) is DecodeState
    moments = state.moments if carried else state
    gram, cross = moments
    dtype: Any = getattr(gram, "dtype", None)
    if (dtype is not SINGLE and dtype is not DOUBLE) or gram.ndim != 2 or np.ndim(value) != 1:
        return None
    d, m = gram.shape[1], len(value)
    if not _plain(dtype, (gram, (d, d)), (cross, (m, d)), (key, (d,)), (value, (m,))):
        return None
    new = Moments(np.empty((d, d), dtype), np.empty((m, d), dtype))
    if not carried:
        kernels.absorb_token(gram, cross, key, value, gate, weight, *new)
        return new
    _, ridge, inverse, since, age = state
    if not _plain(dtype, (ridge, (d,)), (inverse, (d, d)), (since, ())):
        return None
    new_inverse = np.empty((d, d), dtype)
    arrays, token = (gram, cross, inverse, ridge), (key, value, gate, weight)
    clock = since.item(), int(age)
    since, age = kernels.update_one(addresses(), arrays, token, clock, (*new, new_inverse))
    return DecodeState(new, ridge, new_inverse, np.array(since, dtype), np.int32(age))


def _query_one(state: DecodeState, query: Any, tol: float | None) -> NDArray | None:
    """Answer one query of one stream where nothing needs conversion or broadcasting.

    Returns None otherwise.
    """
    (gram, cross), ridge, inverse, _, _ = state
    dtype: Any = getattr(gram, "dtype", None)
    if (dtype is not SINGLE and dtype is not DOUBLE) or gram.ndim != 2 or np.ndim(cross) != 2:
        return None
    d, m = gram.shape[1], cross.shape[0]
    arrays = (gram, (d, d)), (cross, (m, d)), (ridge, (d,)), (inverse, (d, d)), (query, (d,))
    if not _plain(dtype, *arrays):
        return None
    value = np.empty(m, dtype)
    tol = TOLERANCE[dtype] if tol is None else float(tol)
    kernels.solve_carried(gram, cross, query, ridge, inverse, tol, 4 * d, value)
    return value


def _as_moments(state: Any) -> Moments[NDArray[Any]]:
    """Check moments and convert them to NumPy arrays of one dtype, float32 or float64."""
    gram, cross = (np.asarray(part) for part in state)
    if gram.dtype != cross.dtype or gram.dtype not in (SINGLE, DOUBLE):
        for name, part in zip(Moments._fields, (gram, cross), strict=True):
            check_real(f"state.{name}", part)
        dtype = np.result_type(gram, cross, SINGLE)
        gram, cross = gram.astype(dtype), cross.astype(dtype)
    check_moment_shapes(gram.shape, cross.shape)
    return Moments(gram, cross)


def _checked(check: Callable[[Any], None], x: Any, most: float) -> NDArray:
    """Convert ``x`` to float64, calling ``check`` unless it is a float in [0, most], which is
    always valid.
    """
    if not (isinstance(x, float) and 0 <= x <= most):
        check(x)
    return np.asarray(x, np.float64)


def _as_ridge(ridge: Any, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Check a ridge and copy it into a new array of this shape and dtype."""
    checked = _checked(check_ridge, ridge, 1e300)
    return np.array(np.broadcast_to(checked, shape), dtype, order="C")


def _fresh(x: Any, shape: tuple[int, ...]) -> NDArray:
    """Return a C-contiguous copy of ``x``, broadcast: a kernel will write to it."""
    return np.array(x if np.shape(x) == shape else np.broadcast_to(x, shape), order="C")


def _spread(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Broadcast ``x`` to a C-contiguous array that kernels only read.

    It is not copied where it is one already.
    """
    # not ascontiguousarray, which gives a number an axis
    return np.asarray(x if x.shape == shape else np.broadcast_to(x, shape), order="C")


def _flat(x: NDArray, axes: int) -> NDArray:
    """Reshape to one batch axis before the last ``axes``."""
    return x.reshape(-1, *x.shape[x.ndim - axes :])
