"""The page docs/results/index.md, from the results that the experiments left.

    python examples/experiments/report.py

Sections whose results are not there yet are left out, and named at the end.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np
from language_models import MIXERS, RATES, SEEDS, best_rate, key_of
from parity import end_of
from task_training import RESULTS, load_results

INTRO = """\
# Results

Every number on this page was made by a script in `examples/experiments/`, from code a reader can run;
this page is made from their results by `report.py` there. Machine: two shared cores of an x86-64 cloud
machine, often busy with other work, so compare times only where it is said that they were taken
alone. Dates are of the runs. Each script has a `--quick` mode that the tests run.
"""


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def noisy_recall(results: dict[str, Any]) -> str:
    rows = []
    for name, r in sorted(results.items(), key=lambda item: reached(item[1])):
        rows.append([
            f"`{name}`", reached(r) if reached(r) < np.inf else "not reached",
            f"{max(r['micro']):.4f}", f"{r['parameters']:,}",
        ])  # fmt: skip
    return f"""
## Noisy recall from scratch

`python examples/experiments/noisy_recall.py`, seed 0, 2026-11-21. The MAD task at its baseline, 6,400 sequences
of 127 tokens, two blocks of width 64 with 4 heads of 16, learning rate 3e-3 for all, at most 1,500 steps of 32;
measured every 50 steps on 320 test sequences, stopped at .999. The curves are one seed at one learning rate:
whether a rule gets there, not a ranking of how fast. The two with windows of 64 tokens cannot recall what has left
the window.

![Learning curves of every mixer](noisy-recall.png)

{table(["mixer", "steps to 99 %", "best accuracy", "parameters"], rows)}"""


def reached(record: dict[str, Any], goal: float = 0.99) -> float:
    """The first measured step at which accuracy was at the goal."""
    return next((s for s, a in zip(record["step"], record["micro"], strict=True) if a >= goal),
                np.inf)  # fmt: skip


def parity(results: dict[str, Any]) -> str:
    if "run" not in results:
        return ""  # still under way
    runs = results["runs"]
    rows = [
        [key, f"{r['micro'][-1]:.4f}", f"{np.mean(r['by_position']):.4f}", f"{end_of(r):.4f}",
         r["step"][-1]]
        for key, r in runs.items()
    ]  # fmt: skip
    return f"""
## Parity

`{results["run"]["command"]}`, {results["run"]["date"]} (MesaNet, appendix H, figure 8, reduced: width 32, two blocks of
2 heads of 16, batches of 128). Both models have a ridge of 50, at least 49; they differ in their gates only.
What gates in (0, 1) know at length 40 they have from its first tokens: beyond 70 there is nothing left.

![Parity](parity.png)

{table(["gates", "accuracy, length 40", "length 256", "its last 40 positions", "steps"], rows)}"""


def language_models(results: dict[str, Any]) -> str:
    runs, rows = results["runs"], []
    for name in MIXERS:
        best = best_rate(runs, name)
        if best is None:
            continue
        cells = []
        for lr in RATES:
            found = [
                runs[key_of(name, lr, s)]["loss"] for s in SEEDS if key_of(name, lr, s) in runs
            ]
            text = " / ".join(f"{x:.3f}" for x in found) or "not run"
            cells.append(f"**{text}**" if lr == best else text)
        speed = results["speed"].get(name, {})
        one = runs[key_of(name, best, SEEDS[0])]
        rates = [f"{speed[k]:,.0f}" if k in speed else "" for k in ("train", "decode")]
        rows.append([f"`{name}`", *cells, f"{one['parameters']:,}", *rates])
    head = ["mixer", *(f"loss at lr {lr:g} (seeds)" for lr in RATES), "parameters",
            "training tokens/s", "decoding tokens/s"]  # fmt: skip
    return f"""
## Small language models

`python examples/experiments/language_models.py` and `--speed`, 2026-11-21. Four blocks of width 128, 4 heads of 32, byte
pairs (vocabulary 1,024) of two novels, {results["steps"]} steps of 8 sequences of 256, AdamW as in the MesaNet paper;
the same data in the same order for all. Validation loss in nats a token.

