"""Test-time training: the memory is a small network, each token a step of its training."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.ttt import initial_weights, train


class TTTMLPState(NamedTuple):
    """State of :func:`ttt_mlp`, hidden width F.

    Attributes
    ----------
    weight1, bias1, weight2, bias2 : array (B, H, F, V), (B, H, F), (B, H, V, F), (B, H, V)
        With all steps so far: what queries read, except the ``query_factor``.
    start_weight1, start_bias1, start_weight2, start_bias2 : array
        As the mini-batch began: where gradients are taken.
    position : int array (B, H)
        Tokens of the mini-batch so far, 0 to ``mini_batch``.
    """

    weight1: Array
    bias1: Array
    weight2: Array
    bias2: Array
    start_weight1: Array
    start_bias1: Array
    start_weight2: Array
    start_bias2: Array
    position: Array

    __repr__ = brief_repr


@sequence_rule
def ttt_mlp(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    learning_rate: ArrayLike,
    initial: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike] | None = None,
    norm_scale: ArrayLike = 1.0,
    norm_bias: ArrayLike = 0.0,
    eps: float = 1e-6,
    mini_batch: int = 16,
    query_factor: ArrayLike | None = None,
    state: TTTMLPState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, TTTMLPState]:
    """TTT-MLP: ``f(x) = x + LN(W2 gelu(W1 x + b1) + b2)`` learns keys to values, ``o = f(q)``.

    Parameters
    ----------
    q, k, v : array (B, T, H, V)
        Queries (not scaled), keys, values, of one width V.
    learning_rate : array (B, T, H) or what broadcasts to it
        As for :func:`ttt_linear`.
    initial : (weight1, bias1, weight2, bias2), optional
        Arrays (H, F, V), (H, F), (H, V, F), (H, V): where learning starts, at the stream's and each
        segment's beginning.  The paper's F is 4 V.  It may be left out where a state is given and
        no segment begins; a network of zeros would never learn.
    norm_scale, norm_bias : array (H, V)
        As for :func:`ttt_linear`.
    eps : float
        As for :func:`ttt_linear`.
    mini_batch : int
        As for :func:`ttt_linear`.
    query_factor : array (H, mini_batch) or what broadcasts to it, optional
        As for :func:`ttt_linear`.
    state : TTTMLPState, optional
        As returned for the tokens before; an empty past if None.  Of the same mini_batch.
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.  Each
        begins a mini-batch.  Tokens are then taken one at a time, which is slower.  The first
        token goes on with the segment of ``state``, unless the ids are (B, T + 1) and begin with
        that of the token before.

    Returns
    -------
    output : array (B, T, H, V)
    state : TTTMLPState

    Raises
    ------
    ValueError
        If there is nowhere to start from, or as :func:`ttt_linear`.

    Notes
    -----
    gelu is ``jax.nn.gelu``'s default, the tanh form, as in the paper's code.  O(T V F): both layers
    in the dual form.  Otherwise as :func:`ttt_linear`.

    References
    ----------
    Sun et al., "Learning to (Learn at Test Time)" (2024), section 2.7 and appendix A.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, olsq
    >>> x = jnp.eye(2)[None, :, None]  # two tokens, (1, 2, 1, 2)
    >>> w = jax.random.normal(jax.random.key(0), (1, 8, 2))
    >>> start = (w, jnp.zeros((1, 8)), w.swapaxes(1, 2), jnp.zeros((1, 2)))
    >>> o, state = olsq.attention.ttt_mlp(x, x, -x, learning_rate=0.1, initial=start)
    >>> o.shape, state.weight1.shape
    ((1, 2, 1, 2), (1, 1, 8, 2))
    """
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    width = tokens.v.shape[-1]
    if initial is None:
        if state is None or segment_ids is not None:
            raise ValueError(
                "initial is needed: (weight1, bias1, weight2, bias2), where learning starts; "
                "random weights of size width**-.5 will do"
            )
        hidden = jnp.shape(state.weight1)[-2]
    else:
        hidden = jnp.shape(initial[0])[-2]
    shapes = {
        "weight1": (hidden, width),
        "bias1": (hidden,),
        "weight2": (width, hidden),
        "bias2": (width,),
    }
    layers = initial_weights(initial, shapes, layout)
    return train(
        tokens,
        layout,
        TTTMLPState,
        layers,
        learning_rate,
        (norm_scale, norm_bias, eps),
        mini_batch,
        query_factor,
        state,
    )


ttt_mlp_step = one_token(
    ttt_mlp,
    "learning_rate",
    example="x, x, 2 * x, learning_rate=0.1, initial=start",
    gives=2.0,
    setup="x, w = jnp.eye(2)[:1, None], jnp.ones((1, 8, 2))  # one token, (1, 1, 2)\n"
    "start = w, jnp.zeros((1, 8)), w.swapaxes(1, 2), jnp.zeros((1, 2))",
)
