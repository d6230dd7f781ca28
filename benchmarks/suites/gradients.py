"""Gradients of whole sequences: implicit, through the steps, and on NumPy arrays."""

from __future__ import annotations

import jax
import numpy as np

from .common import need, ratio
from .sequence import RIDGE, problem, problem_of, solve, solver_of

SOLVERS = ["default", "chunk-exact, 2 corrections", "cg, 30 steps", "recursive", "dense"]


def gradient(solver: str, adjoint: str = "implicit"):
    """The jitted gradient of a sum of squares by keys, values, queries and gates."""
    (online_lstsq,) = need("olsq.online_lstsq")
    made = solver_of(solver)

    def loss(k, v, q, g):
        options = {"forget": g, "solver": made, "adjoint": adjoint, **problem_of(solver)}
        return (online_lstsq(k, v, q, **options).value ** 2).sum()

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))


class Gradients:
    """Forward and backward, 2 heads, 512 tokens, gates .999."""

    params = (SOLVERS, [16, 64])
    param_names = ("solver", "d")
    timeout = 600

    def setup(self, solver: str, d: int) -> None:
        self.args = problem(d)
        run = gradient(solver)
        self.run = lambda: jax.block_until_ready(run(*self.args))
        self.run()

    def time_gradient(self, solver: str, d: int) -> None:
        self.run()

    def track_over_forward(self, solver: str, d: int) -> float:
        """Over the forward pass alone: 2 to 3 is what exact adjoints cost."""
        forward = solve(solver)
        return ratio(self.run, lambda: jax.block_until_ready(forward(*self.args)))

    track_over_forward.unit = "ratio of processor time"


class Adjoint:
    """The implicit adjoint over differentiating the steps."""

    params = (["cg, 30 steps", "chebyshev, 30 steps"],)
    param_names = ("solver",)
    timeout = 600

    def track_over_unrolled(self, solver: str) -> float:
        args = problem(64)
        runs = [gradient(solver, adjoint) for adjoint in ("implicit", "unrolled")]
        return ratio(*(lambda run=run: jax.block_until_ready(run(*args)) for run in runs))

    track_over_unrolled.unit = "ratio of processor time"


class NumPy:
    """``online_lstsq_vjp`` on NumPy arrays."""

    params = ([16, 64, 128],)
    param_names = ("d",)
    timeout = 600

    def setup(self, d: int) -> None:
        (self.vjp,) = need("olsq.online_lstsq_vjp")
        self.arrays = [np.asarray(a) for a in problem(d)]
        self.time_vjp(d)

    def time_vjp(self, d: int) -> None:
        k, v, q, g = self.arrays
        self.vjp(k, v, q, np.ones_like(v), forget=g, ridge=RIDGE)

    def track_over_jax(self, d: int) -> float:
        """Over the same gradient in JAX, jitted."""
        args, run = problem(d), gradient("default")
        return ratio(lambda: self.time_vjp(d), lambda: jax.block_until_ready(run(*args)))

    track_over_jax.unit = "ratio of processor time"
