"""The page "When solving pays" of the results, from as many runs as there are."""

from __future__ import annotations

from typing import Any

from solving_figures import swept
from solving_found import (
    LEAST,
    NAME,
    SAME_TIME,
    SEEDS,
    Comparison,
    all_right,
    compared,
    comparison,
    found_on,
    regresses,
    title_of,
    waiting_for,
)
from solving_tasks import LANGUAGE, TASKS, ngram_errors
from tables import table

GAIN = 0.1  # a smaller reduction of the error is a small gain
WORDS = ("gain", "small gain", "loss", "no difference", "inconclusive", "undecided")


def effect_of(name: str, found: Comparison) -> str:
    """State how much lower or higher the error is of the best rule that solves.

    Empty where both rules get all right: the tables say so below them.
    """
    ours, theirs = found.ours, found.theirs
    if all_right(name, found):
        return ""
    if min(ours.mean, theirs.mean) < 10 * LEAST:
        return f"{100 * ours.mean:.2g} % wrong against {100 * theirs.mean:.2g} %"
    share = found.ratio - 1
    return f"{abs(share):.0%} {'lower' if share < 0 else 'higher'}".replace("%", " %")


def verdict_rows(results: dict[str, Any]) -> list[list[str]]:
    """One row per task: both rules, the effect or verdict, and the time."""
    rows = []
    for name in filter(lambda name: worth_a_row(results, name), compared(results)):
        found = comparison(results, name)
        if found is None or waiting_for(results, name):
            rows.append([title_of(name), "", "", "undecided: runs are missing", ""])
            continue
        ours, theirs = found.ours, found.theirs
        price = f"{found.price:.1f}" if found.price else ""
        rows.append([
            title_of(name), f"`{ours.mixer}`", f"`{theirs.mixer}`", error_of(name, found), price,
        ])  # fmt: skip
        if fixed := fixed_states(results, name, found):
            price = f"{fixed.price:.1f}" if fixed.price else ""
            rows.append([
                "... states of fixed size", f"`{fixed.ours.mixer}`", f"`{fixed.theirs.mixer}`",
                error_of(name, fixed), price,
            ])  # fmt: skip
    return rows


def error_of(name: str, found: Comparison) -> str:
    """The effect, or the verdict where no effect was found."""
    word = word_of(name, found)
    if word == "no difference":
        return word
    effect = effect_of(name, found)
    return f"inconclusive ({effect})" if word == "inconclusive" else f"**{effect}**"


def fixed_states(results: dict[str, Any], name: str, found: Comparison) -> Comparison | None:
    """Compare rules whose states do not grow, where the best do and these do not get all right."""
    if not (found.ours.grows or found.theirs.grows):
        return None
    fixed = comparison(results, name, fixed_state=True)
    return None if fixed is None or all_right(name, fixed) else fixed


def conclusion(results: dict[str, Any]) -> str:
    """The verdicts in one sentence."""
    words = [
        word_of(name, found)
        for name in compared(results)
        if (found := comparison(results, name)) and not waiting_for(results, name)
    ]
    counts = [f"{word} in {words.count(word)}" for word in WORDS if word in words]
    return (
        "The best rule that solves at every token, compared with the best that does not, in "
        f"{len(words)} tasks (a gain below {100 * GAIN:.0f} % is small): {', '.join(counts)}."
    )


def word_of(name: str, found: Comparison) -> str:
    """One of :data:`WORDS`."""
    if all_right(name, found):
        return "no difference"
    if not found.separate:
        return "inconclusive"
    share = found.ratio - 1
    return "gain" if share <= -GAIN else "small gain" if share < 0 else "loss"


def as_shipped(results: dict[str, Any], name: str) -> str:
    """Error of the layer's own settings against the best rule that does not solve, or nothing."""
    found = comparison(results, name)
    plain = [
        row
        for row in found_on(results, name)
        if found and len(row.runs) == len(SEEDS) and row.mixer == SAME_TIME.get(found.ours.mixer)
    ]
    if not found or not plain:
        return ""
    share = plain[0].mean / found.theirs.mean - 1
    if not round(share, 2):
        return "no change"
    return f"{100 * abs(share):.0f} % {'lower' if share < 0 else 'higher'}"


