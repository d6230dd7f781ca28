"""mLSTM: a gated sum with exponential input gates, and a normaliser."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import split_keys

GATE_CAP = 15.0  # of xLSTM's gates, softly


class MLSTM(HeadMixer):
    """mLSTM: ``S = f S + i v k^T``, ``z = f z + i k``, ``o = S q / max(1, |z^T q|)``.

    ``f = sigmoid(W e + b)``, b from 3 to 6 over the heads, and ``i = exp(W e + b)``, b from -1; the
    numbers inside are capped softly, ``15 tanh(x / 15)``.  Parameters: see :class:`HeadMixer`;
    ``normalise`` is False unless given, and ``q . k`` is then divided by ``sqrt(K)``.

    Notes
    -----
    Costs what :class:`GLA` does; the state is V K + K + 1 numbers a head.  Exponential gates never
    overflow.  Differentiable in both modes.

    References
    ----------
    Beck et al., "xLSTM" (2024), eq. 19 to 27.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MLSTM(8, heads=2, key=jax.random.key(0))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.normaliser.shape, state.rule.maximum.shape
    ((1, 2, 4, 4), (1, 2, 4), (1, 2))
    """

    forget: Gate
    strength: Gate
    rule = staticmethod(attention.mlstm)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})
        keys = split_keys(jax.random.fold_in(key, 1), ("forget", "strength"))
        self.forget = Gate(dim, heads, key=keys["forget"], bias=jnp.linspace(3.0, 6.0, heads))
        self.strength = Gate(dim, heads, key=keys["strength"], bias=-1.0)

    def features(self, x: Array) -> Array:
        x = super().features(x)
        # K^(-1/4) on queries and on keys: q . k / sqrt(K)
        return x if self.normalise else x * self.mapped_size**-0.25

    def arguments(self, x: Array) -> dict[str, Any]:
        forget, strength = (
            GATE_CAP * jnp.tanh(gate(x) / GATE_CAP) for gate in (self.forget, self.strength)
        )
        return {"log_forget": jax.nn.log_sigmoid(forget), "log_weight": strength}
