"""Log-linear Mamba-2 as a layer."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_sizes
from olsq.nn.gated import Gated
from olsq.nn.heads import Gate

LEVELS = 12  # 2,048 tokens


class LogLinearMamba2(Gated):
    """Log-linear Mamba-2: ``o = sum_l lambda_l S_l q`` over memories of ever larger blocks.

    The past is in blocks of 1, 2, 4, ... tokens, near ones small, each with a memory like that of
    :class:`Mamba2`; what a token reads of each level has the weight ``lambda = softplus(W e + b)``,
    at first near 1.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    levels : int
        L: as many memories a head.  Streams may be longer than the ``2^(L - 1)`` tokens that these
        hold apart; all older blocks then share the last level.
    forget_floor, forget_bias : optional
        Of gamma: see :class:`GatedDelta`.  Not ``signed``.

    Notes
    -----
    O(L V K + C (V + K + L)) per token and head by chunks of C = 64, O(L V K) one by one; the state
    is L V K numbers per head.  Differentiable to any order in both modes.  The authors' layer is
    Mamba-2's block, with ``lambda = softplus(a_l W e)``; this one has the queries, keys, values and
    gates that all mixers have.

    References
    ----------
    Guo et al., "Log-Linear Attention" (2025), section 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.LogLinearMamba2(8, heads=2, levels=5, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 5, 4, 4)
    """

    level: Gate
    levels: int = eqx.field(static=True)

    rule = staticmethod(attention.log_linear_mamba2)

    def __init__(
        self, dim: int, *, heads: int, levels: int = LEVELS, key: Array, **options: Any
    ) -> None:
        check_sizes(levels=levels)
        super().__init__(dim, heads=heads, weighted=False, key=key, **options)
        one = math.log(math.e - 1)
        self.level = Gate(dim, heads * levels, key=jax.random.fold_in(key, 2), bias=one)
        self.levels = levels

    def arguments(self, x: Array) -> dict[str, Any]:
        weights = jax.nn.softplus(self.split_heads(self.level(x)))
        return {**super().arguments(x), "level_weight": weights}
