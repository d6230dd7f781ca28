"""Mesa with a forget gate for each key dimension: vector forgetting as attention."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import check_inputs, check_positive, per_head, with_resets
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.vector_solve import solve_keys
from olsq.attention.states import check_state, empty_memory, mark_lost, restore_layout
from olsq.sequence.jax.gates import lost_tokens
from olsq.sequence.jax.platform import in_full_precision


class MesaChannelState(NamedTuple):
    """State of :func:`mesa_channel`.

    Attributes
    ----------
    matrix : array (B, H, V, K)
        The coefficients S; a query reads ``S q``.
    gram : array (B, H, K, K)
        H, what is known of them beyond the ridge.
    """

    matrix: Array
    gram: Array

    __repr__ = brief_repr


@sequence_rule
@in_full_precision
def mesa_channel(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    state: MesaChannelState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, MesaChannelState]:
    """Mesa with a gate per key dimension: recursive least squares with vector forgetting.

    ``H = D H D + beta k k^T``, ``D = diag(a)^(1/2)``, and
    ``S = S + beta (v - S k) ((H + Lambda)^{-1} k)^T``, ``o = S q``.  A gate takes from what is
    known of its dimension's coefficients, not from the coefficients: the smaller it is, the faster
    they follow what comes.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    ridge : array
        Diagonal of Lambda, > 0: a number, (K,) or (H, K).  It is not forgotten.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H); or, as four axes, one
        per key dimension, broadcast to (B, T, H, K).  Default 1, which is :func:`mesa` without
        gates.  After gates of 0 the coefficients are still there, with nothing behind them but the
        ridge: only a new segment clears them.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    state : MesaChannelState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until the next segment, never
        before.
    state : MesaChannelState

    Raises
    ------
    ValueError
        If shapes, gates, weights, ridge or segment ids do not fit.

    Notes
    -----
    A token minimises ``beta |v - S k|^2 / 2`` plus ``(S - S_old) (D H D + Lambda) (S - S_old)^T /
    2``.  With gates below 1 no one sum of squares is minimised, and pieces of a stream merge by
    products of matrices, not by sums.  With one gate for all dimensions it is :func:`mesa`'s
    forgetting except for the ridge, which here holds S where it is and does not pull it to 0.

    ``(H + Lambda)^{-1} k`` of all tokens comes from conjugate gradient to the dtype's rounding,
    preconditioned by an inverse for every token out of two Cholesky factors a chunk where gates are
    mild or the ridge is small: see "Chunk-exact least squares" in the documentation.  O(T K^2)
    a step, and O(K (V + C)) for S.  One token: O(K^3).

    Derivatives in both modes, those of the solved systems.  The one with respect to a gate that is
    exactly 0 is infinite, as the root's is; 0 is returned.

    References
    ----------
    Saelid and Foss, "Adaptive controllers with a vector variable forgetting factor" (1983), the
    recursion that :class:`olsq.forgetting.PerCoefficient` has too; its ridge, its chunks and its
    use as attention are this package's.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.mesa_channel(x, x, x, ridge=1.0, forget=0.5 * x)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.5, 0.7, 0.809]
    """
    check_positive("ridge", ridge)
    tokens, layout = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        weight=weight,
        segment_ids=segment_ids,
        state=state,
        vector=True,
    )
    keys, values = tokens.k.shape[-1], tokens.v.shape[-1]
    zero = empty_memory(layout, values, keys).matrix
    gram = jnp.zeros((layout.batch, layout.heads, keys, keys), layout.working)
    opened, state_lost = check_state(state, MesaChannelState(zero, gram), layout)
    if 0 not in (layout.batch, layout.length):
        logs = None if tokens.log_forget is None else _per_key(tokens.log_forget / 2, tokens.k)
        fades = _gate_roots(tokens.forget, tokens.k) if logs is None else jnp.exp(logs)
        lam = per_head("ridge", ridge, layout, keys)
        written, gram = solve_keys(tokens.k, fades, tokens.weight, lam, opened.gram, logs)
        clears = with_resets(None, tokens.start, layout.working)
        out, matrix, overflown = delta_rule(
            tokens.q, tokens.k, written, tokens.v, clears, tokens.weight, opened.matrix
        )
        tokens = mark_lost(tokens, overflown)
    else:
        out, (matrix, gram) = tokens.v, opened
    lost = lost_tokens(tokens.sample_lost, tokens.start, state_lost) if layout.length else None
    output_lost = None if lost is None else (lost, lost[:, -1])
    state = MesaChannelState(matrix, gram)
    return restore_layout(out, state, tokens, state_lost, layout, output_lost)


def _gate_roots(gates: Array | None, k: Array) -> Array:
    """Compute the square roots of gates, one per key dimension, with derivative 0 at 0."""
    if gates is None:
        return jnp.ones_like(k)
    positive = gates > 0
    roots = jnp.where(positive, jnp.sqrt(jnp.where(positive, gates, 1)), 0)
    return _per_key(roots, k)


def _per_key(x: Array, k: Array) -> Array:
    return x if x.ndim == 3 else jnp.broadcast_to(x[..., None], k.shape)


mesa_channel_step = one_token(
    mesa_channel,
    "forget",
    "log_forget",
    "weight",
    example="x, x, x, ridge=1.0, forget=0.5 * x",
    gives=0.7,
)
