"""Streams of rows in several versions of olsq, in turn: the time of each beside the first one's.

    python -m benchmarks.reports.versions               # the commits STEPS and this tree
    python -m benchmarks.reports.versions BEFORE .. [--only "one row"]     # checkouts; only prints
    python -m benchmarks.reports.versions BEFORE .. --rules                # attention, the same way

A worker for each version and case imports olsq from its checkout.  In every round each worker runs
the case once after another, and counts the least processor time of four runs; the median of the
ratios over the rounds counts, since a busy machine slows all of them down alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "versions.json"
ROUNDS = 9
# Before the state became one factor, and after each part: estimators, banks, compiled states,
# rolling windows, the fixed ridge, ways of forgetting and variants.
STEPS = ("6731353", "0c2c6ec", "d2e4cd8", "a301e0d", "b2dd02e", "84233f2", "572bccb")
FORGET: dict[str, Any] = {"forget": 0.999, "ridge": 1e-3}

Run = Callable[[], object]


def data(n: int, d: int, targets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, d])
    X = rng.standard_normal((n, d))
    y = X @ (rng.standard_normal((d, targets)) if targets else rng.standard_normal(d))
    return X, y + rng.standard_normal(y.shape)


def fit(d: int, rows: int, **options: Any) -> Run:
    import olsq

    X, y = data(rows, d)
    return lambda: olsq.RecursiveLeastSquares(**FORGET, **options).fit(X, y)


def first_rows(d: int) -> Run:
    """The d rows after which d coefficients are determined."""
    import olsq

    X, y = data(d, d)
    return lambda: olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)


def path_of_first_rows(d: int, **options: Any) -> Run:
    """Return the path of the d rows after which d coefficients are determined."""
    import olsq

    X, y = data(d, d)
    return lambda: olsq.coefficient_path(X, y, **options)


def calls_of(rows: int, method: str = "partial_fit", targets: int = 0, window: int = 0) -> Run:
    """Feed 1,000 calls of so many rows of 4 regressors."""
    import olsq

    X, y = data(1000 * rows, 4, targets)
    kind = olsq.RollingLeastSquares if window else olsq.RecursiveLeastSquares
    est = kind(window) if window else kind(**FORGET)
    est.fit(X, y)
    parts = [(X[t : t + rows], y[t : t + rows]) for t in range(0, len(X), rows)]
    if method == "step":
        parts = [(x[0], target[0]) for x, target in parts]
    elif method == "predict":
        return lambda: [est.predict(x) for x, _ in parts]
    call = getattr(est, method)
    return lambda: [call(x, target) for x, target in parts]


def path(d: int, rows: int, **options: Any) -> Run:
    import olsq

    X, y = data(rows, d)
    return lambda: olsq.coefficient_path(X, y, **options)


def rolling(d: int, rows: int, **options: Any) -> Run:
    import olsq

    X, y = data(rows, d)
    return lambda: olsq.RollingLeastSquares(max(100, 4 * d), **options).fit(X, y)


def bank(n: int, rows: int) -> Run:
    """Feed calls of a row for each of n filters of 4 coefficients."""
    import olsq

    X, y = data(n * rows, 4)
    X, y = X.reshape(rows, n, 4), y.reshape(rows, n)
    est = olsq.FilterBank(n, **FORGET).partial_fit(X[0], y[0])
    return lambda: [est.partial_fit(x, target) for x, target in zip(X, y, strict=True)]


def groups(rows: int) -> Run:
    import olsq

    X, y = data(rows, 4)
    keys = np.arange(rows) % 200
    return lambda: olsq.GroupedLeastSquares(**FORGET).fit(X, y, by=keys)


def windows_of_groups(n: int, rows: int) -> Run:
    """Feed calls of some rows for each of n groups of 4 coefficients with full windows."""
    import olsq

    X, y = data(100 * n, 4)
    keys = np.arange(n * rows) % n
    est = olsq.GroupedRollingLeastSquares(100).fit(X, y, by=np.arange(100 * n) % n)
    return lambda: est.partial_fit(X[: n * rows], y[: n * rows], by=keys)


def forgetting_by(strategy: str, d: int, rows: int, *numbers: float) -> Run:
    import olsq

    X, y = data(rows, d)
    est = olsq.RecursiveLeastSquares(forget=getattr(olsq.forgetting, strategy)(*numbers))
    return lambda: est.fit(X, y)


def robust(d: int, rows: int) -> Run:
    import olsq

    X, y = data(rows, d)
    return lambda: olsq.RobustLeastSquares().fit(X, y)


def within(d: int, rows: int) -> Run:
    """Fit a regression with an intercept for each of 20 groups, whose rows are learned already."""
    import olsq

    X, y = data(rows, d)
    groups = olsq.GroupedLeastSquares().fit(X, y, by=np.arange(rows) % 20)
    return lambda: [groups.within() for _ in range(10)]


def user_loop(rows: int) -> Run:
    from numba import njit

    from olsq import compiled

    X, y = data(rows, 4)

    @njit
    def learn(state, X, y):
        for t in range(y.size):
            compiled.update(state, X[t], y[t], 0.999, 1.0)

    return lambda: learn(compiled.init(4), X, y)


def files(d: int) -> Run:
    import olsq

    X, y = data(8 * d, d)
    est = olsq.RecursiveLeastSquares(**FORGET).fit(X, y)
    folder = tempfile.TemporaryDirectory()

    def save_and_load() -> None:
        for _ in range(10):
            est.save(Path(folder.name) / "state.olsq")
            olsq.load(Path(folder.name) / "state.olsq")

    return save_and_load


def path_of_groups(rows: int, **options: Any) -> Run:
    """Return the rolling paths of 200 groups of so many rows each."""
    import olsq

    X, y = data(200 * rows, 4)
    keys = np.arange(200 * rows) % 200
    if isinstance(options["window"], float):
        options["times"] = np.arange(200 * rows) // 200
    return lambda: olsq.coefficient_path(X, y, by=keys, **options)


def rule(name: str, differentiates: bool) -> Run:
    """Run an attention rule on 1,024 tokens of 8 heads of 64, in float32."""
    import jax

    from benchmarks.suites.attention_inputs import arguments, runner

    run, rows = runner(name), arguments(name, 1024)

    def squares(x: Any, named: Any) -> Any:
        return (run(x, named) ** 2).sum()

    compiled = jax.jit(jax.grad(squares, argnums=(0, 1)) if differentiates else run)
    return lambda: jax.block_until_ready(compiled(*rows))


CASES: dict[str, Callable[[], Run]] = {
    "one row, d 4": lambda: calls_of(1),
    "one row, 3 targets": lambda: calls_of(1, targets=3),
    "`step`": lambda: calls_of(1, "step"),
    "`predict` of one row": lambda: calls_of(1, "predict"),
    "8 rows a call, d 4": lambda: calls_of(8),
    "array, d 4": lambda: fit(4, 40_000),
    "array, d 64": lambda: fit(64, 4_000),
    "array, square-root form, d 16": lambda: fit(16, 8_000, method="sqrt"),
    "array, information form, d 16": lambda: fit(16, 8_000, method="information"),
    "first rows without a ridge, d 16": lambda: first_rows(16),
    "first rows without a ridge, d 64": lambda: first_rows(64),
    "first rows without a ridge, d 256": lambda: first_rows(256),
    "path, d 4": lambda: path(4, 20_000, **FORGET),
    "path, d 64": lambda: path(64, 4_000, **FORGET),
    "window, d 4": lambda: rolling(4, 20_000),
    "window, d 16": lambda: rolling(16, 8_000),
    "window, d 64": lambda: rolling(64, 4_000),
    "window, d 128": lambda: rolling(128, 2_000),
    "fading window, d 64": lambda: rolling(64, 4_000, **FORGET),
    "fading window's first rows, d 64": lambda: rolling(64, 64, forget=0.99),
    "window, one row": lambda: calls_of(1, window=100),
    "path of a window, d 4": lambda: path(4, 20_000, window=100),
    "path of a window, d 16": lambda: path(16, 8_000, window=100),
    "path of a window, d 64": lambda: path(64, 4_000, window=256),
    "bank of 100, a row each": lambda: bank(100, 50),
    "bank of 10,000, a row each": lambda: bank(10_000, 2),
    "200 groups, 20,000 rows": lambda: groups(20_000),
    "1,000 windows by group, a row each": lambda: windows_of_groups(1000, 1),
    "1,000 windows by group, 100 rows each": lambda: windows_of_groups(1000, 100),
    "`compiled.update`, d 4": lambda: user_loop(40_000),
    "saved and loaded, d 64": lambda: files(64),
    "random walk, d 4": lambda: forgetting_by("RandomWalk", 4, 10_000, 1e-4),
    "random walk, d 64": lambda: forgetting_by("RandomWalk", 64, 400, 1e-4),
    "variable factor, d 4": lambda: forgetting_by("Variable", 4, 10_000, 50.0),
    "variable factor, d 64": lambda: forgetting_by("Variable", 64, 2_000, 50.0),
    "robust, d 4": lambda: robust(4, 10_000),
    "robust, d 64": lambda: robust(64, 1_000),
    "within groups, d 16": lambda: within(16, 4_000),
    "path of the first 16 rows, d 16": lambda: path_of_first_rows(16),
    "path of the first 256 rows, d 256": lambda: path_of_first_rows(256),
    "path of a window's first 256 rows": lambda: path_of_first_rows(256, window=1000),
    "paths of 200 windows by group": lambda: path_of_groups(100, window=60),
    "paths of 200 windows of time by group": lambda: path_of_groups(100, window=60.0),
}
# Chunked rules, which prepare all chunks of a tile at once on accelerators, and on a CPU do not.
CHUNKED = (
    "delta", "gated_delta", "gated_delta_product", "kda", "comba", "rwkv7", "preconditioned_delta",
    "hgrn2", "rwkv6", "gsa", "longhorn", "mamba", "rg_lru", "mamba2", "mlstm", "ttt_linear",
    "ttt_mlp", "log_linear_mamba2",
)  # fmt: skip
RULES: dict[str, Callable[[], Run]] = {
    f"`{name}`{what}": partial(rule, name, bool(what))
    for name in CHUNKED
    for what in ("", " and gradient")
}


def work() -> None:
    """Answer each case on standard input with its seconds of processor time."""
    runs: dict[str, Run] = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in runs:
            runs[case] = (CASES | RULES)[case]()
        run = runs[case]
        run()
        least = np.inf
        for _ in range(4):
            began = time.process_time()
            run()
            least = min(least, time.process_time() - began)
        print(least, flush=True)


def worker(folder: Path) -> subprocess.Popen[str]:
    """Start a process that imports olsq from a folder."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = os.environ | {"PYTHONPATH": str(folder)} | dict.fromkeys(threads, "1")
    command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).resolve()), "--worker"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=folder, **pipes)


