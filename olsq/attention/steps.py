"""One-token form of a rule: the rule itself on a sequence of length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_real

State = TypeVar("State")


def run_one_token(
    rule: Callable[..., tuple[Array, State]],
    tokens: dict[str, Any],
    timed: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Array, State]:
    """Run ``rule`` on a sequence of length 1: return its output (B, H, dim) and its state.

    ``tokens`` are arrays (B, H, dim). ``timed`` are gates and the like: (B, H, ...) gets its time
    axis; None, () and (H,), which hold for every token, stay as they are, and so do ``options``. A
    sequence of length 1 is one chunk of one token, for which the chunk form costs what the
    recurrence does.
    """
    timed = timed or {}
    for name, x in {**timed, **tokens}.items():
        if name in tokens or x is not None:
            check_real(name, x)
    given: dict[str, Any]
    given = {name: jnp.expand_dims(jnp.asarray(x), 1) for name, x in tokens.items()}
    for name, x in timed.items():
        given[name] = x if x is None or jnp.ndim(x) < 2 else jnp.expand_dims(x, 1)
    output, state = rule(**given, **options)
    return output[:, 0], state
