"""A panel regression with fixed effects and clustered errors beside linearmodels and pyfixest.

    python -m benchmarks.reports.panels [--rounds 2]

Writes ``benchmarks/results/panels.json`` and the table of docs/measurements/rows.md.  Every cell is
a process of its own: processor seconds of the regression, all threads, the least of the rounds, and
the largest memory of the process.  The data frames of the other libraries are made before the clock
starts.  Coefficients and errors are compared, to 1e-8, before anything is written.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "panels.json"
D, PERIODS, BLOCK = 4, 100, 10  # regressors, rows of a group, rows of a group in a block
SIZES = 10_000, 100_000  # groups
COLUMNS = [f"x{j}" for j in range(D)]
LABELS = {
    "blocks": "olsq, in blocks of a tenth",
    "whole": "olsq, all rows at once",
    "pyfixest": "pyfixest",
    "linearmodels": "linearmodels",
}


def blocks(
    groups: int, periods: int = BLOCK
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows (X, y, group) of a panel, some periods at a time."""
    rng = np.random.default_rng(0)
    level = rng.standard_normal((groups, D))
    label = np.tile(np.arange(groups), periods)
    for _ in range(PERIODS // periods):
        X = rng.standard_normal((label.size, D)) + level[label]
        noise = rng.standard_normal(label.size) + level[label, 0] * rng.standard_normal()
        yield X, X @ np.arange(1.0, D + 1) + noise, label


def whole(groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = [list(column) for column in zip(*blocks(groups), strict=True)]
    X, y, label = (np.concatenate(column) for column in parts)
    return X, y, label


def frame_of(groups: int):
    import pandas as pd

    X, y, label = whole(groups)
    frame = pd.DataFrame(X, columns=COLUMNS)
    return frame.assign(y=y, group=label, period=np.repeat(np.arange(PERIODS), groups))


def of_blocks(groups: int) -> Callable[[], object]:
    import olsq

    def run():
        model, seconds = olsq.GroupedLeastSquares(), 0.0
        for X, y, label in blocks(groups):
            start = time.process_time()
            model.partial_fit(X, y, by=label)
            seconds += time.process_time() - start
        return model, seconds

    def timed():
        model, seconds = run()
        start = time.process_time()
        fit = model.within(cov="cluster")
        answer = time.process_time() - start
        return fit.coef, fit.stderr, seconds + answer, answer

    return timed


def of_whole(groups: int) -> Callable[[], object]:
    import olsq

    X, y, label = whole(groups)

    def run():
        fit = olsq.GroupedLeastSquares().fit(X, y, by=label).within(cov="cluster")
        return fit.coef, fit.stderr

    return run


def of_pyfixest(groups: int) -> Callable[[], object]:
    import pyfixest

    frame = frame_of(groups)

    def run():
        fit = pyfixest.feols(
            f"y ~ {' + '.join(COLUMNS)} | group",
            frame,
            vcov={"CRV1": "group"},
            copy_data=False,
            store_data=False,
            lean=True,
        )
        left = groups * PERIODS - D
        return fit.coef().to_numpy(), fit.se().to_numpy() * np.sqrt((left - 1) / left)

    return run


def of_linearmodels(groups: int) -> Callable[[], object]:
    from linearmodels import PanelOLS

    frame = frame_of(groups).set_index(["group", "period"])

    def run():
        model = PanelOLS(frame["y"], frame[COLUMNS], entity_effects=True)
        fit = model.fit(cov_type="clustered", cluster_entity=True, group_debias=True)
        return fit.params.to_numpy(), fit.std_errors.to_numpy()

    return run


METHODS = {
    "blocks": of_blocks,
    "whole": of_whole,
    "pyfixest": of_pyfixest,
    "linearmodels": of_linearmodels,
}


def one(name: str, groups: int, rounds: int) -> dict:
    """Measure one library in this process."""
    METHODS[name](200)()  # kernels and imports
    run, best, answer = METHODS[name](groups), np.inf, None
    for _ in range(rounds):
        start = time.process_time()
        coef, stderr, *own = run()
        seconds = time.process_time() - start
        if own:  # without the making of the blocks
            seconds, answer = own[0], min(answer or np.inf, own[1])
        best = min(best, seconds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "seconds": best,
        "answer": answer,
        "gigabytes": memory,
        "coef": list(coef),
        "stderr": list(stderr),
    }


def measure(rounds: int) -> dict[str, dict[str, dict]]:
    found: dict[str, dict[str, dict]] = {}
    for groups in SIZES:
        for name in METHODS:
            command = [sys.executable, "-m", "benchmarks.reports.panels", "--one", name]
            command += ["--groups", str(groups), "--rounds", str(rounds)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.setdefault(name, {})[str(groups)] = cell = json.loads(out.splitlines()[-1])
            print(name, groups, f"{cell['seconds']:.3g} s", flush=True)
            for quantity in ("coef", "stderr"):
                ours = found["blocks"][str(groups)][quantity]
                np.testing.assert_allclose(cell[quantity], ours, rtol=1e-8)
    return found


def table(cases: dict[str, dict[str, dict]]) -> str:
    head = [f"{groups * PERIODS:.0e} rows of {groups:,} groups" for groups in SIZES]
    lines = ["| | " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(SIZES)]
    for name, label in LABELS.items():
        cells = [cases[name][str(groups)] for groups in SIZES]
        shown = [f"{c['seconds']:.2g} s, {c['gigabytes']:.2g} GB" for c in cells]
        lines.append("| " + " | ".join([label, *shown]) + " |")
    answers = [f"{cases['blocks'][str(groups)]['answer']:.2g} s" for groups in SIZES]
    lines.append('| `within(cov="cluster")` alone | ' + " | ".join(answers) + " |")
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    machine = sentence(found["machine"], "numba", "linearmodels", "pyfixest")
    return f"{table(found['cases'])}\n\n{machine}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", choices=METHODS)
    parser.add_argument("--groups", type=int, default=SIZES[0])
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.groups, options.rounds)))
        return
    stored = {"machine": describe(), "cases": measure(options.rounds)}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("panels", stored)
    print(table(stored["cases"]))


if __name__ == "__main__":
    main()
