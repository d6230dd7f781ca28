"""State files of builders: parameters and history, every field checked before it is used."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features.parameters import described
from olsq.online.files import format as files
from olsq.online.files.invariants import MOST_ROWS
from olsq.online.many.labels import JSON_KEYS, written_key

_FIELDS = {"features", "state", "n_features", "n_targets", "feature_names", "metadata"}


def snapshot(builder: Any, state: Any, metadata: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the header and arrays of a builder's file; ValueError for what JSON cannot hold."""
    arrays: dict[str, NDArray] = {}
    names = getattr(builder, "feature_names_in_", None)
    try:
        header = {
            "features": described(builder),
            "state": _extract_arrays(state, "", arrays),
            "n_features": builder.n_features_in_,
            "n_targets": builder._targets,
            "feature_names": None if names is None else list(names),
            "metadata": metadata,
        }
        json.dumps(header)
        if json.loads(json.dumps(metadata)) != metadata or not isinstance(metadata, dict):
            raise TypeError("metadata must be a dictionary of lists, numbers and text")
        # the check that a reader will make, now, while the builder is still there
        _construct_builder(header["features"])._check_parameters()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{type(builder).__name__} cannot be saved: {error}") from None
    return header, arrays


def restore(path: str | os.PathLike[str], header: dict[str, Any], arrays: Any) -> Any:
    """Rebuild the builder that a file holds; StateFileError if the file holds anything else."""
    with files.refusing_foreign_content(path):
        return _rebuild_from(header, dict(arrays))


def _rebuild_from(header: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    if header.keys() != _FIELDS:
        raise ValueError(f"fields {sorted(header)} are not {sorted(_FIELDS)}")
    width, targets, names = (header[k] for k in ("n_features", "n_targets", "feature_names"))
    for name, count in (("n_features", width), ("n_targets", targets)):
        check_count(name, count)
    if names is not None and not (
        isinstance(names, list) and len(names) == width and all(isinstance(s, str) for s in names)
    ):
        raise ValueError(f"feature_names cannot be {names!r}")
    if not isinstance(header["metadata"], dict):
        raise ValueError("metadata must be an object")
    builder = _construct_builder(header["features"])
    builder._check_parameters()
    state = _insert_arrays(header["state"], "", arrays)
    if arrays:
        raise ValueError(f"array {min(arrays)!r} is not expected")
    builder._check_state(state, width, targets)
    builder._adopt(state, width, targets, names, header["metadata"])
    return builder


def _builder_classes() -> dict[str, Any]:
    from olsq import features

    names = [n for n in features.__all__ if n not in ("FeatureBuilder", "Formula")]
    return {name: getattr(features, name) for name in names}


def _construct_builder(description: Any) -> Any:
    """Construct a builder from its description, with those parameters and nothing else."""
    if not isinstance(description, dict) or description.keys() != {"builder", "parameters"}:
        raise ValueError("a builder is an object with builder and parameters")
    kind = _builder_classes().get(description["builder"])
    if kind is None:
        raise ValueError(f"there is no builder {description['builder']!r} in this olsq")
    parameters = description["parameters"]
    if not isinstance(parameters, dict) or not parameters.keys() <= set(kind._parameter_names()):
        raise ValueError(f"{description['builder']} has no parameters {parameters!r}")
    return kind(**{name: _construct_value(v) for name, v in parameters.items()})


def _construct_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_construct_value(v) for v in value]
    if isinstance(value, dict) and value.keys() == {"builder", "parameters"}:
        return _construct_builder(value)
    return value


def _extract_arrays(state: Any, prefix: str, arrays: dict[str, NDArray]) -> Any:
    """Replace every array of the state by a marker and move it to ``arrays``; write keys of groups
    as JSON holds them.
    """
    if isinstance(state, np.ndarray):
        arrays[prefix] = state
        return {"array": prefix}
    if isinstance(state, dict):
        return {
            k: _extract_arrays(v, f"{prefix}.{k}" if prefix else k, arrays)
            for k, v in state.items()
        }
    if isinstance(state, list):
        return [_extract_arrays(v, f"{prefix}.{i}", arrays) for i, v in enumerate(state)]
    return state if state is None or isinstance(state, JSON_KEYS) else written_key(state)


def _insert_arrays(state: Any, prefix: str, arrays: dict[str, NDArray]) -> Any:
    """Put the arrays back in place of their markers, taking them out of ``arrays``."""
    if isinstance(state, dict):
        if state.keys() == {"array"}:
            if state["array"] != prefix or prefix not in arrays:
                raise ValueError(f"array {prefix!r} is missing")
            return arrays.pop(prefix)
        return {
            k: _insert_arrays(v, f"{prefix}.{k}" if prefix else k, arrays) for k, v in state.items()
        }
    if isinstance(state, list):
        return [_insert_arrays(v, f"{prefix}.{i}", arrays) for i, v in enumerate(state)]
    return state


def check_keys(state: Any, keys: set[str]) -> None:
    """Raise ValueError unless a state is a dictionary with exactly these fields."""
    if not isinstance(state, dict) or state.keys() != keys:
        raise ValueError(f"a state must have the fields {sorted(keys)}")


def check_columns(columns: Any, width: int) -> None:
    """Raise ValueError unless ``columns`` is a list of positions of columns of X."""
    if not isinstance(columns, list) or not all(type(c) is int and 0 <= c < width for c in columns):
        raise ValueError(f"columns cannot be {columns!r}")


def check_count(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` can be a number of rows."""
    if type(value) is not int or not 0 <= value <= MOST_ROWS:
        raise ValueError(f"{name} cannot be {value!r}")
