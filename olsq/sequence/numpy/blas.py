"""Matrix products and Cholesky factors inside Numba kernels.

Products call the BLAS that SciPy ships, through an address that is passed at run time: an address
compiled into a cached kernel would be stale in the next process.  Every call is at most 64 wide in
each direction, a size that OpenBLAS does on the calling thread: larger calls from several threads
at once wait for one another, LAPACK's even for milliseconds.  Factors are therefore our own.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from olsq.kernels import kernel

TILE = 64
BLOCK = 16
BELIEVED = 1e6  # largest inflation at which a factor without pivoting is accepted as regular
PLAIN, TURNED = np.uint8(ord("N")), np.uint8(ord("T"))


@cache
def addresses() -> np.ndarray:
    """Return the addresses of sgemm and dgemm in this process."""
    names = ("sgemm", "dgemm")
    return np.array([get_cython_function_address("scipy.linalg.cython_blas", n) for n in names])


@intrinsic
def call_gemm(typing_context: Any, address: Any, numbers: Any, a: Any, b: Any, c: Any):
    """Call gemm at ``address``: column major, everything by reference.

    ``numbers`` = (transa, transb, m, n, k, alpha, beta); a, b, c = (array, offset, leading
    dimension).  Integers are 64 bits wide: a BLAS that reads 32 finds them there too (little
    endian).
    """
    del typing_context

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()

        def reference(value: Any) -> Any:
            return builder.bitcast(cgutils.alloca_once_value(builder, value), byte)

        def matrix(kind: Any, value: Any) -> list[Any]:
            array, offset, leading = cgutils.unpack_tuple(builder, value)
            data = context.make_array(kind.types[0])(context, builder, array).data
            return [builder.bitcast(builder.gep(data, [offset]), byte), reference(leading)]

        scalars = [reference(v) for v in cgutils.unpack_tuple(builder, arguments[1])]
        a, b, c = (matrix(k, v) for k, v in zip(signature.args[2:], arguments[2:], strict=True))
        pointers = [*scalars[:6], *a, *b, scalars[6], *c]
        routine = ir.FunctionType(ir.VoidType(), [byte] * len(pointers))
        builder.call(builder.inttoptr(arguments[0], routine.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(address, numbers, a, b, c), codegen


def product_of(number: Any) -> Any:
    """Return the type signature of :func:`multiply`, explicit so that constants cause no second
    compilation.
    """
    offsets = types.int64, types.int64
    factor, result = types.float64, types.Tuple((number[:, ::1], *offsets))
    factors = types.Tuple((number[:, ::1], *offsets, types.boolean))
    sizes = types.UniTuple(types.int64, 3)
    return types.void(types.int64[::1], sizes, factor, factors, factors, factor, result)


@kernel([product_of(types.float32), product_of(types.float64)])
def multiply(blas, sizes, alpha, a, b, beta, c):
    """Compute C = alpha op(A) op(B) + beta C, in row-major tiles.

    ``sizes`` = (rows of C, its columns, terms of the sums).  ``a`` and ``b`` = (array, row, column,
    whether it is transposed): a block of a C-contiguous matrix from there on; ``c`` likewise.
    """
    (m, n, k), (A, _, _, a_turned), (B, _, _, b_turned), C = sizes, a, b, c[0]
    lda, ldb, ldc = A.shape[1], B.shape[1], C.shape[1]
    start_a, start_b, start_c = a[1] * lda + a[2], b[1] * ldb + b[2], c[1] * ldc + c[2]
    number = C.dtype.type
    address = blas[0] if C.itemsize == 4 else blas[1]
    turn_a, turn_b = TURNED if a_turned else PLAIN, TURNED if b_turned else PLAIN
    for i in range(0, m, TILE):
        for j in range(0, n, TILE):
            add = number(beta)
            for p in range(0, k, TILE):
                at_a = start_a + (p * lda + i if a_turned else i * lda + p)
                at_b = start_b + (j * ldb + p if b_turned else p * ldb + j)
                tile = min(TILE, n - j), min(TILE, m - i), min(TILE, k - p)
                # row major C = A B is column major C^T = B^T A^T
                call_gemm(  # pyright: ignore[reportCallIssue] (Numba gives the first argument)
                    address,
                    (turn_b, turn_a, tile[0], tile[1], tile[2], number(alpha), add),
                    (B, at_b, ldb),
                    (A, at_a, lda),
                    (C, start_c + i * ldc + j, ldc),
                )
                add = number(1)


@kernel()
def multiply_nn(blas, A, B, out, alpha=1.0, beta=0.0):
    """Compute out = alpha A B + beta out; sizes are those of ``out`` and the columns of A."""
    a, b = (A, 0, 0, False), (B, 0, 0, False)
    multiply(blas, (*out.shape, A.shape[1]), alpha, a, b, beta, (out, 0, 0))


@kernel()
def multiply_nt(blas, A, B, out, alpha=1.0, beta=0.0):
    """Compute out = alpha A B^T + beta out."""
    a, b = (A, 0, 0, False), (B, 0, 0, True)
    multiply(blas, (*out.shape, A.shape[1]), alpha, a, b, beta, (out, 0, 0))


@kernel()
def multiply_tn(blas, A, B, out, alpha=1.0, beta=0.0):
    """Compute out = alpha A^T B + beta out."""
    a, b = (A, 0, 0, True), (B, 0, 0, False)
    multiply(blas, (*out.shape, A.shape[0]), alpha, a, b, beta, (out, 0, 0))


@kernel()
def scale(A, factor):
    """Scale A <- factor A in place; a factor of 0 gives zeros and NaN gives NaN, whatever A holds.

    A loop: NumPy's assignments compile for seconds, because of the error messages they could raise.
    """
    number = A.dtype.type
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] = A[i, j] * number(factor) if factor else number(0)


@kernel(makes_arrays=True)
def copy(A, into):
    """Copy A (n, m) into the upper left of ``into``, in its dtype; returns ``into``."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            into[i, j] = into.dtype.type(A[i, j])
    return into


