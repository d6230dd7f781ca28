"""Mamba-3: Mamba-2 by the trapezoidal rule, with a memory rotated by data-dependent angles."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_real, refuse
from olsq.attention.arguments import (
    Layout,
    Tokens,
    check_inputs,
    check_weight,
    is_writable,
    per_token,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.states import check_state, mark_lost, restore_layout
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import delay, scan_time


class Mamba3State(NamedTuple):
    """State of :func:`mamba3`: the memory, and the last token, which the next one writes again.

    Attributes
    ----------
    matrix : array (B, H, V, K)
        ``S``, turned so that the last token's query reads ``S q``.
    key : array (B, H, K)
    value : array (B, H, V)
    """

    matrix: Array
    key: Array
    value: Array

    __repr__ = brief_repr


@sequence_rule
def mamba3(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    trapezoid: ArrayLike | None = None,
    angle: ArrayLike | None = None,
    state: Mamba3State | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Mamba3State]:
    """The state space of Mamba-3, one input and output a head: trapezoidal, and turning.

    ``S = gamma (S + (1 - x) d v' k'^T) R^T + x d v k^T``, ``o = S q``, where v', k' are those of
    the token before, d is the step, x its share at its end, and R turns pairs of key dimensions by
    minus the angles.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values: the paper's C, B and x.  The skip is the caller's.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.  The paper's ``exp(d A)``, or ``d A``.
    weight : array, optional
        Steps d >= 0, broadcast to (B, T, H).  Default 1.  0 does not leave a token out: the step
        after it begins with it.
    trapezoid : array, optional
        Share x in [0, 1] of a step that its end has, broadcast to (B, T, H).  Default 1/2, the
        trapezoidal rule; 1 is Mamba-2's, with steps.
    angle : array (B, T, H, R), optional
        Angles in radians that a step turns the first 2 R key dimensions by, two neighbours at a
        time; the paper's ``d theta``.  They do not turn if None.
    state : Mamba3State, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : Mamba3State

    Raises
    ------
    ValueError
        If shapes, gates, steps, shares or segment ids do not fit, or there are more angles than
        pairs of key dimensions.

    Notes
    -----
    O(T V K) and O(T C (V + K)), C <= 64 a chunk.  Queries and keys are turned by all angles up to
    their token, which gives the memory's turning (a data-dependent rotary embedding); what a step
    takes of both its ends is one write, of the token before, and a product with the token's own key
    at the read.  Angles are multiplied up as unit complex numbers, never added up, and a state
    holds none.  Differentiable to any order in both modes, also at gates of 0.

    Followed: the recurrence and its rotary form as the paper (eq. of the exponential-trapezoidal
    step) and public implementations have them.  They turn neighbouring pairs of the leading
    dimensions where there is one input and output, as here; left out are inputs and outputs of
    rank R ("MIMO").  Not compared with the authors' kernels, which need a GPU.

    References
    ----------
    Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space Principles" (2026), arXiv
    2603.15569.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 4, 1, 2))
    >>> o, state = olsq.attention.mamba3(x, x / 2, x, forget=0.5)
    >>> o[0, :, 0, 0]
    Array([0.5  , 1.   , 1.25 , 1.375], dtype=float32)
    >>> turns = jnp.full((1, 4, 1, 1), jnp.pi)  # a token is read with its sign turned at each step
    >>> o, state = olsq.attention.mamba3(x, x / 2, x, angle=turns, trapezoid=1.0)
    >>> o[0, :, 0, 0].round(4) + 0
    Array([1., 0., 1., 0.], dtype=float32)
    """
    tokens, layout = check_inputs(
        q, k, v, forget=forget, log_forget=log_forget, segment_ids=segment_ids, state=state
    )
    n, t = tokens.q.shape[:2]
    steps = check_weight("weight", weight, layout)
    steps = jnp.ones((n, t), layout.working) if steps is None else steps
    share: Any = 0.5 if trapezoid is None else trapezoid
    refuse("trapezoid", share, lambda x: (x < 0) | (x > 1), "lie in [0, 1]")
    share = per_token("trapezoid", share, layout)
    tokens, turns = _accumulate_rotations(angle, tokens, layout)
    values, keys = tokens.v.shape[-1], tokens.k.shape[-1]
    shape = (layout.batch, layout.heads)
    zero = Mamba3State(
        *(jnp.zeros((*shape, *x), layout.working) for x in ((values, keys), (keys,), (values,)))
    )
    opened, state_lost = check_state(state, zero, layout)
    # A step writes its own sample and the one before it.
    squares = [(x**2).sum(-1) for x in (tokens.k, tokens.v)]
    earlier = [
        delay(x, (y**2).sum(-1, keepdims=True))
        for x, y in zip(squares, (opened.key, opened.value), strict=True)
    ]
    fits = is_writable(squares[0], squares[1], steps) & jnp.isfinite(share)
    fits = fits & is_writable(earlier[0], earlier[1], steps)
    steps, share = (jnp.where(fits, x, 0) for x in (steps, share))
    tokens = mark_lost(tokens, ~fits)
    turned, read = (
        (tokens.k, tokens.q)
        if turns is None
        else (_rotate_pairs(x, *turns) for x in (tokens.k, tokens.q))
    )
    # S without the write at the end of a token's step, which is added with the next token's.
    late = share * steps
    write = delay(late, jnp.zeros((n, 1), late.dtype)) + (1 - share) * steps
    write = write if tokens.forget is None else tokens.forget * write
    before = delay(turned, opened.key[:, None]), delay(tokens.v, opened.value[:, None])
    gates, shift = split_gates(tokens)
    out, memory = gated_linear(read, *before, gates, write, opened.matrix, shift=shift)
    score = (read * turned).sum(-1, keepdims=True)
    out = out + late[..., None] * score * tokens.v
    last = opened
    if t:
        memory = memory + jnp.einsum("n,nv,nk->nvk", late[:, -1], tokens.v[:, -1], turned[:, -1])
        if turns is not None:
            cos, sin = (x[:, -1, None] for x in turns)
            memory = _rotate_pairs(memory, cos, -sin)
        last = Mamba3State(memory, tokens.k[:, -1], tokens.v[:, -1])
    return restore_layout(out, last, tokens, state_lost, layout)


mamba3_step = one_token(
    mamba3,
    "forget",
    "log_forget",
    "weight",
    "trapezoid",
    "angle",
    example="x, x, x, forget=0.5",
    gives=1.0,
)


def _accumulate_rotations(angle: Any, tokens: Tokens, layout: Layout) -> tuple[Tokens, Any]:
    """Accumulate cosines and sines (N, T, R) of the angles up to each token.

    Returns None where nothing turns.
    """
    if angle is None:
        return tokens, None
    check_real("angle", angle)
    pairs = tokens.k.shape[-1] // 2
    if jnp.ndim(angle) != 4 or jnp.shape(angle)[-1] > pairs:
        raise ValueError(
            f"angle must have one for each pair it turns, (batch, time, heads, at most {pairs} of "
            f"{tokens.k.shape[-1]} key dimensions), got shape {jnp.shape(angle)}"
        )
    angles = per_token("angle", angle, layout, jnp.shape(angle)[-1])
    angles_finite = squarable(angles)
    angles = jnp.where(angles_finite[..., None], angles, 0)
    tokens = tokens._replace(sample_lost=tokens.sample_lost | ~angles_finite)
    n, t, r = angles.shape
    angles = jnp.swapaxes(angles, 1, 2).reshape(n * r, t)

    def follow(a: Any, b: Any) -> Any:
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    if not t:
        return tokens, (jnp.swapaxes(angles.reshape(n, r, t), 1, 2),) * 2
    cos, sin = scan_time(follow, (jnp.cos(angles), jnp.sin(angles)), (1.0, 0.0))
    size = jax.lax.rsqrt(cos * cos + sin * sin)  # 1, except for rounding, which would add up
    return tokens, tuple(jnp.swapaxes((x * size).reshape(n, r, t), 1, 2) for x in (cos, sin))


def _rotate_pairs(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate neighbouring pairs among the first 2 R of x (..., K) by angles (..., R)."""
    width = 2 * cos.shape[-1]
    a, b = x[..., 0:width:2], x[..., 1:width:2]
    pairs = jnp.stack([a * cos - b * sin, a * sin + b * cos], -1)
    return jnp.concatenate([pairs.reshape(*x.shape[:-1], width), x[..., width:]], -1)
