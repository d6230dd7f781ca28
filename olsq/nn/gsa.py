"""Gated slot attention as a layer."""

from __future__ import annotations

from typing import Any, get_args

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_sizes
from olsq.nn.heads import Gate, JointlyNormed, ValueMap

POWER = 8  # gates are sigmoids to the power of 1/8, the authors' choice


class GSA(JointlyNormed):
    """Gated slot attention: softmax over slots, ``o = sum_m softmax_m(k_m^T q) v_m``.

    Each slot averages keys and values at its own rate, ``k_m = a_m k_m + (1 - a_m) k`` and v_m
    likewise, with gates ``a = sigmoid(W e)^(1/8)`` per slot.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`; ``normalise=False`` here, since scores of unit
        vectors lie in [-1, 1], where no softmax chooses.
    slots : int, optional
        M, per head; ``key_size`` if None.
    read_map : {"identity", "silu"}
        Of what is read, before its norm.
    joint_norm : bool
        One RMS norm of what all heads read together.

    Notes
    -----
    O(M (K + V + C)) per token and head by chunks of C <= 64, O(M (K + V)) one by one; the state is
    M (K + V) numbers per head.  Differentiable to any order in both modes.  The authors' layer has
    a SiLU on values (``value_map="silu"``) and on what is read (``read_map="silu"``), and
    ``joint_norm``.

    References
    ----------
    Zhang et al., "Gated Slot Attention for Efficient Linear-Time Sequence Modeling" (2024),
    section 3; sizes and gates as in flash-linear-attention.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.GSA(8, heads=2, slots=3, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.keys.shape
    (1, 2, 3, 4)
    """

    forget: Gate
    slots: int = eqx.field(static=True)
    read_map: ValueMap = eqx.field(static=True)

    rule = staticmethod(attention.gsa)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        slots: int | None = None,
        read_map: ValueMap = "identity",
        key: Array,
        **options: Any,
    ) -> None:
        if read_map not in get_args(ValueMap):
            raise ValueError(f"read_map must be one of {get_args(ValueMap)}, got {read_map!r}")
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})
        slots = self.key_size if slots is None else slots
        check_sizes(slots=slots)
        self.forget = Gate(dim, heads * slots, key=jax.random.fold_in(key, 1), bias=None)
        self.slots, self.read_map = slots, read_map

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"log_forget": jax.nn.log_sigmoid(self.split_heads(self.forget(x))) / POWER}

    def write(self, o: Array, x: Array) -> Array:
        return super().write(jax.nn.silu(o) if self.read_map == "silu" else o, x)