@kernel()
def eliminate(work, size, floor, diagonal, first):
    """Reduce rows [A | I] of ``work`` to [L^T | L^-1]; False at a pivot below its floor."""
    number = work.dtype.type
    for k in range(size):
        pivot = work[k, k]
        if not pivot > floor * diagonal[first + k]:
            return False
        scale = number(1 / math.sqrt(pivot))
        row = work[k]
        for c in range(2 * BLOCK):
            row[c] *= scale
        for i in range(k + 1, size):
            factor, target = row[i], work[i]
            for c in range(2 * BLOCK):
                target[c] -= factor * row[c]
    return True


@kernel()
def inverse_factor(blas, A, W, n, floor):
    """Compute W = L^-1 where A = L L^T (n by n, symmetric, overwritten); False if A is singular.

    Singular means a pivot not above ``floor`` times its diagonal entry, whatever the units.
    """
    number = A.dtype.type
    work, panel = np.empty((BLOCK, 2 * BLOCK), A.dtype), np.empty((n, BLOCK), A.dtype)
    strip, diagonal = np.empty((BLOCK, n), A.dtype), np.empty(n, A.dtype)
    for i in range(n):
        diagonal[i] = A[i, i]
        for j in range(n):
            W[i, j] = number(0)
    for j in range(0, n, BLOCK):
        size = min(BLOCK, n - j)
        if j > 0:
            left, right = (A, j, 0, False), (A, j, 0, True)
            multiply(blas, (n - j, size, j), -1, left, right, 1, (A, j, j))
        for i in range(size):
            for c in range(BLOCK):
                work[i, c] = A[j + i, j + c] if c < size else number(0)
                work[i, BLOCK + c] = number(1 if c == i else 0)
        if not eliminate(work, size, floor, diagonal, j):
            return False
        for i in range(size):
            for c in range(i + 1):
                W[j + i, j + c] = work[i, BLOCK + c]
                A[j + i, j + c] = work[c, i]
        after = j + size
        if after < n:
            left, right = (A, after, j, False), (W, j, j, True)
            multiply(blas, (n - after, size, size), 1, left, right, 0, (panel, 0, 0))
            for i in range(after, n):
                for c in range(size):
                    A[i, j + c] = panel[i - after, c]
        if j > 0:
            left, right = (A, j, 0, False), (W, 0, 0, False)
            multiply(blas, (size, j, j), 1, left, right, 0, (strip, 0, 0))
            left, right = (W, j, j, False), (strip, 0, 0, False)
            multiply(blas, (size, j, size), -1, left, right, 0, (W, j, 0))
    return True


