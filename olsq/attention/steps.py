"""One-token form of a rule: the rule itself on a sequence of length 1."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from olsq.arrays.checks import check_real


def one_token(tokens: dict[str, Any], timed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Give arguments a time axis of length 1, by name, as a rule takes them.

    ``tokens`` are arrays (B, H, dim). ``timed`` are gates and the like: (B, H, ...) gets its time
    axis; None, () and (H,), which hold for every token, stay as they are. A sequence of length 1 is
    one chunk of one token, for which the chunk form costs what the recurrence does.
    """
    timed = timed or {}
    for name, x in {**timed, **tokens}.items():
        if name in tokens or x is not None:
            check_real(name, x)
    given: dict[str, Any]
    given = {name: jnp.expand_dims(jnp.asarray(x), 1) for name, x in tokens.items()}
    for name, x in timed.items():
        given[name] = x if x is None or jnp.ndim(x) < 2 else jnp.expand_dims(x, 1)
    return given
