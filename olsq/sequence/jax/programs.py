"""Functions of arrays that compile as one program, also outside of ``jax.jit``."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from olsq import first_call
from olsq.arrays.questions import Inquiry, Question, is_traced, standing_for_arguments
from olsq.arrays.unshared import unshared
from olsq.sequence.jax.control import in_shard_map
from olsq.sequence.jax.pieces import count_of_pieces
from olsq.sequence.jax.platform import given_target

P = ParamSpec("P")
Result = TypeVar("Result")

MOST_LAYOUTS = 1024  # of all functions together; the least recently called is forgotten
LEVEL = "xla_backend_optimization_level"
LARGEST = 2**53  # integers up to which every one is a float
KINDS = {"bool", "bfloat16", *(f"{kind}int{n}" for kind in ("", "u") for n in (8, 16, 32, 64))}
KINDS |= {"float16", "float32", "float64"}  # dtypes of the NumPy arrays that programs take


class Kind(NamedTuple):
    """Description of an array or number in a call: all that a program depends on."""

    shape: tuple[int, ...]
    dtype: Any
    is_weak: bool
    is_known: bool  # False for a tracer, about whose values nothing can be asked


class Option(NamedTuple):
    """Value of a call that selects its program: equal numbers of other types are others."""

    type: type
    value: Any


class Layout(NamedTuple):
    """Arguments of a call without the values of its arrays."""

    names: tuple[str, ...]
    trees: tuple[Any, ...]  # structure of each argument
    leaves: tuple[Kind | Option, ...]

    def arguments(self, arrays: list[Any]) -> dict[str, Any]:
        """Rebuild the arguments by name."""
        rest = iter(arrays)
        leaves = iter([x.value if isinstance(x, Option) else next(rest) for x in self.leaves])
        return {
            name: jax.tree.unflatten(tree, [next(leaves) for _ in range(tree.num_leaves)])
            for name, tree in zip(self.names, self.trees, strict=True)
        }


class Program(NamedTuple):
    """A compiled function, and what it asked about the values of its arrays."""

    questions: list[Question]
    run: Callable[[list[Any]], Any]


def one_program(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate ``function`` to be compiled as a whole where it is called outside of ``jax.jit``.

    Arrays, the fields of states, and numbers in the place of arrays (by annotation: ``ArrayLike``)
    are arguments of the program: other values do not compile again, unless the function asks about
    them (:mod:`olsq.arrays.questions`), so that its errors stay what they are. Other arguments,
    such as a mode or a solver, select the program, as do shapes and dtypes. Calls that no program
    takes, such as one with an array of objects, run the function as it is; so do calls within
    ``jax.jit`` and ``jax.shard_map``, which are part of another program.
    """
    signature = inspect.signature(function)
    defaults = {name: p.default for name, p in signature.parameters.items()}
    numbers = {n for n, p in signature.parameters.items() if "ArrayLike" in str(p.annotation)}
    numbers.discard("segment_ids")  # which are never one number

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
            given = {n: x for n, x in arguments.items() if x is not defaults[n]}
            layout, arrays = _divide(given, numbers)
            programs = _programs(function, layout, count_of_pieces(), given_target())
        except (TypeError, ValueError):  # arguments of another function, or that no program takes
            return function(*args, **kwargs)
        values = [None if is_traced(x) else x for x in arrays]
        program = _choose(programs, values)
        with Inquiry(values) as inquiry:  # also asked where a change of JAX's settings traces again
            if program is not None:
                return program.run(arrays)
            compiled = _compile(function, layout)
            try:
                with first_call.waiting(function.__name__, first_call.PROGRAM):
                    result = compiled(arrays)
            except Exception as error:  # which JAX gives a note on frames that it has left out
                error.__dict__.pop("__notes__", None)
                raise
        programs.append(Program(inquiry.questions, compiled))
        return result

    return run


@functools.lru_cache(MOST_LAYOUTS)
def _programs(*_: Any) -> list[Program]:
    """Return the programs of a function for one layout of its arguments, a list to add to."""
    return []


