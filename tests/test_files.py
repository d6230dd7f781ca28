"""Files that appear whole: several writers, links, permissions, what the dead leave behind."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
import time

import pytest

from olsq import files
from olsq.files import draft
from tests.cli.conftest import environment


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
    dead, other, foreign = (
        ".f.0123456789abcdef.tmp", ".g.0123456789abcdef.tmp", ".f.notes.tmp",
    )  # fmt: skip
    kept, linked = ".f.0123456789abcdef.part", ".f.1123456789abcdef.tmp"
    for name in (dead, other, foreign, kept):
        (tmp_path / name).write_text("")
    (tmp_path / linked).symlink_to(tmp_path / other)  # no draft is a link
    with files.Draft(tmp_path / "f"):  # of a writer that lives; the first in this process tidies
        assert not (tmp_path / dead).exists()
        (tmp_path / dead).write_text("")
        draft._tidied_targets.clear()
        write(tmp_path / "f", "")
        assert len([name for name in os.listdir(tmp_path) if name.endswith(".tmp")]) == 4
    assert sorted(os.listdir(tmp_path)) == sorted([other, foreign, kept, linked, "f"])


def test_temporary_names_cannot_be_foreseen_and_links_are_not_followed(tmp_path, monkeypatch):
    victim, names = tmp_path / "victim", iter(["taken", "linked", "free"])
    victim.write_text("precious")
    (tmp_path / "taken").write_text("precious")
    (tmp_path / "linked").symlink_to(victim)
    monkeypatch.setattr(draft, "temporary_name", lambda target: str(tmp_path / next(names)))
    for _ in range(2):
        with pytest.raises(FileExistsError):
            write(tmp_path / "f", "new")
    write(tmp_path / "f", "new")
    assert victim.read_text() == (tmp_path / "taken").read_text() == "precious"
    monkeypatch.undo()
    assert len({draft.temporary_name("/f") for _ in range(1000)}) == 1000


def test_a_private_file_is_never_public_on_its_way(tmp_path):
    path = tmp_path / "f"
    write(path, "old")
    os.chmod(path, 0o600)
    with files.Draft(path) as new:
        assert stat.S_IMODE((tmp_path / new.name).stat().st_mode) == 0o600


def test_names_as_long_as_the_system_allows(tmp_path):
    for name in ("f" * 255, "é" * 127):
        write(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
        with files.locked(tmp_path / name):
            assert len(os.listdir(tmp_path)) == 2
        os.unlink(tmp_path / name)


def test_errors_name_the_file_and_leave_nothing(tmp_path):
    """A limit on the size of files is what a full disk is to a program."""
    code = """
import os, resource, sys
from olsq import files
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    files.write_atomically("f", b"x" * 50_000, b"x" * 60_000)
except OSError as error:
    print(error.strerror, error.filename, os.listdir("."))
log = files.AppendedFile("log", b"first\\n")
try:
    for _ in range(3):
        log.append(b"y" * 49_999 + b"\\n")
