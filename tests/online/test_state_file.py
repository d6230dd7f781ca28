"""Saving and loading: the file's layout, its refusals, and that it appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import olsq
from olsq.online.files import format as state_files


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    est = olsq.RecursiveLeastSquares(forget=0.99, ridge=[0.1, 0.2]).fit(
        rng.standard_normal((50, 2)), rng.standard_normal(50)
    )
    path = tmp_path / "state.olsq"
    est.save(path, metadata={"offset": 50, "name": "näme"})
    return est, path


def test_round_trip(saved):
    est, path = saved
    loaded = olsq.load(path)
    assert loaded.get_params() == est.get_params()
    assert loaded.metadata_ == {"offset": 50, "name": "näme"}
    assert loaded.n_samples_seen_ == 50
    np.testing.assert_array_equal(loaded.coef_, est.coef_)
    np.testing.assert_array_equal(loaded.residual_, est.residual_)


def test_layout_is_the_documented_one(saved):
    _, path = saved
    content = path.read_bytes()
    magic, version, length = struct.unpack_from("<8sIQ", content)
    assert magic == b"\x89OLSQ\r\n\x1a"
    assert version == 2
    assert content[-32:] == hashlib.sha256(content[:-32]).digest()
    header = json.loads(content[20 : 20 + length])
    arrays = {a["name"]: a for a in header["arrays"]}
    place = arrays["F"]  # (3, 4): of an intercept and two slopes, and of one target
    start = 20 + length + place["offset"]
    assert start % 8 == 0
    F = np.frombuffer(content, place["dtype"], 12, start).reshape(3, 4)
    np.testing.assert_allclose(np.linalg.solve(F[:, :3], F[:, 3])[1:], saved[0].coef_, rtol=1e-12)


def test_every_truncation_is_refused(saved, tmp_path):
    content = saved[1].read_bytes()
    short = tmp_path / "short.olsq"
    for length in [0, 1, 7, 8, 12, 19, 20, 100, len(content) - 33, len(content) - 1]:
        short.write_bytes(content[:length])
        with pytest.raises(olsq.StateFileError, match=r"short\.olsq"):
            olsq.load(short)


def test_every_damaged_byte_is_refused(saved, tmp_path):
    content = bytearray(saved[1].read_bytes())
    bad = tmp_path / "bad.olsq"
    for position in range(0, len(content), 37):
        content[position] ^= 0x40
        bad.write_bytes(content)
        with pytest.raises(olsq.StateFileError):
            olsq.load(bad)
        content[position] ^= 0x40


def test_foreign_and_newer_files_are_refused(saved, tmp_path):
    foreign = tmp_path / "data.csv"
    foreign.write_text("a,b\n1,2\n")
    with pytest.raises(olsq.StateFileError, match="not an olsq state file"):
        olsq.load(foreign)
    body = bytearray(saved[1].read_bytes()[:-32])
    for version, match in ((3, r"format 3.*Upgrade"), (1, r"format 1.*Fit again")):
        body[8:12] = struct.pack("<I", version)
        newer = tmp_path / "newer.olsq"
        newer.write_bytes(bytes(body) + hashlib.sha256(body).digest())
        with pytest.raises(olsq.StateFileError, match=match):
            olsq.load(newer)
    with pytest.raises(FileNotFoundError):
        olsq.load(tmp_path / "absent.olsq")


def test_unknown_estimator_is_refused(tmp_path):
    path = tmp_path / "x.olsq"
    state_files.write(path, {"estimator": "Nonsense"}, {})
    with pytest.raises(olsq.StateFileError, match="Nonsense"):
        olsq.load(path)


def test_a_failed_write_leaves_the_old_file(saved, tmp_path, monkeypatch):
    est, path = saved
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        est.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state.olsq"]


def test_not_fitted_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        olsq.RecursiveLeastSquares().save(tmp_path / "x.olsq")
    assert not os.listdir(tmp_path)


def test_rolling_resumes_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    for cut in (2, 30, 200):
        est = olsq.RollingLeastSquares(window=40, min_samples=5).partial_fit(X[:cut], y[:cut])
        est.save(tmp_path / "r.olsq")
        loaded = olsq.load(tmp_path / "r.olsq")
        for e in (est, loaded):
            e.partial_fit(X[cut:], y[cut:])
        for name, array in est._engine.arrays().items():
            assert array.tobytes() == loaded._engine.arrays()[name].tobytes(), name


@pytest.mark.full
def test_a_window_that_shrinks_by_rounding_can_be_saved(tmp_path):
    """Sums of what came into the window and left it are not negative, whatever rounding does."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 2)), rng.standard_normal(400)
    X *= 10.0 ** -np.linspace(-12, 12, 400)[:, None]
    for ridge in (0.0, 1e-3):
        est = olsq.RollingLeastSquares(window=10, ridge=ridge)
        for t in range(400):
            est.partial_fit(X[t : t + 1], y[t : t + 1], [rng.choice([0.1, 0.3, 1e6])])
            est.save(tmp_path / "r.olsq")
            loaded = olsq.load(tmp_path / "r.olsq")
        np.testing.assert_array_equal(est.predict(X), loaded.predict(X))


