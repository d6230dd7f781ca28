"""The section "When is solving worth it?", from as many runs as there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from solving_figures import swept
from solving_found import (
    LEAST,
    NAME,
    SAME_TIME,
    SEEDS,
    Comparison,
    Found,
    all_right,
    compared,
    comparison,
    found_on,
    recalls,
    regresses,
    title_of,
    waiting_for,
)
from solving_tasks import LANGUAGE, MIXERS, TASKS, ngram_errors
from tables import table

GAIN = 0.1  # less error than this is hardly worth a price
WORDS = (
    "worth it", "hardly worth it", "not worth it", "no difference", "cannot be told", "not decided",
)  # fmt: skip


def verdict(results: dict[str, Any], name: str) -> tuple[str, str]:
    """Whether what solves beats what does not; by how much, at what cost, from how many seeds."""
    found = comparison(results, name)
    if found is None:
        return "not decided", "not enough runs yet for a verdict"
    ours, theirs = found.ours, found.theirs
    if all_right(name, found):
        both = f"`{ours.mixer}` and `{theirs.mixer}` both get"
        return word_of(name, found), f"{both} more than 99 % right"
    rows = [row for row in found_on(results, name) if len(row.runs) == len(SEEDS)]
    share = found.ratio - 1
    price = f", for {found.price:.1f} times its processor time" if found.price else ""
    names = f"the best that solves, `{ours.mixer}`", f"the best that does not, `{theirs.mixer}`"
    if min(ours.mean, theirs.mean) < 10 * LEAST:
        shares = [f"{row.mean:.4f}" for row in (ours, theirs)]
        said = f"{names[0]}, is wrong {shares[0]} of the time, {names[1]}, {shares[1]}{price}"
    else:
        said = (
            f"{names[0]}, errs {abs(share):.0%} {'less' if share < 0 else 'more'} than {names[1]} "
            f"({ours.mean:.4f} and {theirs.mean:.4f}){price}"
        )
    said += as_shipped(rows, ours, theirs)
    beside = comparison(results, name, fixed_state=True) if theirs.grows else None
    fixed = f". {among_fixed(beside)}" if beside else ""
    if few := waiting_for(results, name):
        return "not decided", f"{few} of {len(MIXERS)} mixers have still to run: so far {said}"
    apart = f"all {len(SEEDS)} seeds of one are below all of the other"
    seeds = apart if found.separate else f"the {len(SEEDS)} seeds of each overlap"
    return word_of(name, found), f"{said}; {seeds}{fixed}"


def word_of(name: str, found: Comparison) -> str:
    """One of :data:`WORDS`."""
    if all_right(name, found):
        return "no difference"
    if not found.separate:
        return "cannot be told"
    share = found.ratio - 1
    return "worth it" if share <= -GAIN else "hardly worth it" if share < 0 else "not worth it"


def in_short(results: dict[str, Any], verdicts: dict[str, tuple[str, str]]) -> str:
    """The tasks by what was found of them, and what changes where no state may grow."""
    by_word: dict[str, list[str]] = {}
    for name, (word, _) in verdicts.items():
        by_word.setdefault(word, []).append(name)
    lines = [f"**{word[0].upper()}{word[1:]}**: {titles(by_word[word])}"
             for word in WORDS if word in by_word]  # fmt: skip
    changed: dict[str, list[str]] = {}
    for name, (word, _) in verdicts.items():
        fixed = comparison(results, name, fixed_state=True)
        if fixed and word != "not decided" and (other := word_of(name, fixed)) != word:
            changed.setdefault(other, []).append(name)
    if changed:
        others = "; ".join(f"{titles(names)} (now *{word}*)" for word, names in changed.items())
        lines.append(f"Without softmax, whose state grows with every token, these change: {others}")
    return "\n".join(f"* {text}." for text in lines)


def titles(names: list[str]) -> str:
    """Of tasks, in one line."""
    return "; ".join(title_of(name).partition(" (")[0] for name in names)


def among_fixed(found: Comparison) -> str:
    """What solves beside the best that does not of those whose state has a fixed size."""
    ours, theirs = found
    share = found.ratio - 1
    told = "all seeds on one side" if found.separate else "seeds overlap"
    less = f"{abs(share):.0%} {'less' if share < 0 else 'more'}"
    return (
        f"Of those that do not keep every token `{theirs.mixer}` is the best that does not solve, "
        f"{theirs.mean:.4f}: `{ours.mixer}` errs {less} ({told})"
    )


def as_shipped(rows: list[Found], ours: Found, theirs: Found) -> str:
    """What the layer does with its own settings, where the best that solves has others."""
    plain = [row for row in rows if row.mixer == SAME_TIME.get(ours.mixer)]
    if not plain:
        return ""
    share = plain[0].mean / theirs.mean - 1
    scores = ", ".join(f"{score:.4f}" for score in plain[0].scores)
    beside = f"{abs(share):.0%} {'less' if share < 0 else 'more'}" if round(share, 2) else "as much"
    return f" (`{plain[0].mixer}` with the settings it comes with: {beside}; {scores})"


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
    said = "; ".join(t if t.startswith("RegBench") else t[0].lower() + t[1:] for t in left)
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
    told = {name: verdict(results, name) for name in names}
    verdicts = "\n".join(
        f"* {title_of(name)}: **{word}**: {said}." for name, (word, said) in told.items()
    )
    parts = []
    for name in names:
        head = [h for h in HEAD if regresses(name) or not h.startswith("over")]
        shown = table(head, rows_of(results, name))
        parts.append(f"**{title_of(name)}**{left_over(results, name)}\n\n{shown}")
    positions = any(map(regresses, names))
    return f"""
