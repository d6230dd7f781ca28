"""What the runs of ``when_to_solve.py`` found: each mixer of a task at its best rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from solving_tasks import ATTENDING, TASKS, Task

NAME = "when-to-solve"
SEEDS = (0, 1, 2)
LEAST = 1e-4  # errors below are as good as none: one question in ten thousand
LOCAL = ("local_linear", "local_linear, small ridge", "local_linear, convolution")
SOLVING = ("mesa", "mesa_discounted", "hawk-mesa", "mesa, signed", "mesa, small ridge", *LOCAL)
SAME_TIME = {"mesa, small ridge": "mesa"}  # except for a number
TITLES = {
    "drift-none": "Regression, coefficients at rest",
    "drift-slow": "Regression, slow drift (half-life 177 pairs)",
    "drift-fast": "Regression, fast drift (half-life 22 pairs)",
    "switches": "Regression, new coefficients every 64 pairs",
    "s3": "Word problem of S3, 12 letters",
    "s5": "Word problem of S5, 12 letters",
    "parity": "Parity of 24 bits",
    "noisy-recall": "Noisy recall, 64 tokens",
    "regbench": "RegBench, eight words of an automaton",
    "piecewise": "Regression, piecewise linear functions",
    "network": "Regression, random networks",
}


def key_of(mixer: str, lr: float, seed: int) -> str:
    """The name of a run in the results of its task."""
    return f"{mixer}, lr {lr:g}, seed {seed}"


def best_rate(runs: dict[str, Any], task: Task, mixer: str) -> float | None:
    """The rate of least validation error with seed 0, once all were tried; ties to the lower."""
    tried = {lr: runs.get(key_of(mixer, lr, SEEDS[0])) for lr in task.rates}
    if not all(tried.values()):
        return None
    known = {lr: r["validation"] for lr, r in tried.items() if r and r["score"] is not None}
    return min(known, key=lambda lr: (known[lr], lr)) if known else None


class Found(NamedTuple):
    """What is known of a mixer on a task at its best rate."""

    mixer: str
    rate: float
    runs: list[dict[str, Any]]  # by seed
    cost: float | None  # processor time of a training step over that of gla
    flops: float | None  # a token of a training step

    @property
    def scores(self) -> list[float]:
        return [r["score"] for r in self.runs]

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def grows(self) -> bool:
        """Whether its state has every token in it."""
        return self.mixer.startswith(ATTENDING)


def found_on(results: dict[str, Any], name: str) -> list[Found]:
    """Mixers whose three rates were tried, from the least mean score on."""
    task, runs = TASKS[name], results.get("runs", {}).get(name, {})
    speed = results.get("speed", {}).get(task.timed, {}).get("mixers", {})
    rows = []
    for mixer in task.compared:
        rate = best_rate(runs, task, mixer)
        if rate is None:
            continue
        own = [runs.get(key_of(mixer, rate, seed)) for seed in SEEDS]
        done = [r for r in own if r and r["score"] is not None]
        cost = flops = None
        timed = SAME_TIME.get(mixer, mixer)
        if timed in speed and "gla" in speed:
            cost = speed["gla"]["tokens_per_second"] / speed[timed]["tokens_per_second"]
            flops = speed[timed]["flops"]
        rows.append(Found(mixer, rate, done, cost, flops))
    return sorted(rows, key=lambda r: r.mean)


def title_of(name: str) -> str:
    """A task in words."""
    if name in TITLES:
        return TITLES[name]
    pairs, wide = sizes_of(name)
    return f"Recall of {pairs} pairs, keys of {wide}"


def recalls(name: str) -> bool:
    """Whether a task is one of the sweep over pairs and widths of keys."""
    return name.startswith("mqar-")


def sizes_of(name: str) -> tuple[int, int]:
    """Pairs and width of a key of a task of recall."""
    _, pairs, _, wide, _ = name.split("-")
    return int(pairs), int(wide)


def regresses(name: str) -> bool:
    """Whether a score is a mean squared error; otherwise it is a share of wrong answers."""
    return TASKS[name].references is not None


def compared(results: dict[str, Any]) -> list[str]:
    """Tasks with something to compare: one mixer alone says nothing."""
    return [name for name in TASKS if len(found_on(results, name)) > 1]


class Comparison(NamedTuple):
    """The best mixer that solves on a task beside the best that does not."""

    ours: Found
    theirs: Found

    @property
    def ratio(self) -> float:
        """Error of what solves over that of what does not."""
        return max(self.ours.mean, LEAST) / max(self.theirs.mean, LEAST)

    @property
    def ratios(self) -> tuple[float, float]:
        """The least and the largest that a seed of one gives with a seed of the other."""
        ours, theirs = (np.maximum(row.scores, LEAST) for row in self)
        return min(ours) / max(theirs), max(ours) / min(theirs)

    @property
    def price(self) -> float | None:
        """Processor time of its training step over that of the other's."""
        known = self.ours.cost and self.theirs.cost
        return self.ours.cost / self.theirs.cost if known else None

    @property
    def separate(self) -> bool:
        """Whether all seeds of one are below all of the other."""
        ours, theirs = self.ours.scores, self.theirs.scores
        return max(ours) < min(theirs) or max(theirs) < min(ours)


def comparison(results: dict[str, Any], name: str, fixed_state: bool = False) -> Comparison | None:
    """Of a task; None where a side has no mixer with all its seeds.

    With ``fixed_state`` both sides are without what keeps every token.  Where the
    width of keys is what limits recall, ``hawk-mesa`` is beside the comparison: its other block
    remembers in the whole width of the model, and what that gains is not the solving's.
    """
    rows = [row for row in found_on(results, name) if len(row.runs) == len(SEEDS)]
    if recalls(name):
        rows = [row for row in rows if row.mixer != "hawk-mesa"]
    if fixed_state:
        rows = [row for row in rows if not row.grows]
    solving = [row for row in rows if row.mixer in SOLVING]
    others = [row for row in rows if row.mixer not in SOLVING]
    return Comparison(cheapest(solving), cheapest(others)) if solving and others else None


def cheapest(rows: list[Found]) -> Found:
    """Of mixers in order of their error the one that costs least, within 2 % of the first."""
    near = [row for row in rows if row.mean <= 1.02 * rows[0].mean and row.cost]
    return min(near, key=lambda row: row.cost or 0.0, default=rows[0])


def all_right(name: str, found: Comparison) -> bool:
    """Whether both answer all but every hundredth question, so that there is nothing to gain."""
    return max(found.ours.mean, found.theirs.mean) < 0.01 and not regresses(name)


def waiting_for(results: dict[str, Any], name: str) -> int:
    """How many of a task's own mixers have still to run on this one."""
    return len(set(TASKS[name].mixers) - {row.mixer for row in found_on(results, name)})
