"""The pages of docs/results: conclusions, and one page per experiment, from stored results.

    python examples/experiments/report.py

Experiments whose results are not there yet are left out, and named at the end of the conclusions.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np
import stable_training
from gate_start import at_best
from gate_start_report import section as gate_start
from gate_start_report import steps_to
from heads_report import lost_by, signed
from heads_report import section as heads_over_training
from language_models import MIXERS, RATES, SEEDS, key_of
from language_models_3m_report import section as language_models_3m
from local_report import (
    estimators_section,
    parallax_conclusion,
    trained_section,
)
from parity import end_of
from scipy.stats import spearmanr
from solving_report import conclusion as of_solving
from solving_report import section as when_to_solve
from tables import FROM_HALF, table, with_zeros
from task_training import RESULTS, load_results

INTRO = """\
# Results of studies

For readers who ask when it pays to solve a regression at every token, on small tasks and models.

![Error of the best rule that solves over that of the best that does not, for each task](when-to-solve-answer.png)

`examples/experiments/report.py` makes these pages from the results of the scripts in the same folder; the machine had two shared x86-64 cloud
cores. Every page says how forget gates started: mostly at one half (`forget_bias=0.0`), as in the MesaNet paper. Layers now [start near
0.99](../layers.md#initialisation).

"""


def noisy_recall(results: dict[str, Any]) -> str:
    steps = {name: reached(r) for name, r in results.items() if reached(r) < np.inf}
    first, last = min(steps.values()), max(steps.values())
    slowest = ", ".join(f"`{name}`" for name, n in steps.items() if n == last)
    return f"""
## Noisy recall from scratch

![Learning curves of every mixer](noisy-recall.png)

All mixers reach 99 %, after {first} to {last} steps ({slowest}), except the two with windows of 64 tokens. One seed and one learning rate:
this is no ranking. `python examples/experiments/noisy_recall.py`, 2026-11-21 and 22: the MAD task at its baseline, 6,400 sequences of 127 tokens, two
blocks of width 64 with 4 heads of 16, learning rate 3e-3, at most 1,500 steps of 32.
{FROM_HALF}
{marked(results.values(), 0.02)}"""


def mark(record: dict[str, Any]) -> str:
    """What stands beside the name of a run that decayed more than projections and gates."""
    return "" if "decayed" in record else r"\*"


def marked(records: Any, share: float) -> str:
    """What the mark means, if any run has it; ``share`` is what decay takes over a whole run."""
    if all(map(mark, records)):
        which = "All of these ran"
    elif any(map(mark, records)):
        which = r"\* ran"
    else:
        return ""
    return f"""
{which} with weight decay on embeddings, norm scales, convolution kernels and ridges too: {share:.0%} at most over a run.
"""


def reached(record: dict[str, Any], goal: float = 0.99) -> float:
    """The first measured step at which accuracy was at the goal."""
    return next((s for s, a in zip(record["step"], record["micro"], strict=True) if a >= goal),
                np.inf)  # fmt: skip


def parity(results: dict[str, Any]) -> str:
    if "run" not in results:
        return ""  # still under way
    runs = results["runs"]
    seeds: dict[str, list[list[float]]] = {}
    for key, r in runs.items():
        found = [r["micro"][-1], np.mean(r["by_position"]), end_of(r)]
        seeds.setdefault(key.partition(", seed")[0], []).append(found)
    rows = [
        [
            gates,
            *(
                " to ".join(dict.fromkeys(f"{f(x):.3f}" for f in (min, max)))
                for x in zip(*found, strict=True)
            ),
        ]
        for gates, found in seeds.items()
    ]
    return f"""
## Parity with gates below zero

![Parity](parity.png)

Gates in (-1, 1) solve parity at six times the training length; gates in (0, 1) guess beyond 70 tokens. `{results["run"]["command"]}`, {results["run"]["date"]} (MesaNet, appendix H, figure 8, reduced: width 32,
two blocks of 2 heads of 16, batches of 128, ridge 50). Gates in (-1, 1) start at 0, those in (0, 1) at one half (`forget_bias=0.0`).

{table([f"gates, {len(runs) // 2} seeds each", "accuracy, length 40", "length 256", "its last 40 positions"], rows)}{marked(runs.values(), 0.03)}"""


def language_models(results: dict[str, Any]) -> str:
    runs = results["runs"]
    return f"""
## Language models of 1M parameters

![Loss, loss by position, training](language-models.png)

`python examples/experiments/language_models.py`, 2026-11-21. Four blocks of width 128, 4 heads of 32, byte
pairs (vocabulary 1,024) of two novels, {results["steps"]} steps of 8 sequences of 256, the same data in the same order for all,
two learning rates ({RATES[0]:g} and {RATES[1]:g}) and two seeds. Validation loss in nats per token. {FROM_HALF}

{what_holds(runs)}
"""


WITHOUT_CONVOLUTION = ("softmax", "sliding_window")


def losses_of(runs: dict[str, Any], name: str, lr: float) -> list[float]:
    """Losses of a mixer at a learning rate, by seed."""
    return [runs[key_of(name, lr, s)]["loss"] for s in SEEDS if key_of(name, lr, s) in runs]


def places(runs: dict[str, Any], lr: float) -> dict[str, int]:
    """Places 1, 2, ... of the mixers at a learning rate, by the mean of the seeds."""
    means = {
        name: np.mean(losses_of(runs, name, lr)) for name in MIXERS if losses_of(runs, name, lr)
    }
    return {name: i for i, name in enumerate(sorted(means, key=means.__getitem__), 1)}


def what_holds(runs: dict[str, Any]) -> str:
    """What the table shows, and what is so in every cell of it: each rate and each seed."""
    order = {lr: list(places(runs, lr)) for lr in RATES}
    turned = spearmanr(*([order[lr].index(name) for name in order[RATES[0]]] for lr in RATES))
    cells = [(lr, seed) for lr in RATES for seed in SEEDS]

    def ahead(a: str, b: str) -> float:
        """The least that a's loss is below b's, over all cells."""
        return min(
            runs[key_of(b, *cell)]["loss"] - runs[key_of(a, *cell)]["loss"] for cell in cells
        )

    pairs = {(a, b): ahead(a, b) for a in order[RATES[0]] for b in order[RATES[0]] if a != b}
    held = {pair: least for pair, least in pairs.items() if least > 0}
    leaders = [a for a in order[RATES[0]]
               if sum(pair[0] == a for pair in held) == len(order[RATES[0]]) - 1]  # fmt: skip
    led = "no mixer has the least loss."
    if leaders:
        least = min(held[pair] for pair in held if pair[0] == leaders[0])
        led = f"`{leaders[0]}` has the least loss, by {least:.3f} or more."
    return f"""In all {len(cells)} cells (both rates, both seeds): {led} The order of the others is mostly inconclusive: it
turns with the learning rate (rank correlation {turned.statistic:+.2f}). All mixers except {" and ".join(f"`{name}`" for name in WITHOUT_CONVOLUTION)} have convolutions of
width 4, which may explain most of what {steps_of(runs)} steps show."""


def steps_of(runs: dict[str, Any]) -> int:
    """Steps of the runs."""
    return next(iter(runs.values()))["steps"][-1]


def above(difference: float, digits: int) -> str:
    return f"{difference:+.{digits}f}" if round(difference, digits) else "0"


def test_time_compute(results: dict[str, Any]) -> str:
    text = f"""
## Fewer solver steps at test time

`python examples/experiments/test_time_compute.py`, 2026-11-21: Mesa models trained with the exact solver, then solved with
conjugate gradient (MesaNet, figures 7 and 13): one of noisy recall (400 steps, heads of 16), and the [language
model](language-models.md) at learning rate 3e-3, seed 0 (heads of 32).
{FROM_HALF}
"""
    rows = []
    for name, found in sorted(results.items(), reverse=True):  # noisy recall first
        spent = found["spend"]
        losses = dict(zip(spent["steps"], spent["fixed"], strict=True))
        fixed = [above(losses[n] - spent["exact"], 4) for n in (0, 1, 3, 5)]
        steps, loss = next((n, loss) for tol, n, loss in spent["adaptive"] if tol == 1e-4)
        adaptive = f"{above(loss - spent['exact'], 5)} ({steps:.1f} steps)"
        correlation = f"{found['rank_correlation_gate_condition']:.2f}"
        rows.append([name, f"{spent['exact']:.4f}", *fixed, adaptive, correlation])
        picture = f"test-time-compute-{name.split()[-1]}.png"
        text += f"""
**{name.capitalize()}:**

![Steps, tolerances, condition numbers: {name}]({picture})
"""
    if rows:
        head = ["model", "exact loss", "0 steps", "1 step", "3 steps", "5 steps", "to 1e-4"]
        head.append("correlation")
        text += f"""
{table(head, rows)}
Test loss above that of the exact solution, in nats, after fixed numbers of steps and to a tolerance of 1e-4; rank correlation of the
heads' mean gates with their condition numbers at the last position.
"""
    if "language" in results:
        text += """
After 300 training steps the language model's gates are near one half, its systems nearly the ridge alone, and three steps solve
them; [four times the training](#heads-over-training) hardly changes that.
"""
    return text


def stability(results: dict[str, Any]) -> str:
    bad = sum(x["not_finite"] for x in results.values())
    losses = {key: x["last_loss"] for key, x in results.items()}
    low, high = (pick(losses, key=losses.__getitem__) for pick in (min, max))
    return f"""
## Training stability in bfloat16

{bad} of {1000 * len(results):,} training steps of {len(results)} mixers have a loss, gradient or weight that is not finite; losses end between
{losses[low]:.3f} (`{low.split(", ")[0]}`) and {losses[high]:.3f} (`{high.split(", ")[0]}`). `python examples/experiments/stability.py`, 2026-11-21: bfloat16 activations, two
blocks of width 32, text in which a third of every sequence is one byte repeated and every fourth sequence is nothing else.
{FROM_HALF}
{marked(results.values(), 0.15)}"""


SECTIONS = {
    "when-to-solve": when_to_solve,
    "local-estimators": estimators_section,
    "local-trained": trained_section,
    "parallax-direction": lambda results: "",  # a figure and a sentence of the section before
    "noisy-recall": noisy_recall,
    "gate-start": gate_start,
    "parity": parity,
    "language-models": language_models,
    "language-models-3m": language_models_3m,
    "test-time-compute": test_time_compute,
    "heads-over-training": heads_over_training,
    "stability": stability,
    "stable-training": stable_training.section,
}
# Pages of more than one section: file, title, sections.
SHARED_PAGES = {
    "recall": (
        "Noisy recall, the start of gates, and parity", ("noisy-recall", "gate-start", "parity"),
    ),
    "language-models": (
        "Language models", ("language-models", "language-models-3m", "stability", "stable-training"),
    ),
    "test-time-compute": (
        "Test-time compute of Mesa layers", ("test-time-compute", "heads-over-training"),
    ),
}  # fmt: skip
OPENINGS = {
    "recall": (
        "For readers who choose a layer for recall or for tracking a state: which mixers learn noisy "
        "recall, how the start of the forget gates matters, and what gates below zero can learn."
    ),
    "language-models": (
        "For readers who train small language models: losses of mixers with 1M and 3M parameters, "
        "and how stable training in bfloat16 is."
    ),
    "test-time-compute": (
        "For readers who run Mesa layers: how many solver steps a trained model needs, and how its "
        "gates change in training."
    ),
}
DIRECTION = """\
![Cosine of Parallax's direction with the exact one over training](parallax-direction.png)

`python examples/experiments/parallax_direction.py`: cosines over held-out sequences, pairs 33 to 64; random directions of 16 numbers have
0 ± 0.25.\
"""
FIRST = ("when-to-solve", "local-estimators", "local-trained")  # sections of the first page
SOURCES = {"local-trained": "when-to-solve"}  # whose results a section reads, if not its own
TREE = """
```{toctree}
:maxdepth: 1

when-to-solve
recall
language-models
test-time-compute
meta-learning
claims
```
"""


def pages_of(found: dict[str, Any]) -> dict[str, str]:
    """Make the text of every page of an experiment, by file name."""
    pages = {}
    if found["when-to-solve"]:
        parts = [SECTIONS[name](found[name]).strip() for name in FIRST if found[name]]
        parts += parallax_conclusion(found)
        parts.append(DIRECTION)
        pages["when-to-solve"] = "\n\n".join(parts) + "\n"
    for page, (title, names) in SHARED_PAGES.items():
        parts = [SECTIONS[name](found[name]).strip() for name in names if found[name]]
        if parts:
            parts.insert(0, OPENINGS[page])
            pages[page] = f"# {title}\n\n" + "\n\n".join(parts) + "\n"
    return pages


def conclusions(found: dict[str, Any]) -> str:
    """Make the list of pages, each with what it found."""
    lines = []
    if r := found["when-to-solve"]:
        lines.append(f"[When is solving worth it?](when-to-solve.md) {of_solving(r)}")
    if r := found["gate-start"]:
        ends = {s: at_best(r["runs"], "recall", s) for s in ("0.99", "0.5")}
        there = {s: sum(np.isfinite(steps_to(x)) for x in ends[s]) for s in ends}
        lines.append(
            "[Recall, the start of gates, parity](recall.md): gates that start at 0.99 learn noisy "
            f"recall within 300 steps with {there['0.99']} of {len(ends['0.99'])} seeds, gates that "
            f"start at one half with {there['0.5']}."
        )
    if r := found["language-models"]:
        lines.append(
            f"[Language models](language-models.md) of 1M parameters, 300 steps: {what_leads(r['runs'])}"
        )
    if r := found["heads-over-training"]:
        starts: dict[str, list[dict[str, Any]]] = {}
        for key, run in r["runs"].items():
            starts.setdefault(key.rpartition(", seed ")[0], []).append(run)
        lines.append(
            "[Fewer solver steps at test time](test-time-compute.md): three conjugate-gradient steps "
            f"lose at most {lost_by(starts, 3):.4f} nats against the exact solution, five "
            f"{signed(lost_by(starts, 5))}."
        )
    if r := ten_points():
        lines.append(
            "[Learning to learn sines](meta-learning.md), ten points: squared error "
            f"{r['exact head']} when the last layer is solved exactly, {r['sparse-MAML']} with "
            f"sparse-MAML, {r['MAML']} with MAML."
        )
    if r := CLAIMS.search((RESULTS / "claims.md").read_text()):
        lines.append(
            f"[Claims of the papers](claims.md): {r[2]} of {r[1]} are met, {r[3]} are not, and {r[4]} "
            "are too small to test."
        )
    return "".join(f"- {line}\n" for line in lines)


CLAIMS = re.compile(r"(\d+) were tried: (\d+) are met, (\d+) are not, and (\d+) are too small")


def ten_points() -> dict[str, str]:
    """Errors of the page on meta-learning with ten points, by method, as written there."""
    page = (RESULTS / "meta-learning.md").read_text()
    lines = page.partition("| points |")[2].partition("\n\n")[0].splitlines()
    column = [cell.strip() for cell in lines[0].split("|")].index("10") + 1
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    return {row[1]: row[column + 1].partition(" ±")[0] for row in cells}


def what_leads(runs: dict[str, Any]) -> str:
    """State which mixer leads in all cells, and whether the order of the others is stable."""
    order = {lr: list(places(runs, lr)) for lr in RATES}
    cells = [(lr, seed) for lr in RATES for seed in SEEDS]
    first = order[RATES[0]][0]
    gaps = [
        min(runs[key_of(b, *cell)]["loss"] for b in order[RATES[0]] if b != first)
        - runs[key_of(first, *cell)]["loss"]
        for cell in cells
    ]
    turned = spearmanr(*([order[lr].index(name) for name in order[RATES[0]]] for lr in RATES))
    lead = (
        f"`{first}` has the lowest loss in all {len(cells)} cells, by at least {min(gaps):.3f} nats"
    )
    if min(gaps) <= 0:
        lead = "no mixer has the lowest loss in every cell"
    return (
        f"{lead}; the order of all turns with the rate (rank correlation {turned.statistic:+.2f})."
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="make the pages and do not write them")
    args = parser.parse_args(argv)
    found = {name: load_results(SOURCES.get(name, name)) for name in SECTIONS}
    pages = pages_of(found)
    page = INTRO + conclusions(found)
    if missing := [name for name, r in found.items() if not r]:
        page += f"\nNot run yet: {', '.join(missing)}.\n"
    pages["index"] = page + TREE
    for text in pages.values():
        for picture in re.findall(r"\]\((\S+\.png)\)", text):
            if not (RESULTS / picture).exists():
                raise SystemExit(f"docs/results/{picture} is missing: run its experiment again")
    if not args.quick:
        for name, text in pages.items():
            (RESULTS / f"{name}.md").write_text(with_zeros(text))


if __name__ == "__main__":
    main()
