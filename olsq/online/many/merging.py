"""Merge two banks filter by filter, and two sets of groups key by key."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import shown
from olsq.online.files import frozen
from olsq.online.forms import form_switch
from olsq.online.forms.counting import DECAY
from olsq.online.many.bank import FilterBank
from olsq.online.many.clocks import FIRST, FIRST_LEARNED, LAST, Clocks
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.labels import keys_of_both
from olsq.online.many.paths import untouched
from olsq.online.many.state import BankState
from olsq.online.rows.durations import half_life_duration
from olsq.online.rows.labels import same_label
from olsq.online.rows.times import same_clock, time_shown

ZONE_IN_ONE = "cannot merge: the times of one have a time zone, those of the other have none"
_MAY_DIFFER = {"n", "n_features", "forget", "half_life", "missing", "prior", "noise_variance"}


def merge(first: FilterBank, second: FilterBank) -> FilterBank:
    """Return the bank whose filters learned first's rows and then second's."""
    if len(first) != len(second):
        raise ValueError(f"cannot merge: n differs ({len(first)} and {len(second)})")
    first, second = copy.copy(first), copy.copy(second)  # each as it is now
    a, b = (bank._state_or_raise() for bank in (first, second))
    for bank in (first, second):
        frozen.check(bank, bank._made_with)
    _check_same(first, second)
    second._state = _merged(a, b, second._kind)
    second._residual = None
    return second


def _check_same(first: FilterBank, second: FilterBank) -> None:
    if first.prior is not None or second.prior is not None:
        raise ValueError("cannot merge: the filters began from a prior, which would count twice")
    a, b = first.get_params(), second.get_params()
    if first._kind.is_complex != second._kind.is_complex:
        raise ValueError("cannot merge: one has learned complex rows, the other real ones")
    check_parameters(a, b, a.keys() - _MAY_DIFFER)
    check_attributes(
        first,
        second,
        {"n_features_in_": "number of features", "_dtype": "dtype", "_n_targets": "targets"},
    )


def check_parameters(a: dict[str, Any], b: dict[str, Any], names: Collection[str]) -> None:
    """Raise ValueError if parameters of these names differ."""
    for name in names:
        if not frozen.equal(name, a[name], b[name]):
            one, other = shown(a[name]), shown(b[name])
            raise ValueError(f"cannot merge: {name} differs ({one} and {other})")


def check_attributes(first: Any, second: Any, labels: dict[str, str]) -> None:
    """Raise ValueError if attributes differ; ``labels`` are what they are called, by name."""
    for name, label in labels.items():
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise ValueError(f"cannot merge: {label} differs ({one} and {other})")


def check_names(first: Any, second: Any) -> None:
    """Raise ValueError if both have names of features, and these differ."""
    names, second_names = (getattr(one, "feature_names_in_", None) for one in (first, second))
    if names is not None and second_names is not None and list(names) != list(second_names):
        raise ValueError("cannot merge: feature names differ")


def _merged(
    first: BankState,
    second: BankState,
    kind: Any,
    clocks: tuple[Clocks, Clocks] | None = None,
    half_life: float | None = None,
) -> BankState:
    """Return the states of first's rows followed by second's.

    A filter that has no row in one of the two is that of the other, whose ridge it shares.  With
    ``clocks`` of both and a half-life in time a filter of first forgets what passes until second's
    first row.
    """
    result = second.copy()
    result.seen += first.seen
    result.logs += second.tally[:, DECAY] * first.logs
    a, b = first.values, second.values  # NaN in filters without a row
    result.values[:] = np.where(np.isnan(b), a, np.where(np.isnan(a) | (a == b), b, 0.0))
    none = [untouched(state) for state in (first, second)]
    if clocks is not None:  # a row of weight 0 is a row: forgetting goes on from its time
        none = [~times.known[:, FIRST_LEARNED] for times in clocks]
    only_first = np.flatnonzero(none[1])
    result.put(only_first, first.take(only_first))
    for f in np.flatnonzero(~none[0] & ~none[1]).tolist():
        a, b = first.switch(f, kind), second.switch(f, kind)
        if clocks is not None and half_life is not None:
            a.span, b.span = (times.span(f) for times in clocks)
            gate = form_switch.gate_between(a, b, half_life)
            result.logs[f] += (gate - 1) * second.tally[f, DECAY] * first.logs[f]
        merged = form_switch.merge(a, b, second.ridge[f], half_life)
        result.set_switch(f, merged, int(result.seen[f]))
    return result


def merge_groups(first: GroupedLeastSquares, second: GroupedLeastSquares) -> GroupedLeastSquares:
    """Return the groups of both: keys of both are merged, keys of one are kept."""
    first, second = copy.copy(first), copy.copy(second)
    for groups in (first, second):
        groups._check_frozen()
    a, b = first._bank_or_raise(), second._bank_or_raise()
    _check_same(a, b)
    check_names(first, second)
    if hasattr(first, "feature_names_in_"):
        second.feature_names_in_ = first.feature_names_in_
    keys = keys_of_both(first._places, second._places)
    places = {label: place for place, label in enumerate(keys)}
    targets = [
        np.array([places[same_label(key)] for key in groups._places], np.int64)
        for groups in (first, second)
    ]
    total = max(len(places), 1)  # a bank has a filter, whether or not a label has come
    clocks = _clocks_of_both((first, second), targets, list(keys.values()), total)
    duration = half_life_duration(second.half_life, clocks is not None)
    states = []
    for groups, bank, target in zip((first, second), (a, b), targets, strict=True):
        fresh = np.repeat(bank._full_ridge(bank.n_features_in_)[:1], total, axis=0)
        sandwich = bank.cov == "sandwich"
        state = BankState.start(bank._kind, fresh, max(bank._n_targets, 1), sandwich)
        state.put(target, bank._state.take(np.arange(len(groups))))
        states.append(state)
    b.n = total
    length = None if duration is None else duration.length
    state = _merged(states[0], states[1], b._kind, clocks, length)
    b.__dict__.update(_state=state, _made_with=frozen.snapshot(b))
    second.__dict__.update(
        _places={key: place for place, key in enumerate(keys.values())},
        _residual=second._residual[:0],
        _clocks=None if clocks is None else clocks[0].followed_by(clocks[1]),
    )
    return second


def _clocks_of_both(
    both: tuple[GroupedLeastSquares, GroupedLeastSquares],
    targets: list[NDArray[np.int64]],
    keys: list[Any],
    total: int,
) -> tuple[Clocks, Clocks] | None:
    """Return the clocks of all groups in each of the two; None if times do not count.

    ``targets`` are the places of each one's groups among the ``keys``.

    Raises ValueError if one has learned rows without times, or a group's rows of second begin
    before those of first end.
    """
    timed = [groups._clocks for groups in both if groups._clocks is not None]
    kinds = {clocks.kind for clocks in timed}
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ValueError("cannot merge: the times of one are dates, of the other numbers")
    zoned = same_clock(timed[0].zoned, timed[-1].zoned, ZONE_IN_ONE)
    aligned = []
    for groups, target in zip(both, targets, strict=True):
        clocks = Clocks.start(next(iter(kinds)), total, zoned)
        if groups._clocks is not None:
            clocks.values[target] = groups._clocks.values[: len(target)]
        elif groups.n_samples_seen_.any():
            raise ValueError("cannot merge: one of the two has learned rows without times")
        aligned.append(clocks)
    a, b = aligned
    back = a.known[:, LAST] & b.known[:, FIRST] & (b.values[:, FIRST] < a.values[:, LAST])
    if back.any():
        f = int(np.argmax(back))
        edges = b.values[f, FIRST], a.values[f, LAST]
        begins, ends = (time_shown(a.kind, t, zoned) for t in edges)
        raise ValueError(
            f"cannot merge: group {keys[f]!r} of second begins at {begins}, before that of "
            f"first ends, at {ends}"
        )
    return a, b
