"""State files of regressions by group: the bank's file, with keys and times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.files.loading import loads
from olsq.online.conventions import from_options
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.files.file_checks import is_clock, want
from olsq.online.many import files as bank_files
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import FIRST, FIRST_LEARNT, LAST, LAST_LEARNT, Clocks
from olsq.online.many.keys import read_key, written_key
from olsq.online.rows.durations import DATES, NUMBERS, half_life_duration, plain

NAME = "GroupedLeastSquares"


def written(
    groups: Any, metadata: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return header and arrays of the file."""
    header, arrays = bank_files.written(groups._bank, metadata)
    # The bank has those of the last call; set_params may have changed the groups' since.
    own = {name: getattr(groups, name) for name in FilterBank.CHANGEABLE}
    own["half_life"] = plain(own["half_life"], "half_life")
    header["parameters"] |= {name: bank_files.plain(value) for name, value in own.items()}
    header |= {"estimator": NAME, "keys": [written_key(key) for key in groups._places]}
    if (names := getattr(groups, "feature_names_in_", None)) is not None:
        header["feature_names"] = list(names)
    if groups._clocks is not None:
        header |= {"times": groups._clocks.kind, "zoned": groups._clocks.zoned}
        arrays = arrays | {"times": groups._clocks.values}
    return header, arrays


def read(kind: type[Any], header: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    """Rebuild the groups from header and arrays; ValueError if they cannot be groups."""
    parameters, half_life, clocks = header.get("parameters"), None, None
    if isinstance(parameters, dict):  # the bank knows half-lives of rows only
        half_life = parameters.get("half_life")
        header = header | {"parameters": parameters | {"half_life": None}}
    want(isinstance(half_life, (str, int, float, type(None))), "half_life", half_life)
    half_life_duration(half_life, True)
    if "times" in header:
        clocks = Clocks(header["times"], arrays.pop("times", np.empty(0)), header.get("zoned"))
    bank = bank_files.read(FilterBank, header, arrays)
    if not isinstance(header.get("keys"), list):
        raise ValueError("keys must be a list")
    keys = [read_key(key) for key in header["keys"]]  # none before the first row with a label
    if not len(keys) <= len(bank) or len(set(keys)) < len(keys):
        raise ValueError("keys cannot be those of the groups")
    if clocks is not None:
        _check_clocks(clocks, len(bank))
    given = header.get("feature_names")
    fits = given is None or (
        isinstance(given, list)
        and len(given) == bank.n_features_in_
        and all(isinstance(name, str) for name in given)
    )
    want(fits, "feature_names", given)
    groups = from_options(kind, bank.get_params())
    groups.half_life = half_life
    if given is not None:
        groups.feature_names_in_ = np.asarray(given, dtype=object)
    groups.__dict__.update(
        _bank=bank,
        _places={key: i for i, key in enumerate(keys)},
        _clocks=clocks,
        _residual=np.empty((0,) if bank._n_targets == 0 else (0, bank._n_targets), bank._dtype),
        n_features_in_=bank.n_features_in_,
        metadata_=bank.metadata_,
    )
    return groups


def written_windows(
    groups: Any, metadata: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return header and arrays of the file of rolling regressions: the file of each, in line."""
    names = getattr(groups, "feature_names_in_", None)
    states = [window.to_bytes() for window in groups._windows.values()]
    header = {
        "estimator": type(groups).__name__,
        "keys": [written_key(key) for key in groups._windows],
        "feature_names": None if names is None else list(names),
        "zoned": groups._zoned,
        "metadata": metadata or {},
    }
    # Files are multiples of eight bytes; arrays of bytes are none that a file holds.
    words = [np.frombuffer(state, np.int64) for state in states]
    ends = np.cumsum([word.size for word in words])
    return header, {"states": np.concatenate(words), "ends": ends}


def read_windows(kind: type[Any], header: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    """Rebuild rolling regressions by group; ValueError if they cannot be such groups."""
    fields = {"estimator", "keys", "feature_names", "zoned", "metadata"}
    want(header.keys() == fields, "fields", sorted(header))
    want(is_clock(header["zoned"]), "zoned", header["zoned"])
    want(arrays.keys() == {"states", "ends"}, "arrays", sorted(arrays))
    states, ends = arrays["states"], arrays["ends"]
    for name, array in arrays.items():
        want(array.dtype == np.int64 and array.ndim == 1, name, array.shape)
    want(isinstance(header["keys"], list), "keys", header["keys"])
    keys = [read_key(key) for key in header["keys"]]
    fits = 0 < len(keys) == ends.size == len(set(keys)) and ends[-1] == states.size
    want(fits and bool((np.diff(ends, prepend=0) > 0).all()), "ends", ends.shape)
    windows = [loads(part.tobytes()) for part in np.split(states, ends[:-1])]
    first = windows[0]
    for window in windows:
        want(type(window) is RollingLeastSquares, "a group", type(window).__name__)
        same = window.get_params() == first.get_params()
        want(same, "the parameters of a group", window.get_params())
        shape = window.n_features_in_, window._origin.n_targets
        want(shape == (first.n_features_in_, first._origin.n_targets), "a group's shape", shape)
    names, d = header["feature_names"], first.n_features_in_
    known = names is None or (
        isinstance(names, list) and len(names) == d and all(isinstance(s, str) for s in names)
    )
    want(known, "feature_names", names)
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])
    groups = kind(**first.get_params())
    if names is not None:
        groups.feature_names_in_ = np.asarray(names, dtype=object)
    targets = first._origin.n_targets
    groups.__dict__.update(
        _windows=dict(zip(keys, windows, strict=True)),
        n_features_in_=d,
        _residual=np.empty((0, targets) if targets else 0),
        metadata_=header["metadata"],
        _zoned=header["zoned"],
    )
    return groups


def _check_clocks(clocks: Clocks, n: int) -> None:
    """Raise ValueError unless the times of n groups can be those of a stream."""
    want(clocks.kind in (DATES, NUMBERS), "times", clocks.kind)
    fits = is_clock(clocks.zoned) and (clocks.zoned is None or clocks.kind == DATES)
    want(fits, "zoned", clocks.zoned)
    like = Clocks.start(clocks.kind, n).values
    fits = clocks.values.dtype == like.dtype and clocks.values.shape == like.shape
    want(fits, "times", clocks.values.shape)
    known, values = clocks.known, clocks.values
    want(not np.isinf(values).any(), "times", "an infinite number")
    together = (known[:, FIRST] == known[:, LAST]) & (known[:, FIRST] | ~known[:, FIRST_LEARNT])
    together &= known[:, FIRST_LEARNT] == known[:, LAST_LEARNT]
    want(bool(together.all()), "times", "a time without those that go with it")
    ordered = values[:, [FIRST, FIRST_LEARNT, LAST_LEARNT, LAST]][known.all(axis=1)]
    want(bool((np.diff(ordered, axis=1) >= 0).all()), "times", "times that go back")
