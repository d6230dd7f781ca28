"""NumPy's masked arrays: a masked entry is a missing one, whatever number lies under the mask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
Result = TypeVar("Result")

_UNMASKED = {np.ndarray, float, int, bool, str, type(None)}  # known without a look inside
_MISSING = {"M": "NaT", "m": "NaT", "b": np.nan, "i": np.nan}  # NaT in the unit of the others
_MISSING |= {"u": np.nan, "O": None, "S": None, "U": None}  # floats and complex numbers: NaN


def has_mask(x: Any) -> bool:
    """Test whether ``x`` is a masked array, or a list or tuple that contains one."""
    if type(x) in _UNMASKED:
        return False
    return isinstance(x, np.ma.MaskedArray) or (
        isinstance(x, (list, tuple)) and any(map(has_mask, x))
    )


def is_masked(x: Any) -> bool:
    """Test whether an entry of ``x`` is masked."""
    if not has_mask(x):
        return False
    return any(map(is_masked, x)) if isinstance(x, (list, tuple)) else bool(np.ma.is_masked(x))


def fill_masked(x: Any) -> Any:
    """Return ``x`` with NaN (NaT, None) where it is masked, whatever lies under the mask.

    Integers and booleans become float64 where an entry is masked.  Lists and tuples are filled
    entry by entry; anything else is returned as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.arrays.masked import fill_masked
    >>> fill_masked(np.ma.array([1, 999, 3], mask=[False, True, False]))
    array([ 1., nan,  3.])
    """
    if not has_mask(x):
        return x
    if isinstance(x, tuple):
        parts = map(fill_masked, x)
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return [fill_masked(part) for part in x]
    data, mask = np.ma.getdata(x), np.ma.getmaskarray(x)
    if data.dtype.names is not None or not mask.any():
        return data
    missing = _MISSING.get(data.dtype.kind, np.nan)
    dtype = np.dtype(object) if missing is None else data.dtype
    filled = data.astype(np.float64 if data.dtype.kind in "biu" else dtype)
    filled[mask] = missing
    return filled


def fill_arguments(args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """Return a call's arguments with :func:`fill_masked` applied where one is masked."""
    if has_mask(args) or any(map(has_mask, kwargs.values())):
        return fill_masked(args), {n: fill_masked(x) for n, x in kwargs.items()}
    return args, kwargs


def takes_masked(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a function so that masked entries of its arguments are missing values, NaN."""

    @functools.wraps(function)
    def with_filled(*args: P.args, **kwargs: P.kwargs) -> Result:
        args, kwargs = fill_arguments(args, kwargs)  # pyright: ignore[reportAssignmentType]
        return function(*args, **kwargs)

    return with_filled
