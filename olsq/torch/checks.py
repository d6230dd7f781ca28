"""Check the numbers of arguments before they are traced, where JAX can no longer see them.

The compiled functions check shapes and dtypes themselves.  These are the checks of the rules'
values, by the name of the argument, with the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from olsq.arrays.checks import check_forget, check_ridge, check_weight, refuse

Arguments = Mapping[str, Any]  # numbers, NumPy arrays, or lists of them, by name


def check_values(
    arguments: Arguments, options: Arguments, *, positive_ridge: bool, weight_of: str
) -> None:
    """Raise ValueError for gates, weights and ridges out of range.

    Parameters
    ----------
    given : mapping
        Arguments that were given.
    options : mapping
        Every option of the function with its value, also those left at their defaults.
    positive_ridge : bool
        Whether a ridge of 0 is refused.
    weight_of : str
        What a weight belongs to: a token, a sample or a step.
    """
    forget, logs = arguments.get("forget"), arguments.get("log_forget")
    check_forget(forget, logs, signed=options.get("signed"))
    if (rate := arguments.get("curvature_forget")) is not None:
        check_forget(rate, name="curvature_forget")
    check_weight(arguments.get("weight"), of=weight_of)
    for name, of in WEIGHTS.items():
        check_weight(arguments.get(name), name=name, of=of)
    for name, (wrong, rule) in RANGES.items():
        if arguments.get(name) is not None:
            refuse(name, arguments[name], wrong, rule)
    ridge = arguments.get("ridge")
    if ridge is not None and positive_ridge:
        refuse("ridge", ridge, lambda r: r <= 0, "be > 0")
    elif ridge is not None:
        check_ridge(ridge)
    if "step" in arguments and "mini_batch" not in options:
        refuse("step", arguments["step"], lambda s: s < 0, "be >= 0 (it is a time)")
    ids = arguments.get("segment_ids")
    if ids is not None and np.ndim(ids) and (np.diff(np.asarray(ids).astype(np.int64)) < 0).any():
        raise ValueError(
            "segment_ids must not decrease along time: packed sequences follow one another"
        )
    position, most = getattr(arguments.get("state"), "position", None), options.get("mini_batch")
    if position is not None and most is not None:
        rule = f"be at most mini_batch = {most}, as the state's was"
        refuse("state.position", position, lambda p: p > most, rule)


Wrong = Callable[[Any], Any]


def _outside_unit(x: Any) -> Any:
    return (x < 0) | (x > 1)


WEIGHTS = {
    "feedback": "token",
    "learning_rate": "token",
    "curvature_weight": "token",
    "erase": "channel",
}
RANGES: dict[str, tuple[Wrong, str]] = {
    "removal_rate": (_outside_unit, "lie in [0, 1]"),
    "trapezoid": (_outside_unit, "lie in [0, 1]"),
    "mix": (_outside_unit, "lie in [0, 1]"),
    "input_gate": (_outside_unit, "lie in [0, 1] (it is a sigmoid's)"),
    "recurrence_gate": (_outside_unit, "lie in [0, 1] (it is a sigmoid's)"),
    "ratio": (lambda r: r <= 0, "be > 0"),
    "log_weight": (np.isposinf, "be less than infinity"),
    "scale": (np.isinf, "be finite"),
}
