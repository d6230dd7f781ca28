"""Files that appear whole: several writers, links, permissions, what the dead leave behind."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from olsq import files


def write(path, text):
    files.write_atomically(path, text.encode())


def test_several_writers_and_the_file_is_always_whole(tmp_path):
    path, failures, stop = tmp_path / "f", [], threading.Event()
    texts = [str(i) * 100_000 for i in range(4)]
    write(path, texts[0])

    def writer(text):
        try:
            for _ in range(20):
                write(path, text)
        except BaseException as error:
            failures.append(error)

    def reader():
        while not stop.is_set():
            if path.read_text() not in texts:
                failures.append("torn")

    threads = [threading.Thread(target=writer, args=(t,)) for t in texts]
    watching = threading.Thread(target=reader)
    for thread in (watching, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watching.join()
    assert failures == []
    assert os.listdir(tmp_path) == ["f"]


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real", tmp_path / "link"
    link.symlink_to(real)
    for text in ("first", "second"):  # the first makes what a dangling link points to
        write(link, text)
        assert link.is_symlink()
        assert real.read_text() == text
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]
    assert os.listdir(tmp_path / "there") == ["real"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_permissions_are_kept(tmp_path, mode):
    path = tmp_path / "f"
    write(path, "old")
    os.chmod(path, mode)
    write(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_any(tmp_path):
    write(tmp_path / "ours", "")
    (tmp_path / "theirs").write_text("")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "loop", tmp_path / "absent" / "f"):
        with pytest.raises(OSError) as caught:
            write(path, "")
        assert caught.value.filename == str(path)
    assert sorted(os.listdir(tmp_path)) == ["loop", "pipe"]


def test_the_directory_is_synced_after_the_replace(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("replace"), replace(*a)))
    write(tmp_path / "f", "")
    assert done == ["file", "replace", "directory"]


def test_leftovers_of_killed_writers_go(tmp_path):
    for name, age in ((".f.1-2-3.tmp", 1e5), (".f.4-5-6.tmp", 0), (".g.1-2-3.tmp", 1e5)):
        path = tmp_path / name
        path.write_text("")
        time = path.stat().st_mtime - age
        os.utime(path, (time, time))
    write(tmp_path / "f", "")
    assert sorted(os.listdir(tmp_path)) == [".f.4-5-6.tmp", ".g.1-2-3.tmp", "f"]


def test_load_knows_estimators_and_models(tmp_path):
    import jax
    import numpy as np

    import olsq
    import olsq.nn

    est = olsq.RecursiveLeastSquares().fit(np.eye(3), np.ones(3))
    est.save(tmp_path / "state")
    model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=1, key=jax.random.key(0))
    olsq.nn.save(tmp_path / "model", model)
    np.testing.assert_array_equal(olsq.load(tmp_path / "state").coef_, est.coef_)
    assert isinstance(olsq.load(tmp_path / "model"), olsq.nn.LanguageModel)
    (tmp_path / "text").write_text("neither of the two")
    with pytest.raises(olsq.StateFileError, match="is not an olsq state file"):
        olsq.load(tmp_path / "text")
