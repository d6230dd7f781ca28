"""Registry of the layouts, and detection of the one that weights have."""

from __future__ import annotations

from olsq.nn.files import listed
from olsq.nn.fla.layout import Config, Layout
from olsq.nn.fla.parts import Arrays
from olsq.nn.fla.regressions import (
    DeltaLayout,
    DeltaProductLayout,
    GatedDelta2Layout,
    GatedDeltaLayout,
    KDALayout,
    MesaLayout,
    PreconditionedGatedDeltaLayout,
    PreconditionedKDALayout,
)
from olsq.nn.fla.spaces import Mamba3Layout
from olsq.nn.fla.sums import (
    ForgettingLayout,
    GLALayout,
    GSALayout,
    HGRN2Layout,
    LinearLayout,
    ParallaxLayout,
    RetentionLayout,
    SoftmaxLayout,
    WindowLayout,
)

LAYOUTS: tuple[Layout, ...] = (
    MesaLayout(), GLALayout(), RetentionLayout(), LinearLayout(), HGRN2Layout(), DeltaLayout(),
    GatedDeltaLayout(), DeltaProductLayout(), KDALayout(), GatedDelta2Layout(), ForgettingLayout(),
    SoftmaxLayout(), WindowLayout(), ParallaxLayout(), GSALayout(), Mamba3Layout(),
    PreconditionedGatedDeltaLayout(), PreconditionedKDALayout(),
)  # fmt: skip
TYPES = {layout.model_type: layout for layout in LAYOUTS if not isinstance(layout, WindowLayout)}
KINDS = {layout.kind: layout for layout in LAYOUTS}
COMBA = (
    "Comba has no counterpart: there, queries are normalised after their correction, where "
    "olsq.nn.Comba normalises before it"
)


def layout_of(arrays: Arrays, at: str, config: Config) -> Layout:
    """Return the layout of the weights whose names begin with ``at``: the configured or detected
    one.
    """
    given = config.get("model_type")
    if given is None:
        given = _detect_model_type(arrays, at)
    if given == "comba":
        raise ValueError(COMBA)
    if given not in TYPES:
        raise ValueError(
            f"model_type {given!r} of flash-linear-attention has no counterpart here; those that "
            f"have are {', '.join(TYPES)}"
        )
    if given == "transformer" and config.get("window_size") is not None:
        return KINDS[WindowLayout.kind]
    return TYPES[given]


def _detect_model_type(arrays: Arrays, at: str) -> str:
    """Detect the model type from the names of the weights."""

    def has(*names: str) -> bool:
        return all(f"{at}{name}" in arrays for name in names)

    signs = {
        "mesa_net": ("lambda_params",),
        "precond_kda": ("f_proj.0.weight", "log_atk_scale"),  # before kda and gated_deltanet
        "precond_gated_deltanet": ("log_atk_scale",),
        "gdn2": ("f_proj.0.weight", "w_proj.weight"),  # before kda, which has the first too
        "kda": ("f_proj.0.weight",),
        "gla": ("gk_proj.0.weight",),
        "hgrn2": ("i_proj.weight",),
        "forgetting_transformer": ("f_proj.bias",),
        "comba": ("A_log", "D", "k_proj.weight"),
        "parallax": ("r_proj.weight", "q_proj.weight"),
        "gsa": ("f_proj.weight", "k_proj.weight", "g_norm.weight"),
        "mamba3": ("in_proj.weight", "B_norm.weight", "C_norm.weight"),
    }
    for kind, names in signs.items():
        if has(*names):
            return kind
    if has("A_log", "k_proj.weight", "q_proj.weight"):
        keys, queries = (len(arrays[f"{at}{name}_proj.weight"]) for name in "kq")
        return "gated_deltaproduct" if keys > queries else "gated_deltanet"
    if has("q_proj.weight") and not any(f"{at}{name}.weight" in arrays for name in ("gk_proj",)):
        if has("b_proj.weight"):
            return "delta_net"
        if has("norm.weight"):
            return "linear_attn"
        if has("g_norm_swish_gate.weight") or has("g_norm.weight"):
            return "retnet"
        if has("k_proj.weight", "v_proj.weight", "o_proj.weight"):
            return "transformer"
    raise ValueError(
        "these are not the weights of a layer or causal language model of flash-linear-attention "
        f"that has a counterpart here ({', '.join(TYPES)}); they are {listed(arrays) or 'none'}"
    )
