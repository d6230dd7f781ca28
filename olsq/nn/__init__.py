"""Layers and language models (Equinox): every rule of :mod:`olsq.attention` in one backbone.

A mixer is a layer ``y = layer(x)`` or ``y, state = layer(x, state=...)`` over (batch, time, dim);
:class:`LanguageModel` stacks blocks of mixers and gated MLPs.
Needs the extra ``nn``.
"""

import importlib as _importlib
import typing as _typing

try:
    import equinox as _equinox  # noqa: F401
    import safetensors as _safetensors  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'olsq.nn needs {error.name}: pip install ".[nn]" in a checkout of olsq', name=error.name
    ) from error

from olsq.nn.base import Mixer as Mixer
from olsq.nn.base import MixerState as MixerState
from olsq.nn.blocks import Backbone as Backbone
from olsq.nn.blocks import Block as Block
from olsq.nn.blocks import SwiGLU as SwiGLU
from olsq.nn.curvature import PreconditionedGatedDelta as PreconditionedGatedDelta
from olsq.nn.curvature import PreconditionedKDA as PreconditionedKDA
from olsq.nn.delta import KDA as KDA
from olsq.nn.delta import Delta as Delta
from olsq.nn.delta import GatedDelta as GatedDelta
from olsq.nn.delta import GatedDelta2 as GatedDelta2
from olsq.nn.delta import Longhorn as Longhorn
from olsq.nn.delta import PreconditionedDelta as PreconditionedDelta
from olsq.nn.delta_product import Comba as Comba
from olsq.nn.delta_product import GatedDeltaProduct as GatedDeltaProduct
from olsq.nn.diagnostics import Diagnostics as Diagnostics
from olsq.nn.files import load as load
from olsq.nn.files import load_into as load_into
from olsq.nn.files import save as save
from olsq.nn.filtered import KalmanDelta as KalmanDelta
from olsq.nn.filtered import MomentumDelta as MomentumDelta
from olsq.nn.fla import FlaWeights as FlaWeights
from olsq.nn.fla import from_fla as from_fla
from olsq.nn.fla import to_fla as to_fla
from olsq.nn.generation import TokenStream as TokenStream
from olsq.nn.generation import generate as generate
from olsq.nn.gsa import GSA as GSA
from olsq.nn.heads import HeadMixer as HeadMixer
from olsq.nn.kinds import kind as kind
from olsq.nn.kinds import parameter_kinds as parameter_kinds
from olsq.nn.linear import GLA as GLA
from olsq.nn.linear import HGRN2 as HGRN2
from olsq.nn.linear import MLSTM as MLSTM
from olsq.nn.linear import RWKV6 as RWKV6
from olsq.nn.linear import LinearAttention as LinearAttention
from olsq.nn.linear import Mamba2 as Mamba2
from olsq.nn.linear import Retention as Retention
from olsq.nn.local import LocalLinear as LocalLinear
from olsq.nn.local import Parallax as Parallax
from olsq.nn.log_linear import LogLinearMamba2 as LogLinearMamba2
from olsq.nn.mamba3 import Mamba3 as Mamba3
from olsq.nn.mixers import MIXERS as MIXERS
from olsq.nn.mixers import mixer as mixer
from olsq.nn.mixers import register_mixer as register_mixer
from olsq.nn.model import LanguageModel as LanguageModel
from olsq.nn.model_diagnostics import diagnose as diagnose
from olsq.nn.parts import Linear as Linear
from olsq.nn.parts import RMSNorm as RMSNorm
from olsq.nn.parts import ShortConvolution as ShortConvolution
from olsq.nn.presets import PRESETS as PRESETS
from olsq.nn.presets import MesaNet as MesaNet
from olsq.nn.presets import hawk_mesa as hawk_mesa
from olsq.nn.presets import preset as preset
from olsq.nn.presets import state_tracking as state_tracking
from olsq.nn.presets import thesis_hybrid as thesis_hybrid
from olsq.nn.pretrained import Pretrained as Pretrained
from olsq.nn.pretrained import load_pretrained as load_pretrained
from olsq.nn.pretrained import save_pretrained as save_pretrained
from olsq.nn.prompts import take_rows as take_rows
from olsq.nn.recurrent import Hawk as Hawk
from olsq.nn.recurrent import Mamba as Mamba
from olsq.nn.regressions import Intention as Intention
from olsq.nn.regressions import Kalman as Kalman
from olsq.nn.regressions import MesaChannel as MesaChannel
from olsq.nn.regressions import MesaWindow as MesaWindow
from olsq.nn.rwkv7 import RWKV7 as RWKV7
from olsq.nn.sharding import shard as shard
from olsq.nn.sharding import shard_batch as shard_batch
from olsq.nn.softmax import Forgetting as Forgetting
from olsq.nn.softmax import SlidingWindow as SlidingWindow
from olsq.nn.softmax import Softmax as Softmax
from olsq.nn.solved import Mesa as Mesa
from olsq.nn.solved import MesaDiscounted as MesaDiscounted
from olsq.nn.surgery import count_parameters as count_parameters
from olsq.nn.surgery import map_mixers as map_mixers
from olsq.nn.surgery import mixers_of as mixers_of
from olsq.nn.surgery import with_solver as with_solver
from olsq.nn.ttt import TTTMLP as TTTMLP
from olsq.nn.ttt import TTTLinear as TTTLinear
from olsq.public_names import public_names as _public_names

if _typing.TYPE_CHECKING:
    from olsq.nn import flax as flax

__all__ = _public_names(globals())  # pyright: ignore[reportUnsupportedDunderAll]

if not _typing.TYPE_CHECKING:  # which would take any name for one that is here

    def __getattr__(name: str) -> _typing.Any:
        if name == "flax":  # on first use: Flax is not among what olsq.nn needs
            return _importlib.import_module("olsq.nn.flax")
        raise AttributeError(f"module 'olsq.nn' has no attribute {name!r}")
