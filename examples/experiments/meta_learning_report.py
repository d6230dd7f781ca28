"""The figure and the page docs/results/meta-learning.md, from what examples/meta_learning.py left.

    python examples/experiments/meta_learning_report.py

Refuses while a method's runs are missing; with --quick it draws what is there and writes nothing.
"""

from __future__ import annotations

import argparse
from typing import Any

import matplotlib.pyplot as plt
import meta_learners as learners
import numpy as np
from meta_learners import METHODS, TEST_SHOTS
from panels import COLOURS, in_house_style, label_lines, panels, seed_lines
from report import table
from task_training import RESULTS, load_results

NAME = "meta-learning"
LAYERS = ("in", "in bias", "hidden", "hidden bias", "out", "out bias")


def evaluations(name: str) -> int:
    """Gradients of the network for one task; a Hessian-vector product counts as two."""
    return METHODS[name].gradients + 2 * METHODS[name].products


def spread(values: Any) -> str:
    """Mean and standard deviation over seeds."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


SHOWN = (1, 5, 10)  # numbers of points in the tables; the figure has all


def shots_table(done: dict[str, Any], label: str) -> str:
    rows = []
    for name, r in done.items():
        found = {  # (shots, seeds)
            k: np.array(x, float).T[[TEST_SHOTS.index(n) for n in SHOWN]]
            for k, x in r["final"][label].items()
        }
        cells = []
        for median, lost in zip(found["median"], found["lost"], strict=True):
            cells.append(spread(median) + (f" ({100 * lost.mean():.1f}%)" if lost.any() else ""))
        rows.append([name, *cells])
    return table(["points", *map(str, SHOWN)], rows)


def other_errors(done: dict[str, Any]) -> str:
    """Errors with ten points on sines of other frequencies, by method."""
    ten = TEST_SHOTS.index(10)
    ends = {name: r["final"]["other frequencies"]["median"] for name, r in done.items()}
    return ", ".join(
        f"{np.mean(np.array(x, float).T[ten]):.2f} ({name})" for name, x in ends.items()
    )


def work(done: dict[str, Any], batch: int) -> str:
    """How many gradients a run of each method evaluates."""
    counts: dict[int, list[str]] = {}
    for name, r in done.items():
        counts.setdefault(r["final"]["step"][-1] * batch * evaluations(name), []).append(name)
    said = "; ".join(f"{count:,} ({', '.join(names)})" for count, names in sorted(counts.items()))
    return f"Gradient evaluations per run (a Hessian-vector product counts as two): {said}."


def frozen(final: dict[str, Any]) -> str:
    """Per cent of the parameters that the mask freezes at the end."""
    share = 100 * np.array(final["frozen"][-1]["all"])
    return f"{share.mean():.0f} ± {share.std(ddof=1):.0f}"


@in_house_style
def figure(done: dict[str, Any]) -> Any:
    """Errors by shots, errors by gradient evaluations, frozen shares by layer; a line a seed."""
    fig, axes = panels(3, height=3.0)
    for i, name in enumerate(METHODS):
        if name not in done:
            continue
        final = done[name]["final"]
        errors, record = np.array(final["same"]["median"]), np.array(final["record"])[1:, :, 1]
        seed_lines(axes[0], TEST_SHOTS, errors, COLOURS[i], name)
        work = np.array(final["step"][1:]) * evaluations(name)
        seed_lines(axes[1], work, record.T, COLOURS[i], name)
    axes[0].axvline(learners.SHOTS, color="k", ls=":", lw=1)
    axes[0].set(
        xlabel="points to learn from", ylabel="median of mean square errors", title="New tasks",
        yscale="log",
    )  # fmt: skip
    axes[1].set(
        xlabel="gradient evaluations per task slot", title="Meta-training, ten points",
        ylabel="mean square error", xscale="log", yscale="log",
    )  # fmt: skip
    axes[1].xaxis.set_minor_formatter("")  # decades are enough
    if "sparse-MAML" in done:
        final = done["sparse-MAML"]["final"]
        for i, name in enumerate(LAYERS):
            share = 100 * np.array([r[name] for r in final["frozen"]])  # (steps, seeds)
            seed_lines(axes[2], final["step"], share.T, COLOURS[i], name)
    axes[2].set(xlabel="meta-step", ylabel="%", ylim=(0, 101), title="Frozen by sparse-MAML")
    for ax in axes:
        label_lines(ax, [drawn for drawn in ax.lines if str(drawn.get_label())[0] != "_"])
    return fig


def page(results: dict[str, Any], batch: int) -> str:
    done, run = results["methods"], results["run"]
    head = done["exact head"]["final"]
    return f"""\
# Meta-learning: learning to learn sines

For readers who study few-shot learning: is it better to solve the last layer exactly than to descend its gradient?

![Errors by shots and by work, frozen shares](meta-learning.png)

`{run["command"]}`, {run["date"]}, {len(head["seeds"])} seeds, {run["processor_seconds"]:,.0f} s of processor time on a
shared machine. Six ways of learning to learn `y = a sin(x + b)` from 1 to 10 points, each with the same network
(1 - 40 - 40 - 1), start, tasks and {head["step"][-1]:,} meta-steps of {batch} tasks, five inner steps where there are any. The
rates of each were chosen by short runs of one other seed. [`meta_learning.py`](../../examples/meta_learning.py)
describes the methods.

Mean square error, the median over 400 new tasks, as mean ± standard deviation over seeds; in brackets the share of tasks on which
gradient descent has diverged:

{shots_table(done, "same")}
If the frequency of the sines is U(0.7, 1.3) instead of 1, the errors with ten points are {other_errors(done)}.

{work(done, batch)}
The exact head also solves ten ridge regressions of {learners.WIDTH + 1} features per task, which the count leaves out.

**Limits.** The tasks favour a solved head: two features and two points determine a sine of known frequency. Implicit MAML does not
learn here: five inner steps do not reach the minimum at which its outer gradient holds.
"""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="draw what is there, write nothing")
    args = parser.parse_args(argv)
    results = load_results(NAME)
    done = {k: r for k, r in results.get("methods", {}).items() if "final" in r}
    if args.quick:
        plt.close(figure(done))
        return
    if missing := [name for name in METHODS if name not in done]:
        raise SystemExit(f"not run yet: {', '.join(missing)}; run examples/meta_learning.py")
    figure(done).savefig(RESULTS / f"{NAME}.png", dpi=150)
    (RESULTS / f"{NAME}.md").write_text(page(results, batch=16))


if __name__ == "__main__":
    main()
