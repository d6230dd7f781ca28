"""Merging two banks, filter by filter, and two sets of groups, key by key."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from olsq.online import form_switch, frozen
from olsq.online.forms.square_root_kernels import DECAY
from olsq.online.many.bank import FilterBank
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.paths import untouched
from olsq.online.many.state import BankState

_MAY_DIFFER = {"n", "n_features", "forget", "half_life", "missing", "prior"}


def merge(first: FilterBank, second: FilterBank) -> FilterBank:
    """The bank whose filters saw first's rows and then second's."""
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
    for name in a.keys() - _MAY_DIFFER:
        if not np.array_equal(np.asarray(a[name]), np.asarray(b[name])):
            raise ValueError(f"cannot merge: {name} differs ({a[name]!r} and {b[name]!r})")
    for name, label in (
        ("n_features_in_", "number of features"), ("_dtype", "dtype"), ("_n_targets", "targets"),
    ):  # fmt: skip
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise ValueError(f"cannot merge: {label} differs ({one} and {other})")


def _merged(first: BankState, second: BankState, kind: Any) -> BankState:
    """The states that saw first's rows and then second's.

    A filter that has no row in one of the two is that of the other, whose ridge it shares.
    """
    result = second.copy()
    result.seen += first.seen
    result.logs += second.tally[:, DECAY] * first.logs
    ones = [untouched(state) for state in (first, second)]
    only_first = np.flatnonzero(ones[1])
    result.put(only_first, first.take(only_first))
    for f in np.flatnonzero(~ones[0] & ~ones[1]).tolist():
        pair = first.switch(f, kind), second.switch(f, kind)
        result.set_switch(f, form_switch.merge(*pair, second.ridge[f]), int(result.seen[f]))
    return result


def merge_groups(first: GroupedLeastSquares, second: GroupedLeastSquares) -> GroupedLeastSquares:
    """The groups of both: a key that both have is merged, one that one has is kept."""
    first, second = copy.copy(first), copy.copy(second)
    for groups in (first, second):
        groups._check_frozen()
    a, b = first._bank_or_raise(), second._bank_or_raise()
    _check_same(a, b)
    places = {**first._places}
    for key in second._places:
        places.setdefault(key, len(places))
    total = max(len(places), 1)  # a bank has a filter, whether or not a label has come
    states = []
    for groups, bank in ((first, a), (second, b)):
        target = np.array([places[key] for key in groups._places], np.int64)
        fresh = np.repeat(bank._full_ridge(bank.n_features_in_)[:1], total, axis=0)
        sandwich = bank.cov == "sandwich"
        state = BankState.start(bank._kind, fresh, max(bank._n_targets, 1), sandwich)
        state.put(target, bank._state.take(np.arange(len(groups))))
        states.append(state)
    b.n = total
    b.__dict__.update(_state=_merged(states[0], states[1], b._kind), _made_with=frozen.snapshot(b))
    second.__dict__.update(_places=places, _residual=second._residual[:0])
    return second
