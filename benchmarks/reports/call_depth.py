"""Depth of calls: frames and files of the package in a gradient's trace, and what it compiles.

    python -m benchmarks.reports.call_depth            # prints a table; two minutes
    python -m benchmarks.reports.call_depth --chain    # also the deepest chain of calls of each

Every frame counts, decorators and nested functions too, while JAX traces and lowers.  Files are
those whose functions ran.
Seconds are of the processor, for loss and gradient of 4 blocks (``training_step``), traced and
compiled; lines are of the program as XLA compiles it and of ``olsq/sequence``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.reports import training_step
from benchmarks.support.house import code_lines, sources
from olsq import attention, nn

PACKAGE = f"{Path(olsq.__file__).parent}/"


def deepest_chain(function: Callable[[], Any]) -> tuple[list[CodeType], set[str]]:
    """Return the longest chain of the package's calls while ``function`` runs, and all files."""
    longest: list[CodeType] = []
    files: set[str] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        files.add(frame.f_code.co_filename)
        chain, at = [], frame
        while at is not None:
            if at.f_code.co_filename.startswith(PACKAGE):
                chain.append(at.f_code)
            at = at.f_back
        if len(chain) > len(longest):
            longest[:] = reversed(chain)

    jax.clear_caches()
    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(None)
    return longest, files


def lower(function: Callable[[Any], Any], x: Any) -> None:
    """Trace and lower a gradient: what a primitive computes is traced where it is lowered."""
    jax.jit(jax.grad(function)).lower(x)


def learn_rows() -> Callable[[], Any]:
    """A call of 200 rows, of a state that has learned."""
    X = np.random.default_rng(0).standard_normal((200, 4))
    est = olsq.RecursiveLeastSquares(forget=0.99).fit(X, X[:, 0])
    return lambda: est.partial_fit(X, X[:, 0])


def calls() -> dict[str, Callable[[], Any]]:
    """Gradients to trace, by name: gates that are arrays, as those of a layer are; and rows to
    learn.
    """
    hidden = jnp.ones((2, 64, 16))
    x, gates = jnp.ones((2, 64, 2, 8)), jnp.full((2, 64, 2), 0.9)
    layer = nn.Mesa(16, heads=2, key=jax.random.key(0))
    return {
        "gla": lambda: lower(lambda x: attention.gla(x, x, x, forget=gates)[0].sum(), x),
        "mesa": lambda: lower(
            lambda x: attention.mesa(x, x, x, ridge=1.0, forget=gates)[0].sum(), x
        ),
        "nn.Mesa": lambda: lower(lambda h: layer(h).sum(), hidden),
        "partial_fit, 200 rows": learn_rows(),
    }


def compiled(mixer: str) -> str:
    """Describe what it takes to compile a training step."""
    function, given = training_step.step(*training_step.SHOWN[mixer])
    start = time.process_time()
    lowered = function.lower(*given)
    traced = time.process_time()
    program = lowered.compile()
    done = time.process_time()
    lines = program.as_text().count("\n")
    return f"{traced - start:.1f} + {done - traced:.1f} | {lines:,}"


def main() -> None:
    """Print the table."""
    print(
        "| call | calls deep | files | trace + compile, s | lines compiled |\n|---|---|---|---|---|"
    )
    for name, function in calls().items():
        chain, files = deepest_chain(function)
        step = compiled(name) if name in training_step.SHOWN else " | "
        print(f"| `{name}` | {len(chain)} | {len(files)} | {step} |", flush=True)
        if "--chain" in sys.argv:
            for code in chain:
                print(f"    {code.co_filename.removeprefix(PACKAGE)} {code.co_qualname}")
    for side in ("jax", "numpy"):
        modules = sources(Path(PACKAGE) / "sequence" / side)
        print(f"code of sequence/{side}: {sum(map(code_lines, modules.values())):,} lines")


if __name__ == "__main__":
    main()
