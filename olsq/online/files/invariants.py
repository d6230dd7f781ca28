"""Invariants of a state's numbers, checked where a state is loaded.

Kernels trust these: they index by counters, loop on them, and take square roots of what a sum of
squares cannot make negative.  A file may hold anything, so each is checked before anything runs.
Checks of definiteness leave room for rounding, so that no state that olsq has written is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.lapack import dpotrf
from olsq.online.forms.schema import Fields

MOST_ROWS = 2**53  # a count of rows that float64 holds exactly; none overflows from there
STRIP = 64  # rows compared with columns at a time
IN_PLACE_FROM = 256  # rows of a matrix that is factored where it lies
ROUNDING = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}


def want(condition: bool, name: str, value: Any) -> None:
    """Raise ValueError with the name and the beginning of the value unless the condition holds."""
    if not condition:
        text = repr(value)
        raise ValueError(f"{name} cannot be {text if len(text) < 100 else text[:100] + '...'}")


def check_counts(header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Raise ValueError for more features or targets than the arrays can have numbers for.

    Every feature and every target has a number of its own at least, so that from here on memory is
    bounded by the size of the file, whatever the header says.
    """
    entries = sum(array.size for array in arrays.values())
    for name, fewest in (("n_features", 1), ("n_targets", 0)):
        count = header.get(name)
        want(type(count) is int and count >= fewest, name, count)
        if isinstance(count, int) and count > entries:
            raise ValueError(f"{name} is {count}, and the arrays hold {entries} numbers")


def check_common(kind: type[Any], header: dict[str, Any], fields: set[str]) -> None:
    """Raise ValueError unless a header has these fields, and what every kind of state has."""
    if missing := sorted(fields - header.keys()):
        raise ValueError(f"{', '.join(missing)} is missing in the header")
    parameters = header["parameters"]
    want(isinstance(parameters, dict), "parameters", parameters)
    want(parameters.keys() <= set(kind._parameter_names()), "parameters", parameters)
    want(header["dtype"] in ("float32", "float64"), "dtype", header["dtype"])
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])


def check_names(names: Any, count: int, what: str) -> None:
    """Raise ValueError unless ``names`` are so many, or None."""
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    want(names is None or (named and len(names) == count), what, names)


def check_fields(arrays: dict[str, NDArray], fields: Fields, sizes: dict[str, int]) -> None:
    """Raise ValueError unless every array is what its field says; ``sizes`` are by name."""
    for name, field in fields.items():
        if name not in arrays:
            if field.optional:
                continue
            raise ValueError(f"array {name!r} is missing")
        array = arrays[name]
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in field.shape)
        if array.dtype != np.dtype(field.dtype) or array.shape != shape:
            raise ValueError(f"array {name!r} is {array.dtype} {array.shape}, which is not {shape}")
        valid = np.isfinite(array)
        if field.invariant == UNKNOWN:
            valid |= array == np.inf
        if not valid.all():
            raise ValueError(f"array {name!r} holds numbers that are not finite")
    for name in arrays.keys() & fields.keys():
        CHECKS[fields[name].invariant](name, arrays[name], sizes)


def check_definite(name: str, matrix: NDArray, *, positive: bool) -> None:
    """Raise ValueError unless (..., d, d) are symmetric and positive (semi)definite, to rounding.

    The matrix is scaled to a unit diagonal first: its units say nothing.
    """
    if not matrix.size:
        return
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    want(bool((diagonal > 0 if positive else diagonal >= 0).all()), name, "of this diagonal")
    rounding = ROUNDING[matrix.dtype]
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1.0).astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = matrix / root[..., :, None]
        scaled /= root[..., None, :]
        # Some rows at a time, since a large matrix has no room beside it for many copies.
        odd = [
            np.abs(
                scaled[..., i : i + STRIP, :] - np.swapaxes(scaled[..., :, i : i + STRIP], -1, -2)
            ).max()
            for i in range(0, root.shape[-1], STRIP)
        ]
        want(bool(np.max(odd) <= rounding), name, "so far from symmetric")
    # A factor exists up to rounding: of a matrix with eigenvalues above -rounding.
    scaled[..., np.arange(root.shape[-1]), np.arange(root.shape[-1])] += rounding
    refused = ValueError(f"{name} is not positive definite")
    if scaled.ndim == 2 and scaled.shape[0] >= IN_PLACE_FROM:
        if dpotrf(scaled.T, clean=0, overwrite_a=1)[1] != 0:
            raise refused
        return
    try:
        np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        raise refused from None


