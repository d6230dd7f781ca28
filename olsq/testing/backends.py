"""The NumPy and JAX forms of a solver behind the same calls; settings of JAX while checks run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.problem import Moments
from olsq.solvers import Solver
from olsq.testing.truth import GRADIENTS, STREAMS, empty_state

Arrays = dict[str, NDArray]


class BatchResults(NamedTuple):
    """Outputs, moments and derivatives of one batch."""

    value: NDArray  # (B, T, m)
    state: Moments
    slopes: Arrays  # gradient of sum(cotangent * value), by name
    change: NDArray | None  # (B, T, m): directional derivative of the value; None without one


class Backend(Protocol):
    """The calls that the forms of a solver share."""

    name: str

    def solve(self, arrays: Arrays, state: Moments | None = None) -> tuple[NDArray, Moments]:
        """Return the outputs and the moments after the last token."""
        ...

    def differentiate(
        self, arrays: Arrays, state: Moments, cotangent: NDArray, direction: Any = None
    ) -> BatchResults:
        """Return outputs, moments and derivatives (``direction``: of arrays and state)."""
        ...


def arguments(arrays: Any, ridge_mode: str, state: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments of ``online_lstsq``; in the discounted problem a state holds the ridge."""
    ridge = None if ridge_mode == "discounted" and state is not None else arrays["ridge"]
    options = {"forget": arrays["forget"], "weight": arrays["weight"], "ridge": ridge}
    return [arrays[n] for n in STREAMS], {**options, "ridge_mode": ridge_mode, "state": state}


def join_state(arrays: Any, state: Any) -> Arrays:
    """Return arrays by name, including those of a state."""
    return {**arrays, "gram": state[0], "cross": state[1]}


class NumpyBackend:
    """The NumPy form; derivatives by :func:`olsq.online_lstsq_vjp`, in reverse mode only."""

    name = "numpy"

    def __init__(self, solver: Solver, ridge_mode: str) -> None:
        self.solver, self.ridge_mode = solver, ridge_mode

    def solve(self, arrays: Arrays, state: Moments | None = None) -> tuple[NDArray, Moments]:
        streams, options = arguments(arrays, self.ridge_mode, state)
        fit = olsq.online_lstsq(*streams, **options, solver=self.solver)
        return fit.value, fit.state

    def differentiate(
        self, arrays: Arrays, state: Moments, cotangent: NDArray, direction: Any = None
    ) -> BatchResults:
        value, last = self.solve(arrays, state)
        (keys, values, queries), options = arguments(arrays, self.ridge_mode, state)
        got = olsq.online_lstsq_vjp(
            keys, values, queries, cotangent, **options, solver=self.solver
        )._asdict()
        if options["ridge"] is not None:
            got["ridge"] = got["ridge"].sum(-2)
        return BatchResults(value, last, {n: got[n] for n in GRADIENTS if got[n] is not None}, None)


class JaxBackend:
    """The JAX form, compiled once per shape; derivatives per stream, under ``vmap``."""

    name = "jax"

    def __init__(self, solver: Solver, ridge_mode: str, adjoint: str = "implicit") -> None:
        import jax

        self.solver, self.ridge_mode, self.adjoint = solver, ridge_mode, adjoint
        self._derivatives = compiled(jax.vmap(self._differentiate))
        self._value = compiled(self._solution)

    def _solution(self, arrays: Any, state: Any) -> Any:
        from olsq.sequence.jax import online_lstsq

        state = None if state is None else Moments(*state)
        streams, options = arguments(arrays, self.ridge_mode, state)
        adjoint: Any = self.adjoint
        fit = online_lstsq(*streams, **options, solver=self.solver, adjoint=adjoint)
        return fit.value, fit.state

    def _differentiate(self, arrays: Any, state: Any, cotangent: Any, direction: Any) -> Any:
        import jax

        value, pull, last = jax.vjp(self._solution, arrays, state, has_aux=True)
        change = jax.jvp(lambda a, s: self._solution(a, s)[0], (arrays, state), direction)[1]
        return value, last, pull(cotangent), change

    def solve(self, arrays: Arrays, state: Moments | None = None) -> tuple[NDArray, Moments]:
        state = empty_state(arrays, self.ridge_mode) if state is None else state
        value, last = self._value(arrays, tuple(state))
        return np.asarray(value), Moments(*map(np.asarray, last))

    def eager(self, arrays: Arrays) -> NDArray:
        """Return outputs without ``jit`` around the call, from an empty state."""
        return np.asarray(self._solution(arrays, None)[0])

    def differentiate(
        self, arrays: Arrays, state: Moments, cotangent: NDArray, direction: Any = None
    ) -> BatchResults:
        start = tuple(np.asarray(s, cotangent.dtype) for s in state)
        if direction is None:
            direction = arrays, start
        value, last, slopes, change = self._derivatives(arrays, start, cotangent, direction)
        by_name = {n: np.asarray(x) for n, x in join_state(*slopes).items()}
        if self.ridge_mode == "discounted":
            del by_name["ridge"]
        return BatchResults(
            np.asarray(value), Moments(*map(np.asarray, last)), by_name, np.asarray(change)
        )


def backends(solver: Solver, names: Any, ridge_mode: str, adjoint: str) -> list[Backend]:
    """Return the forms of a solver: those named, or those that it has."""
    forms: list[Backend] = []
    for name in ("numpy", "jax") if names is None else names:
        if name not in ("numpy", "jax"):
            raise ValueError(f"backends must be some of 'numpy', 'jax', got {name!r}")
        try:
            getattr(solver, name)()
        except NotImplementedError:
            if names is not None:
                raise
            continue
        numpy_form = name == "numpy"
        forms.append(
            NumpyBackend(solver, ridge_mode)
            if numpy_form
            else JaxBackend(solver, ridge_mode, adjoint)
        )
    if not forms:
        raise NotImplementedError(f"solver {type(solver).__name__} has no form at all")
    return forms


# Compiling is most of what a check does: three times as long with XLA's own emitters, and twice as
# long again with LLVM's optimisations. XLA refuses options that it does not know, as later versions
# do that of the emitters.
UNOPTIMISED = {"xla_backend_optimization_level": 0}
FAST_OPTION = "xla_cpu_use_fusion_emitters"


def double_precision() -> AbstractContextManager[Any]:
    """Enable float64 within a context, and restore the earlier setting after it."""
    import jax
    import jax.experimental as experimental

    # jax.experimental's before jax 0.8
    home: Any = jax if hasattr(jax, "enable_x64") else experimental
    return home.enable_x64(True)


@cache
def fast_options() -> dict[str, int]:
    """Find by trial the compiler options that this JAX knows."""
    import jax

    options = UNOPTIMISED | {FAST_OPTION: False}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception as error:
        if FAST_OPTION not in str(error):
            raise
        return UNOPTIMISED
    return options


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return ``jax.jit`` of a function, compiled quickly rather than for speed."""
    import jax

    return jax.jit(function, compiler_options=fast_options(), **options)
