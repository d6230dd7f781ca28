"""Checks of array arguments, shared by NumPy and JAX.

Shapes and dtypes are always checked, numbers where they are concrete: JAX traces some. A NaN
passes: it is data. Converting the checked arguments to arrays is left to each backend.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.masked import is_masked
from olsq.arrays.questions import ask, is_traced
from olsq.problem import RIDGE_MODES

_PLAIN = {np.ndarray, np.int32, float, type(None)}  # common types that are known not to be JAX's

MOST_ROWS_HELD = 2**40  # 8 TB of each column


def check_real(name: str, x: Any) -> None:
    """Raise TypeError unless ``x`` holds real numbers: booleans, integers, floats of any width.

    Complex numbers, text, dates and times, structured and object arrays are refused: a cast would
    drop half of a complex number without a word, and read numbers out of text.  Asks for the dtype
    only, so that it serves JAX arrays and tracers too, and costs a microsecond.
    """
    if isinstance(x, (bool, int, float)):  # also integers too long for any dtype
        return
    if is_masked(x):
        # A backend would read what lies under the mask; where masks mean missing values, the
        # function has takes_masked.
        raise TypeError(f"{name} has masked entries: fill them first, with {name}.filled(...)")
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype):  # lists, and arrays of libraries with dtypes of their own
        try:
            dtype = np.asarray(x).dtype
        except TypeError as error:
            if _traced(x):  # JAX checks these when it makes an array of them
                return
            raise TypeError(f"{name} must be an array of real numbers: {error}") from None
        except ValueError:
            raise ValueError(
                f"{name} must be an array of real numbers; its rows differ in length or depth"
            ) from None
    if not np.can_cast(dtype, np.float64, "same_kind"):
        advice = {
            "c": "; split complex data into real and imaginary parts",
            "O": "; convert it with .astype(float), which says what is not a number",
        }.get(dtype.kind, "")
        raise TypeError(f"{name} must be real, got {dtype}{advice}")


def concrete(x: Any) -> NDArray | None:
    """Return the numbers of ``x`` as NumPy, or None while JAX is only tracing them."""
    return None if is_traced(x) else np.asarray(x)


def refuse(name: str, x: Any, wrong: Callable[[NDArray], NDArray], rule: str) -> None:
    """Raise ValueError if ``wrong`` is True for any known entry, naming the first and its place.

    ``wrong`` receives float64. TypeError if these are not real numbers, which is checked for traced
    ones too.
    """
    check_real(name, x)

    def check(values: NDArray[Any]) -> None:
        try:
            numbers = values.astype(np.float64)
        except OverflowError:
            raise ValueError(f"{name} must {rule}; got an integer beyond every float") from None
        faults = np.asarray(wrong(numbers))
        if not faults.any():
            return
        first = np.unravel_index(int(np.argmax(faults)), faults.shape)
        where = f" at [{', '.join(map(str, first))}]" if first else ""
        raise ValueError(f"{name} must {rule}; got {float(values[first])!r}{where}")

    ask(x, check)


def check_number(name: str, x: Any, *, least: float = -math.inf, above: float = -math.inf) -> Any:
    """Raise unless ``x`` is one finite number >= ``least`` and > ``above``, traced or not.

    Returns it, NumPy's numbers and integers as floats: integers of JAX have 32 bits.
    """
    rule = "be finite"
    if least > -math.inf:
        rule += f" and >= {least:g}"
    elif above > -math.inf:
        rule += f" and > {above:g}"
    refuse(name, x, lambda value: ~(np.isfinite(value) & (value >= least) & (value > above)), rule)
    check_scalar(name, x)
    return float(x) if isinstance(x, (int, np.integer, np.floating)) else x


def check_scalar(name: str, x: Any) -> None:
    """Raise ValueError if ``x`` is an array with axes instead of one number."""
    if shape := np.shape(x):
        raise ValueError(f"{name} must be one number, got an array of shape {shape}")


def shape_error(
    name: str, shape: tuple[int, ...], target: tuple[int, ...], axes: str
) -> ValueError:
    """Return the error for an array that does not broadcast to the axes it belongs to."""
    return ValueError(f"{name} has shape {shape}, which does not broadcast to {target} ({axes})")


def shown(value: object) -> str:
    """Format ``value`` as users write it: 1.5 and '1.5', not np.float64(1.5) and np.str_('1.5')."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def holds_jax(*arguments: Any) -> bool:
    """Test whether any argument is a JAX array or tracer, or a tuple that contains one.

    Always False before JAX is imported.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    for x in arguments:
        if type(x) in _PLAIN:  # known without an isinstance of JAX, which takes a microsecond
            continue
        if holds_jax(*x) if isinstance(x, tuple) else isinstance(x, jax.Array):
            return True
    return False


def is_integer(value: Any, least: int | None = None) -> bool:
    """Test whether a value is an integer, no bool, and at least ``least``."""
    if not (isinstance(value, (int, np.integer)) and is_number(value)):
        return False
    return least is None or bool(value >= least)


def is_number(value: Any) -> bool:
    """Test whether a value is a real number, no bool, and no timedelta64, an integer to NumPy."""
    is_real = isinstance(value, (int, float, np.integer, np.floating))
    return is_real and not isinstance(value, (bool, np.timedelta64))


def check_flag(name: str, value: Any) -> bool:
    """Return a truth value as a bool; ValueError unless it is True, False, 1 or 0.

    Of others Python has a truth value too: that of "False" and of NaN is True.
    """
    is_flag = isinstance(value, (bool, np.bool_)) or is_integer(value)
    if not is_flag or value not in (0, 1):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_flags(**flags: Any) -> None:
    """Raise ValueError, naming it, for a flag that is not one: see :func:`check_flag`."""
    for name, value in flags.items():
        check_flag(name, value)


def check_integer(
    name: str, value: Any, least: int, *, optional: bool = False, bits: int = 63
) -> None:
    """Raise ValueError unless a value is an integer >= ``least``, or None where it may be.

    Kernels take no integer of 2**63, and JAX none of 2**31: ``bits``.
    """
    if not ((is_integer(value, least) and value < 2**bits) or (optional and value is None)):
        rule = f"an integer >= {least}" + (" or None" if optional else "")
        rule += f" and below 2**{bits}" if is_integer(value, least) else ""
        raise ValueError(f"{name} must be {rule}, got {shown(value)}")


def check_sizes(least: int = 1, /, *, bits: int = 30, **sizes: Any) -> None:
    """Raise ValueError, naming it, for a size that is not an integer >= ``least``.

    NumPy's integers are none here: files of layers and trainings hold sizes as JSON.  Of an array
    with two larger axes JAX ends the process.
    """
    for name, size in sizes.items():
        if type(size) is not int:
            raise ValueError(f"{name} must be an integer >= {least}, got {shown(size)}")
        check_integer(name, size, least, bits=bits)


def as_float(value: Any) -> float:
    """Return a number as a float: infinite where an integer is larger than any."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_rows_held(name: str, rows: int) -> None:
    """Raise ValueError for a number of rows to be kept that no machine has room for.

    NumPy says "Maximum allowed dimension exceeded" of it, and kernels take no integer of 2**63.
    """
    if rows > MOST_ROWS_HELD:
        raise ValueError(
            f"{name} must be at most {MOST_ROWS_HELD:,} rows, which are kept in memory, got "
            f"{shown(rows)}"
        )


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {allowed}, got {shown(value)}")


