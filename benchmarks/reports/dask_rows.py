"""Partitions on one machine and on workers: rows, memory, and what a cost model says beforehand.

    python -m benchmarks.reports.dask_rows constants  # rows/s per core, seconds and bytes per merge
    python -m benchmarks.reports.dask_rows rows --partitions 1000
    python -m benchmarks.reports.dask_rows memory  # peak memory by number of partitions
    python -m benchmarks.reports.dask_rows workers  # 1 to 4 workers, predicted and measured
    python -m benchmarks.reports.dask_rows figure  # docs/img/how-far.png

Each writes its part of ``benchmarks/results/dask_rows.json``, with command, seed and date.  Rows
are generated where they are used, so that none is ever in two places.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a core is one thread, here and in workers
os.environ.setdefault("OMP_NUM_THREADS", "1")

import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback

import olsq
from olsq import distributed
from olsq.distributed.work import Work

from ..support import machine

RESULTS = Path(__file__).parents[1] / "results" / "dask_rows.json"
FIGURE = Path(__file__).parents[2] / "docs" / "img" / "how-far.png"
SEED = 0
SIZES = (4, 16, 64, 256, 1024)


def coefficients(d: int) -> np.ndarray:
    """The truth: 1/1, 1/2, ..., and an intercept of 3."""
    return 1.0 / np.arange(1, d + 1)


def block(i: int, n: int, d: int) -> np.ndarray:
    """Partition i: n rows of d regressors and then the target, with noise of variance 1."""
    rng = np.random.default_rng([SEED, i])
    data = rng.standard_normal((n, d + 1))
    data[:, d] += data[:, :d] @ coefficients(d) + 3.0
    return data


def data(partitions: int, n: int, d: int) -> tuple[da.Array, da.Array]:
    """X and y in partitions, generated when asked for."""
    make = dask.delayed(block, pure=True)
    parts = [da.from_delayed(make(i, n, d), (n, d + 1), np.float64) for i in range(partitions)]
    whole = da.concatenate(parts)
    return whole[:, :d], whole[:, d]


def least(function: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of processor time: the least of some runs after a first."""
    function()
    found = []
    for _ in range(repeats):
        before = time.process_time()
        function()
        found.append(time.process_time() - before)
    return min(found)


def record(part: str, values: dict[str, Any]) -> None:
    """Write one part of the results; the others stay."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    command = "python -m benchmarks.reports.dask_rows " + " ".join(sys.argv[1:])
    values = {"command": command, "seed": SEED, "machine": machine.describe()} | values
    RESULTS.write_text(json.dumps(known | {part: values}, indent=1) + "\n")


def constants(_: argparse.Namespace) -> None:
    """What a partition and a merge cost, by the number of coefficients."""
    table = []
    for d in SIZES:
        work = Work(olsq.RecursiveLeastSquares(fit_intercept=False).get_params(), {}, False, False)
        n = max(8 * d, min(400_000, 200_000_000 // d**2))
        rows = block(0, n, d)
        X, y = np.ascontiguousarray(rows[:, :d]), rows[:, d].copy()
        given = X, y, None, None, None, None
        state = work.state(*given)
        repeats = 5 if d < 1000 else 3
        learn = least(lambda: work.state(*given), repeats)  # noqa: B023
        generate = least(lambda: block(0, n, d), repeats)  # noqa: B023
        merge = least(lambda: work.merged(state, state), repeats)  # noqa: B023
        size = len(pickle.dumps(state, protocol=5))
        table.append({
            "d": d, "rows": n, "rows_per_second": n / learn, "gflops": 2e-9 * d * d * n / learn,
            "generated_per_second": n / generate, "merge_seconds": merge, "state_bytes": size,
        })  # fmt: skip
        print(table[-1], flush=True)
    record("constants", {"table": table})


class OnDisk(Callback):
    """Writes how many partitions are done, every few seconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(posttask=self._after)
        self.path, self.done, self.began, self.last = path, 0, time.time(), 0.0

    def _after(self, key: Any, *_: Any) -> None:
        self.done += str(key[0] if isinstance(key, tuple) else key).startswith("state-")
        if time.time() - self.last > 5:
            self.last = time.time()
            line = {"partitions": self.done, "seconds": round(self.last - self.began, 1),
                    "peak_MiB": peak()}  # fmt: skip
            self.path.write_text(json.dumps(line) + "\n")


