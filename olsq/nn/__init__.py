"""Layers and language models (Equinox): every rule of :mod:`olsq.attention` in one backbone.

A mixer is a layer ``y = layer(x)`` or ``y, state = layer(x, state=...)`` over (batch, time, dim);
:class:`LanguageModel` stacks blocks of mixers and gated MLPs.
Needs ``pip install "online-least-squares[nn]"``.
"""

import importlib as _importlib
from typing import Any as _Any

try:
    import equinox as _equinox  # noqa: F401
    import safetensors as _safetensors  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'olsq.nn needs {error.name}: pip install "online-least-squares[nn]"', name=error.name
    ) from error

from olsq.nn.base import Mixer, MixerState
from olsq.nn.blocks import Backbone
from olsq.nn.curvature import PreconditionedGatedDelta, PreconditionedKDA
from olsq.nn.delta import Delta, GatedDelta, Longhorn, PreconditionedDelta
from olsq.nn.delta_product import Comba, GatedDeltaProduct
from olsq.nn.diagnostics import Diagnostics
from olsq.nn.files import load, load_into, save
from olsq.nn.fla import FlaWeights, from_fla, to_fla
from olsq.nn.generation import TokenStream, generate
from olsq.nn.gsa import GSA
from olsq.nn.heads import HeadMixer
from olsq.nn.kda import KDA, GatedDelta2
from olsq.nn.kinds import kind, parameter_kinds
from olsq.nn.linear import GLA, HGRN2, RWKV6, LinearAttention, Mamba2, Retention
from olsq.nn.local import LocalLinear, Parallax
from olsq.nn.log_linear import LogLinearMamba2
from olsq.nn.mamba3 import Mamba3
from olsq.nn.mixers import MIXERS, mixer, register_mixer
from olsq.nn.mlstm import MLSTM
from olsq.nn.model import LanguageModel
from olsq.nn.model_diagnostics import diagnose
from olsq.nn.parts import Linear, RMSNorm, ShortConvolution
from olsq.nn.presets import PRESETS, MesaNet, hawk_mesa, preset, state_tracking, thesis_hybrid
from olsq.nn.pretrained import Pretrained, load_pretrained, save_pretrained
from olsq.nn.prompts import take_rows
from olsq.nn.recurrent import Hawk, Mamba
from olsq.nn.regressions import Intention, Kalman, MesaChannel, MesaWindow
from olsq.nn.residual import Block, SwiGLU
from olsq.nn.rwkv7 import RWKV7
from olsq.nn.sharding import shard, shard_batch
from olsq.nn.softmax import Forgetting, SlidingWindow, Softmax
from olsq.nn.solved import Mesa, MesaDiscounted
from olsq.nn.surgery import count_parameters, map_mixers, mixers_of, with_solver
from olsq.nn.ttt import TTTMLP, TTTLinear

__all__ = [
    "GLA",
    "GSA",
    "HGRN2",
    "KDA",
    "MIXERS",
    "MLSTM",
    "PRESETS",
    "RWKV6",
    "RWKV7",
    "TTTMLP",
    "Backbone",
    "Block",
    "Comba",
    "Delta",
    "Diagnostics",
    "FlaWeights",
    "Forgetting",
    "GatedDelta",
    "GatedDelta2",
    "GatedDeltaProduct",
    "Hawk",
    "HeadMixer",
    "Intention",
    "Kalman",
    "LanguageModel",
    "Linear",
    "LinearAttention",
    "LocalLinear",
    "LogLinearMamba2",
    "Longhorn",
    "Mamba",
    "Mamba2",
    "Mamba3",
    "Mesa",
    "MesaChannel",
    "MesaDiscounted",
    "MesaNet",
    "MesaWindow",
    "Mixer",
    "MixerState",
    "Parallax",
    "PreconditionedDelta",
    "PreconditionedGatedDelta",
    "PreconditionedKDA",
    "Pretrained",
    "RMSNorm",
    "Retention",
    "ShortConvolution",
    "SlidingWindow",
    "Softmax",
    "SwiGLU",
    "TTTLinear",
    "TokenStream",
    "count_parameters",
    "diagnose",
    "from_fla",
    "generate",
    "hawk_mesa",
    "kind",
    "load",
    "load_into",
    "load_pretrained",
    "map_mixers",
    "mixer",
    "mixers_of",
    "parameter_kinds",
    "preset",
    "register_mixer",
    "save",
    "save_pretrained",
    "shard",
    "shard_batch",
    "state_tracking",
    "take_rows",
    "thesis_hybrid",
    "to_fla",
    "with_solver",
]


def __getattr__(name: str) -> _Any:
    if name == "flax":  # on first use: Flax is not among what olsq.nn needs
        return _importlib.import_module("olsq.nn.flax")
    raise AttributeError(f"module 'olsq.nn' has no attribute {name!r}")
