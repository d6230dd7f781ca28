"""Base class of the ways of forgetting, and the checks of their options."""

from __future__ import annotations

import dataclasses
import datetime
import math
import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import as_float, check_real, shown
from olsq.forgetting.entries import N_OPTIONS


class Forgetting(ABC):
    """Base of the ways of forgetting; a frozen dataclass of its options.

    Attributes
    ----------
    window : float
        The steady-state window: of how many rows the present estimate is made, as the strategy's
        own documentation defines it.
    weights_rows : bool
        Whether it gives each row a factor that no data decide.  Then every option of the estimator
        combines with it; the others have a state of their own.
    """

    code: ClassVar[int] = -1  # the branch of the kernel
    weights_rows: ClassVar[bool] = False
    error_driven: ClassVar[bool] = False  # one decision for all targets, from their residuals
    TIMED: ClassVar[str | None] = None  # the option that is a length of time

    @property
    def length(self) -> Any:
        """The option that is a length of time (text or a number); None where rows are counted."""
        return None if self.TIMED is None else getattr(self, self.TIMED)

    @property
    @abstractmethod
    def window(self) -> float:
        """The steady-state window in rows, defined by each class."""

    def window_for(self, n_coefficients: int) -> float:
        """Return the steady-state window in rows where ``n_coefficients`` are excited alike.

        The same as for one coefficient, ``window``, except with ``Directional``.
        """
        return self.window

    def row_factor(self) -> float:
        """Return the factor of every row if it is one number that no data decide, else 1."""
        return 1.0

    def options(self) -> NDArray[np.float64]:
        """Return the numbers (8,) that the kernel reads, placed as in ``entries``."""
        return np.zeros(N_OPTIONS)

    def vectors(self, n_coefficients: int) -> NDArray[np.float64]:
        """Return the vectors (r, k) that the kernel reads; ValueError if they do not have k
        entries.
        """
        return np.zeros((0, n_coefficients))

    def refuse_options(self, parameters: dict[str, Any]) -> None:
        """Raise ValueError if a parameter of the estimator does not combine with this strategy."""
        name = type(self).__name__
        if parameters["half_life"] is not None:
            raise ValueError(f"forget={name}(...) and half_life cannot be combined: give one")
        if self.weights_rows:
            return
        kept: dict[str, tuple[str, ...]] = {
            "ridge_mode": ("discounted",),
            "cov": ("posterior",),
        }
        if self.error_driven:
            kept["missing"] = ("skip", "raise")
        for option, allowed in kept.items():
            if parameters[option] not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(
                    f"forget={name}(...) does not combine with {option}={parameters[option]!r}; "
                    f"use {option}={choices}, or forget=Exponential(factor)"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the strategy as a dictionary for JSON; :func:`olsq.forgetting.base.from_dict`
        reads it.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"forgetting": type(self).__name__, **fields}

    def _set(self, **values: Any) -> Self:
        """Set fields to the checked values, which a frozen dataclass only allows this way."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
        return self


def from_dict(value: Any) -> Any:
    """Rebuild a strategy from :meth:`Forgetting.to_dict`; return any other value unchanged."""
    if not (isinstance(value, dict) and "forgetting" in value):
        return value
    from olsq import forgetting

    fields = {k: v for k, v in value.items() if k != "forgetting"}
    kind = getattr(forgetting, str(value["forgetting"]), None)
    if not (isinstance(kind, type) and issubclass(kind, Forgetting)) or kind is Forgetting:
        raise ValueError(
            f"forget cannot be a {value['forgetting']!r}, which this version of olsq does not have"
        )
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"forget cannot be {value!r}: {error}") from None


def read_number(value: Any, name: str, low: float, high: float, rule: str) -> float:
    """Return ``value`` as a float within (low, high); raise ValueError with ``rule`` otherwise."""
    if isinstance(value, (bool, str)) or np.ndim(value) != 0:
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    check_real(name, value)
    number = as_float(value)
    if not low < number < high:
        raise ValueError(f"{name} must {rule}, got {number!r}")
    return number


def read_factor(value: Any, name: str = "factor") -> float:
    """Return ``value`` as a forgetting factor in (0, 1], of which the inverse is finite."""
    above, least = math.nextafter(1.0, 2.0), 1.0 / sys.float_info.max
    return read_number(value, name, least, above, "lie in (0, 1] (1 forgets nothing)")


def read_length(value: Any, name: str) -> Any:
    """Return a length of time as text (for dates) or as a number (for times that are numbers)."""
    if isinstance(value, np.timedelta64):
        return f"{int(value.astype('timedelta64[ns]').astype(np.int64))}ns"
    if isinstance(value, datetime.timedelta):
        exact = getattr(value, "as_unit", None)  # pandas', which may be finer
        nanoseconds = value // datetime.timedelta(microseconds=1) * 1000
        return f"{nanoseconds if exact is None else exact('ns').value}ns"
    if not isinstance(value, str):
        return read_number(value, name, 0.0, math.inf, "be positive and finite")
    if not value.strip():
        raise ValueError(f"{name} must be a length of time such as '30D', got {shown(value)}")
    return value


def sum_of_weights(factor: float) -> float:
    """Return ``1 / (1 - factor)``, the sum of the weights of exponential forgetting."""
    return math.inf if factor == 1 else 1.0 / (1.0 - factor)


def read_numbers(value: Any, name: str) -> Any:
    """Return a number, or nested tuples of numbers, which compare by value as fields must."""
    check_real(name, value)
    try:
        array = np.asarray(value, np.float64)
    except OverflowError:  # an integer larger than any
        raise ValueError(f"{name} must be finite, got {shown(value)}") from None
    if array.ndim > 2 or array.size == 0:
        raise ValueError(f"{name} must be a number, a vector or a matrix, got {shown(value)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {shown(value)}")
    if array.ndim == 2:
        return tuple(tuple(row) for row in array.tolist())
    return float(array) if array.ndim == 0 else tuple(array.tolist())


def per_coefficient(value: Any, name: str, k: int) -> NDArray[np.float64]:
    """Return a number, or one number per coefficient, as a vector (k,)."""
    vector = np.asarray(value, np.float64)
    if vector.ndim == 1 and vector.size != k:
        raise ValueError(
            f"{name} must be a number or one for each of {k} coefficients (the intercept's first, "
            f"where there is one), got {vector.size}"
        )
    return np.broadcast_to(vector, (k,))
