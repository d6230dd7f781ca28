"""Figures and the section "When is solving worth it?", from as many runs as there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter
from panels import colour_of, in_house_style, label_lines, label_points, line, panels
from solving_tasks import MIXERS, TASKS, Task

NAME = "when-to-solve"
SEEDS = (0, 1, 2)
GAIN = 0.1  # less error than this is hardly worth a price
SOLVING = ("mesa", "mesa_discounted", "hawk-mesa", "mesa, signed", "mesa, small ridge")
SAME_TIME = {"mesa, small ridge": "mesa"}  # but for a number
TITLES = {
    "drift-none": "Regression, coefficients at rest",
    "drift-slow": "Regression, slow drift (half-life 177 pairs)",
    "drift-fast": "Regression, fast drift (half-life 22 pairs)",
    "switches": "Regression, new coefficients every 64 pairs",
    "s3": "Word problem of S3, 32 letters",
    "s5": "Word problem of S5, 32 letters",
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


def found_on(results: dict[str, Any], name: str) -> list[Found]:
    """Mixers whose three rates were tried, from the least mean score on."""
    task, runs = TASKS[name], results.get("runs", {}).get(name, {})
    speed = results.get("speed", {}).get(task.timed, {}).get("mixers", {})
    rows = []
    for mixer in (*MIXERS, *task.extra):
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
    _, pairs, _, wide, _ = name.split("-")
    return f"Recall of {pairs} pairs, keys of {wide}"


def regresses(name: str) -> bool:
    """Whether a score is a mean squared error; otherwise it is a share of wrong answers."""
    return TASKS[name].references is not None


def compared(results: dict[str, Any]) -> list[str]:
    """Tasks with something to compare: one mixer alone says nothing."""
    return [name for name in TASKS if len(found_on(results, name)) > 1]


def draw_figures(results: dict[str, Any], where: Path) -> None:
    """The pictures of the section, of those tasks that have something to show."""
    names = compared(results)
    timed = [name for name in names if any(row.cost for row in found_on(results, name))]
    if timed:
        save(cost_figure(results, timed), where / f"{NAME}.png")
    if drifting := [name for name in names if regresses(name)]:
        save(position_figure(results, drifting), where / f"{NAME}-positions.png")


def save(figure: Any, path: Path) -> None:
    """Write and close."""
    figure.savefig(path, dpi=150)
    plt.close(figure)


@in_house_style
def cost_figure(results: dict[str, Any], names: list[str]) -> Any:
    """Error against the time of a step: a panel a task, a small dot a seed, a name a mixer."""
    figure, axes = panels(len(names), height=2.75, squeeze=False, sharex=True)
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = [row for row in found_on(results, name) if row.cost and row.runs]
        for row in rows:
            colour = colour_of(row.mixer)
            face = colour if row.mixer in SOLVING else "white"
            ax.plot([row.cost] * len(row.runs), row.scores, "_", color=colour, ms=8, mew=0.8)
            ax.plot(row.cost, row.mean, "o", color=colour, mfc=face, ms=5, mew=1.4)
        highest = max(max(row.scores) for row in rows)
        lowest = min(min(row.scores) for row in rows)
        if regresses(name):
            for what, found in results["references"][name].items():
                height = np.mean(found["by_position"][TASKS[name].scored])
                if height < 1.1 * highest:
                    label = "the best any predictor can do" if what == "Bayes" else f"{what}, tuned"
                    line(ax, height, label)
                    lowest = min(lowest, height)
            ax.set_yscale("log")
            ax.set_ylim(0.93 * lowest, 1.12 * highest)
            ax.yaxis.set_major_locator(plt.MaxNLocator(5))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.set_ylabel("squared error")
        else:
            ax.set_ylim(-0.05, 1.05)
            ax.set_ylabel("share wrong")
        ax.set_title(title_of(name))
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(plt.FixedLocator([0.5, 1, 2, 4, 8]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    costs = [row.cost for name in names for row in found_on(results, name) if row.cost]
    axes[0, 0].set_xlim(0.6 * min(costs), 1.7 * max(costs))  # names need room
    axes[-1, 0].set_xlabel("time of a training step, in units of gla's")
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = [row for row in found_on(results, name) if row.cost and row.runs]
        label_points(ax, [(row.cost, row.mean, row.mixer, colour_of(row.mixer)) for row in rows])
    return figure


@in_house_style
def position_figure(results: dict[str, Any], names: list[str]) -> Any:
    """Error over that of Bayes along the sequence: a panel a task, a thin line a seed."""
    figure, axes = panels(len(names), height=2.75, squeeze=False, sharex=True)
    for ax, name in zip(axes[:, 0], names, strict=True):
        floor = np.array(results["references"][name]["Bayes"]["by_position"])
        ends = []
        for row in found_on(results, name):
            for i, run in enumerate(row.runs):
                ratio = smoothed(np.array(run["by_position"]) / floor)
                (drawn,) = ax.plot(
                    np.arange(1, len(ratio) + 1), ratio, lw=0.9, color=colour_of(row.mixer),
                    label=row.mixer,
                )  # fmt: skip
                if i == 0:
                    ends.append(drawn)
        ax.axhline(1.0, color="0.4", lw=0.8, ls=(0, (4, 3)))
        ax.set_title(title_of(name))
        ax.set_ylabel("error / best possible")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(plt.FixedLocator([1, 1.5, 2, 3, 5, 10, 20]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.margins(x=0)
        ax.ends = ends
    axes[-1, 0].set_xlabel("pairs read")
    for ax in axes[:, 0]:
        label_lines(ax, ax.ends)
    return figure


def smoothed(values: np.ndarray, width: int = 5) -> np.ndarray:
    """A running mean whose window shrinks towards both ends."""
    half = [min(i, len(values) - 1 - i, width // 2) for i in range(len(values))]
    return np.array([values[i - h : i + h + 1].mean() for i, h in enumerate(half)])


def verdict(results: dict[str, Any], name: str) -> str:
    """Whether what solves beats what does not, by how much, at what cost, from how many seeds."""
    rows = [row for row in found_on(results, name) if len(row.runs) == len(SEEDS)]
    solving = [row for row in rows if row.mixer in SOLVING]
    others = [row for row in rows if row.mixer not in SOLVING]
    if not solving or not others:
        return "not enough runs yet for a verdict"
    ours, theirs = cheapest(solving), cheapest(others)
    if max(ours.mean, theirs.mean) < 0.01 and not regresses(name):
        return f"`{ours.mixer}` and `{theirs.mixer}` both get more than 99 % right: no difference"
    separate = max(ours.scores) < min(theirs.scores) or max(theirs.scores) < min(ours.scores)
    share = ours.mean / theirs.mean - 1
    price = ""
    if ours.cost and theirs.cost:
        price = f", for {ours.cost / theirs.cost:.1f} times its processor time"
    said = (
        f"the best that solves, `{ours.mixer}`, errs {abs(share):.0%} "
        f"{'less' if share < 0 else 'more'} than the best that does not, `{theirs.mixer}` "
        f"({ours.mean:.4f} and {theirs.mean:.4f}){price}"
    )
    said += as_shipped(rows, ours, theirs)
    if few := len(MIXERS) - sum(row.mixer in MIXERS for row in rows):
        said += f"; {few} mixers have still to run"
    if not separate:
        return f"**cannot be told** from {len(SEEDS)} seeds each, which overlap: {said}"
    word = "worth it" if share <= -GAIN else "hardly worth it" if share < 0 else "not worth it"
    return f"**{word}**: {said}; all {len(SEEDS)} seeds of one are below all of the other"


def cheapest(rows: list[Found]) -> Found:
    """Of mixers in order of their error the one that costs least, within 2 % of the first."""
    near = [row for row in rows if row.mean <= 1.02 * rows[0].mean and row.cost]
    return min(near, key=lambda row: row.cost or 0.0, default=rows[0])


def as_shipped(rows: list[Found], ours: Found, theirs: Found) -> str:
    """What the layer does with its own settings, where the best that solves has others."""
    plain = [row for row in rows if row.mixer == SAME_TIME.get(ours.mixer)]
    if not plain:
        return ""
    share = plain[0].mean / theirs.mean - 1
    scores = ", ".join(f"{score:.4f}" for score in plain[0].scores)
    return (f" (`{plain[0].mixer}` with the settings it comes with: {abs(share):.0%} "
            f"{'less' if share < 0 else 'more'}; {scores})")  # fmt: skip


def rows_of(results: dict[str, Any], name: str) -> list[list[str]]:
    """The table of a task."""
    floor = None
    if regresses(name):
        bayes = results["references"][name]["Bayes"]["by_position"]
        floor = np.mean(bayes[TASKS[name].scored])
    rows = []
    for row in found_on(results, name):
        edge = row.rate in (min(TASKS[name].rates), max(TASKS[name].rates))
        last = [] if floor is None else [f"{row.mean / floor:.2f}"]
        rows.append([
            f"`{row.mixer}`", f"{row.rate:g}" + " (edge)" * edge,
            " / ".join(f"{score:.4f}" for score in row.scores), *last,
            "" if row.cost is None else f"{row.cost:.2f}",
            "" if row.flops is None else f"{row.flops / 1e3:,.0f}",
        ])  # fmt: skip
    return rows


def waiting(done: list[str]) -> str:
    """A sentence on the tasks of which nothing can be shown yet."""
    left = [title_of(name) for name in TASKS if name not in done]
    said = "; ".join(title[0].lower() + title[1:] for title in left)
    return (
        f"\nOf the grid these tasks have still to run, so that nothing is said of them: {said}.\n"
        * bool(left)
    )


HEAD = ["mixer", "best rate", "error, by seed", "over the best possible", "time of a step / gla's",
        "thousand flops a token"]  # fmt: skip


def section(results: dict[str, Any]) -> str:
    """The part of the page of results."""
    names = compared(results)
    runs = [run for name in names for run in results["runs"][name].values()]
    dates = sorted({run["date"] for run in runs if "date" in run})
    hours = sum(run.get("processor_seconds", 0.0) for run in runs) / 3600
    verdicts = "\n".join(f"* {title_of(name)}: {verdict(results, name)}." for name in names)
    parts = []
    for name in names:
        head = [h for h in HEAD if regresses(name) or not h.startswith("over")]
        lines = [head, ["---"] * len(head), *rows_of(results, name)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"**{title_of(name)}**{left_over(results, name)}\n\n{table}\n")
    positions = any(map(regresses, names))
    return f"""