def section(results: dict[str, Any]) -> str:
    """The page of this experiment."""
    names = compared(results)
    runs = [run for name in names for run in results["runs"][name].values()]
    dates = sorted({run["date"] for run in runs if "date" in run})
    hours = sum(run.get("processor_seconds", 0.0) for run in runs) / 3600
    missing: dict[str, list[str]] = {}
    for name in names:
        if said := left_over(results, name):
            missing.setdefault(said, []).append(title_of(name))
    gaps = "".join(f"\n\n{'; '.join(titles)}: {said}." for said, titles in missing.items())
    plain = "; ".join(
        f"{title_of(name).partition(', ')[2].partition(' (')[0]} {said}"
        for name in filter(regresses, names)
        if (said := as_shipped(results, name))
    )
    left = [title_of(name) for name in TASKS if name not in names]
    verdicts = table(
        ["task", "best rule that solves", "best that does not", "error", "time"],
        verdict_rows(results),
    )
    rest = {word: [] for word in ("no difference", "inconclusive")}
    for name in names:
        found = comparison(results, name)
        if not worth_a_row(results, name) and found:
            rest[word_of(name, found)].append(title_of(name))
    return f"""# When is solving a regression worth it?

For readers who choose between layers of the same size: does it pay to solve a regression at every token, and should attention fit a line
where softmax takes a mean?

![Error of the best rule that solves over that of the best that does not, for each task]({NAME}-answer.png)

Left of the line the rule that solves has the lower error. Bars span the seeds. Errors below 1 in 10,000 count as that; an arrow
is a ratio beyond 12.

## Verdicts

{verdicts}
No difference (both above 99 % right): {"; ".join(rest["no difference"])}. Inconclusive (seeds overlap): {"; ".join(rest["inconclusive"])}.

{len(SEEDS)} seeds of each rule. "Best" is the cheapest within 2 % of the least error; "time" is the processor time of a training step, divided by
that of the other rule. With its default ridge the error of `mesa` is, compared with the best other rule: {plain}.

![Error against the time of a training step, for each task]({NAME}.png)

Filled dots solve a regression at every token, open ones do not; a dash is a seed.{gaps}

## Setup

`python examples/experiments/when_to_solve.py`, {" to ".join(dict.fromkeys([dates[0], dates[-1]]))}, {len(runs)} runs, {hours:.1f} processor hours. Two blocks of
width 32 with two heads around every mixer, 800 steps (2,400 for word problems, 1,600 for parity); three learning rates
with seed 0, then seeds 1 and 2 at the rate of least validation error. Scores are of 512 test sequences that no choice saw, of at most 64
tokens.

- **Regression.** A token is x_t and the pair before it. Inputs are correlated (condition number 100), the noise has a standard deviation
  of 0.1, and errors are those of pairs 33 to 64. Forget gates start [at one half](index.md), also in word problems and parity. The
  "small ridge" starts at 0.05 and may fall to 0.001, instead of the layer's 1 and 0.25; it uses knowledge of the noise.
- **Recall.** Fresh pairs of a key and a value in every sequence, each asked for once, 32 tokens; a guess is wrong 7 times out of 8. Forget gates
  start near 0.99. "Convolution" means the short convolution that other mixers have.
- **RegBench.** Automata of at most {LANGUAGE["max_states"]} states and {LANGUAGE["n_letters"]} letters, fresh in every batch; 3-grams of the sequence are wrong
  {ngram_errors():.3f} of the time.
{POSITIONS if any(map(regresses, names)) else ""}{CAPACITY if swept(names) else ""}
{f"Still to run: {'; '.join(left)}." if left else ""}"""  # noqa: E501


def worth_a_row(results: dict[str, Any], name: str) -> bool:
    """Whether a task has a verdict, or one among rules whose states do not grow."""
    found = comparison(results, name)
    if found is None or waiting_for(results, name):
        return True
    word = word_of(name, found)
    if word == "no difference":
        return fixed_states(results, name, found) is not None
    return word != "inconclusive"


CAPACITY = f"""
![Share of wrong answers against the width of a key]({NAME}-capacity.png)
"""
POSITIONS = f"""
![Error along the sequence over the least possible, for each drift]({NAME}-positions.png)

Lines are rules with one tuned gate and one tuned rate or ridge (recursive least squares, LMS, sums
of outer products) and the Bayes predictor.
"""


def left_over(results: dict[str, Any], name: str) -> str:
    """Which mixers of a task have no place in its table yet, or few seeds."""
    rows = found_on(results, name)
    absent = [m for m in TASKS[name].compared if m not in {row.mixer for row in rows}]
    few = [row.mixer for row in rows if len(row.runs) < len(SEEDS)]
    said = [f"not run yet: {', '.join(f'`{m}`' for m in absent)}"] if absent else []
    if few:
        said.append(f"fewer than {len(SEEDS)} seeds: {', '.join(f'`{m}`' for m in few)}")
    return "; ".join(said)
