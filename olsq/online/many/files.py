"""Load banks and regressions by group from headers and arrays that may hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.files.loading import loads
from olsq.online.conventions import from_options
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.files.file_checks import is_clock
from olsq.online.files.invariants import (
    check_common,
    check_counts,
    check_fields,
    check_names,
    want,
)
from olsq.online.forms import schema
from olsq.online.forms.earlier import COVARIANCE, square_root_of
from olsq.online.forms.factor.form import factor_of
from olsq.online.forms.schema import Fields
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import Clocks
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.labels import read_key
from olsq.online.many.paths import untouched
from olsq.online.many.rolling_groups import GroupedRollingLeastSquares
from olsq.online.many.state import BankState
from olsq.online.rows.durations import DATES, NUMBERS, half_life_duration

_FIELDS = {"estimator", "parameters", "n_features", "n_targets", "dtype", "metadata"}
_OF_WINDOWS = {"estimator", "keys", "feature_names", "zoned", "metadata"}


def read_bank(header: dict[str, Any], arrays: dict[str, NDArray]) -> FilterBank:
    """Rebuild a bank from header and arrays; ValueError if they cannot be a bank's."""
    check_common(FilterBank, header, _FIELDS)
    want("n" in header["parameters"], "parameters", header["parameters"])
    check_counts(header, arrays)
    bank, of_complex = FilterBank(**header["parameters"]), header.get("complex", False)
    want(isinstance(of_complex, bool), "complex", of_complex)
    # Before anything of that size is made: how many filters and coefficients there are.
    shape, d, n_targets = (
        np.shape(arrays.get("ridge", ())),
        header["n_features"],
        header["n_targets"],
    )
    part = 2 if of_complex else 1
    fits = type(bank.n) is int and shape in ((bank.n, part * d), (bank.n, part * (d + 1)))
    want(fits, "the shape of ridge", list(shape))
    try:
        bank._check_ranges(n_targets)
        n, k = bank._full_ridge(d).shape
    except TypeError as error:
        raise ValueError(str(error)) from None
    want(bank.n_features in (None, d), "n_features", bank.n_features)
    want(bank.fit_intercept in (True, False), "fit_intercept", bank.fit_intercept)
    sizes = {"b": n, "d": part * k, "m": max(n_targets, 1)}
    sizes |= {"d+m": sizes["d"] + sizes["m"], "s": sizes["d"] if bank.cov == "sandwich" else 0}
    dtype = np.dtype(header["dtype"])
    kind = bank._kind_of(dtype, of_complex)
    sizes["c"] = 0 if kind.intercept or of_complex else k
    if "forms" in arrays:
        arrays = _factored(bank, arrays, sizes)
    with_values: dict[str, NDArray] = {"values": np.zeros((n, sizes["c"])), **arrays}
    _check(bank, with_values, schema.BANK, sizes)
    state = BankState(**with_values)
    if "values" not in arrays and bank.prior is None:  # of an earlier olsq: they are unknown
        state.values[untouched(state)] = np.nan
    bank._settle(state, kind, d, n_targets, dtype, header["metadata"])
    return bank


def _check(bank: Any, arrays: dict[str, NDArray], fields: Fields, sizes: dict[str, int]) -> None:
    if strange := sorted(arrays.keys() ^ fields.keys()):
        raise ValueError(f"array {strange[0]!r} is missing or unexpected")
    check_fields(arrays, fields, sizes)


def _factored(bank: Any, arrays: dict[str, NDArray], sizes: dict[str, int]) -> dict[str, NDArray]:
    """Convert the arrays of an earlier file, with P and theta or R and z for every filter."""
    _check(bank, arrays, schema.EARLIER_BANK, sizes)
    matrix, coefs, inverted = arrays["matrix"], arrays["coefs"], arrays["forms"] == COVARIANCE
    R, z = matrix.copy(), coefs.copy()
    R[inverted], z[inverted] = square_root_of(R[inverted], z[inverted])
    F, D = factor_of(R, z)
    arrays = arrays | {"factor": F, "pivots": D}
    return {name: arrays[name] for name in schema.BANK if name in arrays}


