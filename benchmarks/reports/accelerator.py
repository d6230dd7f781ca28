"""Times on a GPU or TPU beside the prediction: mesa, gla, gated delta, kda and softmax attention.

    python -m benchmarks.reports.accelerator --out accelerator.json

Without an accelerator the command says so and measures nothing.  It checks each
rule against float64 before it times it, stores every result as soon as it has it, stops after
``--minutes``, goes on where it stopped when it is started again, and writes the page's table beside
the results.  Where PyTorch and flash-linear-attention are installed, their kernels take part, each
with the first of its configurations: their search for the fastest one takes minutes.

It prints one line for each method, rule, dtype and length: the largest error compared with float64
beside the largest output, the seconds of the forward pass and of the value with its gradient, and
the seconds that both took to compile.  The table also has the prediction for the device.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reports import accelerator_counts as counted
from benchmarks.reports.accelerator_page import measured_table
from benchmarks.suites import attention_inputs as inputs
from olsq.attention.registry import BY_NAME

RULES = ("gated_delta", "kda", "gla", "mesa", "softmax")
METHODS = "olsq", "fla"
LENGTHS, DTYPES = (2048, 8192), ("float32", "bfloat16")
CHECKED = 512  # tokens of one head that are compared with float64
# Largest error beside the largest output: products in TF32 or bfloat16 where a rule does not solve.
TOLERANCE = {("float32", True): 1e-3, ("float32", False): 2e-2}
HALF = 5e-2
ROUNDS = 10
NARROW = 64  # the width of --narrow


def arguments(rule: str, t: int, dtype: str, sizes: tuple[int, int, int]) -> Any:
    """Return a rule's arrays for B rows of t tokens: streams in ``dtype``, gates in float32."""
    rows, heads, width = sizes
    arrays, named = inputs.arguments(rule, t, heads, width)
    arrays = [jnp.tile(x, (rows, 1, 1, 1)).astype(dtype) for x in arrays]
    return arrays, jax.tree.map(lambda x: repeat_rows(x, rows, t), named)


def repeat_rows(x: Any, rows: int, t: int) -> Any:
    """Repeat an array of one row of t tokens for every row; parameters stay as they are."""
    is_stream = jnp.ndim(x) > 2 and x.shape[:2] == (1, t)
    return jnp.tile(x, (rows,) + (1,) * (x.ndim - 1)) if is_stream else x


def ours(rule: str) -> Callable[..., Any]:
    """Return the rule as a function of (arrays, named arrays)."""
    return inputs.runner(rule)


def error_of(rule: str, run: Callable[..., Any], dtype: str, sizes: Any) -> float:
    """Return the largest error of one head's outputs beside the largest output, in float64."""
    t = min(CHECKED, 4 * sizes[2])
    arrays, named = arguments(rule, t, dtype, (1, *sizes[1:]))
    found = np.asarray(run(arrays, named).astype(jnp.float32), np.float64)[0, :, 0]
    want = inputs.one_head(rule, [x.astype(jnp.float32) for x in arrays], named)
    return float(np.abs(found - want).max() / np.abs(want).max())


