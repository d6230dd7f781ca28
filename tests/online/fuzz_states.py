"""Fuzz states: ``python -m tests.online.fuzz_states [--edits 1000] [--seed 0] [kind ...]``.

Every kind of state is edited at random and signed again (``state_kinds``).  Each edited state is
loaded, and where that is not refused it learns ten rows, in a process of its own kind with a limit
on memory.  Printed is what breaks the promise: an error that is not olsq's own, more than a second,
a refusal that takes more than 0.1 s or 50 MB, and a process that does not come back.
"""

from __future__ import annotations

import argparse
import resource
import select
import subprocess
import sys
import time
import traceback
from collections import Counter

import numpy as np

from tests.online.state_kinds import KINDS, edited, outcome, saved

PATIENCE = (
    60.0  # seconds for one state, which may need kernels compiled, before its process is killed
)
SLOW, SLOW_REFUSAL = 1.0, 0.1  # seconds
MUCH = 50  # MB
MEMORY = 3 << 30


def content_of(kind: str, whole: bytes, seed: int, i: int) -> bytes:
    """The i-th edit of a state."""
    return edited(whole, np.random.default_rng([seed, i, *kind.encode()]))


def tried(content: bytes) -> tuple[str, float]:
    """Load a state: return its outcome and the seconds that it took."""
    begun = time.perf_counter()
    try:
        found = outcome(content)
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__} {error} ({frame.filename}:{frame.lineno})"
    return found, time.perf_counter() - begun


def work(kind: str, seed: int, start: int, stop: int) -> None:
    """Try edits ``start`` to ``stop``; one line of standard output before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    whole = saved(kind)
    for _ in range(2):
        outcome(whole)  # compiles
    for i in range(start, stop):
        content = content_of(kind, whole, seed, i)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print("try", i, flush=True)
        found, took = tried(content)
        if took > SLOW_REFUSAL:  # a kernel may have been compiled, or the machine was busy
            found, took = tried(content)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
        refused = found == "refused"
        if took > (SLOW_REFUSAL if refused else SLOW):
            found = f"slow: {took:.2f} s, {found}"
        elif refused and grown > MUCH:
            found = f"large: {grown:.0f} MB, {found}"
        print("end", i, found.replace("\n", " ")[:300], flush=True)


def fuzz(kind: str, edits: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Outcomes of all edits of a kind, and the lines that say which broke the promise."""
    counts: Counter[str] = Counter()
    broken, at = [], 0
    while at < edits:
        options = ["--work", kind, str(seed), str(at), str(edits)]
        command = [sys.executable, "-m", "tests.online.fuzz_states", *options]
        process = subprocess.Popen(  # no buffer, whose lines select would not see
            command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        started = False
        while True:
            # Kernels are compiled before the first state, and after the last it only has to end.
            wait = PATIENCE if started and at < edits else 300.0
            if not select.select([process.stdout], [], [], wait)[0]:
                process.kill()
                process.wait()
                broken.append(f"{kind} {at}: no answer in {wait:g} s")
                at += 1
                break
            line = process.stdout.readline().decode()
            if not line:
                if process.wait() or at < edits:
                    broken.append(f"{kind} {at}: the process ended with {process.returncode}")
                    at += 1
                break
            word, i, *rest = line.rstrip("\n").split(" ", 2)
            if word == "try":
                started, at = True, int(i)
            elif word == "end":
                found = rest[0]
                at = int(i) + 1
                if found in ("refused", "refused later", "learned"):
                    counts[found] += 1
                else:
                    broken.append(f"{kind} {i}: {found}")
        process.stdout.close()
    return counts, broken


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], *map(int, sys.argv[3:6]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for kind in asked.kinds or KINDS:
        begun = time.perf_counter()
        counts, broken = fuzz(kind, asked.edits, asked.seed)
        total += counts + Counter({"broken": len(broken)})
        print(f"{kind}: {dict(counts)}, {len(broken)} broken, {time.perf_counter() - begun:.0f} s")
        for line in broken:
            print("   ", line, flush=True)
    print(f"all: {dict(total)}")


if __name__ == "__main__":
    main()
