"""Local least squares, slowly and obviously: one dense weighted regression per query, in float64.

Nothing here shares code with what it checks.  All arrays are NumPy, time is the second-last axis,
and one stream is solved at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def log_weights(
    keys,
    queries,
    *,
    scale=None,
    window=None,
    log_forget=None,
    log_weight=None,
    segment_ids=None,
    causal=True,
):
    """Compute exponents (T, N) of queries' weights on keys; -inf where a query sees no key."""
    keys, queries = np.asarray(keys, np.float64), np.asarray(queries, np.float64)
    count, length = len(keys), len(queries)
    scale = keys.shape[-1] ** -0.5 if scale is None else scale
    scale = np.broadcast_to(np.asarray(scale, np.float64), (length,))
    logs = np.zeros(length) if log_forget is None else np.asarray(log_forget, np.float64)
    extra = np.zeros(count) if log_weight is None else np.asarray(log_weight, np.float64)
    logs, extra = np.broadcast_to(logs, (length,)), np.broadcast_to(extra, (count,))
    exponents = np.full((length, count), -np.inf)
    for t in range(length):
        for i in range(count):
            fade = 0.0
            if causal:
                if i > t or (window is not None and t - i >= window):
                    continue
                if segment_ids is not None and segment_ids[i] != segment_ids[t]:
                    continue
                fade = sum(logs[i + 1 : t + 1])
            exponents[t, i] = scale[t] * (queries[t] @ keys[i]) + extra[i] + fade
    return exponents


def solve(keys, values, queries, *, ridge: ArrayLike, **weights):
    """Compute outputs (T, m) and slopes (T, m, d) of the local regressions.

    For every query t, with p_t the softmax of its exponents::

        min over a, B of   sum_i p_ti |v_i - a - B (k_i - q_t)|^2 + ridge_t |B|^2

    solved by an orthogonal factorisation of the stacked rows.  ``weights`` are the keyword
    arguments of :func:`log_weights`.  A query that sees no key gives NaN.
    """
    keys, values, queries = (np.asarray(a, np.float64) for a in (keys, values, queries))
    length, d = queries.shape
    m = values.shape[-1]
    ridge = np.broadcast_to(np.asarray(ridge, np.float64), (length,))
    exponents = log_weights(keys, queries, **weights)
    value, slope = np.full((length, m), np.nan), np.full((length, m, d), np.nan)
    for t in range(length):
        visible = np.isfinite(exponents[t])
        if not visible.any():
            continue
        p = np.exp(exponents[t, visible] - exponents[t, visible].max())
        root = np.sqrt(p / p.sum())[:, None]
        rows = np.concatenate([np.ones((len(root), 1)), keys[visible] - queries[t]], 1)
        penalty = np.concatenate([np.zeros((d, 1)), np.sqrt(ridge[t]) * np.eye(d)], 1)
        design = np.concatenate([root * rows, penalty])
        target = np.concatenate([root * values[visible], np.zeros((d, m))])
        fit = np.linalg.lstsq(design, target, rcond=None)[0]
        value[t], slope[t] = fit[0], fit[1:].T
    return value, slope