except OSError as error:
    print(error.strerror, error.filename, os.path.getsize("log"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["File too large f []", "No space left on device log 50006"]


class TestKeptDrafts:
    def kept(self, tmp_path):
        new = files.Draft(tmp_path / "o.csv")
        new.write(b"row\n1\n2\nhalf a r")
        name = new.kept_name
        new.keep()
        new.close()
        return name

    def test_go_on_where_they_were(self, tmp_path):
        name = self.kept(tmp_path)
        again = files.Draft.adopt(tmp_path / "o.csv", name)
        assert again.file.read() == b"row\n1\n2\nhalf a r"
        again.cut(8)
        again.write(b"3\n")
        again.commit()
        assert (tmp_path / "o.csv").read_bytes() == b"row\n1\n2\n3\n"
        assert os.listdir(tmp_path) == ["o.csv"]

    def test_two_at_once(self, tmp_path):
        name = self.kept(tmp_path)
        first = files.Draft.adopt(tmp_path / "o.csv", name)
        with pytest.raises(OSError, match="another process is writing it"):
            files.Draft.adopt(tmp_path / "o.csv", name)
        first.close()

    @pytest.mark.parametrize("how", ["symbolic", "hard", "folder"])
    def test_links_and_folders_are_no_drafts(self, tmp_path, how):
        victim, name = tmp_path / "victim", ".o.csv.0123456789abcdef.part"
        victim.write_text("precious")
        if how == "symbolic":
            (tmp_path / name).symlink_to(victim)
        elif how == "hard":
            os.link(victim, tmp_path / name)
        else:
            (tmp_path / name).mkdir()
        with pytest.raises(OSError):
            files.Draft.adopt(tmp_path / "o.csv", name)
        assert victim.read_text() == "precious"

    @pytest.mark.parametrize(
        "name", ["victim", "../victim", ".x/../../.o.csv.0123456789abcdef.part", "", "/etc/passwd"]
    )
    def test_a_state_cannot_name_any_file(self, tmp_path, name):
        (tmp_path / "victim").write_text("precious")
        with pytest.raises(OSError, match="not the name of a file under construction"):
            files.Draft.adopt(tmp_path / "o.csv", name)


class TestLocks:
    def test_the_second_is_told_who_has_it(self, tmp_path):
        path = tmp_path / "o.csv"
        with files.locked(path):
            with pytest.raises(files.InUseError) as refused, files.locked(path):
                raise AssertionError
            with files.locked(tmp_path / "p.csv"):  # another file
                pass
        now = r"since \d\d:\d\d"
        assert re.search(rf"o\.csv \(process {os.getpid()}, {now}\)$", str(refused.value))
        assert os.listdir(tmp_path) == []
        with files.locked(path):
            pass

    def test_links_lead_to_one_lock(self, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "o.csv").symlink_to(tmp_path / "there" / "real.csv")
        with files.locked(tmp_path / "o.csv"):
            with pytest.raises(files.InUseError), files.locked(tmp_path / "there" / "real.csv"):
                raise AssertionError
            assert os.listdir(tmp_path / "there") == [".real.csv.olsq-lock"]

    def test_one_that_is_refused_keeps_no_other(self, tmp_path):
        paths = [tmp_path / name for name in "abc"]
        with files.locked(paths[1]):
            with pytest.raises(files.InUseError), files.locked(*paths):
                raise AssertionError
            with files.locked(paths[0], paths[2]):
                pass
        assert os.listdir(tmp_path) == []

    def test_what_a_killed_process_left_is_taken_and_removed(self, tmp_path):
        left = "olsq lock\n4242\n2026-01-01T00:00:00+00:00\nhost\n"
        (tmp_path / ".o.csv.olsq-lock").write_text(left)
        with files.locked(tmp_path / "o.csv"):
            assert str(os.getpid()) in (tmp_path / ".o.csv.olsq-lock").read_text()
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("how", ["text", "symbolic", "hard"])
    def test_a_file_of_that_name_that_is_no_lock(self, tmp_path, how):
        victim, place = tmp_path / "victim", tmp_path / ".o.csv.olsq-lock"
        victim.write_text("precious" if how == "symbolic" else "" if how == "hard" else "text")
        if how == "text":
            place.write_text("precious")
        elif how == "symbolic":
            place.symlink_to(victim)
        else:
            os.link(victim, place)
        before = victim.read_text()
        with pytest.raises(OSError) as refused, files.locked(tmp_path / "o.csv"):
            raise AssertionError
        assert refused.value.filename == str(tmp_path / "o.csv")
        assert victim.read_text() == before
        assert place.exists()

    def test_a_file_system_without_locks(self, tmp_path, monkeypatch):
        def refuse(descriptor):
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr("olsq.files.locks.try_lock", refuse)
        with files.locked(tmp_path / "o.csv"), files.locked(tmp_path / "o.csv"):
            pass

    def test_many_at_once_and_one_at_a_time(self, tmp_path):
        """Locks are taken while others are being removed; no two threads have one at once."""
        inside, most, end = [], [0], time.monotonic() + 60
        taken = [0] * 8

        def run(i):
            while taken[i] < 20 and time.monotonic() < end:
                try:
                    with files.locked(tmp_path / "o.csv"):
                        inside.append(1)
                        most[0] = max(most[0], len(inside))
                        taken[i] += 1
                        inside.pop()
                except files.InUseError:
                    pass

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1]
        assert taken == [20] * 8
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["same", "link", "dot", "hard", "dangling"])
def test_the_same_file_under_two_names(tmp_path, kind):
    one, other = tmp_path / "one", tmp_path / "other"
    if kind != "dangling":
        one.write_text("")
    if kind == "same":
        other = one
    elif kind in ("link", "dangling"):
        other.symlink_to(one)
    elif kind == "dot":
        other = tmp_path / "." / "one"
    else:
        os.link(one, other)
    assert files.same_file(one, other)
    assert not files.same_file(one, tmp_path / "another")


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


def test_a_draft_is_found_although_its_process_was_killed_before_it_was_kept(tmp_path):
    """The name is recorded first: no kill leaves a kept draft that nobody knows of."""
    draft = files.Draft(tmp_path / "o.csv")
    draft.write(b"rows")
    draft.sync()
    name = draft.kept_name
    draft.close()
    assert name.endswith(".part")
    assert not (tmp_path / name).exists()
    again = files.Draft.adopt(tmp_path / "o.csv", name)
    assert again.file.read() == b"rows"
    again.keep()
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(FileNotFoundError):
        files.Draft.adopt(tmp_path / "o.csv", f".o.csv.{'0' * 16}.part")
