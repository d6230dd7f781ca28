"""Test-time training: the memory is a small network, each token a step of its training."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import (
    Layout,
    Tokens,
    check_weight,
    close,
    leave_out,
    open_state,
    per_head,
    read,
)
from olsq.attention.recurrences.ttt import Layers, Learner, Norm, learn
from olsq.attention.steps import step_of
from olsq.sequence.jax.inputs import refuse


class TTTLinearState(NamedTuple):
    """State of :func:`ttt_linear`.

    Attributes
    ----------
    weight, bias : array (B, H, V, V), (B, H, V)
        With all steps so far: what queries read, but for the ``query_factor``.
    start_weight, start_bias : array (B, H, V, V), (B, H, V)
        As the mini-batch began: where gradients are taken.
    position : int array (B, H)
        Tokens of the mini-batch so far, 0 to ``mini_batch``.
    """

    weight: Any
    bias: Any
    start_weight: Any
    start_bias: Any
    position: Any


class TTTMLPState(NamedTuple):
    """State of :func:`ttt_mlp`, hidden width F.

    Attributes
    ----------
    weight1, bias1, weight2, bias2 : array (B, H, F, V), (B, H, F), (B, H, V, F), (B, H, V)
        With all steps so far: what queries read, but for the ``query_factor``.
    start_weight1, start_bias1, start_weight2, start_bias2 : array
        As the mini-batch began: where gradients are taken.
    position : int array (B, H)
        Tokens of the mini-batch so far, 0 to ``mini_batch``.
    """

    weight1: Any
    bias1: Any
    weight2: Any
    bias2: Any
    start_weight1: Any
    start_bias1: Any
    start_weight2: Any
    start_bias2: Any
    position: Any


def ttt_linear(
    q: Any,
    k: Any,
    v: Any,
    *,
    learning_rate: Any,
    initial: Any = None,
    norm_scale: Any = 1.0,
    norm_bias: Any = 0.0,
    eps: float = 1e-6,
    mini_batch: int = 16,
    query_factor: Any = None,
    state: TTTLinearState | None = None,
    segment_ids: Any = None,
) -> tuple[Array, TTTLinearState]:
    """TTT-Linear: ``f(x) = x + LN(W x + b)`` learns keys to values, ``o = f(q)``.

    Each token steps down the gradient of ``|f(k) - v|^2 / 2``, taken at the W and b with which its
    mini-batch of tokens began; token t reads with all steps up to its own.

    Parameters
    ----------
    q, k, v : array (B, T, H, V)
        Queries, keys and values, of one width V.
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
        2, ... of the *query*, ``max(0, 1 / p + learned offset)``.  The next mini-batch starts
        where the last place read.  Default 1, which is the paper's text.
    state : TTTLinearState, optional
        Of the same mini_batch.
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next, and
        each begins a mini-batch.  Tokens are then taken one at a time, which is slower.

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
    tokens, layout = read(q, k, v, segment_ids=segment_ids, state=state)
    width = tokens.v.shape[-1]
    shapes = {"weight": (width, width), "bias": (width,)}
    layers = given(initial, shapes, layout)
    return train(
        tokens, layout, TTTLinearState, layers, learning_rate, (norm_scale, norm_bias, eps),
        mini_batch, query_factor, state,
    )  # fmt: skip


def ttt_mlp(
    q: Any,
    k: Any,
    v: Any,
    *,
    learning_rate: Any,
    initial: Any = None,
    norm_scale: Any = 1.0,
    norm_bias: Any = 0.0,
    eps: float = 1e-6,
    mini_batch: int = 16,
    query_factor: Any = None,
    state: TTTMLPState | None = None,
    segment_ids: Any = None,
) -> tuple[Array, TTTMLPState]:
    """TTT-MLP: ``f(x) = x + LN(W2 gelu(W1 x + b1) + b2)`` learns keys to values, ``o = f(q)``.

    Parameters
    ----------
    q, k, v, learning_rate, norm_scale, norm_bias, eps, mini_batch, query_factor, segment_ids
        As of :func:`ttt_linear`.
    initial : (weight1, bias1, weight2, bias2)
        Arrays (H, F, V), (H, F), (H, V, F), (H, V): where learning starts, at the stream's and
        each segment's beginning.  The paper's F is 4 V.  It may be left out where a state is given
        and no segment begins; a network of zeros would never learn.
    state : TTTMLPState, optional

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
    tokens, layout = read(q, k, v, segment_ids=segment_ids, state=state)
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
    layers = given(initial, shapes, layout)
    return train(
        tokens, layout, TTTMLPState, layers, learning_rate, (norm_scale, norm_bias, eps),
        mini_batch, query_factor, state,
    )  # fmt: skip


def given(initial: Any, shapes: dict[str, Any], layout: Layout) -> list[Array]:
    """The weights to start from, one of each for every stream; 0 where none are given."""
    if initial is None:
        initial = [0.0] * len(shapes)
    elif len(initial) != len(shapes):
        raise ValueError(f"initial must be ({', '.join(shapes)}), got {len(initial)} arrays")
    pairs = zip(initial, shapes.items(), strict=True)
    return [per_head(f"initial {part}", x, layout, *shape) for x, (part, shape) in pairs]


def train(
    tokens: Tokens,
    layout: Layout,
    kind: Any,
    start: list[Array],
    learning_rate: Any,
    norm: tuple[Any, Any, float],
    mini_batch: int,
    query_factor: Any,
    state: Any,
) -> tuple[Array, Any]:
    """Outputs and state of a network with the named tuple ``kind`` as its state."""
    values, keys = tokens.v.shape[-1], tokens.k.shape[-1]
    if values != keys:
        raise ValueError(
            f"v must have the width of k, got {values} and {keys}: the network learns v - k"
        )
    if not (isinstance(mini_batch, int) and mini_batch >= 1):
        raise ValueError(f"mini_batch must be a positive integer, got {mini_batch!r}")
    if type(state) is kind:
        refuse(
            "state.position", state.position, lambda p: p > mini_batch,
            f"be at most mini_batch = {mini_batch}, as the state's was",
        )  # fmt: skip
    tokens, rates = leave_out(tokens, check_weight("learning_rate", learning_rate, layout))
    rates = jnp.ones(tokens.bad.shape, layout.working) if rates is None else rates
    scale, bias = (per_head(n, x, layout, values)[:, None] for n, x in
                   (("norm_scale", norm[0]), ("norm_bias", norm[1])))  # fmt: skip
    factor = None
    if query_factor is not None:
        factor = per_head("query_factor", query_factor, layout, mini_batch)
    b, h = layout.batch, layout.heads
    whole = [x.reshape(b, h, *x.shape[1:]) for x in start]
    zero = kind(*whole, *whole, jnp.zeros((b, h), jnp.int32))
    opened, lost = open_state(state, zero, layout)
    initial = pairs(start)
    parts = len(start)
    learner = Learner(pairs(opened[:parts]), pairs(opened[parts:-1]), opened.position)
    out, learner = learn(
        tokens.q, tokens.k, tokens.v, rates, learner, Norm(scale, bias, norm[2]), mini_batch,
        segments=tokens.start, initial=initial, fresh=state is None, factor=factor,
    )  # fmt: skip
    end = kind(*sum((*learner.now, *learner.start), ()), learner.position)
    return close(out, end, tokens, lost, layout)


def pairs(parts: Any) -> Layers:
    """Weights and biases in turn, as layers."""
    return tuple(zip(parts[0::2], parts[1::2], strict=True))


ttt_linear_step = step_of(ttt_linear, "learning_rate")
ttt_mlp_step = step_of(ttt_mlp, "learning_rate")
