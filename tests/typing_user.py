"""What a user writes, in the type checker's strict mode, which continuous integration asks."""

# pyright: strict

from __future__ import annotations

import jax
import numpy as np

import olsq

rng = np.random.default_rng(0)
X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)


def regressions() -> float:
    est = olsq.RecursiveLeastSquares(forget=0.99, ridge=1e-3, fit_intercept=True)
    est.partial_fit(X, y)
    error = y - est.predict(X)  # pyright: ignore[reportUnknownMemberType]
    path = olsq.coefficient_path(X, y, forget=0.99, ridge=1.0)
    return float(error[-1] + path.coef[-1, 0])  # pyright: ignore[reportUnknownMemberType]


def sequences() -> float:
    kinds = olsq.ChunkExact(chunk=16), olsq.ConjugateGradient(preconditioner="chunk"), olsq.Dense()
    solvers: list[olsq.sequence.Solver] = list(kinds)
    fits = [olsq.online_lstsq(X, y[:, None], X, ridge=1.0, forget=0.9, solver=s) for s in solvers]
    steps = max(int(fit.check(1e-2).stats.steps.max()) for fit in fits)
    slope = olsq.online_lstsq_vjp(X, y[:, None], X, y[:, None], ridge=[1.0, 1.0, 2.0])
    state = olsq.update(fits[0].state, X[0], y[:1], forget=0.9, weight=2)
    answer = olsq.query(olsq.sequence.start_decoding(state, ridge=1.0), X[1])
    return float(answer[0] + slope.forget.sum()) + steps


def attention() -> tuple[jax.Array, int]:
    q = k = v = jax.random.normal(jax.random.key(0), (1, 8, 2, 4))
    o, state = olsq.attention.mesa(q, k, v, ridge=1.0, forget=0.9, solver=olsq.ChunkExact())
    one, state = olsq.attention.mesa_step(q[:, 0], k[:, 0], v[:, 0], ridge=1.0, state=state)
    decoding = olsq.sequence.start_decoding(state, ridge=1.0)
    two, decoding = olsq.attention.mesa_step(q[:, 1], k[:, 1], v[:, 1], state=decoding)
    gates = np.full((1, 8, 2), 0.9, np.float32)
    _, memory = olsq.attention.gla(q, k, v, forget=gates)
    return o[:, -1] + one + two, memory.matrix.shape[-1] + int(decoding.age)


def layers() -> jax.Array:
    layer = olsq.nn.Mesa(8, heads=2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (1, 4, 8))
    y, state = layer(x, state=None)
    y, state = layer(x, state=state)
    return layer(x) + y