def check_forget(
    forget: Any, log_forget: Any = None, *, name: str = "forget", signed: bool | None = None
) -> None:
    """Raise unless these are forgetting factors or their logs, and not both.

    ``signed`` says whether factors may be negative; None where they never may.
    """
    if signed is not None:
        check_flag("signed", signed)
    if log_forget is not None:
        if forget is not None:
            raise ValueError(f"give {name} or log_{name}, not both: they are the same gates")
        if signed:
            raise ValueError(f"log_{name} has no sign: give {name} with signed=True")
        refuse(f"log_{name}", log_forget, lambda g: g > 0, "be <= 0 (it is the log of a factor)")
    elif forget is not None:
        rule = "lie in [0, 1] (1 forgets nothing, 0 resets)"
        if signed:
            rule = "lie in [-1, 1] (1 forgets nothing, 0 resets, -1 flips the memory's sign)"
        elif signed is not None:
            rule += ", or in [-1, 1] with signed=True"
        refuse(name, forget, lambda g: (g < (-1 if signed else 0)) | (g > 1), rule)


def check_weight(weight: Any, *, name: str = "weight", of: str = "sample") -> None:
    """Raise if a weight of a sample, or the strength of a token, is negative."""
    if weight is not None:
        refuse(name, weight, lambda w: w < 0, f"be >= 0 (0 leaves a {of} out)")


def check_tolerance(tol: Any) -> None:
    """Raise unless a tolerance, a residual relative to its right-hand side, is one in [0, 1)."""
    refuse("tol", tol, lambda value: ~((value >= 0) & (value < 1)), "be in [0, 1)")
    check_scalar("tol", tol)


