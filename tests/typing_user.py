"""A user's code under the type checker's strict mode, which continuous integration runs."""

# pyright: strict

from __future__ import annotations

from typing import Any, assert_type

import jax
import numpy as np
from numpy.typing import NDArray

import olsq

rng = np.random.default_rng(0)
X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)


def regressions() -> float:
    est = olsq.RecursiveLeastSquares(forget=0.99, ridge=1e-3, fit_intercept=True)
    est.partial_fit(X, y)
    error = y - est.predict(X)
    path = olsq.coefficient_path(X, y, forget=0.99, ridge=1.0)
    return float(error[-1] + path.coef[-1, 0])


def sequences() -> float:
    kinds = olsq.ChunkExact(chunk=16), olsq.ConjugateGradient(preconditioner="chunk"), olsq.Dense()
    solvers: list[olsq.sequence.Solver] = list(kinds)
    fits = [olsq.online_lstsq(X, y[:, None], X, ridge=1.0, forget=0.9, solver=s) for s in solvers]
    assert_type(fits[0].value, NDArray[Any])
    assert_type(fits[0].state, olsq.Moments[NDArray[Any]])
    steps = max(int(fit.check(1e-2).stats.steps.max()) for fit in fits)
    slope = olsq.online_lstsq_vjp(X, y[:, None], X, y[:, None], ridge=[1.0, 1.0, 2.0])
    state = olsq.update(fits[0].state, X[0], y[:1], forget=0.9, weight=2)
    answer = olsq.query(olsq.sequence.start_decoding(state, ridge=1.0), X[1])
    assert_type(answer, NDArray[Any])
    assert_type(slope.ridge, NDArray[np.float64])
    local = olsq.local_lstsq(X, y[:, None], X, ridge=1.0, causal=False)
    assert_type(local, olsq.LocalSolution[NDArray[Any]])
    steps += int(local.check(1e-2).stats.steps.max())
    return float(answer[0] + slope.forget.sum()) + steps + fits[0].value.shape[-1]


def sequences_in_jax() -> jax.Array:
    keys = jax.random.normal(jax.random.key(0), (8, 2))
    fit = olsq.online_lstsq(keys, keys, keys, ridge=1.0)
    assert_type(fit, olsq.sequence.Solution[jax.Array])
    decoding = olsq.sequence.start_decoding(olsq.merge(fit.state, fit.state), ridge=1.0)
    assert_type(decoding.moments.gram, jax.Array)
    plain = np.asarray(keys)
    mixed = olsq.online_lstsq(plain, keys, plain, ridge=1.0)  # whose arrays, only a run can tell
    assert_type(mixed, olsq.sequence.Solution[Any])
    local = olsq.local_lstsq(keys, keys, keys, ridge=1.0)
    assert_type(local, olsq.LocalSolution[jax.Array])
    return olsq.query(decoding, keys[0]) + fit.stats.bound[-1] + local.value[0, 0]


def attention() -> tuple[jax.Array, int]:
    q = k = v = jax.random.normal(jax.random.key(0), (1, 8, 2, 4))
    o, state = olsq.attention.mesa(q, k, v, ridge=1.0, forget=0.9, solver=olsq.ChunkExact())
    one, state = olsq.attention.mesa_step(q[:, 0], k[:, 0], v[:, 0], ridge=1.0, state=state)
    decoding = olsq.sequence.start_decoding(state, ridge=1.0)
    two, decoding = olsq.attention.mesa_step(q[:, 1], k[:, 1], v[:, 1], state=decoding)
    gates = np.full((1, 8, 2), 0.9, np.float32)
    assert_type(decoding, olsq.sequence.DecodeState[jax.Array])
    _, memory = olsq.attention.gla(q, k, v, forget=gates)
    _, memory = olsq.attention.gla_step(q[:, 0], k[:, 0], v[:, 0], forget=0.9, state=memory)
    assert_type(memory, olsq.attention.Memory)
    return o[:, -1] + one + two, memory.matrix.shape[-1] + int(decoding.age)


def layers() -> jax.Array:
    layer = olsq.nn.Mesa(8, heads=2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (1, 4, 8))
    y, state = layer(x, state=None)
    y, state = layer(x, state=state)
    return layer(x) + y
