"""States that are signed rightly and hold anything: refused, or wrong, but never a crash."""

from __future__ import annotations

import copy
import struct
import time
import tracemalloc
from functools import cache

import numpy as np
import pytest

import olsq
from olsq import features
from tests.tiers import nightly

from .fuzz_states import content_of, fuzz
from .random_parameters import VALUES
from .state_kinds import (  # fmt: skip
    BANKS,
    BUILDERS,
    KINDS,
    X,
    Y,
    learn_ten_rows,
    outcome,
    put_together,
    saved,
    take_apart,
)

kept = cache(saved)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_edited_states_are_refused_or_learn(kind):
    """A sample of what ``python -m tests.online.fuzz_states`` tries, and a thousand at night."""
    whole = kept(kind)
    assert outcome(whole) == "learned"
    found = {outcome(content_of(kind, whole, 11, i)) for i in range(15)}
    assert found <= {"refused", "refused later", "learned"}
    assert len(found) > 1


@pytest.mark.parametrize("kind", nightly(KINDS))
def test_a_thousand_edited_states(kind):
    counts, broken = fuzz(kind, 1000, 0)
    assert broken == []
    assert counts.total() == 1000


def spellings(value):
    """Other values that compare as equal to a parameter: 9.0 for 9, True for 1."""
    if isinstance(value, (list, tuple)):
        return [type(value)([other, *value[1:]]) for v in value[:1] for other in spellings(v)]
    kinds = (int, float, bool, np.int64, np.float32, np.float64, np.array)
    numbers = [value] if type(value) in (int, float, bool) and value < np.inf else []
    return [kind(v) for v in numbers for kind in kinds if kind(v) == v]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_after_a_change_of_parameters_is_loaded(kind):
    """Whatever the values: a change is refused before a file is written, or the file is read."""
    for name in olsq.loads(kept(kind))._parameter_names():
        value = getattr(olsq.loads(kept(kind)), name)
        for other in spellings(value) + VALUES.get(name, []):
            learned = olsq.loads(kept(kind)).set_params(**{name: copy.deepcopy(other)})
            try:
                content = learned.to_bytes()
            except (ValueError, TypeError):
                continue
            assert olsq.loads(content).to_bytes() == content


def with_words(content, name, words):
    """The state with other numbers, (place, number) each, in one of its arrays."""
    header, data = take_apart(content)
    (entry,) = (array for array in header["arrays"] if array["name"] == name)
    raw = bytearray(data)
    for place, number in words:
        at = entry["offset"] + 8 * place
        raw[at : at + 8] = struct.pack("<q" if entry["dtype"] == "<i8" else "<d", number)
    return put_together(header, bytes(raw))


def with_fields(content, **fields):
    header, data = take_apart(content)
    return put_together(header | fields, data)


def refused(content, most_seconds=1.0, most_bytes=50e6):
    """The message with which a state is refused, at little cost.

    What believed the state's counts would take minutes; garbage of other tests may be collected
    meanwhile, which took a tenth of a second once.
    """
    begun = time.process_time()
    with pytest.raises(olsq.StateFileError) as refusal:
        olsq.loads(content)
    assert time.process_time() - begun < most_seconds
    tracemalloc.start()
    try:
        with pytest.raises(olsq.StateFileError):
            olsq.loads(content)
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()
    return str(refusal.value)


COUNTS = [10**6, 10**8, 2**31, 2**53, 2**62, 2**63, 10**30, 10**300]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["n_features", "n_targets"])
def test_counts_of_the_header_are_compared_with_the_arrays(kind, name):
    for count in COUNTS:
        content = with_fields(kept(kind), **{name: count})
        if kind in BUILDERS and count <= 2**53:
            # A builder holds no number for each column of its table: it may look at one of many.
            outcome(content)
            continue
        assert name in refused(content)


@pytest.mark.full
@pytest.mark.parametrize("kind", BANKS)
def test_the_number_of_filters_is_compared_with_the_arrays(kind):
    parameters = take_apart(kept(kind))[0]["parameters"]
    for count in COUNTS:
        assert "ridge" in refused(with_fields(kept(kind), parameters=parameters | {"n": count}))


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [("fir", "taps"), ("fir", "delay"), ("arx", "na"), ("arx", "nb"), ("arx", "delay"),
     ("lags", "lags"), ("narx", "na"), ("narx", "degree"), ("fourier", "order"),
     ("trend", "degree"), ("one hot", "max_levels"), ("random fourier", "n_components")],
)  # fmt: skip
def test_counts_of_builders_are_bounded(kind, parameter):
    features_of = take_apart(kept(kind))[0]["features"]
    for count in [10**6, *COUNTS]:
        other = features_of | {"parameters": features_of["parameters"] | {parameter: count}}
        content = with_fields(kept(kind), features=other)
        refused(content)


def test_the_most_that_a_builder_lists():
    with pytest.raises(ValueError, match="taps must be an integer <= 1,000,000"):
        features.FIR(10**7).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="degree must be an integer <= 1,000"):
        features.Trend(10**7).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="order must be an integer <= 10,000"):
        features.Fourier("365D", 10**7, of="t")._check_parameters()
    # A week has the 12 harmonics of the day, and a year of 8766 hours three of them.
    assert len(features.Fourier([24, 168, 8766], [12, 84, 4383])._waves()) == 12 + 72 + 4380


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("covariance", "D", [(0, -1e-300)]),
        ("covariance", "held", [(0, 2**62)]),
        ("fixed ridge", "ridge", [(1, -1.0)]),
        ("rolling", "place", [(0, 10)]),
        ("robust", "recent_at", [(2, 15)]),
        ("bank", "pivots", [(0, -1e-300)]),
        ("bank", "held", [(1, 2**62)]),
        ("bank", "seen", [(1, 2**62)]),
    ],
)
def test_what_kernels_rely_on_is_checked(kind, name, words):
    assert name in refused(with_words(kept(kind), name, words))


@pytest.mark.parametrize("shape", [[2**62, 0], [0, 2**62], [10**30, 0], [2**48, 0, 0]])
def test_empty_arrays_with_a_long_axis(shape):
    header, data = take_apart(kept("covariance"))
    for entry in header["arrays"]:
        if entry["name"] == "spread":
            entry["shape"] = shape
    refused(put_together(header, data))


def test_memory_that_is_not_there_is_a_refusal(tmp_path, monkeypatch):
    path = tmp_path / "s.olsq"
    path.write_bytes(kept("covariance"))

    def fail(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(olsq.RecursiveLeastSquares, "_restore", fail)
        with pytest.raises(olsq.StateFileError, match=r"s\.olsq.*MemoryError"):
            olsq.load(path)
    with monkeypatch.context() as patch:
        patch.setattr("olsq.online.files.format.unpacked", fail)
        with pytest.raises(olsq.StateFileError, match="does not fit into memory"):
            olsq.load(path)


def test_only_the_first_bytes_of_another_file_are_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no disk
    with pytest.raises(olsq.StateFileError, match="not an olsq state file"):
        olsq.load(path)


@pytest.mark.parametrize("kind", ["covariance", "grouped", "rolling"])
def test_what_was_loaded_can_be_saved_and_loaded_again(kind):
    """Counters do not run over: what loads today loads after the next rows."""
    name = "held" if kind != "rolling" else "form_held"
    estimator = olsq.loads(with_words(kept(kind), name, [(0, 2**53 - 100)]))
    learn_ten_rows(estimator)
    assert olsq.loads(estimator.to_bytes()).n_features_in_ == 2
