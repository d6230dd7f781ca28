"""The one-token form of a rule: the rule itself on a sequence of length 1."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from olsq.checks import check_real


def step_of(rule: Callable[..., Any], *timed: str) -> Callable[..., Any]:
    """``rule`` for one token: arrays without their time axis, same state.

    ``timed`` names the keyword arguments that have a time axis.  A sequence of length 1 is one
    chunk of one token, for which the chunk form costs what the recurrence does.
    """

    def expand(x: Any) -> Any:
        # () and (H,) hold for every token as they are; (B, H, ...) gets its time axis.
        return x if x is None or jnp.ndim(x) < 2 else jnp.expand_dims(x, 1)

    parameters = inspect.signature(rule).parameters.values()
    kept = [p for p in parameters if p.name != "segment_ids"]

    def step(*arrays: Any, **options: Any) -> Any:
        if "segment_ids" in options:
            raise TypeError(f"{rule.__name__}_step takes no segment_ids: one token is one segment")
        for name in timed:
            if options.get(name) is not None:
                check_real(name, options[name])
        for parameter, x in zip(kept, arrays, strict=False):
            check_real(parameter.name, x)
        options = {n: expand(x) if n in timed else x for n, x in options.items()}
        value, state = rule(*(jnp.expand_dims(x, 1) for x in map(jnp.asarray, arrays)), **options)
        return value[:, 0], state

    step.__signature__ = inspect.Signature(kept)  # pyright: ignore
    step.__name__ = step.__qualname__ = f"{rule.__name__}_step"
    step.__module__ = rule.__module__
    step.__doc__ = f"""One token of :func:`{rule.__name__}`, on the same state.

    Parameters
    ----------
    Those of :func:`{rule.__name__}` with shapes (B, H, dim) for (B, T, H, dim), and (B, H) for
    (B, T, H); without ``segment_ids``.

    Returns
    -------
    output : array (B, H, V)
    state
        Give it to the next call.
    """
    return step
