"""asv: time and error of the sequence solvers, forward and forward + backward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.support.sequence_streams import errors, exact, make
from olsq.attention import gla

SOLVERS = {
    "floor": "gla",
    "default": None,
    "chunk-exact 1": olsq.ChunkExact(corrections=1),
    "chunk-exact 2": olsq.ChunkExact(corrections=2),
    "cg 1e-4": olsq.ConjugateGradient(tol=1e-4, max_steps=100),
    "cg 30": olsq.ConjugateGradient(tol=0.0),
}
SHAPES = {"H8 T4096 d64": (8, 4096, 64), "H4 T4096 d128": (4, 4096, 128)}


def compiled(solver, mode, gate, heads, t, d):
    """A jitted function of the stream and its arguments."""
    arrays = make("tokens", heads, t, d, d)
    args = tuple(map(jnp.asarray, (*arrays, np.full((heads, t), gate, np.float32))))

    def value(k, v, q, g):
        if solver == "floor":
            return gla(*(x[:, :, None] for x in (q, k, v)), forget=g[..., None])[0]
        return olsq.online_lstsq(k, v, q, forget=g, ridge=0.25, solver=SOLVERS[solver]).value

    if mode == "forward":
        return jax.jit(value), args
    return jax.jit(jax.grad(lambda *a: (value(*a) ** 2).sum(), argnums=(0, 1, 2, 3))), args


class Sequence:
    """Whole sequences at two sizes."""

    params = (list(SHAPES), list(SOLVERS), ["forward", "forward+backward"], [0.999, 1.0])
    param_names = ("shape", "solver", "mode", "gate")
    timeout = 600

    def setup(self, shape, solver, mode, gate):
        self.run, self.args = compiled(solver, mode, gate, *SHAPES[shape])
        jax.block_until_ready(self.run(*self.args))

    def time_solver(self, *_):
        jax.block_until_ready(self.run(*self.args))


class Growth:
    """Time against T, one head of width 64: linear."""

    params = ([512, 4096, 65536], ["floor", "chunk-exact 2", "cg 30"])
    param_names = ("T", "solver")
    timeout = 600

    def setup(self, t, solver):
        self.run, self.args = compiled(solver, "forward", 0.999, 1, t, 64)
        jax.block_until_ready(self.run(*self.args))

    def time_solver(self, *_):
        jax.block_until_ready(self.run(*self.args))


class Accuracy:
    """Largest relative error of o against a dense float64 solve per token."""

    params = (["default", "chunk-exact 1", "chunk-exact 2", "cg 30"], [0.9, 0.999, 1.0])
    param_names = ("solver", "gate")
    unit = "relative error"

    def track_error(self, solver, gate):
        run, args = compiled(solver, "forward", gate, 1, 1024, 64)
        k, v, q = (np.asarray(a[0]) for a in args[:3])
        return errors(np.asarray(run(*args)[0], np.float64), exact(k, v, q, gate, 0.25))[1]
