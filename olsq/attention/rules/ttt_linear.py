"""Test-time training: the memory is a linear layer, each token a step of its training."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.ttt import initial_weights, train


class TTTLinearState(NamedTuple):
    """State of :func:`ttt_linear`.

    Attributes
    ----------
    weight, bias : array (B, H, V, V), (B, H, V)
        With all steps so far: what queries read, except the ``query_factor``.
    start_weight, start_bias : array (B, H, V, V), (B, H, V)
        As the mini-batch began: where gradients are taken.
    position : int array (B, H)
        Tokens of the mini-batch so far, 0 to ``mini_batch``.
    """

    weight: Array
    bias: Array
    start_weight: Array
    start_bias: Array
    position: Array

    __repr__ = brief_repr


@sequence_rule
def ttt_linear(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    learning_rate: ArrayLike,
    initial: tuple[ArrayLike, ArrayLike] | None = None,
    norm_scale: ArrayLike = 1.0,
    norm_bias: ArrayLike = 0.0,
    eps: float = 1e-6,
    mini_batch: int = 16,
    query_factor: ArrayLike | None = None,
    state: TTTLinearState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, TTTLinearState]:
    """TTT-Linear: ``f(x) = x + LN(W x + b)`` learns keys to values, ``o = f(q)``.

    Each token steps down the gradient of ``|f(k) - v|^2 / 2``, taken at the W and b with which its
    mini-batch of tokens began; token t reads with all steps up to its own.

    Parameters
    ----------
    q, k, v : array (B, T, H, V)
        Queries (not scaled), keys, values, of one width V.
    learning_rate : array (B, T, H) or what broadcasts to it
        eta >= 0 of each token's step.  0 leaves a token out, finite or not; it keeps its place in
        its mini-batch.  The paper's is ``sigmoid(.) / V``.
    initial : (weight, bias), arrays (H, V, V), (H, V), optional
        Where learning starts, at the stream's and each segment's beginning.  The paper learns it;
        default 0, where the first gradients are as long as ``eps**-.5``.
    norm_scale, norm_bias : array (H, V)
        Of the layer normalisation LN.
    eps : float
        Added to the variance in LN.
    mini_batch : int
        Tokens whose gradients share their starting point: 1 is gradient descent token by token.
    query_factor : array (H, mini_batch) or what broadcasts to it, optional
        How much of its mini-batch's steps, its own included, the token at each place of the
        mini-batch reads with: the released models' second factor of the rate, by the place p = 1,
        2, ... of the *query*, ``max(0, 1 / p + learned offset)``.  The next mini-batch starts where
        the last place read.  Default 1, which is the paper's text.
    state : TTTLinearState, optional
        As returned for the tokens before; an empty past if None.  Of the same mini_batch.
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.  Each
        begins a mini-batch.  Tokens are then taken one at a time, which is slower.  The first
        token goes on with the segment of ``state``, unless the ids are (B, T + 1) and begin with
        that of the token before.

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on, never before.
    state : TTTLinearState

    Raises
    ------
    ValueError
        If widths differ, or shapes, rates, mini_batch, the state or segment ids do not fit.

    Notes
    -----
    O(T V (V + mini_batch)): each mini-batch in the dual form, four matrix products without any W in
    between, one after the other.  The backward pass keeps W every 16 mini-batches and makes the
    rest again.  Differentiable in everything, to any order in both modes: gradients of outputs go
    through the gradients of the steps.

    References
    ----------
    Sun et al., "Learning to (Learn at Test Time): RNNs with Expressive Hidden States" (2024),
    sections 2.3 (the loss), 2.4 (mini-batches), 2.5 and appendix A (dual form), 2.7 (LN and the
    residual connection) (arXiv 2407.04620).  ``query_factor`` is in the released code only
    (github.com/test-time-training/ttt-lm-jax), there the "token index".

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.eye(2)[None, jnp.array([0, 1, 0, 1]), None]  # two tokens in turn, (1, 4, 1, 2)
    >>> o, state = olsq.attention.ttt_linear(x, x, -x, learning_rate=0.1, mini_batch=2)
    >>> o.shape, state.position[0, 0]
    ((1, 4, 1, 2), Array(2, dtype=int32))
    """
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    width = tokens.v.shape[-1]
    shapes = {"weight": (width, width), "bias": (width,)}
    layers = initial_weights(initial, shapes, layout)
    return train(
        tokens,
        layout,
        TTTLinearState,
        layers,
        learning_rate,
        (norm_scale, norm_bias, eps),
        mini_batch,
        query_factor,
        state,
    )


ttt_linear_step = one_token(
    ttt_linear,
    "learning_rate",
    example="x, x, 2 * x, learning_rate=0.1",
    gives=2.0,
    setup="x = jnp.eye(2)[:1, None]  # one token, (1, 1, 2)",
)
