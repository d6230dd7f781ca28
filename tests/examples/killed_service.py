"""Run by test_service.py in a process of its own: writers that are killed, and what readers see.

Prints how many writers were killed, how many states were read while they ran, and at how many
offsets.  Every state read is compared, as bytes, with that of a run that nobody interrupted.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback

import service

ROWS, BLOCK = 5030, 50  # room for eight kills, however late a busy machine lets them come


def uninterrupted(path: str) -> dict[int, bytes]:
    """The bytes of the state at every offset that is ever committed."""
    writer = service.Writer(path, "demand", service.model(), block=BLOCK)
    states = {}
    for start in range(0, ROWS, BLOCK):
        stop = min(start + BLOCK, ROWS)
        X, y = zip(*map(service.row, range(start, stop)), strict=True)
        writer.deliver(start, X, y)
        writer.finish()
        (states[writer.offset],) = writer.db.execute("SELECT state FROM states").fetchone()
    assert list(states) == [*range(BLOCK, ROWS, BLOCK), ROWS]
    return states


def start_writer(path: str) -> int:
    """A process that learns to the end of the stream; its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            service.write(path, rows=ROWS, block=BLOCK, pause=0.0005)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def watch(path: str, states: dict[int, bytes], seen: list[int], until: int | None) -> bool:
    """Read states until ``until`` more were committed (None: to the end); checks each."""
    reader = service.Reader(path, "demand")
    first = None
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        model = reader.model
        offset = reader.offset
        if model is not None:
            assert not seen or offset >= seen[-1], "a reader went back"
            assert model.metadata_ == {"offset": offset}
            assert model.n_samples_seen_ == offset
            assert model.to_bytes(metadata=model.metadata_) == states[offset]
            seen.append(offset)
        first = offset if first is None else first
        if offset == ROWS or (until is not None and offset >= first + until * BLOCK):
            break
        time.sleep(0.0005)
    reader.db.close()
    assert time.monotonic() < limit, "the writer makes no progress"
    return seen[-1] == ROWS


def main(folder: str) -> None:
    rng = random.Random(0)
    states = uninterrupted(os.path.join(folder, "whole.db"))
    path, kills, seen = os.path.join(folder, "killed.db"), 0, []
    while True:
        child = start_writer(path)
        done = watch(path, states, seen, until=rng.randint(1, 6) if kills < 8 else None)
        if not done:
            time.sleep(rng.uniform(0, 0.004))  # anywhere in a block, also within a commit
            os.kill(child, signal.SIGKILL)
            kills += 1
        _, status = os.waitpid(child, 0)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            break
    assert seen[-1] == ROWS
    print(kills, len(seen), len(set(seen)))


if __name__ == "__main__":
    main(sys.argv[1])
