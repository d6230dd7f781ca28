"""Peak memory beside an empty baseline, and the temporaries of compiled programs.

No ``setup`` runs what it measures at full size: that would raise the peak of the baseline too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .common import FORGET, RIDGE, need, regression
from .gradients import gradient
from .sequence import SOLVERS, problem, solve


class Streams:
    """200,000 rows of 16 float64 regressors: 27 MB that every case, the empty one too, holds."""

    params = (["empty", "partial_fit", "rolling", "path", "rolling path"],)
    param_names = ("what",)

    def setup(self, what: str) -> None:
        recursive, rolling, path = need(
            "olsq.RecursiveLeastSquares", "olsq.RollingLeastSquares", "olsq.coefficient_path"
        )
        self.X, self.y = regression(200_000, 16)
        options = {"forget": FORGET, "ridge": RIDGE}
        self.runs = {
            "empty": lambda X, y: None,
            "partial_fit": lambda X, y: recursive(**options).partial_fit(X, y),
            "rolling": lambda X, y: rolling(window=250).partial_fit(X, y),
            "path": lambda X, y: path(X, y, **options),
            "rolling path": lambda X, y: path(X, y, window=250),
        }
        for run in self.runs.values():  # all compile, so that the baseline holds the same code
            run(self.X[:500], self.y[:500])

    def peakmem_rows(self, what: str) -> None:
        self.kept = self.runs[what](self.X, self.y)


class Sequence:
    """A sequence of 4,096 tokens in NumPy, d 64, one head: 4 MB of arguments and outputs."""

    params = (["empty", "default", "recursive"],)
    param_names = ("solver",)

    def setup(self, solver: str) -> None:
        (online_lstsq,) = need("olsq.online_lstsq")
        need("olsq.online_lstsq_vjp")  # before it there was another NumPy form, or none
        import numpy as np

        from .sequence import problem_of, solver_of
        from .sequence_streams import make

        self.arrays = make("tokens", 1, 4096, 64, 64)
        gate = np.float32(0.999)

        def run(name, arrays):
            if name != "empty":
                options = {"solver": solver_of(name), **problem_of(name)}
                self.kept = online_lstsq(*arrays, forget=gate, **options)

        self.run = run
        for name in self.params[0]:
            run(name, [a[:, :70] for a in self.arrays])

    def peakmem_numpy(self, solver: str) -> None:
        self.run(solver, self.arrays)


class Temporaries:
    """Bytes that XLA sets aside beside arguments and results, 2 heads, 512 tokens, d 64."""

    params = (["gla", *SOLVERS], ["forward", "forward+backward"])
    param_names = ("solver", "mode")
    timeout = 600

    def setup(self, solver: str, mode: str) -> None:
        self.args = problem(64)
        if solver == "gla":
            from .sequence import floor

            run = floor()
            if mode != "forward":
                forward = run
                run = jax.jit(jax.grad(lambda *a: jnp.sum(forward(*a) ** 2), argnums=(0, 1, 2, 3)))
        else:
            run = solve(solver) if mode == "forward" else gradient(solver)
        self.run = run

    def track_temporary_bytes(self, solver: str, mode: str) -> int:
        return self.run.lower(*self.args).compile().memory_analysis().temp_size_in_bytes

    track_temporary_bytes.unit = "bytes"
