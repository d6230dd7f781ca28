"""Options of a model as JSON text, with solvers by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from olsq.solvers import SOLVERS

MOST_STEPS = 1_000_000  # of a solver in a file


def encode(options: dict[str, Any]) -> str:
    """Write the options as JSON text, keys sorted."""
    return json.dumps(options, default=_plain, sort_keys=True)


def decode(text: str) -> dict[str, Any]:
    """Rebuild the options and solvers from the text made by :func:`encode`.

    Raises
    ------
    ValueError
        If the text is not JSON, or names an unknown solver or field.
    """
    try:
        return json.loads(text, object_hook=_revive)
    except TypeError as error:
        raise ValueError(f"unknown field of a solver: {error}") from None


def _plain(x: Any) -> Any:
    name = type(x).__name__
    if name in SOLVERS:
        return {"solver": name, **dataclasses.asdict(x)}
    if hasattr(x, "shape"):
        return np.asarray(x).tolist()
    raise TypeError(f"{name} cannot be written to a file as an option of a model")


def _revive(entries: dict[str, Any]) -> Any:
    name = entries.get("solver")
    if not isinstance(name, str):
        return entries
    if name not in SOLVERS:
        raise ValueError(f"unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    fields = {k: v for k, v in entries.items() if k != "solver"}
    for field, value in fields.items():
        _check_field(name, field, value)
    return SOLVERS[name](**fields)


def _check_field(name: str, field: str, value: Any) -> None:
    """Raise ValueError unless the value is of the kind of the field's default, and no huge count.

    Solvers loop on their integers: a file must not make that a loop without end.
    """
    solver: Any = SOLVERS[name]
    types = {f.name: str(f.type) for f in dataclasses.fields(solver)}
    if field not in types:
        raise ValueError(f"{name} has no field {field!r}")
    kind, allowed = types[field], type(value).__name__
    fits = (
        allowed in kind
        or (value is None and "None" in kind)
        or (type(value) is int and "float" in kind)
        or (type(value) is str and "Literal" in kind)
    )
    if not fits or (type(value) is int and not abs(value) <= MOST_STEPS):
        raise ValueError(f"{field} of {name} cannot be {value!r}")
