"""Whole sequences: every solver at two widths and three kinds of gates, forward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .common import need, ratio
from .sequence_streams import make

HEADS, LENGTH, RIDGE = 2, 512, 0.25
SOLVERS = {
    "default": None,
    "chunk-exact": ("ChunkExact", {}),
    "chunk-exact, 2 corrections": ("ChunkExact", {"corrections": 2}),
    "cg, 1e-4": ("ConjugateGradient", {"tol": 1e-4, "max_steps": 100}),
    "cg, 30 steps": ("ConjugateGradient", {"tol": 0.0}),
    "chebyshev, 30 steps": ("Chebyshev", {"steps": 30}),
    "neumann, 30 terms": ("Neumann", {"terms": 30}),
    "recursive": ("Recursive", {}),
    "dense": ("Dense", {}),
}
GATES = ["0.999", "1", "mixed"]


def solver_of(name: str):
    """A solver by its name here."""
    if SOLVERS[name] is None:
        return None
    kind, options = SOLVERS[name]
    return need(f"olsq.{kind}")[0](**options)


def problem_of(name: str) -> dict:
    """Ridge and its mode: with forgetting, the recursion solves the discounted problem only."""
    return {"ridge": RIDGE, "ridge_mode": "discounted" if name == "recursive" else "fixed"}


def gates_of(kind: str, t: int, heads: int = HEADS) -> np.ndarray:
    """Gates (heads, t): all alike, or .999 with .1 at every 20th token on average."""
    if kind != "mixed":
        return np.full((heads, t), float(kind), np.float32)
    low = np.random.default_rng(1).random((heads, t)) < 0.05
    return np.where(low, 0.1, 0.999).astype(np.float32)


def problem(d: int, gates: str = "0.999", t: int = LENGTH, heads: int = HEADS) -> tuple:
    """keys, values, queries and gates as float32 JAX arrays."""
    arrays = make("tokens", heads, t, d, d)
    return tuple(map(jnp.asarray, (*arrays, gates_of(gates, t, heads))))


def solve(solver: str):
    """A jitted function of keys, values, queries and gates: the values."""
    (online_lstsq,) = need("olsq.online_lstsq")
    made, which = solver_of(solver), problem_of(solver)

    def value(k, v, q, g):
        return online_lstsq(k, v, q, forget=g, solver=made, **which).value

    return jax.jit(value)


def floor():
    """Gated linear attention on the same arrays: no solve at all."""
    (gla,) = need("olsq.attention.gla")

    def value(k, v, q, g):
        return gla(*(x[:, :, None] for x in (q, k, v)), forget=g[..., None])[0]

    return jax.jit(value)


class Solvers:
    """2 heads, 512 tokens, Zipf tokens, ridge .25, float32."""

    params = (list(SOLVERS), [16, 64], GATES)
    param_names = ("solver", "d", "gates")
    timeout = 600

    def setup(self, solver: str, d: int, gates: str) -> None:
        self.args = problem(d, gates)
        run = solve(solver)
        self.run = lambda: jax.block_until_ready(run(*self.args))
        self.run()

    def time_solver(self, *_) -> None:
        self.run()

    def track_over_gla(self, *_) -> float:
        """Over gated linear attention, which shares the memory and solves nothing."""
        other = floor()
        return ratio(self.run, lambda: jax.block_until_ready(other(*self.args)))

    track_over_gla.unit = "ratio of processor time"


class Growth:
    """Time of four times the tokens over time of the tokens: 4 is linear."""

    params = (["default", "cg, 30 steps", "recursive"],)
    param_names = ("solver",)
    timeout = 600

    def track_growth(self, solver: str) -> float:
        run = solve(solver)
        short, long = problem(32, t=512), problem(32, t=2048)
        calls = (lambda a=a: jax.block_until_ready(run(*a)) for a in (long, short))
        return ratio(*calls)

    track_growth.unit = "ratio of processor time"


class NumPy:
    """NumPy arrays in and out, over the same solver in JAX, jitted."""

    params = (["default", "cg, 30 steps", "recursive", "dense"],)
    param_names = ("solver",)
    timeout = 600

    def setup(self, solver: str) -> None:
        (online_lstsq,) = need("olsq.online_lstsq")
        self.arrays = problem(64)
        k, v, q, g = map(np.asarray, self.arrays)
        made, which = solver_of(solver), problem_of(solver)
        self.run = lambda: online_lstsq(k, v, q, forget=g, solver=made, **which).value
        if not isinstance(self.run(), np.ndarray):
            raise NotImplementedError("this commit has no NumPy form of the solver")

    def time_numpy(self, solver: str) -> None:
        self.run()

    def track_over_jax(self, solver: str) -> float:
        other = solve(solver)
        return ratio(self.run, lambda: jax.block_until_ready(other(*self.arrays)))

    track_over_jax.unit = "ratio of processor time"
