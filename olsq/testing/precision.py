"""What the checks change of JAX, for as long as they run: float64, and how it compiles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

# XLA's own emitters take three times as long to compile, which is most of what a check does.
# XLA refuses options that it does not know, and has known this one for a year.
FAST_OPTION = "xla_cpu_use_fusion_emitters"


def double_precision() -> AbstractContextManager[Any]:
    """float64 where it is asked for; what was set before comes back afterwards."""
    import jax
    import jax.experimental as experimental

    # jax.experimental's before jax 0.8
    home: Any = jax if hasattr(jax, "enable_x64") else experimental
    return home.enable_x64(True)


@cache
def _fast() -> dict[str, bool]:
    """Compiler options that this JAX knows, found by trying."""
    import jax

    options = {FAST_OPTION: False}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception as error:
        if FAST_OPTION not in str(error):
            raise
        return {}
    return options


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.jit``, compiled quickly rather than for speed."""
    import jax

    return jax.jit(function, compiler_options=_fast(), **options)
