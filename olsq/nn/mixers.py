"""Mixers by name: one row per rule of :mod:`olsq.attention`."""

from __future__ import annotations

from typing import Any

from jax import Array

from olsq.nn._mixer import Mixer
from olsq.nn.delta import Delta, GatedDelta, Longhorn, PreconditionedDelta
from olsq.nn.linear import GLA, HGRN2, RWKV6, LinearAttention, Mamba2, Retention
from olsq.nn.mlstm import MLSTM
from olsq.nn.recurrent import Hawk, Mamba
from olsq.nn.regressions import Intention, Kalman, MesaWindow
from olsq.nn.softmax import SlidingWindow, Softmax
from olsq.nn.solved import Mesa, MesaDiscounted
from olsq.nn.ttt import TTTMLP, TTTLinear

MIXERS: dict[str, Any] = {  # classes of Mixer
    "softmax": Softmax,
    "sliding_window": SlidingWindow,
    "linear": LinearAttention,
    "retention": Retention,
    "mamba2": Mamba2,
    "gla": GLA,
    "hgrn2": HGRN2,
    "rwkv6": RWKV6,
    "mamba": Mamba,
    "mlstm": MLSTM,
    "delta": Delta,
    "gated_delta": GatedDelta,
    "longhorn": Longhorn,
    "preconditioned_delta": PreconditionedDelta,
    "hawk": Hawk,
    "ttt_linear": TTTLinear,
    "ttt_mlp": TTTMLP,
    "mesa": Mesa,
    "mesa_discounted": MesaDiscounted,
    "mesa_window": MesaWindow,
    "kalman": Kalman,
    "intention": Intention,
}


def mixer(name: str, dim: int, *, heads: int, key: Array, **options: Any) -> Mixer:
    """The mixer of that name.

    Parameters
    ----------
    name : str
        A key of ``olsq.nn.MIXERS``.
    dim, heads : int
    key : jax.random.key
    **options
        Of its class.

    Raises
    ------
    ValueError
        If the name is unknown, or the class has no such option.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> olsq.nn.mixer("gla", 32, heads=2, key=jax.random.key(0)).key_size
    16
    """
    kind = MIXERS.get(name)
    if kind is None:
        raise ValueError(f"unknown mixer {name!r}; known are {', '.join(sorted(MIXERS))}")
    try:
        return kind(dim, heads=heads, key=key, **options)
    except TypeError as error:
        if "keyword argument '" not in str(error):  # unexpected, or fixed by the mixer itself
            raise
        option = str(error).rsplit("'", 2)[1]
        raise ValueError(f"mixer {name!r} has no option {option!r}: see {kind.__name__}") from None