def _read_keys(keys: Any) -> list[Any]:
    """Rebuild the keys of groups, each of which is there once."""
    want(isinstance(keys, list), "keys", keys)
    keys = [read_key(key) for key in keys]
    want(len(set(keys)) == len(keys), "keys", keys)
    return keys


def read_groups(header: dict[str, Any], arrays: dict[str, NDArray]) -> GroupedLeastSquares:
    """Rebuild the groups from header and arrays; ValueError if they cannot be groups."""
    parameters, half_life, clocks = header.get("parameters"), None, None
    if isinstance(parameters, dict):  # the bank knows half-lives of rows only
        half_life = parameters.get("half_life")
        header = header | {"parameters": parameters | {"half_life": None}}
    want(isinstance(half_life, (str, int, float, type(None))), "half_life", half_life)
    half_life_duration(half_life, True)
    if "times" in header:
        clocks = Clocks(header["times"], arrays.pop("times", np.empty(0)), header.get("zoned"))
    bank = read_bank(header, arrays)
    keys = _read_keys(header.get("keys"))  # none before the first row with a label
    want(len(keys) <= len(bank), "keys", keys)
    if clocks is not None:
        _check_clocks(clocks, len(bank))
    groups = from_options(GroupedLeastSquares, bank.get_params() | {"half_life": half_life})
    _name(groups, header.get("feature_names"), bank.n_features_in_)
    groups.__dict__.update(
        _bank=bank,
        _places={key: i for i, key in enumerate(keys)},
        _clocks=clocks,
        _residual=np.empty((0,) if bank._n_targets == 0 else (0, bank._n_targets), bank._dtype),
        n_features_in_=bank.n_features_in_,
        metadata_=bank.metadata_,
    )
    return groups


def _name(groups: Any, names: Any, n_features: int) -> None:
    """Set the names of the features that a file holds, if it does."""
    check_names(names, n_features, "feature_names")
    if names is not None:
        groups.feature_names_in_ = np.asarray(names, dtype=object)


def read_windows(header: dict[str, Any], arrays: dict[str, NDArray]) -> GroupedRollingLeastSquares:
    """Rebuild rolling regressions by group; ValueError if they cannot be such groups."""
    want(header.keys() == _OF_WINDOWS, "fields", sorted(header))
    want(is_clock(header["zoned"]), "zoned", header["zoned"])
    want(arrays.keys() == {"states", "ends"}, "arrays", sorted(arrays))
    states, ends = arrays["states"], arrays["ends"]
    for name, array in arrays.items():
        want(array.dtype == np.int64 and array.ndim == 1, name, array.shape)
    keys = _read_keys(header["keys"])
    fits = 0 < max(len(keys), 1) == ends.size and ends[-1] == states.size
    want(fits and bool((np.diff(ends, prepend=0) > 0).all()), "ends", ends.shape)
    windows = [loads(part.tobytes()) for part in np.split(states, ends[:-1])]
    first = windows[0]
    for window in windows:
        want(type(window) is RollingLeastSquares, "a group", type(window).__name__)
        same = window.get_params() == first.get_params()
        want(same, "the parameters of a group", window.get_params())
        shape = window.n_features_in_, window._origin.n_targets
        want(shape == (first.n_features_in_, first._origin.n_targets), "a group's shape", shape)
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])
    want(bool(keys) or first.n_samples_seen_ == 0, "keys", keys)
    groups = GroupedRollingLeastSquares(**first.get_params())
    _name(groups, header["feature_names"], first.n_features_in_)
    groups._settle(dict(zip(keys, windows, strict=False)), first, header["zoned"])
    groups.metadata_ = header["metadata"]
    return groups


def _check_clocks(clocks: Clocks, n: int) -> None:
    """Raise ValueError unless the times are those of n groups."""
    want(clocks.kind in (DATES, NUMBERS), "times", clocks.kind)
    fits = is_clock(clocks.zoned) and (clocks.zoned is None or clocks.kind == DATES)
    want(fits, "zoned", clocks.zoned)
    like = Clocks.start(clocks.kind, n).values
    fits = clocks.values.dtype == like.dtype and clocks.values.shape == like.shape
    want(fits, "times", clocks.values.shape)
