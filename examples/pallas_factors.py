"""Inverse Cholesky factors of mesa's chunks in one kernel of Pallas, where XLA starts some 1,100.

    python examples/pallas_factors.py                    # error and time beside the package's

A sketch, not part of the package: no accelerator has run it.  It agrees with
:func:`olsq.sequence.jax.triangular.inverse_cholesky` where a CPU interprets it, and is lowered for
Triton (CUDA, ROCm) and Mosaic (TPU), one platform at a time.  docs/how-far.md says what it has to
reach there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.sequence.jax.triangular import inverse_cholesky

BLOCK = 16  # rows that are eliminated one by one; the least width of a product in Triton


@jax.custom_jvp
def fused_inverse_cholesky(a: Array) -> Array:
    """Compute X, lower triangular, with ``X a X^T = 1`` for float32 (..., n, n) that a program
    can hold, n up to 128; NaN where a matrix is not positive definite.
    """
    n = a.shape[-1]
    width = max(BLOCK, 1 << (n - 1).bit_length())  # Triton's arrays have powers of two as sizes
    x = a.reshape(-1, n, n)
    if width > n:
        one = jnp.asarray(jnp.arange(width) >= n, a.dtype)
        x = jnp.pad(x, ((0, 0), (0, width - n), (0, width - n))) + jnp.diag(one)
    x = jax.lax.platform_dependent(x, cpu=_interpreted, tpu=_by_mosaic, default=_by_triton)
    return x[:, :n, :n].reshape(a.shape)


@fused_inverse_cholesky.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Compute ``dX = -tril(X da X^T) X``, with half of the diagonal, of a symmetric da."""
    x = fused_inverse_cholesky(*primals)
    inner = jnp.tril(_times(_times(x, tangents[0]), jnp.swapaxes(x, -1, -2)))
    return x, -_times(inner * (1 - 0.5 * jnp.eye(x.shape[-1], dtype=x.dtype)), x)


def _interpreted(a: Array) -> Array:
    return _call(a, _no_barrier, interpret=True)


def _by_mosaic(a: Array) -> Array:
    return _call(a, _no_barrier)


def _by_triton(a: Array) -> Array:
    from jax.experimental.pallas import triton

    return _call(a, triton.debug_barrier, compiler_params=triton.CompilerParams(num_warps=8))


def _no_barrier() -> None:
    """Do nothing where a program is one thread, which reads what it wrote."""


def _call(a: Array, barrier: Callable[[], None], **options: Any) -> Array:
    """Run the kernel once for every matrix (b, n, n), n a power of two."""
    from jax.experimental import pallas

    n = a.shape[-1]
    one = pallas.BlockSpec((None, n, n), lambda i: (i, jnp.int32(0), jnp.int32(0)))
    return pallas.pallas_call(
        partial(_kernel, barrier=barrier),
        out_shape=jax.ShapeDtypeStruct(a.shape, a.dtype),
        grid=a.shape[:1],
        in_specs=[one],
        out_specs=one,
        name="inverse_cholesky",
        **options,
    )(a)


def _kernel(a: Any, out: Any, barrier: Callable[[], None]) -> None:
    """Compute X of one matrix, ``BLOCK`` rows after the others.

    With ``A_i`` the block row i of a left of its diagonal block ``A_ii``, and ``X_k`` the block
    rows of X before it, of full width so that no value has to be cut::

        b_k = A_i X_k^T    Y = (A_ii - sum_k b_k b_k^T)'s X    X_i = Y [-sum_k b_k X_k | 1]
    """
    n = a.shape[-1]
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (BLOCK, n), axis) for axis in (0, 1))
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        own, sums = a[rows, rows], jnp.zeros((BLOCK, n), a.dtype)
        left = jnp.where(column < start, a[rows, :], 0)
        for k in range(0, start, BLOCK):
            x = out[k : k + BLOCK, :]
            b = _times(left, x.T)
            own, sums = own - _times(b, b.T), sums + _times(b, x)
        # Y times [.. | 1] puts Y into the columns of its block: values cannot be written into.
        out[rows, :] = _times(_eliminate(own), jnp.where(column == row + start, 1.0, -sums))
        barrier()


def _eliminate(x: Array) -> Array:
    """Compute X of one block by the elimination of :func:`olsq.sequence.jax.triangular._eliminate`,
    rows and columns read through masks.
    """
    row = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    first = jax.lax.broadcasted_iota(jnp.int32, (1, x.shape[1]), 1)

    def step(j: Array, x: Array) -> Array:
        pivot_row = jnp.where(row == j, x, 0).sum(0, keepdims=True)
        pivot_column = jnp.where(column == j, x, 0).sum(1, keepdims=True)
        pivot = jnp.where(first == j, pivot_row, 0).sum(1, keepdims=True)
        scale = 1 / jnp.sqrt(pivot)
        new = jnp.where(column == j, scale, pivot_row * scale)
        below = jnp.where(row > j, pivot_column * scale, 0)
        x = jnp.where(column == j, 0, x) - below * new
        return jnp.where(row == j, new, x)

    x = jax.lax.fori_loop(jnp.int32(0), jnp.int32(len(x)), step, x)
    return jnp.where(row >= column, x, 0)


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def least_seconds(run: Callable[[Array], Array], a: Array, rounds: int = 5) -> float:
    """Return the least seconds of several runs, after one that compiles."""
    run(a).block_until_ready()
    seconds = []
    for _ in range(rounds):
        begin = perf_counter()
        run(a).block_until_ready()
        seconds.append(perf_counter() - begin)
    return min(seconds)


def main(batch: int = 4096, n: int = 128) -> dict[str, tuple[float, float]]:
    """Print and return the largest error and the seconds of both ways, for random matrices."""
    batch = 4 if jax.default_backend() == "cpu" else batch  # interpreted: only the error counts
    half = np.random.default_rng(0).normal(size=(batch, n, 2 * n))
    a = half @ half.swapaxes(-1, -2)
    exact = np.linalg.inv(np.linalg.cholesky(a))
    ways = {"package": inverse_cholesky, "one kernel": fused_inverse_cholesky}
    measured = {}
    for name, way in ways.items():
        run, single = jax.jit(way), jnp.asarray(a, jnp.float32)
        error = float(np.abs(run(single) - exact).max() / np.abs(exact).max())
        measured[name] = error, least_seconds(run, single)
        print(f"{name}: error {error:.1e}, {1e3 * measured[name][1]:.3g} ms")
    return measured


if __name__ == "__main__":
    main()