def best(run: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the least seconds of several runs, and what the first one took more: compiling."""
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - begin)
    least = min(seconds[1:])
    return least, seconds[0] - least


def timed(ahead: Callable[[], Any], both: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Return the seconds of the forward pass, of value and gradient, and of compiling both."""
    forward, first = best(ahead, rounds)
    with_gradient, second = best(both, rounds)
    return {"forward": forward, "both": with_gradient, "compile": first + second}


def measure(rule: str, t: int, dtype: str, sizes: Any, rounds: int) -> dict[str, Any]:
    """Return the error and, where that is small, the seconds of a rule."""
    run = jax.jit(ours(rule))
    error = error_of(rule, run, dtype, sizes)
    most = HALF if dtype == "bfloat16" else TOLERANCE[dtype, rule == "mesa"]
    if not error < most:
        return {"error": error, "refused": f"error above {most}: not timed"}
    given = arguments(rule, t, dtype, sizes)

    def loss(arrays: Any, named: Any) -> Any:
        return (run(arrays, named).astype(jnp.float32) ** 2).sum()

    both = jax.jit(jax.value_and_grad(loss, argnums=0))
    return {"error": error} | timed(lambda: run(*given), lambda: both(*given), rounds)


def measure_theirs(rule: str, t: int, dtype: str, sizes: Any, rounds: int) -> dict[str, Any]:
    """Return the same of flash-linear-attention's kernel, on the same arrays."""
    import torch  # pyright: ignore[reportMissingImports]

    ops = import_untuned()

    def tensors(length: int, rows: int) -> Any:
        arrays, named = arguments(rule, length, "float32", (rows, *sizes[1:]))
        kind = getattr(torch, dtype)
        made = [torch.tensor(np.asarray(x), device="cuda", dtype=kind) for x in arrays]
        gates = {n: torch.tensor(np.asarray(x), device="cuda") for n, x in named.items()}
        return [x.requires_grad_() for x in made], gates, arrays, named

    def run(made: Any, gates: Any) -> Any:
        q, k, v = made
        if rule == "softmax":
            parts = (x.transpose(1, 2) for x in made)
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(*parts, is_causal=True).transpose(1, 2)
        weight = gates["weight"].to(q.dtype)
        log_gate = gates["forget"].log()
        if rule == "mesa":
            ridge = torch.ones(q.shape[2:], device="cuda")
            options = {"g": log_gate, "beta": weight, "lamb": ridge, "max_CG_iteration": 30}
            out = ops.mesa_net.chunk_mesa_net(q, k, v, **options)
        elif rule == "gla":
            chunked = ops.simple_gla.chunk_simple_gla
            out = chunked(q, k, v * weight[..., None], g=log_gate, scale=1.0)
        elif rule == "kda":
            out = ops.kda.chunk_kda(q, k, v, g=log_gate, beta=weight, scale=1.0)
        else:
            chunked = ops.gated_delta_rule.chunk_gated_delta_rule
            out = chunked(q, k, v, g=log_gate, beta=weight, scale=1.0)
        return out[0] if isinstance(out, tuple) else out

    with torch.no_grad():
        made, gates, arrays, named = tensors(min(CHECKED, 4 * sizes[2]), 1)
        found = run(made, gates)[0, :, 0].double().cpu().numpy()
    want = inputs.one_head(rule, arrays, named)
    error = float(np.abs(found - want).max() / np.abs(want).max())
    if not error < HALF:
        return {"error": error, "refused": f"error above {HALF}: not timed"}
    made, gates, *_ = tensors(t, sizes[0])

    def waited(call: Callable[[], Any]) -> Callable[[], Any]:
        def once() -> None:
            call()
            torch.cuda.synchronize()

        return once

    def ahead() -> None:
        with torch.no_grad():
            run(made, gates)

    def both() -> Any:
        return torch.autograd.grad((run(made, gates).float() ** 2).sum(), made)

    return {"error": error} | timed(waited(ahead), waited(both), rounds)


def import_untuned() -> Any:
    """Import flash-linear-attention's kernels, each with its first configuration only."""
    import triton  # pyright: ignore[reportMissingImports]

    tune = triton.autotune
    triton.autotune = lambda configs, *args, **named: tune(configs[:1], *args, **named)
    try:
        from fla import ops  # pyright: ignore[reportMissingImports]
    finally:
        triton.autotune = tune
    return ops


def check_all(stored: dict[str, Any], out: Path, sizes: Any) -> dict[str, Any]:
    """Store the float32 error of every rule, forward, and print each as soon as it is known."""
    is_narrow = sizes[2] == NARROW
    errors = stored.setdefault("narrow_errors" if is_narrow else "errors", {})
    for rule in BY_NAME:
        if rule in errors:
            continue
        try:
            errors[rule] = error_of(rule, jax.jit(ours(rule)), "float32", sizes)
        except Exception as error:  # out of memory, or an operation that the device lacks
            errors[rule] = f"{type(error).__name__}: {str(error)[:200]}"
        out.write_text(json.dumps(stored, indent=1) + "\n")
        print(rule, errors[rule], flush=True)
    return stored


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Command line; returns what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON; the table is beside it")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--small", action="store_true", help="a dry run: small sizes, any device")
    parser.add_argument("--errors", action="store_true", help="only check every rule, untimed")
    parser.add_argument("--narrow", action="store_true", help=f"with --errors: at d {NARROW}")
    given = parser.parse_args(argv)
    if jax.default_backend() == "cpu" and not given.small:
        sys.exit("no GPU or TPU: JAX runs on the CPU; nothing was measured (--small: a dry run)")
    sizes = (1, 2, 8) if given.small else (counted.BATCH, counted.HEADS, counted.WIDTH)
    lengths, rounds = ((64,), 1) if given.small else (given.lengths, ROUNDS)
    device = jax.devices()[0].device_kind
    stored: dict[str, Any] = {"device": device, "sizes": sizes, "rows": {}}
    if given.out.exists():
        stored = json.loads(given.out.read_text())
        if [stored["device"], *stored["sizes"]] != [device, *sizes]:
            sys.exit(f"{given.out} holds another device or other sizes: choose another --out")
    if given.errors:
        return check_all(stored, given.out, (*sizes[:2], NARROW) if given.narrow else sizes)
    methods = [("olsq", measure)]
    if importlib.util.find_spec("torch") and importlib.util.find_spec("fla"):
        methods.append(("fla", measure_theirs))
    methods = [pair for pair in methods if pair[0] in given.methods]
    end = time.monotonic() + 60 * given.minutes
    for t in lengths:
        for dtype in given.dtypes:
            for rule in given.rules:
                for method, run in methods:
                    key = f"{method} {rule}, {dtype}, {t}"
                    if key in stored["rows"] or time.monotonic() > end:
                        continue
                    try:
                        row = run(rule, t, dtype, sizes, rounds)
                    except Exception as error:  # out of memory, or a kernel that is not there
                        row = {"refused": f"{type(error).__name__}: {str(error)[:200]}"}
                    stored["rows"][key] = row
                    given.out.write_text(json.dumps(stored, indent=1) + "\n")
                    print(key, row, flush=True)
    given.out.with_suffix(".md").write_text(measured_table(stored) + "\n")
    return stored


if __name__ == "__main__":
    main()
