"""Complex signals as real rows: embed what comes in, and combine what goes out.

The complex problem ``min sum w |y - x . theta|^2 + theta^H Lambda theta`` of k coefficients is a
real one of 2k, ``[Re theta, Im theta]``.  Each row is a pair of real rows,

    [Re x, -Im x] -> Re y        [Im x, Re x] -> Im y,

of one weight, with the forgetting factor before the first and 1 before the second.  Both have the
same leverage, and ``u P v = 0`` for the rows u, v of a pair: P has the blocks [[A, -B], [B, A]] of
a Hermitian matrix ``A + i B``.  So the second row's residual, though it is computed after the first
row was learned, is the a-priori residual of the imaginary part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.masked import fill_masked
from olsq.arrays.reals import real_array, refuse_repeated_names
from olsq.problem import Moments

ComplexArray = NDArray[np.complexfloating]

_SCALARS = (complex, np.complexfloating)


# -- what comes in ---------------------------------------------------------------------------------


def holds_complex(values: Any) -> bool:
    """Test whether ``values`` (an array, frame, series, nest of lists or number) holds a complex
    number, or has a complex dtype.
    """
    if type(values) is np.ndarray and values.dtype.kind != "O":
        return values.dtype.kind == "c"
    if values is None or isinstance(values, (str, bytes, float, int)):
        return False
    if isinstance(values, _SCALARS):
        return True
    if hasattr(values, "collect"):  # a lazy frame is refused as what it is
        return False
    dtypes = getattr(values, "dtypes", getattr(values, "dtype", None))
    if isinstance(dtypes, np.dtype) and dtypes.kind != "O":
        return dtypes.kind == "c"
    if isinstance(values, (list, tuple)) or isinstance(dtypes, np.dtype):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):  # refused with its reason where it is read as real
            return False
        if array.dtype.kind == "O":
            return any(isinstance(value, _SCALARS) for value in array.flat)
        return array.dtype.kind == "c"
    if dtypes is not None and hasattr(dtypes, "__iter__"):  # the columns of a frame
        return any(getattr(dtype, "kind", "") == "c" for dtype in dtypes)
    return False


def complex_array(values: Any, name: str) -> ComplexArray:
    """Convert ``values``, real or complex, to complex64 (from float32 or complex64) or complex128.

    An entry that is missing is NaN in both parts.  Raises as :func:`real_array`.
    """
    if not holds_complex(values):
        array = real_array(values, name)
        return array.astype(np.complex64 if array.dtype == np.float32 else np.complex128)
    refuse_repeated_names(values, name)
    array = np.asarray(fill_masked(values))
    if array.dtype.kind == "O":
        entries = [v if isinstance(v, _SCALARS) else real_array([v], name)[0] for v in array.flat]
        array = np.array(entries, np.complex128).reshape(array.shape)
    if array.dtype != np.complex64:
        array = array.astype(np.complex128, copy=False)
    finite = np.isfinite(array)
    if finite.all():
        return array
    return np.where(finite, array, array.dtype.type(complex("nan+nanj")))


def real_parts(array: ComplexArray) -> NDArray:
    """View complex rows (n,) or (n, k) as their parts (n, 2k): real, imaginary, real, ..."""
    rows = np.ascontiguousarray(array if array.ndim == 2 else array[:, None])
    return rows.view(rows.real.dtype)


def embed_first(X: ComplexArray) -> NDArray:
    """Compute the first rows (n, 2k) of the pairs of X (n, k): ``[Re x, -Im x]``."""
    return np.concatenate([X.real, -X.imag], axis=-1)


def embed_targets(Y: ComplexArray) -> NDArray:
    """Compute the targets (2n, m) of the pairs: real part, imaginary part, of Y (n, m)."""
    pairs = np.empty((2 * len(Y), *Y.shape[1:]), Y.real.dtype)
    pairs[0::2], pairs[1::2] = Y.real, Y.imag
    return pairs


def embed_gates(gates: NDArray) -> NDArray[np.float64]:
    """Compute the forgetting factors (2n,) of the pairs: once per pair, before its first row."""
    return np.column_stack([gates, np.ones(len(gates))]).reshape(-1)


def embed_prior(prior: Any) -> tuple[NDArray, NDArray]:
    """Compute the real prior of ``[Re theta, Im theta]``: mean (2k,) or (m, 2k), and covariance.

    The covariance C (k, k) is Hermitian, ``E[(theta - mean)(theta - mean)^H]`` in units of
    ``E |noise|^2``, and the prior circular: ``[[Re C, -Im C], [Im C, Re C]]`` in units of the
    variance of one part of the noise, half of that.
    """
    rule = "prior of complex coefficients must be a pair (mean, covariance)"
    if isinstance(prior, (dict, Moments)):
        raise TypeError(f"{rule}, got moments, which belong to real rows")
    try:
        mean, covariance = prior
    except (TypeError, ValueError):
        raise TypeError(f"{rule}, got {prior!r}") from None
    mean: Any = complex_array(unpacked(mean), "prior[0], the mean,")
    covariance = unpacked(covariance)
    name = "prior[1], the covariance,"
    C: Any = covariance if holds_complex(covariance) else real_array(covariance, name)
    C = np.asarray(C)
    if C.ndim == 1:
        C = np.diag(C)
    size = np.where(np.isinf(C.real), 0.0, np.abs(C))
    if C.ndim == 2 and (np.abs(np.imag(np.diagonal(C))) > 1e-8 * size.max(initial=0.0)).any():
        raise ValueError("the prior's covariance must be Hermitian: its diagonal is not real")
    imag: Any = np.imag(C)
    mean = np.concatenate([mean.real, mean.imag], axis=-1)
    return mean, np.block([[C.real, -imag], [imag, C.real]])


def prior_is_complex(prior: Any) -> bool:
    """Test whether a prior's mean or covariance is complex."""
    if not isinstance(prior, (tuple, list)):
        return False
    return any(holds_complex(unpacked(part)) for part in prior)