def peak() -> float:
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows(args: argparse.Namespace) -> None:
    """A fit of as many rows as asked for, a partition at a time, against the truth."""
    n, d = args.rows, args.d
    before = peak()
    X, y = data(args.partitions, n, d)
    wall, cpu = time.time(), time.process_time()
    with OnDisk(Path(args.progress)), dask.config.set(scheduler="synchronous"):
        est = distributed.fit(X, y, ridge=0.0)
    wall, cpu = time.time() - wall, time.process_time() - cpu
    error = np.append(est.coef_ - coefficients(d), est.intercept_ - 3.0)
    stderr = np.append(est.coef_stderr_, est.intercept_stderr_)
    total = n * args.partitions
    record("rows", {
        "rows": total, "d": d, "partitions": args.partitions, "wall_seconds": wall,
        "cpu_seconds": cpu, "rows_per_cpu_second": total / cpu,
        "data_GiB": total * (d + 1) * 8 / 2**30, "partition_MiB": n * (d + 1) * 8 / 2**20,
        "peak_before_MiB": before, "peak_MiB": peak(), "n_samples_seen": est.n_samples_seen_,
        "largest_error": float(np.abs(error).max()),
        "largest_error_in_stderr": float(np.abs(error / stderr).max()),
        "sigma2": float(est.sigma2_),
    })  # fmt: skip


def one_memory(args: argparse.Namespace) -> None:
    """Print the peak of one fit or path, in a process of its own."""
    X, y = data(args.partitions, args.rows, args.d)
    olsq.coefficient_path(np.ones((2, 1)), np.ones(2))  # what is loaded once
    before = peak()
    with dask.config.set(scheduler=args.scheduler):
        if args.what == "fit":
            distributed.fit(X, y)
        elif args.what == "predictions":
            est = olsq.RecursiveLeastSquares().fit(*dask.compute(X[:100], y[:100]))
            distributed.predict(est, X).sum().compute()
        else:
            how: Any = {"window": 1000} if args.what == "rolling path" else {"forget": 0.999}
            how["reread"] = args.what != "path, rows kept"
            distributed.coefficient_path(X, y, **how).coef.sum(axis=0).compute()
    print(json.dumps({"before_MiB": before, "peak_MiB": peak()}))


def memory(args: argparse.Namespace) -> None:
    """Peak memory of fits and paths by the number of partitions: it must not grow with it."""
    table = []
    for what, scheduler, n in (
        ("fit", "synchronous", 400_000), ("fit", "threads", 400_000),
        ("path", "synchronous", 100_000), ("path", "threads", 100_000),
        ("rolling path", "synchronous", 100_000), ("path, rows kept", "synchronous", 100_000),
        ("predictions", "synchronous", 400_000),
    ):  # fmt: skip
        for partitions in (8, 64):
            command = [
                sys.executable, "-m", "benchmarks.reports.dask_rows", "one-memory", "--what", what,
                "--scheduler", scheduler, "--partitions", str(partitions), "--rows", str(n),
                "--d", str(args.d),
            ]  # fmt: skip
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            table.append({
                "what": what, "scheduler": scheduler, "partitions": partitions,
                "partition_MiB": n * (args.d + 1) * 8 / 2**20, **json.loads(out),
            })  # fmt: skip
            print(table[-1], flush=True)
    record("memory", {"d": args.d, "table": table})


def seconds_a_partition(n: int, d: int) -> float:
    """Processor time of generating and learning one partition, where this runs."""
    work = Work(olsq.RecursiveLeastSquares().get_params(), {}, False, False)
    found = []
    for i in range(4):
        before = time.process_time()
        rows = block(i, n, d)
        work.state(rows[:, :d], rows[:, d], None, None, None, None)
        found.append(time.process_time() - before)
    return float(np.median(found[1:]))


def spent(client: Any, function: Callable[[], Any]) -> tuple[np.ndarray, float]:
    """Processor time (workers,) that a call takes on each worker, and its wall time."""
    before, began = client.run(time.process_time), time.time()
    function()
    wall, after = time.time() - began, client.run(time.process_time)
    return np.array([after[w] - before[w] for w in after]), wall


def of_partitions(client: Any, d: int, partitions: int, upkeep: float) -> float:
    """Processor time of a worker for a partition's tasks and merges, whatever its rows."""
    few = 2 * d
    rows = float(np.mean(list(client.run(seconds_a_partition, few, d).values())))
    X, y = data(partitions, few, d)
    found = []
    for _ in range(3):
        own, wall = spent(client, lambda: distributed.fit(X, y))
        found.append((own.sum() - upkeep * wall * len(own)) / partitions - rows)
    return max(float(np.median(found)), 0.0)


