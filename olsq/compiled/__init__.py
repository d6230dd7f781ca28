"""Recursive least squares inside the user's own compiled loop.

Every function can be called from ``@numba.njit`` code and from Python, on a :class:`State`, a named
tuple of arrays.  One target, no intercept.
"""

from olsq.compiled import overloads as _overloads  # noqa: F401  registers them with Numba
from olsq.compiled.functions import coef, init, predict, state_at, update
from olsq.compiled.state import State

__all__ = ["State", "coef", "init", "predict", "state_at", "update"]