def check_triangular(name: str, matrix: NDArray, *, lower: bool = False) -> None:
    """Raise ValueError unless all of (..., d, d) on the other side of the diagonal is 0."""
    other_side = np.triu(matrix, 1) if lower else np.tril(matrix, -1)
    want(not other_side.any(), name, f"no {'lower' if lower else 'upper'} triangle")


def check_unit_triangular(name: str, factor: NDArray) -> None:
    """Raise ValueError unless (..., d, d + m) begin with unit upper triangular matrices."""
    U = factor[..., : factor.shape[-2]]
    check_triangular(name, U)
    want(bool((np.diagonal(U, axis1=-2, axis2=-1) == 1).all()), name, "of other pivots than 1")


def check_orthonormal(name: str, basis: NDArray) -> None:
    """Raise ValueError unless the rows that are not zero are orthonormal, to rounding."""
    want(bool((np.abs(basis) <= 1.0 + 1e-6).all()), name, "of entries above 1")
    used = basis.any(axis=1)
    odd = np.abs(basis @ basis.T - np.diag(used.astype(np.float64))).max(initial=0.0)
    want(bool(odd <= 1e-6), name, "so far from orthonormal")


def check_fading(name: str, array: NDArray) -> None:
    """Raise ValueError unless the scale of a ring's weights and all its gates are possible."""
    scale, decay = array.tolist()
    want(0 < scale <= 1 and 0 <= decay <= 1, name, array.tolist())


def check_not_negative(name: str, array: NDArray) -> None:
    """Raise ValueError if a number is negative."""
    want(not (array < 0).any(), name, "a negative number")


def check_shares(name: str, array: NDArray) -> None:
    """Raise ValueError unless all numbers are from 0 to 1."""
    want(bool(((array >= 0) & (array <= 1)).all()), name, "no product of factors")


def check_tally(name: str, tally: NDArray) -> None:
    """Raise ValueError unless all counts are >= 0 and the product of all gates (the third of
    (..., 4)) is at most 1.
    """
    check_not_negative(name, tally)
    want(bool((tally[..., 2] <= 1.0).all()), name, "a product of factors above 1")


def check_row_counts(name: str, counts: NDArray) -> None:
    """Raise ValueError unless all are counts of rows."""
    want(bool(((counts >= 0) & (counts <= MOST_ROWS)).all()), name, counts.ravel()[:8].tolist())


def check_place(place: NDArray, slots: int) -> None:
    """Raise ValueError unless count and slot lie within a ring of so many slots."""
    count, slot, _ = place
    want(0 <= count <= slots and 0 <= slot < slots, "place", place.tolist())


UNKNOWN = "not negative, or unknown"  # infinite where an estimator began from moments
CHECKS: dict[str, Callable[[str, NDArray, dict[str, int]], None]] = {
    "finite": lambda *_: None,
    "not negative": lambda name, array, _: check_not_negative(name, array),
    UNKNOWN: lambda name, array, _: check_not_negative(name, array),
    "shares": lambda name, array, _: check_shares(name, array),
    "positive definite": lambda name, array, _: check_definite(name, array, positive=True),
    "semidefinite": lambda name, array, _: check_definite(name, array, positive=False),
    "upper triangular": lambda name, array, _: check_triangular(name, array),
    "unit triangular": lambda name, array, _: check_unit_triangular(name, array),
    "orthonormal": lambda name, array, _: check_orthonormal(name, array),
    "tally": lambda name, array, _: check_tally(name, array),
    "row counts": lambda name, array, _: check_row_counts(name, array),
    "fading": lambda name, array, _: check_fading(name, array),
    "place": lambda _, array, sizes: check_place(array, sizes["w"]),
}
