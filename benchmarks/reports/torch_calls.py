"""Overhead of a rule on PyTorch tensors over the same call on JAX arrays, at 1 MB of inputs.

    python -m benchmarks.reports.torch_calls [--rounds 15]

Writes ``benchmarks/results/torch_calls.json`` and a table of docs/measurements/rows.md.  Needs
PyTorch.  Calls are timed in turn in one process, and the least of the rounds counts.  Forward
passes are beside the call for JAX arrays as a user writes it, and beside the same under
``jax.jit``; gradients are beside ``jax.jit(jax.grad(...))`` alone, which checks no values.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "torch_calls.json"
BATCH, TIME, HEADS, SIZE = 1, 680, 4, 32  # 3 arrays of 0.35 MB in float32
RULES: dict[str, dict[str, Any]] = {"mesa": {"ridge": 0.5}}


def sides(rule: str) -> dict[str, Callable[[], object]]:
    """The calls to be timed of one rule, each ending with its numbers computed."""
    import jax
    import jax.numpy as jnp
    import torch

    import olsq.torch
    from olsq import attention

    torch.set_num_threads(1)  # its own few operations are small
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, BATCH, TIME, HEADS, SIZE)).astype(np.float32)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    options = RULES[rule]
    function = getattr(attention, rule)
    arrays = [jnp.asarray(x) for x in (q, k, v)]
    plain = [torch.tensor(x) for x in (q, k, v)]
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    call = getattr(olsq.torch, rule)

    def output(*streams: Any) -> Any:
        return function(*streams, **options)[0]

    jitted, gradient = (
        jax.jit(lambda *x: function(*x, **options)),
        jax.jit(jax.grad(lambda *x: output(*x).sum(), (0, 1, 2))),
    )
    return {
        "tensors": lambda: call(*plain, **options),
        "arrays": lambda: jax.block_until_ready(function(*arrays, **options)),
        "jit": lambda: jax.block_until_ready(jitted(*arrays)),
        "tensor gradient": lambda: torch.autograd.grad(call(*leaves, **options)[0].sum(), leaves),
        "jit gradient": lambda: jax.block_until_ready(gradient(*arrays)),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Least milliseconds of each call, by rule."""
    found = {}
    for rule in RULES:
        calls = sides(rule)
        for call in calls.values():
            call()
        least = dict.fromkeys(calls, np.inf)
        for _ in range(rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                least[name] = min(least[name], 1e3 * (time.perf_counter() - start))
        found[rule] = least
        print(rule, least, flush=True)
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Milliseconds, and ratios to JAX."""
    lines = [
        "| | tensors | / JAX call | / under `jit` | gradient | / `jit(grad)` |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for rule, ms in found.items():
        ours, slope = ms["tensors"], ms["tensor gradient"]
        lines.append(
            f"| `{rule}` | {ours:.1f} ms | {ours / ms['arrays']:.2f} | {ours / ms['jit']:.2f} "
            f"| {slope:.1f} ms | {slope / ms['jit gradient']:.2f} |"
        )
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: sentences, and what they were measured on."""
    machine = found["machine"]
    said = (
        f"A call of `{name}` takes {own['tensors']:.1f} ms, "
        f"{own['tensors'] / own['arrays']:.2f} times the JAX call and "
        f"{own['tensors'] / own['jit']:.2f} times that under `jit`; its gradient "
        f"takes {own['tensor gradient']:.1f} ms, "
        f"{own['tensor gradient'] / own['jit gradient']:.2f} times `jit(grad)`."
        for name, own in found["cases"].items()
    )
    return f"{' '.join(said)} PyTorch {machine['torch']}. {sentence(machine)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    found = measure(parser.parse_args().rounds)
    import torch

    facts = describe()
    facts["torch"] = torch.__version__
    stored = {"machine": facts, "cases": found}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("torch_calls", stored)


if __name__ == "__main__":
    main()