# -- files with a right checksum and wrong content -------------------------------------------------

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((30, 2)), RNG.standard_normal((30, 2))
KINDS = {
    "covariance": olsq.RecursiveLeastSquares(forget=0.95),
    "sqrt": olsq.RecursiveLeastSquares(method="sqrt", ridge=[0.1, 0.2]),
    "information": olsq.RecursiveLeastSquares(method="information", half_life=9.0),
    "rolling": olsq.RollingLeastSquares(window=9, min_samples=2),
    "rolling, few rows": olsq.RollingLeastSquares(window=2),
    "sandwich": olsq.RecursiveLeastSquares(forget=0.95, cov="sandwich"),
    "groups": olsq.RecursiveLeastSquares(missing="skip_target"),
    "rolling groups": olsq.RollingLeastSquares(
        window=9, missing="skip_target", window_of="positions"
    ),
    "window in time": olsq.RollingLeastSquares(window="9D"),
    "window in numbers": olsq.RollingLeastSquares(window=9.0, min_samples=2),
    "half-life in time": olsq.RecursiveLeastSquares(half_life="9D"),
    "half-life in numbers, groups": olsq.RecursiveLeastSquares(half_life=9, missing="skip_target"),
}
TIMES = {
    "in time": np.datetime64("2024-01-01") + np.arange(30), "in numbers": np.arange(30.0),
}  # fmt: skip
SOME = np.where(np.arange(60).reshape(30, 2) % 7 == 3, np.nan, Y)  # of each target others


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    for name, estimator in KINDS.items():
        times = next((times for kind, times in TIMES.items() if kind in name), None)
        estimator.fit(X, SOME if "groups" in name else Y, times=times)
        estimator.save(folder / name, metadata={"a": [1, None]})
    return folder


def take_apart(path):
    content = path.read_bytes()
    length = int.from_bytes(content[12:20], "little")
    return json.loads(content[20 : 20 + length]), content[20 + length : -32]


