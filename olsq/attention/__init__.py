"""Attention rules: sequence mixers that learn a map from keys to values as they go.

A rule takes ``q, k, v`` of shape (batch, time, heads, dim) and returns the outputs and the state
after the last token; ``<rule>_step`` does one token on the same state.

Queries and keys may have fewer heads than v, if the number of v's heads is a multiple of theirs:
neighbouring heads of values then share one, as though it were repeated (``jnp.repeat(k, r, 2)``).
Gates, states and all other arguments have the heads of v.
"""

from olsq.attention.rules.comba import comba as comba
from olsq.attention.rules.comba import comba_step as comba_step
from olsq.attention.rules.delta import delta as delta
from olsq.attention.rules.delta import delta_step as delta_step
from olsq.attention.rules.delta import gated_delta as gated_delta
from olsq.attention.rules.delta import gated_delta_step as gated_delta_step
from olsq.attention.rules.delta_product import gated_delta_product as gated_delta_product
from olsq.attention.rules.delta_product import gated_delta_product_step as gated_delta_product_step
from olsq.attention.rules.forgetting import ForgettingKeyValues as ForgettingKeyValues
from olsq.attention.rules.forgetting import forgetting as forgetting
from olsq.attention.rules.forgetting import forgetting_step as forgetting_step
from olsq.attention.rules.gla import gla as gla
from olsq.attention.rules.gla import gla_step as gla_step
from olsq.attention.rules.gsa import SlotMemory as SlotMemory
from olsq.attention.rules.gsa import gsa as gsa
from olsq.attention.rules.gsa import gsa_step as gsa_step
from olsq.attention.rules.intention import intention as intention
from olsq.attention.rules.kalman import kalman as kalman
from olsq.attention.rules.kalman import kalman_step as kalman_step
from olsq.attention.rules.kalman_delta import KalmanDeltaState as KalmanDeltaState
from olsq.attention.rules.kalman_delta import kalman_delta as kalman_delta
from olsq.attention.rules.kalman_delta import kalman_delta_step as kalman_delta_step
from olsq.attention.rules.kda import kda as kda
from olsq.attention.rules.kda import kda_step as kda_step
from olsq.attention.rules.linear import linear as linear
from olsq.attention.rules.linear import linear_step as linear_step
from olsq.attention.rules.local_linear import local_linear as local_linear
from olsq.attention.rules.local_linear import local_linear_step as local_linear_step
from olsq.attention.rules.log_linear import LogLinearState as LogLinearState
from olsq.attention.rules.log_linear import log_linear_mamba2 as log_linear_mamba2
from olsq.attention.rules.log_linear import log_linear_mamba2_step as log_linear_mamba2_step
from olsq.attention.rules.longhorn import longhorn as longhorn
from olsq.attention.rules.longhorn import longhorn_step as longhorn_step
from olsq.attention.rules.mamba import mamba as mamba
from olsq.attention.rules.mamba import mamba_step as mamba_step
from olsq.attention.rules.mamba2 import mamba2 as mamba2
from olsq.attention.rules.mamba2 import mamba2_step as mamba2_step
from olsq.attention.rules.mamba3 import Mamba3State as Mamba3State
from olsq.attention.rules.mamba3 import mamba3 as mamba3
from olsq.attention.rules.mamba3 import mamba3_step as mamba3_step
from olsq.attention.rules.mesa import mesa as mesa
from olsq.attention.rules.mesa import mesa_step as mesa_step
from olsq.attention.rules.mesa_channel import MesaChannelState as MesaChannelState
from olsq.attention.rules.mesa_channel import mesa_channel as mesa_channel
from olsq.attention.rules.mesa_channel import mesa_channel_step as mesa_channel_step
from olsq.attention.rules.mesa_discounted import mesa_discounted as mesa_discounted
from olsq.attention.rules.mesa_discounted import mesa_discounted_step as mesa_discounted_step
from olsq.attention.rules.mesa_window import RecentSamples as RecentSamples
from olsq.attention.rules.mesa_window import mesa_window as mesa_window
from olsq.attention.rules.mesa_window import mesa_window_step as mesa_window_step
from olsq.attention.rules.mlstm import MLSTMState as MLSTMState
from olsq.attention.rules.mlstm import mlstm as mlstm
from olsq.attention.rules.mlstm import mlstm_step as mlstm_step
from olsq.attention.rules.momentum_delta import MomentumState as MomentumState
from olsq.attention.rules.momentum_delta import momentum_delta as momentum_delta
from olsq.attention.rules.momentum_delta import momentum_delta_step as momentum_delta_step
from olsq.attention.rules.parallax import parallax as parallax
from olsq.attention.rules.parallax import parallax_step as parallax_step
from olsq.attention.rules.preconditioned_delta import PreconditionedState as PreconditionedState
from olsq.attention.rules.preconditioned_delta import preconditioned_delta as preconditioned_delta
from olsq.attention.rules.preconditioned_delta import (
    preconditioned_delta_step as preconditioned_delta_step,
)
from olsq.attention.rules.retention import retention as retention
from olsq.attention.rules.retention import retention_step as retention_step
from olsq.attention.rules.rg_lru import Hidden as Hidden
from olsq.attention.rules.rg_lru import rg_lru as rg_lru
from olsq.attention.rules.rg_lru import rg_lru_step as rg_lru_step
from olsq.attention.rules.rwkv7 import rwkv7 as rwkv7
from olsq.attention.rules.rwkv7 import rwkv7_step as rwkv7_step
from olsq.attention.rules.sliding_window import RecentTokens as RecentTokens
from olsq.attention.rules.sliding_window import sliding_window as sliding_window
from olsq.attention.rules.sliding_window import sliding_window_step as sliding_window_step
from olsq.attention.rules.softmax import KeyValues as KeyValues
from olsq.attention.rules.softmax import softmax as softmax
from olsq.attention.rules.softmax import softmax_step as softmax_step
from olsq.attention.rules.ttt_linear import TTTLinearState as TTTLinearState
from olsq.attention.rules.ttt_linear import ttt_linear as ttt_linear
from olsq.attention.rules.ttt_linear import ttt_linear_step as ttt_linear_step
from olsq.attention.rules.ttt_mlp import TTTMLPState as TTTMLPState
from olsq.attention.rules.ttt_mlp import ttt_mlp as ttt_mlp
from olsq.attention.rules.ttt_mlp import ttt_mlp_step as ttt_mlp_step
from olsq.attention.rules.vector import hgrn2 as hgrn2
from olsq.attention.rules.vector import hgrn2_step as hgrn2_step
from olsq.attention.rules.vector import rwkv6 as rwkv6
from olsq.attention.rules.vector import rwkv6_step as rwkv6_step
from olsq.attention.states import Memory as Memory
from olsq.attention.states import Normalised as Normalised
from olsq.public_names import public_names as _public_names

__all__ = _public_names(globals())  # pyright: ignore[reportUnsupportedDunderAll]
