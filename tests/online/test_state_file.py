"""Saving and loading: the file's layout, its refusals, and that it appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest

import olsq
from olsq.online import statefile


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
    assert version == 1
    assert content[-32:] == hashlib.sha256(content[:-32]).digest()
    header = json.loads(content[20 : 20 + length])
    arrays = {a["name"]: a for a in header["arrays"]}
    place = arrays["theta"]
    start = 20 + length + place["offset"]
    assert start % 8 == 0
    theta = np.frombuffer(content, place["dtype"], 3, start)
    np.testing.assert_array_equal(theta[1:], saved[0].coef_)


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
    body[8:12] = struct.pack("<I", 2)
    newer = tmp_path / "newer.olsq"
    newer.write_bytes(bytes(body) + hashlib.sha256(body).digest())
    with pytest.raises(olsq.StateFileError, match=r"format 2.*Upgrade"):
        olsq.load(newer)
    with pytest.raises(FileNotFoundError):
        olsq.load(tmp_path / "absent.olsq")


def test_unknown_estimator_is_refused(tmp_path):
    path = tmp_path / "x.olsq"
    statefile.write(path, {"estimator": "Nonsense"}, {})
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