def workers(args: argparse.Namespace) -> None:
    """Fits on 1 to 4 worker processes, in turn, beside what the cost model says.

    Processor time of the busiest worker is what a fit takes where each has a core of its own; wall
    time is on two cores that others use too.  What others do also slows the arithmetic down, so the
    model takes what a partition costs alone on the same workers just before and after, what a
    worker takes for itself in a second without tasks, and what the tasks and merges of a partition
    of few rows cost on one worker.
    """
    from distributed import Client, LocalCluster

    table = []
    for d, n, partitions in ((16, 200_000, 24), (256, 4_096, 24)):
        for _ in range(args.repeats):
            tasks = 0.0
            for count in (1, 2, 3, 4):
                with LocalCluster(
                    n_workers=count, threads_per_worker=1, dashboard_address=":0", memory_limit=0
                ) as cluster, Client(cluster) as client:  # fmt: skip
                    distributed.fit(*data(4 * count, 2 * d, d))  # imports and compiles
                    idle, seconds = spent(client, lambda: time.sleep(4))
                    upkeep = float(idle.mean()) / seconds
                    if count == 1:
                        tasks = of_partitions(client, d, partitions, upkeep)
                    X, y = data(partitions, n, d)
                    alone = list(client.run(seconds_a_partition, n, d).values())
                    own, wall = spent(client, lambda: distributed.fit(X, y))  # noqa: B023
                    alone += client.run(seconds_a_partition, n, d).values()
                each, share = float(np.mean(alone)), -(-partitions // count)
                table.append({
                    "d": d, "rows": n * partitions, "partitions": partitions, "workers": count,
                    "partition_seconds": each, "tasks_seconds": tasks, "upkeep": upkeep,
                    "arithmetic_seconds": share * each,
                    "predicted_seconds": share * (each + tasks) + upkeep * wall,
                    "busiest_worker_seconds": float(own.max()), "wall_seconds": wall,
                })  # fmt: skip
                print(table[-1], flush=True)
    record("workers", {"cores": os.cpu_count(), "table": table})


def figure(_: argparse.Namespace) -> None:
    """Rows a second and merges by d; workers, predicted and measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from olsq.plot.labels import label_lines

    found = json.loads(RESULTS.read_text())
    blue, orange = "#0072B2", "#b37a00"
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
             "legend.frameon": False, "axes.grid": True, "grid.alpha": 0.25}  # fmt: skip
    with plt.rc_context(style):
        fig, grid = plt.subplots(2, 2, figsize=(8.4, 6.2), layout="constrained")
        left, middle, right, spare = grid.ravel()
        spare.remove()
        table = found["constants"]["table"]
        d = np.array([row["d"] for row in table], float)
        left.loglog(d, [row["rows_per_second"] for row in table], "o-", color=blue)
        left.set(xlabel="coefficients d", title="rows per second and core")
        middle.loglog(d, [row["merge_seconds"] for row in table], "o-", color=blue, label="seconds")
        middle.loglog(d, [row["state_bytes"] / 1e9 for row in table], "s--", color=orange,
                      label="gigabytes")  # fmt: skip
        middle.set(xlabel="coefficients d", title="one merge")
        sizes = sorted({row["d"] for row in found["workers"]["table"]})
        for size, mark, colour in zip(sizes, "os", (blue, orange), strict=True):
            own = [row for row in found["workers"]["table"] if row["d"] == size]
            count = [row["workers"] for row in own]
            busiest = [row["busiest_worker_seconds"] for row in own]
            right.plot(count, busiest, mark, color=colour, label=f"d = {size}")
            right.plot(count[:4], [row["predicted_seconds"] for row in own[:4]], "-",
                       color=colour, lw=1)  # fmt: skip
        right.set(xlabel="workers", xticks=[1, 2, 3, 4],
                  title="seconds of the busiest worker (line: predicted)")  # fmt: skip
        right.set_ylim(bottom=0)
        for ax in (middle, right):
            label_lines(ax)
        fig.savefig(FIGURE, dpi=140)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    for name, run in {
        "constants": constants, "rows": rows, "memory": memory, "one-memory": one_memory,
        "workers": workers, "figure": figure,
    }.items():  # fmt: skip
        part = parts.add_parser(name)
        part.set_defaults(run=run)
        part.add_argument("--partitions", type=int, default=64)
        part.add_argument("--rows", type=int, default=2_000_000, help="a partition")
        part.add_argument("--d", type=int, default=8)
        part.add_argument("--progress", default="dask_rows.progress")
        part.add_argument("--what", default="fit")
        part.add_argument("--scheduler", default="synchronous")
        part.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
