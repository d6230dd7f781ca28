"""ChunkExact against flash-linear-attention's Mesa layer kernel on one GPU.

    pip install "jax[cuda12]" torch flash-linear-attention
    python -m benchmarks.reports.sequence_gpu --out benchmarks/results/sequence_gpu.json

B4 H8 d128, T in {2k, 8k, 32k}, forward and forward + backward, float32 and bfloat16, the error of
each against float64 on one head.  Not run yet: it needs an NVIDIA GPU, and says so without one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.suites.sequence_streams import errors, exact, make

BATCH, HEADS, WIDTH, GATE, RIDGE = 4, 8, 128, 0.999, 1.0


def best(run, wait, rounds=10):
    """Best seconds of ``run``; ``wait`` blocks until its result is there."""
    wait(run())
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        wait(run())
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def ours(arrays, dtype):
    """(forward seconds, forward + backward seconds, outputs of the first head)."""
    args = [jnp.asarray(a, dtype) for a in arrays]
    gates = jnp.full(arrays[0].shape[:2], GATE, jnp.float32)

    def value(k, v, q):
        return olsq.online_lstsq(k, v, q, forget=gates, ridge=RIDGE).value

    def loss(*a):
        return (value(*a).astype(jnp.float32) ** 2).sum()

    ahead, both = jax.jit(value), jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    wait = jax.block_until_ready
    out = np.asarray(ahead(*args)[0], np.float64)
    return best(lambda: ahead(*args), wait), best(lambda: both(*args), wait), out


def theirs(arrays, dtype):
    """The same of flash-linear-attention's ``chunk_mesa_net``, (B, T, H, d) there."""
    import torch
    from fla.ops.mesa_net import chunk_mesa_net

    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    shape = (BATCH, HEADS, *arrays[0].shape[1:])
    k, v, q = (
        torch.tensor(a.reshape(shape), device="cuda", dtype=kind).transpose(1, 2).contiguous()
        for a in arrays
    )
    inputs = [x.requires_grad_() for x in (q, k, v)]
    log_gate = torch.full(k.shape[:3], float(np.log(GATE)), device="cuda")
    weight = torch.ones(k.shape[:3], device="cuda", dtype=kind)
    ridge = torch.full((HEADS, WIDTH), RIDGE, device="cuda")

    def run():
        out = chunk_mesa_net(*inputs, g=log_gate, beta=weight, lamb=ridge, max_CG_iteration=30)
        return out[0] if isinstance(out, tuple) else out

    def both():
        return torch.autograd.grad((run().float() ** 2).sum(), inputs)

    def wait(_):
        torch.cuda.synchronize()

    with torch.no_grad():
        out = run()[0, :, 0].double().cpu().numpy()
        ahead = best(run, wait)
    return ahead, best(both, wait), out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/results/sequence_gpu.json")
    out = Path(parser.parse_args().out)
    if jax.default_backend() != "gpu":
        sys.exit(f"no GPU: JAX runs on {jax.default_backend()}; nothing was measured")
    packages = ("jax", "torch", "flash-linear-attention")
    result = {"device": str(jax.devices()[0].device_kind), "rows": []}
    result["versions"] = {p: importlib.metadata.version(p) for p in packages}
    for t in (2048, 8192, 32768):
        arrays = make("tokens", BATCH * HEADS, t, WIDTH, WIDTH)
        first = min(t, 2048)  # outputs do not depend on later tokens
        want = exact(*(a[0, :first] for a in arrays), GATE, RIDGE)
        for dtype in ("float32", "bfloat16"):
            for name, measure in (("olsq", ours), ("chunk_mesa_net", theirs)):
                ahead, both, found = measure(arrays, dtype)
                mid, top = errors(found[:first], want)
                row = {"T": t, "dtype": dtype, "method": name, "forward": ahead}
                row |= {"forward+backward": both, "median error": mid, "max error": top}
                result["rows"].append(row)
                out.write_text(json.dumps(result, indent=1))
                print(row, flush=True)


if __name__ == "__main__":
    main()
