"""Differences between the versions of JAX that these tests run on, and how they compile."""

from __future__ import annotations

from functools import cache, wraps
from inspect import isfunction

import jax
import jax.experimental
import numpy as np

from olsq.testing.backends import compiled, fast_options

# jax.experimental's before jax 0.8
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


quick = compiled  # as most tests call it


def fast_flags() -> str:
    """Options of a quick compilation for ``XLA_FLAGS``."""
    return " ".join(f"--{name}={str(on).lower()}" for name, on in fast_options().items())


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