def packed_prior(prior: Any) -> list[dict[str, Any]]:
    """Convert a complex prior to what JSON can hold."""
    parts: list[Any] = [np.asarray(unpacked(part)) for part in prior]
    return [{"real": part.real.tolist(), "imag": part.imag.tolist()} for part in parts]


def unpacked(part: Any) -> Any:
    """Read the mean or covariance of a prior, also of one that a state file held."""
    if isinstance(part, dict) and part.keys() == {"real", "imag"}:
        return joined(np.asarray(part["real"]), np.asarray(part["imag"]))
    return part


# -- what goes out ---------------------------------------------------------------------------------


def joined(real: NDArray, imag: NDArray) -> ComplexArray:
    """Form ``real + i imag``, exact where a part is infinite or NaN: ``1j * inf`` is NaN."""
    single = real.dtype == np.float32
    out: Any = np.empty(real.shape, np.complex64 if single else np.complex128)
    out.real, out.imag = real, imag
    return out


def combine_rows(values: NDArray) -> ComplexArray:
    """Combine the pairs' real numbers (2n, ...) into complex ones (n, ...)."""
    return joined(values[0::2], values[1::2])


def combine_coefficients(theta: NDArray) -> ComplexArray:
    """Combine real coefficients (..., 2k) into complex ones (..., k)."""
    k = theta.shape[-1] // 2
    return joined(theta[..., :k], theta[..., k:])


def combine_errors(stderr: NDArray) -> NDArray:
    """Compute standard errors ``sqrt(E |error|^2)`` (..., k) of those of both parts (..., 2k)."""
    k = stderr.shape[-1] // 2
    return np.hypot(stderr[..., :k], stderr[..., k:])


def combine_covariance(P: NDArray) -> ComplexArray:
    """Compute Hermitian covariances (..., k, k), ``E[e e^H]``, of the real ones (..., 2k, 2k)."""
    k = P.shape[-1] // 2
    a, b, c = P[..., :k, :k], P[..., k:, :k], P[..., :k, k:]
    with np.errstate(invalid="ignore"):
        covariance = joined(a + P[..., k:, k:], b - c)
    diagonal = np.arange(k)
    covariance.imag[..., diagonal, diagonal] = 0.0
    return covariance


# -- what is refused -------------------------------------------------------------------------------


def refuse_complex(origin: Any, what: str, instead: str) -> None:
    """Raise TypeError if the state with this ``origin`` is of complex rows."""
    if origin.is_complex:
        raise TypeError(f"{what} is for real coefficients, and these are complex: {instead}")


def refuse_complex_data(what: str, instead: str, **data: Any) -> None:
    """Raise TypeError, naming the argument, if any of ``data`` is complex."""
    for name, values in data.items():
        if holds_complex(values):
            raise TypeError(f"{name} is complex, and {what} takes real rows: {instead}")


def real_model(kind: str, name: str) -> ValueError:
    """Make the error for complex rows that come to a model of real ones."""
    return ValueError(
        f"{name} must be real. Complex data not supported: this {kind} has learned real rows. "
        f"Call fit to start anew with complex rows, or pass a real {name}"
    )
