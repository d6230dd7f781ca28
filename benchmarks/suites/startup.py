"""Import and compile time, each in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from .common import need

FIT = """
import time, numpy as np
X = np.random.default_rng(0).standard_normal((1000, 8))
import olsq
start = time.process_time()
olsq.RecursiveLeastSquares({options}).partial_fit(X, X[:, 0])
print(time.process_time() - start)
"""
SOLVE = """
import time, jax, jax.numpy as jnp
import olsq
k = jnp.ones((2, 512, 32))
def value(k):
    return olsq.online_lstsq(k, k, k, forget=jnp.full((2, 512), .99), ridge=1., {options}).value
if {gradient}:
    value = jax.grad(lambda k, f=value: f(k).sum())
olsq.online_lstsq  # imported before the clock starts
(k + 1).block_until_ready()
start = time.process_time()
jax.jit(value).lower(k).compile()
print(time.process_time() - start)
"""
MODULES = "import sys, {module}; print(len(sys.modules))"


def fresh(code: str, **environment: str) -> float:
    """What a program prints, run without any cache of compiled code."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    result = subprocess.run(
        [sys.executable, "-c", code], env=env | environment, capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(result.stderr[-2000:])
    return float(result.stdout.split()[-1])


class Import:
    """Starting Python with olsq, and what it brings along."""

    def timeraw_olsq(self) -> str:
        return "import olsq"

    def timeraw_estimator(self) -> str:
        return "from olsq import RecursiveLeastSquares"

    def timeraw_numpy(self) -> str:
        """The floor: NumPy alone."""
        return "import numpy"

    def track_modules(self) -> float:
        return fresh(MODULES.format(module="olsq"))

    track_modules.unit = "modules"


class Kernels:
    """Processor seconds of the first ``partial_fit``, nothing compiled before."""

    params = (["covariance", "sqrt", "information"],)
    param_names = ("method",)
    timeout = 600

    def track_first_fit(self, method: str) -> float:
        with tempfile.TemporaryDirectory() as empty:
            code = FIT.format(options=f"method={method!r}, forget=.99")
            return fresh(code, NUMBA_CACHE_DIR=empty)

    track_first_fit.unit = "processor seconds"


class Programs:
    """Processor seconds to trace and compile a solver of 512 tokens in JAX."""

    params = (["default", "ConjugateGradient", "Recursive"], ["forward", "forward+backward"])
    param_names = ("solver", "mode")
    timeout = 600

    def setup(self, solver: str, mode: str) -> None:
        need("olsq.online_lstsq")

    def track_compile(self, solver: str, mode: str) -> float:
        options = "" if solver == "default" else f"solver=olsq.{solver}(), "
        options += "ridge_mode='discounted'" if solver == "Recursive" else ""
        return fresh(SOLVE.format(options=options, gradient=mode != "forward"))

    track_compile.unit = "processor seconds"
