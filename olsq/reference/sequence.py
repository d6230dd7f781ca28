"""Oracle of whole sequences: one dense float64 solve per token, and its gradient.

Nothing here shares code with what it checks.  All arrays are NumPy, time is the second-last axis,
and leading batch axes are looped over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Path(NamedTuple):
    """Results of one stream: outputs (T, m), the solutions q* (T, d), and every state."""

    value: np.ndarray
    solution: np.ndarray
    grams: np.ndarray  # (T + 1, d, d), the first is the initial state
    crosses: np.ndarray  # (T + 1, m, d)
    systems: np.ndarray  # (T, d, d), the matrix solved with at each token


def per_token(x, length, width=None):
    """Broadcast a scalar, (T,), (d,) or (T, d) argument over the tokens of one stream."""
    x = np.asarray(x, dtype=np.float64)
    return np.broadcast_to(x, (length,) if width is None else (length, width))


def solve(
    keys,
    values,
    queries,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
    ridge=None,
    ridge_mode="fixed",
    state=None,
):
    """Solve one stream: keys (T, d), values (T, m), queries (T, d); a dense solve per token.

    ``ridge`` is a scalar, (d,) or (T, d).  ``state`` is (gram, cross); in the discounted problem
    its gram already holds the ridge, and without one the gram starts as the ridge.
    """
    keys, values, queries = (np.asarray(a, dtype=np.float64) for a in (keys, values, queries))
    (length, d), m = keys.shape, values.shape[-1]
    gamma, beta = per_token(forget, length), per_token(weight, length)
    lam = np.zeros((length, d))
    gram, cross = np.zeros((d, d)), np.zeros((m, d))
    if state is not None:
        gram, cross = (np.array(s, dtype=np.float64) for s in state)
    if ridge_mode == "fixed":
        lam = per_token(ridge, length, d)
    elif state is None:
        gram = np.diag(np.broadcast_to(np.asarray(ridge, dtype=np.float64), (d,)))
    grams, crosses, systems, out, sol = [gram], [cross], [], [], []
    for t in range(length):
        gram = gamma[t] * gram + beta[t] * np.outer(keys[t], keys[t])
        cross = gamma[t] * cross + beta[t] * np.outer(values[t], keys[t])
        systems.append(gram + np.diag(lam[t]))
        sol.append(np.linalg.solve(systems[-1], queries[t]))
        out.append(cross @ sol[-1])
        grams.append(gram)
        crosses.append(cross)
    return Path(
        np.array(out).reshape(length, m),
        np.array(sol).reshape(length, d),
        np.array(grams),
        np.array(crosses),
        np.array(systems).reshape(length, d, d),
    )


def gradients(
    keys,
    values,
    queries,
    upstream,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
    ridge=None,
    ridge_mode="fixed",
    state=None,
    upstream_state=None,
):
    """Compute the gradient of ``sum(upstream * value)`` by the closed recurrence backwards in time.

    With ``e*_t = (H_t + Lambda_t)^{-1} G_t^T upstream_t`` and ``q*_t`` the solution::

        dH <- dH - e* q*^T,   dG <- dG + upstream q*^T          (then both decayed by gamma_t)
        dk = beta (dH k + dH^T k + dG^T v),   dv = beta dG k,   dq = e*,   dlambda = -e* q*
        dbeta = k.dH k + v.dG k,   dgamma = <dH, H_{t-1}> + <dG, G_{t-1}>

    ``upstream_state`` is the gradient that arrives at the final state.  Returns a dict; ``ridge``
    has shape (T, d) in the fixed problem and (d,) in the discounted one.
    """
    keys, values, upstream = (np.asarray(a, dtype=np.float64) for a in (keys, values, upstream))
    length, d = keys.shape
    m = values.shape[-1]
    gamma, beta = per_token(forget, length), per_token(weight, length)
    path = solve(
        keys,
        values,
        queries,
        forget=forget,
        weight=weight,
        ridge=ridge,
        ridge_mode=ridge_mode,
        state=state,
    )
    d_gram, d_cross = np.zeros((d, d)), np.zeros((m, d))
    if upstream_state is not None:
        d_gram, d_cross = (np.array(s, dtype=np.float64) for s in upstream_state)
    g = {
        "keys": np.zeros((length, d)),
        "values": np.zeros((length, m)),
        "queries": np.zeros((length, d)),
        "forget": np.zeros(length),
        "weight": np.zeros(length),
        "ridge": np.zeros((length, d)),
    }
    for t in reversed(range(length)):
        k, v, x = keys[t], values[t], path.solution[t]
        e = np.linalg.solve(path.systems[t].T, path.crosses[t + 1].T @ upstream[t])
        d_gram = d_gram - np.outer(e, x)
        d_cross = d_cross + np.outer(upstream[t], x)
        g["queries"][t], g["ridge"][t] = e, -e * x
        g["keys"][t] = beta[t] * (d_gram @ k + d_gram.T @ k + d_cross.T @ v)
        g["values"][t] = beta[t] * (d_cross @ k)
        g["weight"][t] = k @ d_gram @ k + v @ d_cross @ k
        g["forget"][t] = (d_gram * path.grams[t]).sum() + (d_cross * path.crosses[t]).sum()
        d_gram, d_cross = gamma[t] * d_gram, gamma[t] * d_cross
    if ridge_mode == "discounted":
        g["ridge"] = np.diag(d_gram).copy()
    return {**g, "gram": d_gram, "cross": d_cross}
