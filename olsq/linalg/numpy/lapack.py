"""Update large triangular matrices by LAPACK, in place, row-major.

SciPy's wrappers take column-major arrays, and copying a large factor to that order takes as long as
a third of the update itself.  LAPACK's compiled routines take a leading dimension, and applied from
the other side they work on row-major arrays as they are.  All calls go to the library that SciPy
ships: a second pool of threads (NumPy's) would wait actively at the same time.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

PANEL = 32  # columns eliminated together: within a tenth of the best of 16 to 128 at d 128 to 2048

_RIGHT, _PLAIN, _FORWARD, _COLUMNWISE = map(ctypes.create_string_buffer, (b"R", b"N", b"F", b"C"))


@cache
def _routine(name: str, arguments: int) -> Any:
    """Return LAPACK's routine of this name; it runs without the GIL."""
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _integers(*values: int) -> list[Any]:
    # 64 bits wide: a LAPACK that reads 32 finds them there too (little endian).
    return [ctypes.byref(ctypes.c_int64(value)) for value in values]


def rotate_rows_in(
    R: NDArray[np.float64],
    A: NDArray[np.float64],
    beside: NDArray[np.float64],
    scale: float,
    out: NDArray[np.float64],
) -> None:
    """Replace the triangle R by the triangle of ``[scale R; A]``, with a diagonal >= 0.

    The QR factorisation of a triangle above a full matrix (LAPACK's tpqrt), a panel of columns at a
    time.  About ``2 b d^2`` multiplications and additions, and ``4 b d p`` for what stands beside.

    Parameters
    ----------
    R : (d, d) upper triangular, C-contiguous
    A : (b, d + p) C-contiguous; destroyed
        The rows, and in the last p columns whatever stands beside them.
    beside : (d, p) C-contiguous
        What stands beside ``scale R``, scaled already; is transformed in place, as the last p
        columns of A are: ``[beside; A[:, d:]]`` becomes its product with Q^T.
    scale : float, positive
    out : (d, d) C-contiguous, zero below the diagonal; may be R.
        Receives the triangle.
    """
    d, (b, wide) = R.shape[0], A.shape
    p = wide - d
    shapes = out.shape == (d, d) and beside.shape == (d, p) and p >= 0
    if not shapes or not all(a.flags.c_contiguous for a in (R, A, beside, out)):
        raise ValueError("the arrays of a triangle and its rows do not have shapes that fit")
    tpqrt, tprfb = _routine("dtpqrt", 12), _routine("dtprfb", 18)
    work = np.empty(PANEL * max(d, p, PANEL))
    none, ld_a, ld_r, rows = _integers(0, wide, d, b)
    for start in range(0, d, PANEL):
        stop = min(start + PANEL, d)
        k, rest = stop - start, d - stop
        (size,) = _integers(k)
        # Negative: reflections change the sign of a pivot, and a diagonal >= 0 comes out.
        np.multiply(R[start:stop, start:], -scale, out=out[start:stop, start:])
        if p:
            np.negative(beside[start:stop], out=beside[start:stop])
        triangle = np.asfortranarray(out[start:stop, start:stop])
        V, T = np.asfortranarray(A[:, start:stop]), np.zeros((k, k), order="F")
        info = ctypes.c_int64(0)
        tpqrt(
            rows,
            size,
            none,
            size,
            triangle.ctypes.data,
            size,
            V.ctypes.data,
            rows,
            T.ctypes.data,
            size,
            work.ctypes.data,
            ctypes.byref(info),
        )
        assert info.value == 0, info.value
        # Row-major C' = Q^T C is column-major C'^T = C^T Q: the reflector from the right.
        for above, ld_above, at, width in (
            (out[start:, stop:], ld_r, stop, rest),
            (beside[start:], _integers(p)[0], d, p),
        ):
            if width:
                (columns,) = _integers(width)
                tprfb(
                    _RIGHT,
                    _PLAIN,
                    _FORWARD,
                    _COLUMNWISE,
                    columns,
                    rows,
                    size,
                    none,
                    V.ctypes.data,
                    rows,
                    T.ctypes.data,
                    size,
                    above.ctypes.data,
                    ld_above,
                    A[:, at:].ctypes.data,
                    ld_a,
                    work.ctypes.data,
                    columns,
                )
        out[start:stop, start:stop] = np.triu(triangle)
        # A column that was zero in every row was not reflected, and kept its sign.
        for j in np.flatnonzero(np.signbit(np.diagonal(triangle))):
            row = start + int(j)
            out[row, row:] *= -1
            beside[row] *= -1
