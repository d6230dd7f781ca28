"""Layout of Mamba-3, which has one projection for everything."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from olsq.nn.fla.layout import Allowed, Config, Layout, Names, Options, Sizes, expansion
from olsq.nn.fla.parts import Arrays, Form, Part, by_head, linear
from olsq.nn.mamba3 import SLOWEST_DECAY

IN, OUT, RATES, NORM = "in_proj.weight", "out_proj.weight", "dt_bias", "B_norm.weight"
PIECES = ("z", "x", "B", "C", "dd_dt", "dd_A", "trap", "angles")  # rows of in_proj, in this order
FRACTIONS = (0.5, 1.0)
RANK_ONE = Form(lambda x: x[:, 0], lambda x: x[:, None])  # of (heads, rank, size)


class Mamba3Layout(Layout):
    """Layout of Mamba-3 with one input and output per head ("SISO"), in blocks without MLPs.

    Its one projection is handled as its pieces, ``in_proj.x.weight`` and so on. Groups of heads
    that share keys and queries there are repeated here, so that they are written back as groups of
    one.
    """

    model_type, architecture, title = "mamba3", "Mamba3ForCausalLM", "Mamba3"
    names = Names("backbone", "mixer", "norm", None, "norm_f", 1e-5)
    projections: ClassVar[dict[str, str]] = {
        "in_proj.C": "query_proj",
        "in_proj.B": "key_proj",
        "in_proj.x": "value_proj",
    }
    taps, norms, gate_option = (), ("norm",), ""
    output = "out_proj"
    scaled = False
    allowed: ClassVar[Allowed] = {
        "is_mimo": (False,),
        "use_bias": (False,),
        "A_floor": (SLOWEST_DECAY,),
        "rope_fraction": FRACTIONS,
        "residual_in_fp32": (True, False),
        "rmsnorm": (True,),
    }

    def split_weights(self, arrays: Arrays, at: str, config: Config) -> Arrays:
        if f"{at}mimo_x" in arrays:
            raise ValueError(f"{at}mimo_x: ranks above 1 (is_mimo) have no counterpart here")
        (heads,), (key,) = (self.axes(arrays, f"{at}{name}", 1) for name in (RATES, NORM))
        inner = self.axes(arrays, f"{at}{OUT}", 2)[1]
        rows, dim = self.axes(arrays, f"{at}{IN}", 2)
        groups, angles = divmod(rows - 2 * inner - 3 * heads, 2 * key)
        if groups < 1 or heads % groups or fraction(key, angles) not in FRACTIONS:
            raise ValueError(
                f"{at}{IN} has {rows} rows, which are not those of {heads} heads, {inner} values "
                f"and keys of {key}, for any n_groups and rope_fraction"
            )
        for name, implied in (("n_groups", groups), ("rope_fraction", fraction(key, angles))):
            if config.get(name, implied) != implied:
                raise ValueError(
                    f"config has {name}={config[name]}, but the weights have {implied}"
                )
        counts = (inner, inner, groups * key, groups * key, heads, heads, heads)
        pieces = dict(zip(PIECES, np.split(arrays[f"{at}{IN}"], np.cumsum(counts)), strict=True))
        for name in ("B", "C"):
            shared = pieces[name].reshape(groups, key, dim)
            pieces[name] = shared.repeat(heads // groups, 0).reshape(heads * key, dim)
        kept = {name: x for name, x in arrays.items() if name != f"{at}{IN}"}
        return kept | {f"{at}in_proj.{name}.weight": x for name, x in pieces.items()}

    def join_weights(self, arrays: Arrays, at: str) -> Arrays:
        places = [f"{at}in_proj.{name}.weight" for name in PIECES]
        joined = np.concatenate([arrays[place] for place in places])
        return {f"{at}{IN}": joined} | {n: x for n, x in arrays.items() if n not in places}

    def sizes(self, arrays: Arrays, at: str, config: Config) -> Sizes:
        heads, dim = self.axes(arrays, f"{at}in_proj.dd_dt.weight", 2)
        inner, key = (len(arrays[f"{at}{name}"]) for name in ("in_proj.x.weight", NORM))
        if inner % heads:
            raise ValueError(
                f"{at}{OUT} has {inner} columns, which {heads} heads cannot share evenly: give the "
                "num_heads of its config"
            )
        return Sizes(
            dim,
            heads,
            heads,
            key,
            inner // heads,
            0,
            bias=False,
            gate=True,
            normed=f"{at}norm.weight" in arrays,
            count=len(arrays[f"{at}in_proj.angles.weight"]),
        )

    def options(self, s: Sizes, config: Config, eps: float) -> Options:
        return {**super().options(s, config, eps), "output_norm": s.normed, "angles": s.count}

    def parts(self, s: Sizes, norm: str) -> list[Part]:
        wide = s.heads * s.value
        parts = [part for part in super().parts(s, norm) if part.ours != "norm.scale"]
        parts = [
            part._replace(theirs="in_proj.z.weight") if part.ours == "output_gate.weight" else part
            for part in parts
        ]
        for theirs, ours, rows in (
            ("dd_dt", "step", s.heads),
            ("dd_A", "decay", s.heads),
            ("trap", "trapezoid", s.heads),
            ("angles", "angle", s.count),
        ):
            parts.append(linear(f"in_proj.{theirs}", f"{ours}.project", rows, s.dim))
        parts += [Part(RATES, "step.project.bias", (s.heads,)), Part("D", "skip", (s.heads,))]
        for letter, ours in (("B", "key"), ("C", "query")):
            parts.append(Part(f"{letter}_norm.weight", f"{ours}_norm.scale", (s.key,)))
            parts.append(Part(f"{letter}_bias", f"{ours}_bias", (s.heads, 1, s.key), RANK_ONE))
        if s.normed:
            parts.append(Part("norm.weight", "norm.scale", (wide,), by_head(s.heads)))
        return parts

    def move_scales(self, layer: Any) -> Any:
        return layer  # scales may differ between heads there

    def sizes_of(self, layer: Any) -> Sizes:
        angles = 0 if layer.angle is None else layer.angle.project.weight.shape[1]
        s = super().sizes_of(layer)
        more = {"gate": True, "normed": layer.norm is not None, "count": angles}
        return Sizes(**{**vars(s), **more})

    def norm_of(self, layer: Any) -> Any:
        return layer.query_norm

    def eps_of(self, layer: Any, s: Sizes) -> float | None:
        return layer.query_norm.eps

    def config(self, layer: Any, s: Sizes) -> Options:
        return {
            **super().config(layer, s),
            "n_groups": s.heads,
            "is_mimo": False,
            "use_bias": False,
            "rope_fraction": fraction(s.key, s.count),
            "is_outproj_norm": s.normed,
        }

    def shape_options(self, s: Sizes) -> Options:
        wide = expansion(s.heads * s.value, s.dim)
        return {"head_dim": s.value, "state_size": s.key, "expand": wide}

    def config_sizes(self, s: Sizes) -> Options:
        return {
            **super().config_sizes(s),
            "head_dim": s.value,
            "state_size": s.key,
            "is_outproj_norm": s.normed,
        }


def fraction(key: int, angles: int) -> float:
    """Return the ``rope_fraction`` that gives this number of angles.

    If none of theirs does, the exact ratio.
    """
    fractions = (part for part in FRACTIONS if angles and int(key * part) // 2 == angles)
    return next(fractions, 2 * angles / key)
