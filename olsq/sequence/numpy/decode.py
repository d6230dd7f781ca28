"""One token at a time for NumPy states: moments, and a carried inverse for queries.

The same steps as :mod:`olsq.sequence.jax.decode`, in kernels: a token costs microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.checks import (
    check_forget,
    check_moment_shapes,
    check_real,
    check_ridge,
    check_token_shapes,
    check_weight,
)
from olsq.kernel import kernel
from olsq.problem import DecodeState, Moments
from olsq.sequence.numpy.blas import addresses, inverse_factor, whiten

REFRESH_EVERY = 32  # tokens between factorisations; rank-one updates in between
REFRESH_BELOW = 0.3  # or as soon as the gates since then multiply to less than this
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def start_decoding(state: Moments, *, ridge: ArrayLike | None = None) -> DecodeState:
    """:func:`olsq.sequence.start_decoding` for NumPy states."""
    moments = _as_moments(state)
    batch, d = moments.gram.shape[:-2], moments.gram.shape[-1]
    own = _as_ridge(0.0 if ridge is None else ridge, (*batch, d), moments.gram.dtype)
    inverse = np.zeros_like(moments.gram)
    refresh(addresses(), _flat(moments.gram, 2), _flat(own, 1), np.ones(inverse[..., 0, 0].size),
            _flat(inverse, 2))  # fmt: skip
    age = np.int32(0)
    return DecodeState(moments, own, inverse, np.ones(batch, moments.gram.dtype), age)


def update(
    state: Moments | DecodeState,
    key: ArrayLike,
    value: ArrayLike,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
) -> Moments | DecodeState:
    """:func:`olsq.update` for NumPy states."""
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
    absorb(_flat(gram, 2), _flat(cross, 2), _flat(key, 1), _flat(value, 1), gate.ravel(), w.ravel())
    new = Moments(gram, cross)
    if not isinstance(state, DecodeState):
        return new
    inverse = _fresh(state.inverse, (*batch, d, d))
    since = np.broadcast_to(state.gate_product, batch) * gate.astype(dtype)
    age = np.int32(int(state.age) + 1)
    ridge = np.ascontiguousarray(np.broadcast_to(state.ridge, (*batch, d)))
    if age >= REFRESH_EVERY or (since < REFRESH_BELOW).any():
        # The gates discount the ridge inside the inverse from now on.  Start it so much too large
        # that it is right halfway to the next refresh, if gates stay as they were.
        ahead = np.clip(since, REFRESH_BELOW, 1) ** -0.5
        refresh(addresses(), _flat(gram, 2), _flat(ridge, 1), ahead.astype(np.float64).ravel(),
                _flat(inverse, 2))  # fmt: skip
        since, age = np.ones_like(since), np.int32(0)
    else:
        carry_inverse(_flat(inverse, 2), _flat(key, 1), gate.ravel(), w.ravel())
    return DecodeState(new, ridge, inverse, np.asarray(since), age)


def query(
    state: Moments | DecodeState,
    query: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    tol: float | None = None,
) -> NDArray:
    """:func:`olsq.query` for NumPy states."""
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
        own = _as_ridge(0.0 if ridge is None else ridge, (*batch, d), dtype)
        solve_densely(addresses(), gram, cross, q, _flat(own, 1), value)
        return value.reshape(*batch, m)
    if ridge is not None:
        raise ValueError("ridge is part of a DecodeState; leave it out here")
    if tol is None:
        tol = 1e-7 if dtype == SINGLE else 1e-14
    own = np.ascontiguousarray(np.broadcast_to(state.ridge, (*batch, d)))
    inverse = _spread(state.inverse, (*batch, d, d))
    solve_carried(gram, cross, q, _flat(own, 1), _flat(inverse, 2), tol, 4 * d, value)
    return value.reshape(*batch, m)


def merge_moments(first: Moments, second: Moments, *, forget: ArrayLike = 1.0) -> Moments:
    """:func:`olsq.sequence.merge_moments` for NumPy states."""
    gate = _checked(check_forget, forget, 1.0)[..., None, None]
    first, second = _as_moments(first), _as_moments(second)
    with np.errstate(invalid="ignore"):
        parts = (
            (gate * np.where((gate == 0) & ~np.isfinite(a), 0, a)).astype(a.dtype) + b
            for a, b in zip(first, second, strict=True)
        )
        return Moments(*parts)


def _as_moments(state: Any) -> Moments:
    gram, cross = (np.asarray(part) for part in state)
    if gram.dtype != cross.dtype or gram.dtype not in (SINGLE, DOUBLE):
        for name, part in zip(Moments._fields, (gram, cross), strict=True):
            check_real(f"state.{name}", part)
        dtype = np.result_type(gram, cross, SINGLE)
        gram, cross = gram.astype(dtype), cross.astype(dtype)
    check_moment_shapes(gram.shape, cross.shape)
    return Moments(gram, cross)


def _checked(check: Callable[[Any], None], x: Any, most: float) -> NDArray:
    """``x`` as float64; a float in [0, most], which ``check`` has nothing against, in no time."""
    if not (isinstance(x, float) and 0 <= x <= most):
        check(x)
    return np.asarray(x, np.float64)


def _as_ridge(ridge: Any, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    own = _checked(check_ridge, ridge, 1e300)
    return np.array(np.broadcast_to(own, shape), dtype, order="C")


def _fresh(x: Any, shape: tuple[int, ...]) -> NDArray:
    return np.array(x if np.shape(x) == shape else np.broadcast_to(x, shape), order="C")


def _spread(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    # not ascontiguousarray, which gives a number an axis
    return np.asarray(x if x.shape == shape else np.broadcast_to(x, shape), order="C")


def _flat(x: NDArray, axes: int) -> NDArray:
    """One batch axis before the last ``axes``."""
    return x.reshape(-1, *x.shape[x.ndim - axes :])


@kernel()
def absorb(gram, cross, keys, values, gates, weights):
    """``H <- gate H + w k k^T``, ``G <- gate G + w v k^T``; a gate of 0 drops even a NaN."""
    number = gram.dtype.type
    for b in range(gram.shape[0]):
        gate, weight = number(gates[b]), number(weights[b])
        d, m = gram.shape[1], cross.shape[1]
        absent = False  # of weight 0 and not finite: left out
        if weight == 0:
            for j in range(d):
                absent = absent or not math.isfinite(keys[b, j])
            for j in range(m):
                absent = absent or not math.isfinite(values[b, j])
        for i in range(d):
            k = number(0) if absent else weight * keys[b, i]
            for j in range(d):
                h = gram[b, i, j]
                h = number(0) if gate == 0 and not math.isfinite(h) else gate * h
                gram[b, i, j] = h if absent else h + k * keys[b, j]
            for j in range(m):
                g = cross[b, j, i]
                g = number(0) if gate == 0 and not math.isfinite(g) else gate * g
                cross[b, j, i] = g if absent else g + k * values[b, j]


@kernel()
def refresh(blas, gram, ridge, ahead, inverse):
    """The inverse of every system, its ridge times ``ahead``; NaN where there is none."""
    d = gram.shape[1]
    number = gram.dtype.type
    system, half = np.empty((d, d), gram.dtype), np.empty((d, d), gram.dtype)
    for b in range(gram.shape[0]):
        extra = number(0)
        for _ in range(2):
            for i in range(d):
                for j in range(d):
                    system[i, j] = gram[b, i, j]
                system[i, i] += number(ahead[b]) * ridge[b, i] + extra * gram[b, i, i]
            sound = inverse_factor(blas, system, half, d, 0.0)
            if sound:
                break
            extra = number(4 * d * (1.2e-7 if gram.itemsize == 4 else 2.3e-16))
        for i in range(d):
            for j in range(d):
                total = number(0) if sound else number(np.nan)
                for k in range(max(i, j), d):
                    total += half[k, i] * half[k, j]
                inverse[b, i, j] = total


@kernel()
def carry_inverse(inverse, keys, gates, weights):
    """``P <- (P - h h^T) / gate`` with ``h = P k sqrt(w / (gate + w k P k))``."""
    number, d = inverse.dtype.type, inverse.shape[1]
    u = np.empty(d, inverse.dtype)
    for b in range(inverse.shape[0]):
        gate, weight = number(gates[b]), number(weights[b])
        leverage = number(0)
        for i in range(d):
            total = number(0)
            for j in range(d):
                total += inverse[b, i, j] * keys[b, j]
            u[i] = total
            leverage += total * keys[b, i]
        innovation = gate + weight * leverage
        if weight == 0 or not math.isfinite(leverage):
            weight, innovation = number(0), number(1)
            for i in range(d):
                u[i] = number(0)
        scale = weight / innovation
        for i in range(d):
            for j in range(d):
                inverse[b, i, j] = (inverse[b, i, j] - scale * u[i] * u[j]) / gate


@kernel()
def solve_densely(blas, gram, cross, queries, ridge, value):
    """``G (H + Lambda)^-1 q`` by a factorisation in float64, the smallest solution if singular."""
    d, m = gram.shape[1], cross.shape[1]
    system, W = np.empty((d, d)), np.empty((d, d))
    scratch, spare = np.empty((d, d)), np.empty((d, d))
    q, inner, x = np.empty(d), np.empty(d), np.empty(d)
    for b in range(gram.shape[0]):
        for i in range(d):
            for j in range(d):
                system[i, j] = gram[b, i, j]
            system[i, i] += ridge[b, i]
            q[i] = queries[b, i]
        rank = whiten(blas, system, W, scratch, spare)
        for i in range(d):
            inner[i] = 0.0
            for j in range(d):
                inner[i] += W[i, j] * q[j]
        for j in range(d):
            x[j] = 0.0 if rank >= 0 else np.nan
            for i in range(d):
                x[j] += W[i, j] * inner[i]
        for j in range(m):
            total = 0.0
            for i in range(d):
                total += cross[b, j, i] * x[i]
            value[b, j] = value.dtype.type(total)


@kernel()
def solve_carried(gram, cross, queries, ridge, inverse, tol, most, value):
    """The same by conjugate gradient on the true system, preconditioned by a carried inverse."""
    number, d, m = gram.dtype.type, gram.shape[1], cross.shape[1]
    x, r, p = np.empty(d, gram.dtype), np.empty(d, gram.dtype), np.empty(d, gram.dtype)
    z, mp = np.empty(d, gram.dtype), np.empty(d, gram.dtype)
    for b in range(gram.shape[0]):
        largest = number(0)
        for i in range(d):
            largest = max(largest, abs(queries[b, i]))
        size = largest if largest > 0 else number(1)
        goal = number(0)
        for i in range(d):
            x[i], r[i] = number(0), queries[b, i] / size
            goal += r[i] * r[i]
        goal *= number(tol) * number(tol)
        # the first iterate is the carried inverse times q
        for i in range(d):
            total = number(0)
            for j in range(d):
                total += inverse[b, i, j] * r[j]
            x[i] = total
        for i in range(d):
            total = ridge[b, i] * x[i]
            for j in range(d):
                total += gram[b, i, j] * x[j]
            mp[i] = total
        left = number(0)
        for i in range(d):
            r[i] -= mp[i]
            left += r[i] * r[i]
        before = number(0)
        for step in range(most):
            if not left > goal:
                break
            rz = number(0)
            for i in range(d):
                total = number(0)
                for j in range(d):
                    total += inverse[b, i, j] * r[j]
                z[i] = total
                rz += total * r[i]
            turn = rz / before if step > 0 and before > 0 else number(0)
            curvature = number(0)
            for i in range(d):
                p[i] = z[i] + turn * p[i] if step > 0 else z[i]
            for i in range(d):
                total = ridge[b, i] * p[i]
                for j in range(d):
                    total += gram[b, i, j] * p[j]
                mp[i] = total
                curvature += total * p[i]
            if not curvature > 0:
                break
            alpha, next_left = rz / curvature, number(0)
            for i in range(d):
                x[i] += alpha * p[i]
                r[i] -= alpha * mp[i]
                next_left += r[i] * r[i]
            before, left = rz, next_left
        for j in range(m):
            total = number(0)
            for i in range(d):
                total += cross[b, j, i] * x[i]
            value[b, j] = total * size