def _choose(programs: list[Program], values: list[Any]) -> Program | None:
    """Return the program for these values, or None; raise where a question finds them wrong."""
    for program in programs:
        if all(question.holds(values) for question in program.questions):
            return program
    return None


def _compile(function: Callable[..., Any], layout: Layout) -> Callable[[list[Any]], Any]:
    """Return the compiled function of the arrays of one layout."""

    def traced(arrays: list[Any]) -> Any:
        with standing_for_arguments(arrays):
            return function(**layout.arguments(arrays))

    traced.__name__ = traced.__qualname__ = function.__name__
    is_concrete = all(isinstance(leaf, Option) or leaf.is_known for leaf in layout.leaves)
    return quickly_compiled(traced) if is_concrete else jax.jit(traced)


def quickly_compiled(
    function: Callable[P, Result], jit: Callable[..., Any] = jax.jit, **how: Any
) -> Callable[P, Result]:
    """Return ``jit(function, **how)`` for a function that is mostly a program of its own.

    On a CPU, XLA has LLVM optimise at its third level. At the second, the programs of attention
    rules compile in 0.7 to 0.75 of the time and run as fast. JAX refuses a level for what is part
    of another program, which has the level of that.
    """
    usual = jit(function, **how)

    @functools.cache
    def quick() -> Callable[P, Result]:
        return jit(function, compiler_options=_options(), **how)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return quick()(*args, **kwargs)
        except ValueError as error:
            if "compiler_options" not in str(error):
                raise
            return usual(*args, **kwargs)

    return run


def _options() -> dict[str, int] | None:
    """Return XLA's options on a CPU, unless the process has a level of its own."""
    unoptimised = jax.config.values.get("jax_disable_most_optimizations")
    if jax.default_backend() != "cpu" or unoptimised or LEVEL in os.environ.get("XLA_FLAGS", ""):
        return None
    return {LEVEL: 2}


def _divide(given: dict[str, Any], numbers: set[str]) -> tuple[Layout, list[Any]]:
    """Divide arguments into their layout and their arrays.

    Raises ValueError where no program takes them.
    """
    if jax.config.jax_disable_jit or in_shard_map():  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("not to be compiled")
    trees, leaves, arrays = [], [], []
    for name, argument in given.items():
        if isinstance(argument, (np.integer, np.bool_)) and name not in numbers:
            argument = argument.item()  # an option, which no program can take as an array
        parts, tree = jax.tree.flatten(argument)
        trees.append(tree)
        for x in parts:
            if x is not argument and isinstance(x, (int, float)):
                raise ValueError("a list of numbers, or a tuple of them")
            leaf = _describe(x, name in numbers)
            leaves.append(leaf)
            if isinstance(leaf, Kind):
                arrays.append(float(x) if isinstance(x, int) else unshared(x))
    if any(map(is_traced, arrays)) and is_traced(jax.device_put(np.float32(0))):
        raise ValueError("part of another program")
    return Layout(tuple(given), tuple(trees), tuple(leaves)), arrays


def _describe(x: Any, is_number: bool) -> Kind | Option:
    """Describe a part of an argument; ``is_number`` says that it is an array or a number."""
    if isinstance(x, jax.Array):
        return Kind(x.shape, x.dtype, bool(getattr(x, "weak_type", False)), not is_traced(x))
    if isinstance(x, (np.ndarray, np.generic)):
        if type(x) is not np.ndarray and isinstance(x, np.ndarray):
            raise ValueError("a subclass, whose meaning a program does not know")
        if x.dtype.name not in KINDS or not x.dtype.isnative:
            raise ValueError("a dtype that JAX does not have")
        return Kind(x.shape, x.dtype, False, True)
    if not is_number:
        return Option(type(x), x)
    if isinstance(x, float) or (isinstance(x, int) and abs(x) < LARGEST):
        return Kind((), float, True, True)
    raise ValueError("no number")
