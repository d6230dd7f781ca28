"""Softmax attention with forget gates."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from olsq import attention
from olsq.nn.heads import Gate
from olsq.nn.softmax import Softmax


class Forgetting(Softmax):
    """Forgetting attention (FoX): softmax whose scores fade with the gates in between.

    ``o_t = sum_i softmax_i(q_t . k_i / sqrt(K) + log(gamma_{i+1} ... gamma_t)) v_i``, with
    ``gamma = sigmoid(W e + b)`` per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for :class:`Softmax`, whose states and capacity it has.
    rope_base : float or None
        Of rotary positions; none unless given: the gates tell what is recent.
    forget_bias : float or array (H,)
        Where gamma's b starts.

    Notes
    -----
    Costs what :class:`Softmax` does.  The paper's larger block ("Pro") also has a convolution, a
    norm of queries and keys, an output norm and gate: ``convolution=True, normalise=True,
    output_norm=True, output_gate=True`` is near to it.

    References
    ----------
    Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate" (2025), section 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Forgetting(8, heads=2, key=jax.random.key(0))
    >>> prompt = jax.numpy.ones((1, 6, 8))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None, capacity=10), prompt)
    >>> state.rule.log_decay.shape
    (1, 2, 10)
    """

    forget: Gate
    rule = staticmethod(attention.forgetting)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rope_base: float | None = None,
        forget_bias: Any = 0.0,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, rope_base=rope_base, key=key, **options)
        self.forget = Gate(dim, heads, key=jax.random.fold_in(key, 1), bias=forget_bias)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"log_forget": jax.nn.log_sigmoid(self.forget(x))}