def check_order(segment_ids: Any) -> None:
    """Raise if segment ids (..., T), where they are known, decrease along time."""

    def check(ids: NDArray[Any]) -> None:
        if (np.diff(ids.astype(np.int64), axis=-1) < 0).any():
            raise ValueError(
                "segment_ids must not decrease along time: packed sequences follow one another"
            )

    ask(segment_ids, check)


def check_ridge(ridge: Any) -> None:
    """Raise unless a ridge is finite and not negative."""
    refuse("ridge", ridge, lambda r: (r < 0) | np.isinf(r), "be finite and >= 0")


def sequence_ridge_axes(
    ridge: Any, ridge_mode: str, has_state: bool, batch: tuple[int, ...], length: int, d: int
) -> tuple[tuple[int, ...], str] | None:
    """Return the axes a sequence's ridge broadcasts to, (..., d) or (..., 1 or T, d), and their
    names.

    None where it is part of the state: the discounted problem's gram contains it.
    """
    check_choice(ridge_mode, "ridge_mode", RIDGE_MODES)
    discounted = ridge_mode == "discounted"
    if discounted and has_state:
        if ridge is not None:
            raise ValueError(
                "ridge must be left out when a state is given in the discounted problem: the "
                "state's gram already holds the ridge, forgotten with the data"
            )
        return None
    if ridge is None:
        raise ValueError(
            "ridge is needed: a number, (d,), batch axes and d, or batch axes, T and d; start "
            "with the size of keys' mean square"
        )
    check_ridge(ridge)
    shape = np.shape(ridge)  # a list has one too
    if len(shape) != len(batch) + 2:
        return (*batch, d), "batch and features"
    if discounted and shape[-2] != 1:
        raise ValueError(
            f"ridge has shape {shape}, one per token; the discounted problem has one ridge, "
            "at the start of the stream: give (..., d)"
        )
    return (*batch, 1 if shape[-2] == 1 else length, d), "batch, time and features"


def check_streams(keys: Any, values: Any, queries: Any) -> tuple[tuple[int, ...], int, int, int]:
    """Check three streams, JAX or NumPy, against each other; return (batch shape, T, d, m)."""
    shapes = {"keys": keys.shape, "values": values.shape, "queries": queries.shape}
    for name, shape in shapes.items():
        if len(shape) < 2:
            raise ValueError(
                f"{name} must have shape (..., T, features), got {shape}; one token is "
                f"{name}[None, :]"
            )
    if not shapes["keys"][-2] == shapes["values"][-2] == shapes["queries"][-2]:
        raise ValueError(
            "keys, values and queries must have the same length T on axis -2, got "
            + ", ".join(f"{n} {s}" for n, s in shapes.items())
        )
    if shapes["keys"][-1] != shapes["queries"][-1]:
        raise ValueError(
            f"queries must have the width of keys, got keys {shapes['keys']} and "
            f"queries {shapes['queries']}"
        )
    try:
        batch = broadcast_shapes(*(s[:-2] for s in shapes.values()))
    except ValueError:
        raise ValueError(
            "the leading axes of keys, values and queries do not broadcast: "
            + ", ".join(f"{n} {s}" for n, s in shapes.items())
        ) from None
    return batch, shapes["keys"][-2], shapes["keys"][-1], shapes["values"][-1]


def check_moment_shapes(gram: tuple[int, ...], cross: tuple[int, ...]) -> None:
    """Raise unless the shapes of a gram and a cross moment belong together."""
    if gram[-1:] != gram[-2:-1] or cross[-1:] != gram[-1:]:
        raise ValueError(
            f"state must be Moments(gram (..., d, d), cross (..., m, d)), got {gram} and {cross}"
        )


def check_token_shapes(key: tuple[int, ...], value: tuple[int, ...], d: int, m: int) -> None:
    """Raise unless the shapes of one token's key and value are those of its state."""
    if key[-1:] != (d,) or value[-1:] != (m,):
        raise ValueError(
            f"key and value must end in ({d},) and ({m},) for this state, got {key} and {value}"
        )


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Broadcast shapes as NumPy does, also where sizes are symbols (a batch that JAX exports)."""
    if len(set(shapes)) == 1:
        return shapes[0]
    if all(isinstance(n, int) for shape in shapes for n in shape):
        return np.broadcast_shapes(*shapes)
    result = []
    for axis in range(1, 1 + max(map(len, shapes))):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            raise ValueError(f"sizes {sizes} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result[::-1])


def _traced(x: Any) -> bool:
    """Test whether ``x`` is a nest of lists with a JAX tracer in it, which has no numbers yet."""
    if isinstance(x, (list, tuple)):
        return any(_traced(part) for part in x)
    return hasattr(x, "aval") and isinstance(x.dtype, np.dtype)
