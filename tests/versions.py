"""Differences between the versions of JAX that these tests run on."""

from __future__ import annotations

from functools import cache

import jax
import jax.experimental

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
