"""Differences between the versions of JAX that these tests run on, and how they compile."""

from __future__ import annotations

from functools import cache, wraps
from inspect import isfunction

import jax
import jax.experimental
import numpy as np

# jax.experimental's before jax 0.8
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64

# Compiles in a third of the time, which is most of what the tests do.  XLA knew the option for a
# year and refuses those that it does not know.
FAST_OPTION = "xla_cpu_use_fusion_emitters"


@cache
def fast() -> dict[str, bool]:
    """Compiler options that save compile time, of those that this XLA knows."""
    options = {FAST_OPTION: False}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception as error:
        if FAST_OPTION not in str(error):
            raise
        return {}
    return options


def fast_flags() -> str:
    """The same for ``XLA_FLAGS``."""
    return " ".join(f"--{name}={str(on).lower()}" for name, on in fast().items())


def quick(f):
    """``jax.jit``, compiled quickly rather than for speed."""
    return jax.jit(f, compiler_options=fast())


@cache
def _program(f, tree, rest):
    """``f`` compiled for arguments of one structure, of which ``rest`` are no arrays."""

    def run(arrays):
        arrays = iter(arrays)
        leaves = [next(arrays) if kind is None else value for kind, _, value in rest]
        args, options = jax.tree.unflatten(tree, leaves)
        return f(*args, **options)

    return jax.jit(run)  # without options, which are refused inside of another program


def in_one_program(f):
    """``f``, compiled as a whole, where it would else compile each of its operations.

    What is no array stays as it is, and so does an error.  Values that only a concrete array has
    are not checked: what is refused for its values is a matter for ``f`` itself.
    """

    @wraps(f)
    def run(*args, **options):
        leaves, tree = jax.tree.flatten((args, options))
        arrays = [x for x in leaves if isinstance(x, np.ndarray | np.generic | jax.Array)]
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0, but the programs are not.
        rest = tuple(
            (None, None, None)
            if isinstance(x, np.ndarray | np.generic | jax.Array)
            else (type(x), str(x) if isinstance(x, float) else None, x)
            for x in leaves
        )
        return _program(f, tree, rest)(arrays)

    return run


class InOneProgram:
    """A module whose functions are compiled as a whole: see :func:`in_one_program`."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        found = getattr(self._module, name)
        return in_one_program(found) if isfunction(found) else found
