"""A regression that serves and learns: states in SQLite, one writer, many readers, kill -9.

    python examples/service.py write store.db     # learns; kill it however you like, start it again
    python examples/service.py read store.db      # says what the store holds now

docs/service.md explains it.  The source delivers every row at least once, some of them again and
again; each is learned exactly once, because a state and the offset of the next row are one value,
stored in one transaction.
"""

from __future__ import annotations

import argparse
import copy
import sqlite3
import time
from collections.abc import Iterator

import numpy as np

import olsq

ROWS, FEATURES = 4000, 4


def connect(path: str) -> sqlite3.Connection:
    """A connection to the store, which is made if there is none."""
    db = sqlite3.connect(path, timeout=30)  # seconds to wait for another connection's transaction
    for attempt in range(300):  # a new file: two who change its mode at once don't wait, they fail
        try:  # readers do not wait for the writer, nor it for them
            db.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if attempt == 299:
                raise
            time.sleep(0.1)
    db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
    with db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS states "
            "(name TEXT PRIMARY KEY, offset INTEGER NOT NULL, state BLOB NOT NULL)"
        )
    return db


class Writer:
    """Learns a stream of rows that have offsets 0, 1, 2, ..., each exactly once."""

    def __init__(self, path, name, model, *, block=100):
        self.db, self.name, self.model, self.block = connect(path), name, model, block
        self.offset = 0  # of the next row to learn
        self.waiting = []  # rows from there on, fewer than a block
        found = self.db.execute("SELECT state FROM states WHERE name = ?", (name,)).fetchone()
        if found is not None:
            self.model = olsq.loads(found[0])
            self.offset = self.model.metadata_["offset"]

    def deliver(self, offset, X, y):
        """Take rows from ``offset`` on; returns the offset up to which rows are safe."""
        wanted = self.offset + len(self.waiting)
        if offset > wanted:
            raise LookupError(f"rows {wanted} to {offset - 1} are missing; deliver them again")
        rows = list(zip(X, y, strict=True))
        self.waiting += rows[wanted - offset :]  # what came before has been learned or is waiting
        while len(self.waiting) >= self.block:
            self.learn(self.block)
        return self.offset

    def learn(self, count):
        """Learn the next rows and commit: all of it happens, or nothing does."""
        X, y = (np.array(column) for column in zip(*self.waiting[:count], strict=True))
        model = copy.copy(self.model).partial_fit(X, y)  # if the commit fails, nothing was learned
        before, after = self.offset, self.offset + count
        blob = model.to_bytes(metadata={"offset": after})
        with self.db:  # one transaction
            if before == 0:
                self.db.execute("INSERT INTO states VALUES (?, ?, ?)", (self.name, after, blob))
            else:
                changed = self.db.execute(
                    "UPDATE states SET offset = ?, state = ? WHERE name = ? AND offset = ?",
                    (after, blob, self.name, before),
                ).rowcount
                if changed != 1:
                    raise RuntimeError(f"another writer has gone on with {self.name!r}: stop here")
        self.model, self.offset, self.waiting = model, after, self.waiting[count:]

    def finish(self):
        """Learn what is waiting, at the end of the stream."""
        if self.waiting:
            self.learn(len(self.waiting))


class Reader:
    """The model as it was last committed; any number of these, in any process."""

    def __init__(self, path, name):
        self.db, self.name, self.offset, self._model = connect(path), name, 0, None

    @property
    def model(self):
        """The newest model, or None before the first commit; loaded when there is a new one."""
        state = self.db.execute(
            "SELECT offset, state FROM states WHERE name = ? AND offset > ?",
            (self.name, self.offset),
        ).fetchone()
        if state is not None:
            self.offset, self._model = state[0], olsq.loads(state[1])
        return self._model


def row(offset: int) -> tuple[np.ndarray, float]:
    """Row ``offset`` of the stream, the same whenever it is asked for."""
    rng = np.random.default_rng([1, offset])
    x = rng.standard_normal(FEATURES)
    return x, float(x @ np.arange(FEATURES) + 5.0 + 0.1 * rng.standard_normal())


def source(start: int, rows: int = ROWS, seed: int = 0) -> Iterator[tuple[int, list, list]]:
    """At-least-once delivery from ``start`` on: batches of any size, which go back now and then."""
    rng, offset = np.random.default_rng([seed, start]), max(start - 7, 0)
    while offset < rows:
        stop = min(offset + int(rng.integers(1, 60)), rows)
        X, y = zip(*map(row, range(offset, stop)), strict=True)
        yield offset, list(X), list(y)
        offset = max(stop - int(rng.integers(0, 30)), 0) if rng.random() < 0.3 else stop
        if stop == rows:
            return


def model() -> olsq.RecursiveLeastSquares:
    """What the service fits."""
    return olsq.RecursiveLeastSquares(forget=0.999)


def write(path: str, *, rows: int = ROWS, block: int = 100, pause: float = 0.0) -> Writer:
    """Learn the stream from where the store is to its end."""
    writer = Writer(path, "demand", model(), block=block)
    for delivery in source(writer.offset, rows):
        writer.deliver(*delivery)
        time.sleep(pause)
    writer.finish()
    return writer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["write", "read"])
    parser.add_argument("store")
    arguments = parser.parse_args()
    if arguments.what == "write":
        print("learned rows up to", write(arguments.store, pause=0.01).offset)
        return
    reader = Reader(arguments.store, "demand")
    found = reader.model
    print("nothing yet" if found is None else f"row {reader.offset}: {found.coef_.round(3)}")


if __name__ == "__main__":
    main()
