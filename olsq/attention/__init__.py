"""Attention rules: sequence mixers that learn a map from keys to values as they go.

A rule takes ``q, k, v`` of shape (batch, time, heads, dim) and returns the outputs and the state
after the last token; ``<rule>_step`` does one token on the same state.

Queries and keys may have fewer heads, of which those of v are a multiple: neighbouring heads of
values then share one, as though it were repeated (``jnp.repeat(k, r, 2)``).  Gates, states and
all other arguments have the heads of v.
"""

from olsq.attention.rules.comba import comba, comba_step
from olsq.attention.rules.delta import delta, delta_step, gated_delta, gated_delta_step
from olsq.attention.rules.delta_product import gated_delta_product, gated_delta_product_step
from olsq.attention.rules.forgetting import ForgettingKeyValues, forgetting, forgetting_step
from olsq.attention.rules.gla import gla, gla_step
from olsq.attention.rules.gsa import SlotMemory, gsa, gsa_step
from olsq.attention.rules.intention import intention
from olsq.attention.rules.kalman import kalman, kalman_step
from olsq.attention.rules.kda import kda, kda_step
from olsq.attention.rules.linear import linear, linear_step
from olsq.attention.rules.local_linear import local_linear, local_linear_step
from olsq.attention.rules.log_linear import (
    LogLinearState,
    log_linear_mamba2,
    log_linear_mamba2_step,
)
from olsq.attention.rules.longhorn import longhorn, longhorn_step
from olsq.attention.rules.mamba import mamba, mamba_step
from olsq.attention.rules.mamba2 import mamba2, mamba2_step
from olsq.attention.rules.mamba3 import Mamba3State, mamba3, mamba3_step
from olsq.attention.rules.mesa import mesa, mesa_step
from olsq.attention.rules.mesa_channel import (
    MesaChannelState,
    mesa_channel,
    mesa_channel_step,
)
from olsq.attention.rules.mesa_discounted import mesa_discounted, mesa_discounted_step
from olsq.attention.rules.mesa_window import RecentSamples, mesa_window, mesa_window_step
from olsq.attention.rules.mlstm import MLSTMState, mlstm, mlstm_step
from olsq.attention.rules.parallax import parallax, parallax_step
from olsq.attention.rules.preconditioned_delta import (
    PreconditionedState,
    preconditioned_delta,
    preconditioned_delta_step,
)
from olsq.attention.rules.retention import retention, retention_step
from olsq.attention.rules.rg_lru import Hidden, rg_lru, rg_lru_step
from olsq.attention.rules.rwkv7 import rwkv7, rwkv7_step
from olsq.attention.rules.sliding_window import (
    RecentTokens,
    sliding_window,
    sliding_window_step,
)
from olsq.attention.rules.softmax import KeyValues, softmax, softmax_step
from olsq.attention.rules.ttt_linear import TTTLinearState, ttt_linear, ttt_linear_step
from olsq.attention.rules.ttt_mlp import TTTMLPState, ttt_mlp, ttt_mlp_step
from olsq.attention.rules.vector import hgrn2, hgrn2_step, rwkv6, rwkv6_step
from olsq.attention.states import Memory, Normalised

__all__ = [
    "ForgettingKeyValues",
    "Hidden",
    "KeyValues",
    "LogLinearState",
    "MLSTMState",
    "Mamba3State",
    "Memory",
    "MesaChannelState",
    "Normalised",
    "PreconditionedState",
    "RecentSamples",
    "RecentTokens",
    "SlotMemory",
    "TTTLinearState",
    "TTTMLPState",
    "comba",
    "comba_step",
    "delta",
    "delta_step",
    "forgetting",
    "forgetting_step",
    "gated_delta",
    "gated_delta_product",
    "gated_delta_product_step",
    "gated_delta_step",
    "gla",
    "gla_step",
    "gsa",
    "gsa_step",
    "hgrn2",
    "hgrn2_step",
    "intention",
    "kalman",
    "kalman_step",
    "kda",
    "kda_step",
    "linear",
    "linear_step",
    "local_linear",
    "local_linear_step",
    "log_linear_mamba2",
    "log_linear_mamba2_step",
    "longhorn",
    "longhorn_step",
    "mamba",
    "mamba2",
    "mamba2_step",
    "mamba3",
    "mamba3_step",
    "mamba_step",
    "mesa",
    "mesa_channel",
    "mesa_channel_step",
    "mesa_discounted",
    "mesa_discounted_step",
    "mesa_step",
    "mesa_window",
    "mesa_window_step",
    "mlstm",
    "mlstm_step",
    "parallax",
    "parallax_step",
    "preconditioned_delta",
    "preconditioned_delta_step",
    "retention",
    "retention_step",
    "rg_lru",
    "rg_lru_step",
    "rwkv6",
    "rwkv6_step",
    "rwkv7",
    "rwkv7_step",
    "sliding_window",
    "sliding_window_step",
    "softmax",
    "softmax_step",
    "ttt_linear",
    "ttt_linear_step",
    "ttt_mlp",
    "ttt_mlp_step",
]