![Loss, loss by position, training](language-models.png)

{table(head, rows)}
Three hundred steps are 0.6 million tokens: this shows how soon models of this size begin to learn, not what they
reach.

Tokens per second, measured with little else running on the two cores: loss and gradient of the 8 sequences; one
stream decoded token by token after a prompt of 256. Mesa solves every token exactly here; fewer steps cost less.
"""


def above(difference: float, digits: int) -> str:
    return f"{difference:+.{digits}f}" if round(difference, digits) else "0"


def test_time_compute(results: dict[str, Any]) -> str:
    text = """
## Test-time compute

`python examples/experiments/test_time_compute.py`, with a model's file for the second, 2026-11-21: Mesa models
trained with the exact solver, solved with conjugate gradient instead (MesaNet, section 6, figures 7 and 13): one of
noisy recall (400 steps at the baseline above, heads of 16), whose answers need what it has stored, and the language
model above at learning rate 3e-3, seed 0 (heads of 32).
"""
    for name, found in results.items():
        spent = found["spend"]
        fixed = [above(loss - spent["exact"], 4) for loss in spent["fixed"]]
        adaptive = [[f"{tol:g}", f"{n:.2f}", above(loss - spent["exact"], 5)]
                    for tol, n, loss in spent["adaptive"]]  # fmt: skip
        picture = f"test-time-compute-{name.split()[-1]}.png"
        text += f"""
**{name.capitalize()}.** Test loss of the exact solution {spent["exact"]:.4f}; rank correlation over heads between the mean
forget gate and the condition number at the last position {found["rank_correlation_gate_condition"]:.2f}.

![Steps, tolerances, condition numbers: {name}]({picture})

{table(["fixed steps", *map(str, spent["steps"])], [["loss above exact", *fixed]])}
{table(["tolerance", "mean steps", "loss above exact"], adaptive)}"""
    if "language" in results:
        text += """
The language model has been trained for 300 steps only. Its gates are still near one half, so that it remembers a few
tokens, its systems are nearly the ridge alone, and three steps solve them: the paper's picture, of heads whose condition
numbers grow, needs longer training.
"""
    return text


def stability(results: dict[str, Any]) -> str:
    by_mixer: dict[str, dict[str, Any]] = {}
    for key, found in results.items():
        mixer, rate = key.split(", lr ")
        by_mixer.setdefault(mixer, {})[rate] = found
    rates = sorted({key.split(", lr ")[1] for key in results}, key=float)
    rows = []
    for mixer, found in by_mixer.items():
        cells = [
            f"{found[r]['not_finite']}; {found[r]['last_loss']:.3f}" if r in found else ""
            for r in rates
        ]
        rows.append([f"`{mixer}`", *cells])
    return f"""
## A thousand steps of screaming

`python examples/experiments/stability.py`, 2026-11-21. bfloat16 activations, two blocks of width 32, text in which a
third of every sequence is one byte repeated and every fourth sequence is nothing else. Steps of 1,000 with a number
that is not finite (in the loss, the gradient or the weights), and the loss at the end:

{table(["mixer", *(f"lr {r}" for r in rates)], rows)}"""


SECTIONS = {
    "noisy-recall": noisy_recall,
    "parity": parity,
    "language-models": language_models,
    "test-time-compute": test_time_compute,
    "stability": stability,
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="make the page and do not write it")
    args = parser.parse_args(argv)
    found = {name: load_results(name) for name in SECTIONS}
    page = INTRO + "".join(SECTIONS[name](r) for name, r in found.items() if r)
    if missing := [name for name, r in found.items() if not r]:
        page += f"\nNot run yet: {', '.join(missing)}.\n"
    for picture in re.findall(r"\]\((\S+\.png)\)", page):
        if not (RESULTS / picture).exists():
            raise SystemExit(f"docs/results/{picture} is missing: run its experiment again")
    if not args.quick:
        (RESULTS / "index.md").write_text(page)


if __name__ == "__main__":
    main()