def put_together(path, header, data, length=None):
    """A file with a right checksum, whatever it holds."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(20 + len(text)) % 8)
    length = len(text) if length is None else length
    body = struct.pack("<8sIQ", state_files.MAGIC, state_files.VERSION, length) + text + data
    path.write_bytes(body + hashlib.sha256(body).digest())
    return path


def usable(estimator):
    """Goes on without reading outside of an array or turning for ever."""
    assert estimator.predict(X).shape[0] == 30
    timing = estimator._timing
    gates = None if timing or isinstance(estimator, olsq.RollingLeastSquares) else 0.9
    for rows in (1, 30):
        times = None
        if timing is not None:
            steps = np.arange(rows) * (1.0 if timing.kind == "numbers" else np.timedelta64(1, "D"))
            last = estimator._timing.last
            times = steps + (last if timing.kind == "numbers" else np.datetime64(last, "ns"))
        estimator.partial_fit(X[:rows], Y[:rows], forget=gates, times=times)
    assert np.isfinite(estimator.coef_).all()


@pytest.mark.parametrize("kind", KINDS)
def test_taken_apart_and_put_together_again(files, tmp_path, kind):
    loaded = olsq.load(put_together(tmp_path / "s", *take_apart(files / kind)))
    np.testing.assert_array_equal(loaded.coef_, KINDS[kind].coef_)
    usable(loaded)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"7", b"{}", b'{"arrays": 3}', b'{"arrays": [3]}', b"\xff\xfe",
     b"[" * 100_000, b'{"arrays": [{}]}', b"9" * 5000, b'{"arrays": []}'],
)  # fmt: skip
def test_headers_that_are_none(tmp_path, text):
    path = put_together(tmp_path / "s.olsq", text, b"")
    with pytest.raises(olsq.StateFileError, match=r"s\.olsq"):
        olsq.load(path)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_lengths_of_the_header_that_are_wrong(files, tmp_path, length):
    path = put_together(tmp_path / "s.olsq", *take_apart(files / "sqrt"), length=length)
    with pytest.raises(olsq.StateFileError, match=r"s\.olsq"):
        olsq.load(path)


WRONG_ENTRIES = {
    "shape": [None, 3, "3", [-1], [2.0], [True], [2**62, 2**62], [10**12], [1, 1, 1, 1], [[3]], []],
    "offset": [None, -8, -1, 1, 4, 2**63, 10**12, 8.0, "0", True],
    "dtype": [None, "O", "<f2", "<i4", ">f8", "<c16", "V8", "U9", "<M8[s]", "nonsense", 8, ["<f8"]],
    "name": [None, 3, "other", ["P"]],
}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", WRONG_ENTRIES)
def test_every_wrong_field_of_every_array(files, tmp_path, kind, field):
    whole, data = take_apart(files / kind)
    for i, array in enumerate(whole["arrays"]):
        if array["name"] == "last_residual" and field == "shape":
            continue  # any number of rows may have come last
        for value in WRONG_ENTRIES[field]:
            header = json.loads(json.dumps(whole))
            header["arrays"][i][field] = value
            with pytest.raises(olsq.StateFileError):
                olsq.load(put_together(tmp_path / "s", header, data))
        for change in (lambda a: a.pop(field), lambda a: a.update(more=1)):
            header = json.loads(json.dumps(whole))
            change(header["arrays"][i])
            with pytest.raises(olsq.StateFileError):
                olsq.load(put_together(tmp_path / "s", header, data))


WRONG_NUMBERS = {
    "clock": [[1, 0, 0], [-1, 1, 0], [1, 1, -1]],
    "place": [[-1, 0], [0, -1], [17, 0], [0, 16], [2**40, 0]],
    "held": [[-1]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_numbers_in_arrays(files, tmp_path, kind):
    header, data = take_apart(files / kind)
    for array in header["arrays"]:
        name, offset = re.sub(r"^(group\d_)?(form_)?", "", array["name"]), array["offset"]
        if 0 in array["shape"]:
            continue
        wrong = [np.array(v, "<i8") for v in WRONG_NUMBERS.get(name, [])]
        if name not in WRONG_NUMBERS and name != "last_residual" and array["dtype"] != "<i8":
            wrong = [np.array([v], array["dtype"]) for v in (np.nan, -np.inf)]
        if name in ("columns", "tally", "loss", "ring_w", "ridge", "full_ridge", "squares"):
            wrong.append(np.array([-1.0]))
        for values in wrong:
            raw = values.tobytes()
            other = data[:offset] + raw + data[offset + len(raw) :]
            with pytest.raises(olsq.StateFileError):
                olsq.load(put_together(tmp_path / "s", header, other))


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], (*path, i))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["sqrt", "covariance", "information", "fixed", "auto", -1, 0, 2]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@given(draw=st.data())
def test_any_change_of_a_field_is_refused_or_harmless(files, tmp_path_factory, kind, draw):
    header, data = take_apart(files / kind)
    for _ in range(draw.draw(st.integers(1, 2))):
        *path, last = draw.draw(st.sampled_from([p for p in places(header) if p]))
        inside = header
        for step in path:
            inside = inside[step]
        if draw.draw(st.booleans()) or isinstance(inside, list):
            inside[last] = draw.draw(JSON)
        else:
            del inside[last]
    path = put_together(tmp_path_factory.getbasetemp() / f"mutated-{kind}", header, data)
    try:
        estimator = olsq.load(path)
    except olsq.StateFileError as error:
        assert f"mutated-{kind}" in str(error)  # noqa: PT017
        return
    try:
        usable(estimator)
    except ValueError as error:  # a lawful change of a parameter, met by these rows
        assert re.search("forget|min_samples|needs method|times", str(error))  # noqa: PT017