@kernel()
def pivoted(A, C, tolerance):
    """Factorise by Cholesky with pivoting, A = C C^T, C (d, rank); return the rank."""
    d = A.shape[0]
    left, used = np.empty(d), np.zeros(d, np.bool_)
    for i in range(d):
        left[i] = A[i, i]
    for r in range(d):
        best = -1
        for i in range(d):
            if not used[i] and left[i] > tolerance * A[i, i] and (best < 0 or left[i] > left[best]):
                best = i
        if best < 0:
            return r
        root = math.sqrt(left[best])
        for i in range(d):
            if used[i]:
                C[i, r] = 0.0
                continue
            entry = A[i, best]
            for k in range(r):
                entry -= C[i, k] * C[best, k]
            C[i, r] = root if i == best else entry / root
            left[i] -= C[i, r] ** 2
        used[best] = True
    return d


@kernel()
def inflation(A, W):
    """Return the largest ``A_jj (A^-1)_jj``, with ``W^T W = A^-1``: the conditioning of A in any
    units.
    """
    d, worst = W.shape[0], 0.0
    for j in range(d):
        total = 0.0
        for i in range(d):
            total += W[i, j] * W[i, j]
        worst = max(worst, total * A[j, j])
    return worst


@kernel()
def whiten(blas, A, W, scratch, spare):
    """Compute W with ``W^T W = A^-1``, or the pseudo-inverse of a singular A (float64).

    Returns the rank.

    Singular: A = C C^T with C (d, rank) has ``A^+ = W^T W``, ``W = (C^T C)^-1 C^T``. A rank of -1
    means that A has overflown, which would otherwise look like rank 0.

    Without pivoting, a last pivot that should be 0 is rounding times the condition k of the matrix
    before it. So a factor is accepted only if its inflation, at least ``max(k, 1 / (k eps))`` where
    it is wrong, is well below ``eps^-1/2``; otherwise pivoting decides.
    """
    d, trace = A.shape[0], 0.0
    for i in range(d):
        trace += A[i, i]
    if not math.isfinite(trace):
        return -1
    tolerance = 8 * d * 2.0**-52
    copy(A, scratch)
    regular = inverse_factor(blas, scratch, W, d, tolerance)
    if regular and inflation(A, W) < BELIEVED:
        return d
    rank = pivoted(A, spare, tolerance)
    if regular and rank == d:
        return d
    inner, C = np.empty((d, d)), np.empty((d, max(rank, 1)))
    for i in range(d):
        for j in range(rank):
            C[i, j] = spare[i, j]
    half, turned = (C, 0, 0, False), (C, 0, 0, True)
    multiply(blas, (rank, rank, d), 1, turned, half, 0, (inner, 0, 0))
    regular = rank > 0 and inverse_factor(blas, inner, scratch, rank, 0.0)
    if regular:
        multiply(blas, (rank, d, rank), 1, (scratch, 0, 0, False), turned, 0, (inner, 0, 0))
    scale(W, 0.0)
    if not regular:
        return 0
    right = inner, 0, 0, False
    multiply(blas, (rank, d, rank), 1, (scratch, 0, 0, True), right, 0, (W, 0, 0))
    return rank
