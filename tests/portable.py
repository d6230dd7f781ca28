"""Programs for accelerators, read where there is none: what one may contain to run on any of them.

A program is exported for CUDA, ROCm and TPU at once, on a host that has none of them, with float64
allowed, so that a number which slipped into it would show.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from tests.versions import x64

PLATFORMS = ("cuda", "rocm", "tpu")
# Calls that XLA's partitioner takes out again; every other one is code outside of XLA.
WITHIN_XLA = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}

CALL = re.compile(r"custom_call\s*@\"?([\w.$]+)")
PRODUCT = re.compile(r"stablehlo\.dot_general (.*)")
UNKNOWN_SIZE = re.compile(r"tensor<[^>]*\?")
HOST = re.compile(r"stablehlo\.(?:send|recv|infeed|outfeed)\b")
# Python's numbers are scalars in float64, which XLA converts when it compiles; arrays are not.
WIDE = re.compile(r"\dxf64>")
NUMBER = re.compile(r"stablehlo\.(?:constant|convert|broadcast_in_dim)|call @|func\.func|return")


def single(arrays: Any) -> Any:
    """Return the shapes of arrays, in float32 where they hold real numbers."""

    def shape(x: Any) -> Any:
        real = jnp.issubdtype(x.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(x.shape, jnp.float32 if real else x.dtype)

    return jax.tree.map(shape, arrays)


def with_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return all results of ``f`` and the gradient, by its first argument, of a sum of squares."""

    def loss(x: Any, *rest: Any) -> tuple[Any, Any]:
        out = f(x, *rest)
        real = [y for y in jax.tree.leaves(out) if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum((y.astype(jnp.float32) ** 2).sum() for y in real), out

    return jax.value_and_grad(loss, has_aux=True, allow_int=True)


def export_text(f: Callable[..., Any], *args: Any, platforms: Any = PLATFORMS) -> str:
    """Return the program exported for ``platforms``; JAX refuses what has no lowering for one."""
    with x64(True):
        return export.export(jax.jit(f), platforms=platforms)(*args).mlir_module()


def find_faults(text: str, *, exact: bool = False) -> list[str]:
    """List what would not run on every accelerator; with ``exact``, products of less precision."""
    found = [f"calls {name}" for name in sorted(set(CALL.findall(text)) - WITHIN_XLA)]
    lines = text.splitlines()
    if any(WIDE.search(line) and not NUMBER.search(line) for line in lines):
        found.append("computes in float64")
    if UNKNOWN_SIZE.search(text):
        found.append("has shapes known only when it runs")
    if HOST.search(text):
        found.append("talks to the host")
    if exact and any("[HIGHEST, HIGHEST]" not in line for line in PRODUCT.findall(text)):
        found.append("has products that are not full float32")
    return found


def check_portable(f: Callable[..., Any], *args: Any, exact: bool = False) -> None:
    """Fail unless value and gradient (by the first argument) of ``f`` run on any accelerator."""
    found = find_faults(export_text(with_gradient(f), *args), exact=exact)
    assert not found, f"the program {'; '.join(found)}"
