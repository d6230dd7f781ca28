"""Settings of JAX while checks run: float64, and fast compilation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

# XLA's own emitters take three times as long to compile, which is most of what a check does.
# XLA refuses options that it does not know, and has known this one for a year.
FAST_OPTION = "xla_cpu_use_fusion_emitters"


def double_precision() -> AbstractContextManager[Any]:
    """Enable float64 within a context, and restore the earlier setting after it."""
    import jax
    import jax.experimental as experimental

    # jax.experimental's before jax 0.8
    home: Any = jax if hasattr(jax, "enable_x64") else experimental
    return home.enable_x64(True)


@cache
def _fast() -> dict[str, bool]:
    """Find by trial the compiler options that this JAX knows."""
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
    """Return ``jax.jit`` of a function, compiled quickly rather than for speed."""
    import jax

    return jax.jit(function, compiler_options=_fast(), **options)
