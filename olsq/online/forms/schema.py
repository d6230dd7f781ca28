"""The arrays of every state: shape, dtype, and what their numbers satisfy.

One table, from which states are copied, saved, loaded and checked (``files``), and their targets
are parted and joined (``targets``).  What the numbers mean is said with the kernels of each form.
"""

from __future__ import annotations

from typing import NamedTuple

from olsq.forgetting.entries import N_MEMORY

NONE_YET = "finite, or NaN"  # of a target, or a filter, without a row


class Field(NamedTuple):
    """One array of a state.

    ``shape`` holds numbers, and names of sizes: d coefficients, n of them slopes; m targets; s,
    which is d where sandwich errors are kept, else 0; a and r of what a strategy keeps aside; b
    filters of a bank, and c columns that may be intercepts; w rows of a window, and f that its
    factors have room for.

    ``dtype`` is float64, int64, or "time" for int64 nanoseconds of dates or float64.  ``invariant``
    says what the numbers satisfy; :mod:`olsq.online.files.invariants` checks what kernels rely on.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    invariant: str = "finite"
    optional: bool = False  # whether a state may be without it

    @property
    def target_axis(self) -> int | None:
        """The axis of targets, if there is one; "a" is one of them, but in a trial of a break."""
        return next((axis for axis, size in enumerate(self.shape) if size in ("m", "a")), None)


Fields = dict[str, Field]


def under(prefix: str, fields: Fields) -> Fields:
    """Return the fields by their names behind a prefix."""
    return {prefix + name: field for name, field in fields.items()}


COUNTERS: Fields = {
    "columns": Field((2, "d"), invariant="not negative"),
    "tally": Field((4,), invariant="tally"),
}
PROTECTED: Fields = {
    "held": Field((1,), "int64", "row counts"),
    "spread": Field(("s", "s"), invariant="upper triangular"),
}
LOSS: Fields = {"loss": Field(("m",), invariant="not negative, or unknown")}
COVARIANCE: Fields = {
    "P": Field(("d", "d"), invariant="positive definite"),
    "theta": Field(("m", "d")),
    **COUNTERS,
    **LOSS,
    **PROTECTED,
}
SQUARE_ROOT: Fields = {
    "R": Field(("d", "d"), invariant="upper triangular"),
    "z": Field(("m", "d")),
    **COUNTERS,
    **LOSS,
    **PROTECTED,
    "basis": Field(("n", "n"), invariant="orthonormal", optional=True),
}
FACTOR: Fields = {
    "F": Field(("d", "d+m"), invariant="unit triangular"),
    "D": Field(("d",), invariant="not negative"),
    **COUNTERS,
    **LOSS,
    **PROTECTED,
}
FIXED_RIDGE: Fields = {**FACTOR, "ridge": Field(("d",), invariant="not negative")}
STRATEGY: Fields = {
    **FACTOR,
    "memory": Field((N_MEMORY,), invariant="not negative"),
    "variances": Field(("m",), invariant="not negative"),
    "aside": Field(("a", "r"), optional=True),  # files of olsq 0.2 are without it
}
# Of files before the factor.
ADAPTIVE: Fields = {
    **{name: field for name, field in STRATEGY.items() if name not in FACTOR},
    **{name: field for name, field in SQUARE_ROOT.items() if name != "basis"},
}
INFORMATION: Fields = {
    "H": Field(("d", "d"), invariant="semidefinite"),
    "G": Field(("m", "d")),
    "squares": Field(("m",), invariant="not negative, or unknown"),
    **COUNTERS,
    "held": PROTECTED["held"],
    "ridge": Field(("d",), invariant="not negative"),
    "spread": PROTECTED["spread"],
}
# Of moments that R and z stand beside: all of them but the basis, or none.
PAST: Fields = {
    **under("past_", SQUARE_ROOT),
    "past_spread": Field((0, 0)),
    "old": Field(("d",), invariant="not negative"),
}
SWITCH: Fields = {"clock": Field((3,), "int64", optional=True)}  # of earlier files
SPAN: Fields = {"span": Field(("t",), "time", optional=True)}  # t is 2, or 0 before any row
WINDOW: Fields = {
    "ring_X": Field(("w", "d")),
    "ring_Y": Field(("w", "m")),
    "ring_w": Field(("w",), invariant="not negative"),
    "place": Field((3,), "int64", "place"),
    "ridge": Field(("d",), invariant="not negative"),
    "bounds": Field(("d",), invariant="not negative"),
    "squares": Field((3, "m"), invariant="not negative"),
    "counts": Field((2,), "int64", "row counts"),
    "fading": Field((2,), invariant="fading"),
    "ring_t": Field(("w",), "time", optional=True),
    "ring_fade": Field(("w",), invariant="not negative", optional=True),
}
# Of files before the factor, whose rows it is made from.
EARLIER_WINDOW: Fields = {
    **{name: WINDOW[name] for name in ("ring_X", "ring_Y", "ring_w", "place", "ridge", "ring_t")},
    "monitor": Field((2,)),
    "sizes": Field((3, "m"), optional=True),  # files of olsq 0.2 are without it
    "ring_fade": Field(("w",), invariant="shares", optional=True),
}
FACTORS: Fields = {
    "factor_Q": Field(("f", "n")),
    "factor_R": Field(("f", "f")),
    "factor_age": Field((1,), "int64", "row counts"),
}
BANK: Fields = {
    "factor": Field(("b", "d", "d+m"), invariant="unit triangular"),
    "pivots": Field(("b", "d"), invariant="not negative"),
    **{name: field._replace(shape=("b", *field.shape)) for name, field in COUNTERS.items()},
    "loss": Field(("b", "m"), invariant="not negative"),
    "held": Field(("b",), "int64", "row counts"),
    "seen": Field(("b",), "int64", "row counts"),
    "spread": Field(("b", "s", "s"), invariant="upper triangular"),
    "ridge": Field(("b", "d"), invariant="not negative"),
    "logs": Field(("b",)),
    "values": Field(("b", "c"), invariant=NONE_YET),
}
# Of files before the factor: P and theta, or R and z, as ``forms`` says.
EARLIER_BANK: Fields = {
    "forms": Field(("b",), "int64", "not negative"),
    "matrix": Field(("b", "d", "d")),  # what it satisfies depends on the form
    "coefs": Field(("b", "m", "d")),
    **{name: field._replace(shape=("b", *field.shape)) for name, field in COUNTERS.items()},
    "loss": Field(("b", "m"), invariant="not negative"),
    "held": Field(("b",), "int64", "row counts"),
    "clock": Field(("b", 3), "int64"),
    "seen": Field(("b",), "int64", "row counts"),
    "spread": Field(("b", "s", "s"), invariant="upper triangular"),
    "ridge": Field(("b", "d"), invariant="not negative"),
    "logs": Field(("b",)),
}