## When is solving worth it?

`python examples/experiments/when_to_solve.py`, {" to ".join(dict.fromkeys([dates[0], dates[-1]]))}, {len(runs)} runs, {hours:.1f} hours of one
processor. Two blocks of width 32 with two heads around every mixer, 800 steps, 2,400 of word problems, 1,600 of parity; each of three learning rates with seed 0,
then seeds 1 and 2 at the rate whose validation error was least. Scores are of 512 test sequences that no choice saw.

{in_short(results, told)}

In the regressions what solves is `mesa` with a smaller ridge than it comes with; what that is worth stands below.

![Error of what solves over that of what does not, for each task]({NAME}-answer.png)

Left of the line solving errs less; a bar is what the seeds allow, and where it crosses the line they cannot tell.
Errors below 1 in 10,000 count as that, an arrow is a ratio beyond 12; tasks that both get right are left out.
Where softmax is the best of the others, which keeps every token, the best whose state has a fixed size follows.
Each task by itself, against what a step costs:

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
{POSITIONS if positions else ""}{RECALLED if any(map(recalls, names)) else ""}{CAPACITY if swept(names) else ""}{LANGUAGES if "regbench" in names else ""}
{chr(10).join(parts)}
"Edge" marks a best rate at the end of its grid: a better one may lie beyond. Times are the least of 9 rounds of 3
training steps, processor time of one thread, all mixers in turn in one process; flops are counted from the program, of loss and
gradient, a loop of unknown length once and of two branches the cheaper.

What this cannot tell, at this size: anything about widths beyond 64 or sequences beyond 64 tokens; whether more steps
of training would close a gap; whether accelerators, whose cost of a sequential solve differs, give the same
prices; language. The sections on noisy recall, parity and RegBench below are other runs, of the papers' sizes or
nearer to them, at a single learning rate, and rank nothing.
{waiting(names)}"""  # noqa: E501


RECALLED = """
Recall shows pairs of a key and a value, other ones in every sequence, and asks for each key's
value once among the blanks that follow, 32 tokens in all; a guess among eight values shown is
wrong 7 times of 8. Gates of `mesa`, `gla`, `gated_delta` and `mamba2` start at .99 here, channels
of `kda` as its authors have them, at .95 in the median and far lower in some. A first size, 16
pairs in 64 tokens, was left (no results kept): from one half `mesa` and `mamba2` got 96 of 100
and more wrong at each of three rates, and from .99 seeds of one mixer lay as far apart as mixers
did, those of `mesa` from 10 to 87 of 100 wrong. `hawk-mesa` is shown but takes no part in the
verdicts on recall: its hawk block remembers in the whole width of the model, which narrow keys do
not narrow, and hawk without mesa was not run. `softmax` comes without the short convolution that
all other mixers have, as in the MesaNet paper; "softmax, convolution" has it, in all tasks of
tokens, and was added once noisy recall had shown what it is worth.
"""
CAPACITY = f"""
![Share of wrong answers against the width of a key]({NAME}-capacity.png)
"""
LANGUAGES = f"""
RegBench here has automata of at most {LANGUAGE["max_states"]} states and {LANGUAGE["n_letters"]} letters, fresh ones in every batch, and about
40 symbols a sequence; an answer is right if the letter can come next. The control without training,
3-grams of the sequence, is wrong {ngram_errors():.3f} of the time.
"""  # noqa: E501
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
