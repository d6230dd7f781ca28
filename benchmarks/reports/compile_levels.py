"""Compile and run times of attention rules and training steps at XLA's levels of optimisation.

    python -m benchmarks.reports.compile_levels                # some ten minutes; prints two tables
    python -m benchmarks.reports.compile_levels --only gla     # rules whose name contains this

Programs of both levels take turns in one process.  Their outputs are compared: the largest
difference, relative to the largest output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.reports import training_step
from benchmarks.suites import attention_inputs as inputs
from benchmarks.support import machine
from olsq.sequence.jax.programs import LEVEL

LEVELS, ROUNDS = (3, 2), 16
LENGTH, HEADS, WIDTH = 1024, 8, 64
RULES = "mesa", "mesa_discounted", "gla", "softmax"
STEPS = "mesa", "gla", "softmax", "gated_delta", "mamba2", "kda", "rwkv7"


def compare(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[float]:
    """Return seconds to compile at both levels, the ratio of run times, and the difference."""
    lowered, programs, seconds = jax.jit(function).lower(*arguments), [], []
    for level in LEVELS:
        start = time.process_time()
        programs.append(lowered.compile(compiler_options={LEVEL: level}))
        seconds.append(time.process_time() - start)
    outputs = [jax.tree.leaves(program(*arguments)) for program in programs]
    difference = max(
        float(np.max(np.abs(x - y)) / max(np.max(np.abs(x)), 1e-30))
        for x, y in zip(*outputs, strict=True)
    )
    runs: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for program, times in zip(programs, runs, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            times.append(time.perf_counter() - start)
    return [*seconds, min(runs[1]) / min(runs[0]), difference]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="rules whose name contains this")
    only = parser.parse_args().only
    print(machine.describe())
    print("| program | compiling at 3, s | at 2, s | run time, 2 / 3 | difference |")
    print("|---|---|---|---|---|")
    for name in filter(lambda name: only in name, RULES):
        run, arguments = inputs.runner(name), inputs.arguments(name, LENGTH, HEADS, WIDTH)

        def loss(arrays: Any, named: Any, run: Any = run) -> Any:
            return (run(arrays, named) ** 2).sum()

        for way, function in {"": run, ", gradient": jax.grad(loss)}.items():
            three, two, ratio, difference = compare(function, arguments)
            print(f"| {name}{way} | {three:.1f} | {two:.1f} | {ratio:.2f} | {difference:.0e} |")
    for name in filter(lambda name: only in name, STEPS):
        function, arguments = training_step.step(name, {})
        three, two, ratio, difference = compare(function, arguments)
        print(f"| step of {name} | {three:.1f} | {two:.1f} | {ratio:.2f} | {difference:.0e} |")


if __name__ == "__main__":
    main()
