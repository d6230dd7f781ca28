"""The service of docs/service.md: exactly once, under kill -9."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def service(monkeypatch, request):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import service

    def connect(path, plain=service.connect):
        db = plain(path)
        if threading.current_thread() is threading.main_thread():  # a thread closes its own
            request.addfinalizer(db.close)
        return db

    monkeypatch.setattr(service, "connect", connect)
    return service


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL and fork are POSIX's")
def test_killed_writers_end_with_the_bytes_of_one_that_was_not(tmp_path):
    program = Path(__file__).parent / "killed_service.py"
    paths = [str(ROOT / "examples"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kills, reads, offsets = map(int, done.stdout.split())
    assert kills == 8
    assert reads >= offsets > 8


def test_many_open_a_new_store_at_once(service, tmp_path):
    for store in range(100):
        at_once = threading.Barrier(4)

        def opened(path=str(tmp_path / f"{store}.db"), at_once=at_once):
            at_once.wait()
            service.connect(path).close()
            return True

        with ThreadPoolExecutor(4) as threads:
            assert all(done.result() for done in [threads.submit(opened) for _ in range(4)])


def test_deliveries_overlap_repeat_and_leave_no_gap(service, tmp_path):
    writer = service.Writer(str(tmp_path / "a.db"), "demand", service.model(), block=10)
    X, y = (np.array(part) for part in zip(*map(service.row, range(35)), strict=True))
    assert writer.deliver(0, X[:4], y[:4]) == 0  # not safe yet
    assert writer.deliver(2, X[2:14], y[2:14]) == 10
    assert writer.deliver(0, X[:14], y[:14]) == 10  # nothing new
    with pytest.raises(LookupError, match="rows 14 to 19 are missing"):
        writer.deliver(20, X[20:], y[20:])
    assert writer.deliver(14, X[14:], y[14:]) == 30
    writer.finish()
    assert writer.offset == 35
    want = service.model()
    for start in range(0, 35, 10):
        want.partial_fit(X[start : start + 10], y[start : start + 10])
    reader = service.Reader(str(tmp_path / "a.db"), "demand")
    assert reader.model.to_bytes() == want.to_bytes()
    assert reader.model is reader.model
    assert service.Reader(str(tmp_path / "a.db"), "other").model is None


def test_a_second_writer_is_stopped(service, tmp_path):
    first, second = (
        service.Writer(str(tmp_path / "a.db"), "demand", service.model(), block=5) for _ in range(2)
    )
    X, y = zip(*map(service.row, range(20)), strict=True)
    first.deliver(0, X[:5], y[:5])
    with pytest.raises(sqlite3.IntegrityError):
        second.deliver(0, X[:5], y[:5])
    third = service.Writer(str(tmp_path / "a.db"), "demand", service.model(), block=5)
    first.deliver(5, X[5:10], y[5:10])
    with pytest.raises(RuntimeError, match="another writer has gone on"):
        third.deliver(5, X[5:10], y[5:10])
    assert third.model.n_samples_seen_ == third.offset == 5  # what was not stored is not learned
    assert service.Reader(str(tmp_path / "a.db"), "demand").model.n_samples_seen_ == 10


def test_the_page_shows_the_code(service):
    page = (ROOT / "docs" / "service.md").read_text()
    shown = re.findall(r"^```{literalinclude} ../examples/service.py\n:pyobject: (\w+)", page, re.M)
    assert [getattr(service, name) for name in shown] == [service.Writer, service.Reader]