def ask(process: subprocess.Popen[str], case: str) -> float:
    """Return a worker's seconds of one case."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(case, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def table(results: dict) -> str:
    """Return the Markdown table of the page."""
    commits = results["commits"]
    head = [name if name == "now" else f"`{name}`" for name in commits]
    lines = [f"| | {head[0]}, ms | " + " | ".join(head[1:]) + " |", "|---" * (1 + len(head)) + "|"]
    for case, row in results["cases"].items():
        ratios = " | ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        lines.append(f"| {case} | {1e3 * row['seconds']:.3g} | {ratios} |")
    return "\n".join([*lines, "", machine.sentence(results["machine"], "numba")])


def measure(
    folders: list[Path], names: Iterable[str] = CASES, only: str | None = None, n: int = ROUNDS
) -> dict[str, Any]:
    """Return the seconds of each case in the first checkout, and the others' ratios to it."""
    cases = {}
    for case in names:
        if only is not None and only not in case:
            continue
        # Anew for each case: what a process did before decides how quickly it gets its memory.
        workers = [worker(folder) for folder in folders]
        rounds = [[ask(process, case) for process in workers] for _ in range(n)]
        seconds = statistics.median(times[0] for times in rounds)
        ratios = [
            statistics.median(times[i] / times[0] for times in rounds)
            for i in range(1, len(workers))
        ]
        shown = " ".join(f"{ratio:6.2f}" for ratio in ratios)
        print(f"{case:32s} {1e3 * seconds:8.3f} ms {shown}", flush=True)
        cases[case] = {"seconds": seconds, "ratios": ratios}
        for process in workers:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return cases


@contextmanager
def checkouts(commits: tuple[str, ...]) -> Iterator[list[Path]]:
    """Check the commits out while the block runs."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / commit for commit in commits]
        try:
            for path in folders:
                subprocess.run([*git, "add", "-q", "--detach", path, path.name], check=True)
            yield folders
        finally:
            for path in folders:
                subprocess.run([*git, "remove", "--force", path], check=False)


def main() -> None:
    """Command line."""
    if "--worker" in sys.argv:
        return work()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="the first is compared with")
    parser.add_argument("--only", help="cases that contain this")
    parser.add_argument("--rules", action="store_true", help="attention rules instead of streams")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.checkouts:
        folders = [folder.resolve() for folder in options.checkouts]
        measure(folders, RULES if options.rules else CASES, options.only, options.rounds)
        return None
    with checkouts(STEPS) as folders:
        cases = measure([*folders, ROOT], only=options.only)
    if options.only is None:
        about = machine.describe() | {"threads": 1}  # of the workers
        results = {"machine": about, "commits": [*STEPS, "now"], "cases": cases}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(table(results))
    return None


if __name__ == "__main__":
    main()