## When is solving worth it?

`python examples/experiments/when_to_solve.py`, {" to ".join(dict.fromkeys([dates[0], dates[-1]]))}, {len(runs)} runs, {hours:.1f} hours of one
processor. Two blocks of width 32 with two heads around every mixer, 800 steps; each of three learning rates with seed 0,
then seeds 1 and 2 at the rate whose validation error was least. Scores are of 512 test sequences that no choice saw.

![Error against the time of a training step, for each task]({NAME}.png)

Filled dots solve a regression at every token, open ones do not; a dash is a seed. What the runs say, where "hardly" is
less than {GAIN:.0%} of the error, and "best" the cheapest within 2 % of it:

{verdicts}

In the regressions a token holds x_t and the pair before it, inputs are correlated in other directions in every sequence
(condition number 100 of their covariance), so that nothing but what is read can whiten them, noise has standard
deviation .1, and errors are of pairs 33 to 64. The lines are rules with one constant gate, and one rate or ridge, both
tuned: recursive least squares, one gradient step a pair (LMS, the delta rule) and sums of outer products; and the
Bayes predictor, a Kalman filter that knows the drift, or where coefficients switch a mixture over the last switch.
Mixers that solve or step have linear keys here, no convolution and no norm of what they read; `mesa_discounted` has
gates above .9 instead of .99, and "small ridge" is `mesa` whose ridge starts at .05 and may fall to .001 instead of
the layer's 1 and .25. That variant was added once the first runs of `mesa` were seen: a ridge of .25 is far above what
noise of variance .01 asks for, so it knows something of the task that gates and steps of the others have to learn.
{POSITIONS if positions else ""}
{chr(10).join(parts)}
"Edge" marks a best rate at the end of its grid: a better one may lie beyond. Times are the least of 9 rounds of 3
training steps, processor time of one thread, all mixers in turn in one process; flops are counted from the program, of loss and
gradient, a loop of unknown length once and of two branches the cheaper.

What this cannot tell, at this size: anything about widths beyond 64 or sequences beyond 64 tokens; whether more steps
of training would close a gap; whether accelerators, whose cost of a sequential solve differs, give the same
prices; language. Noisy recall, parity and RegBench below are earlier runs at a single learning rate, and rank nothing.
{waiting(names)}"""  # noqa: E501


POSITIONS = f"""
![Error along the sequence over the least possible, for each drift]({NAME}-positions.png)
"""


def left_over(results: dict[str, Any], name: str) -> str:
    """Which mixers of a task have no place in its table yet, or few seeds."""
    rows = found_on(results, name)
    absent = [m for m in (*MIXERS, *TASKS[name].extra) if m not in {row.mixer for row in rows}]
    few = [row.mixer for row in rows if len(row.runs) < len(SEEDS)]
    said = [f"not run yet: {', '.join(f'`{m}`' for m in absent)}"] if absent else []
    if few:
        said.append(f"fewer than {len(SEEDS)} seeds: {', '.join(f'`{m}`' for m in few)}")
    return f" ({'; '.join(said)})" if said else ""
