"""The RG-LRU of Hawk and Griffin: a recurrence gated entry by entry."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_number, refuse
from olsq.attention.arguments import (
    Tokens,
    check_heads,
    check_segments,
    fold_heads,
    layout_of,
    per_head,
    per_token,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.elementwise import diagonal
from olsq.attention.states import check_state, restore_layout
from olsq.sequence.jax.gates import squarable

STEEPEST = 1000.0  # of d sqrt(x) / dx, which has no bound at 0; Griffin's code bounds it so


class Hidden(NamedTuple):
    """State of a rule that is one vector per head.

    Attributes
    ----------
    hidden : array (B, H, V)
    """

    hidden: Array

    __repr__ = brief_repr


def bounded_sqrt(x: Array) -> Array:
    """Compute sqrt(x) for x >= 0, with a derivative of at most ``STEEPEST`` (to any order and
    mode).
    """
    bend = 0.25 / STEEPEST**2
    here = jax.lax.stop_gradient(x)
    return jnp.where(
        x > bend, jnp.sqrt(jnp.maximum(x, bend)), jnp.sqrt(here) + STEEPEST * (x - here)
    )


@sequence_rule
def rg_lru(
    x: ArrayLike,
    *,
    input_gate: ArrayLike,
    recurrence_gate: ArrayLike,
    rate: ArrayLike,
    c: float = 8.0,
    state: Hidden | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Hidden]:
    """The recurrence of Hawk and Griffin: ``h = a h + sqrt(1 - a^2) (input_gate x)``.

    The factor is ``a = exp(-c softplus(rate) recurrence_gate)``; the root keeps the variance of h
    that of its input.

    Parameters
    ----------
    x : array (B, T, H, V)
        Inputs.  Channels do not mix: heads only group them.
    input_gate, recurrence_gate : array (B, T, H, V) or what broadcasts to it
        In [0, 1] (after their sigmoids).  Where the recurrence gate is 0, h stays as it is.
    rate : array (H, V) or what broadcasts to it
        The paper's Lambda: -4.3 to -9 make ``a`` 0.9 to 0.999 at a gate of 1.
    c : float
        The paper's 8.
    state : Hidden, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        All h, in the dtype of x.  NaN (in all channels of a head) from a non-finite token on, if
        its input gate lets it in, until a token whose factors are all 0.
    state : Hidden

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    Notes
    -----
    O(T V), and as many sequential steps as tokens.  ``1 - a^2`` comes from the log of a by expm1,
    so it keeps its digits as a goes to 1.  At a = 1 the root has no derivative; below
    ``1 - a^2 = 2.5e-7`` (in float32 only a = 1 and the number next to it) its slope is held at
    1000, as in the paper's code.  Everything else is the exact derivative, to any order in both
    modes, also where a is 0.  The first token of a stream or segment is scaled by the root like
    all others; the paper's code scales it by 1.

    References
    ----------
    De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient
    Language Models" (2024), eq. 1 to 4, appendix A (arXiv 2402.19427).

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> zero = jnp.log(jnp.expm1(jnp.log(2.0) / 8))  # a = 1/2 where the gate is 1
    >>> o, state = olsq.attention.rg_lru(x, input_gate=1.0, recurrence_gate=x, rate=zero)
    >>> [round(float(h), 3) for h in o[0, :, 0, 0]]
    [0.866, 1.299, 1.516]
    """
    c = check_number("c", c, least=0)
    checked, b, t, h = check_heads(x=x)
    x, width = checked["x"], checked["x"].shape[-1]
    layout = layout_of((x,), state, b, t, h)
    gates = []
    for name, gate in (("input_gate", input_gate), ("recurrence_gate", recurrence_gate)):
        refuse(name, gate, lambda g: (g < 0) | (g > 1), "lie in [0, 1] (it is a sigmoid's)")
        gates.append(per_token(name, gate, layout, width))
    x, admits, forgets = fold_heads(x.astype(layout.working)), *gates
    start = check_segments(segment_ids, layout)
    gates_finite = squarable(admits) & squarable(forgets)
    sample_lost = (~jnp.isfinite(x) & (admits != 0)).any(-1) | ~gates_finite
    x, admits, forgets = (jnp.where(jnp.isfinite(y), y, 0) for y in (x, admits, forgets))
    log_factor = -c * jax.nn.softplus(per_head("rate", rate, layout, width))[:, None] * forgets
    factors = jnp.exp(log_factor)
    gates = factors if start is None else jnp.where(start[..., None], 0, factors)
    zero = Hidden(jnp.zeros((b, h, width), layout.working))
    opened, state_lost = check_state(state, zero, layout)
    # h = a h + sqrt(1 - a^2) (i x); 1 - a^2 = -expm1(2 log a) does not cancel near a = 1
    add = bounded_sqrt(-jnp.expm1(2 * log_factor)) * (admits * x)
    out, hidden = diagonal(gates, add, opened.hidden)
    tokens = Tokens(x, x, x, gates, None, start, sample_lost, jnp.ones_like(sample_lost))
    return restore_layout(out, Hidden(hidden), tokens, state_lost, layout)


rg_lru_step = one_token(
    rg_lru,
    "input_gate",
    "recurrence_gate",
    example="x, input_gate=1.0, recurrence_gate=1.0, rate=0.0",
    gives=1.004,
)
