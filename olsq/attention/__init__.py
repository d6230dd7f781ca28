"""The family: every sequence-mixing rule that learns a map from keys to values as it goes.

A rule takes ``q, k, v`` of shape (batch, time, heads, dim) and returns the outputs and the state
after the last token; ``<rule>_step`` does one token on the same state.
"""

from olsq.attention._memory import Memory, Normalised
from olsq.attention.delta import (
    Preconditioned,
    delta,
    delta_step,
    gated_delta,
    gated_delta_step,
    preconditioned_delta,
    preconditioned_delta_step,
)
from olsq.attention.gated import (
    gla,
    gla_step,
    mamba2,
    mamba2_step,
    retention,
    retention_step,
)
from olsq.attention.intention import intention
from olsq.attention.kalman import kalman, kalman_step
from olsq.attention.linear import linear, linear_step
from olsq.attention.longhorn import longhorn, longhorn_step
from olsq.attention.mesa import mesa, mesa_step
from olsq.attention.mesa_discounted import mesa_discounted, mesa_discounted_step
from olsq.attention.mesa_window import RecentSamples, mesa_window, mesa_window_step
from olsq.attention.mlstm import MLSTM, mlstm, mlstm_step
from olsq.attention.recurrent import Hidden, mamba, mamba_step, rg_lru, rg_lru_step
from olsq.attention.softmax import (
    KeyValues,
    RecentTokens,
    sliding_window,
    sliding_window_step,
    softmax,
    softmax_step,
)
from olsq.attention.ttt import TTTMLP, TTTLinear, ttt_linear, ttt_linear_step, ttt_mlp, ttt_mlp_step
from olsq.attention.vector import hgrn2, hgrn2_step, rwkv6, rwkv6_step

__all__ = [
    "MLSTM",
    "TTTMLP",
    "Hidden",
    "KeyValues",
    "Memory",
    "Normalised",
    "Preconditioned",
    "RecentSamples",
    "RecentTokens",
    "TTTLinear",
    "delta",
    "delta_step",
    "gated_delta",
    "gated_delta_step",
    "gla",
    "gla_step",
    "hgrn2",
    "hgrn2_step",
    "intention",
    "kalman",
    "kalman_step",
    "linear",
    "linear_step",
    "longhorn",
    "longhorn_step",
    "mamba",
    "mamba2",
    "mamba2_step",
    "mamba_step",
    "mesa",
    "mesa_discounted",
    "mesa_discounted_step",
    "mesa_step",
    "mesa_window",
    "mesa_window_step",
    "mlstm",
    "mlstm_step",
    "preconditioned_delta",
    "preconditioned_delta_step",
    "retention",
    "retention_step",
    "rg_lru",
    "rg_lru_step",
    "rwkv6",
    "rwkv6_step",
    "sliding_window",
    "sliding_window_step",
    "softmax",
    "softmax_step",
    "ttt_linear",
    "ttt_linear_step",
    "ttt_mlp",
    "ttt_mlp_step",
]
