"""The page on local regressions of the results: untrained, trained, and Parallax's direction."""

from __future__ import annotations

from typing import Any

import local_estimators as untrained
import numpy as np
import parallax_direction as direction
from solving_found import (
    LOCAL,
    SEEDS,
    SOLVING,
    Comparison,
    Found,
    all_right,
    found_on,
    recalls,
    regresses,
    title_of,
)
from solving_report import effect_of
from solving_tasks import TASKS

CONVOLVED = ", convolution"
QUESTIONS = {
    "softmax": "`local_linear` compared with `softmax` (a line against a mean)",
    "parallax": "`local_linear` compared with `parallax` (a solved against a learned direction)",
    "global": "the best local regression compared with the best global one (`mesa`, its variants)",
}
WORDS = ("lower", "higher", "no difference", "inconclusive", "undecided", "not run yet")


def estimators_section(results: dict[str, Any]) -> str:
    """Estimators without training, on streams of known kinds."""
    said: dict[str, list[str]] = {"lower": [], "higher": [], "inconclusive": []}
    for condition in untrained.complete(results):
        word, _, ratio = untrained.verdict(results[condition])
        side = word if word == "inconclusive" else "lower" if ratio < 1 else "higher"
        effect = "" if side == "inconclusive" else f" ({abs(ratio - 1):.0%})".replace("%", " %")
        said[side].append(condition[0].lower() + condition[1:] + effect)
    left = [name for name in untrained.CONDITIONS if name not in untrained.complete(results)]
    dates = sorted({r["date"] for rows in results.values() for r in rows.values()})
    days = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    verdicts = "\n".join(f"- {side}: {'; '.join(found)}." for side, found in said.items() if found)
    return f"""
## Local regressions without training

![Error of five estimators for each kind of stream]({untrained.NAME}.png)

Error of local least squares, compared with the best of four other estimators (sums of outer products, gradient steps, least squares, kernel mean):

{verdicts}
{f"{chr(10)}Not run yet: {'; '.join(left)}.{chr(10)}" if left else ""}
`python examples/experiments/{untrained.NAME.replace("-", "_")}.py`, {days}, after Zuo et al. (2025): squared errors of pairs {untrained.LAST + 1} to {untrained.LENGTH}, over
{untrained.STREAMS} streams. Every estimator is tuned on {untrained.TUNING} other streams, of the same kind unless another kind is named.
"""  # noqa: E501


def pair_of(rows: list[Found], name: str, rival: str) -> Comparison | str:
    """Local linear attention beside a rival on a task, or what is missing for that."""
    known = {row.mixer: row for row in rows}
    if recalls(name):  # as in the verdicts of when-to-solve
        known.pop("hawk-mesa", None)
    tail = "" if regresses(name) else CONVOLVED
    if rival == "global":
        ours = [row for mixer, row in known.items() if mixer in LOCAL]
        theirs = [r for m, r in known.items() if m in SOLVING and m not in LOCAL]
    else:
        ours, theirs = ([known[m + tail]] if m + tail in known else []
                        for m in ("local_linear", rival))  # fmt: skip
    if not ours:
        return "not run yet"
    if not theirs:
        return f"{rival} not run yet"
    return Comparison(*(min(side, key=lambda row: row.mean) for side in (ours, theirs)))


def word_of(name: str, found: Comparison | str) -> str:
    """Verdict in one word, for a table of counts."""
    if isinstance(found, str):
        return "not run yet"
    if min(len(row.runs) for row in found) < len(SEEDS):
        return "undecided"
    if all_right(name, found):
        return "no difference"
    if not found.separate:
        return "inconclusive"
    return "lower" if found.ratio < 1 else "higher"


def verdicts(results: dict[str, Any]) -> dict[str, dict[str, Comparison | str]]:
    """Every comparison of every task."""
    return {
        name: {rival: pair_of(found_on(results, name), name, rival) for rival in QUESTIONS}
        for name in TASKS
    }


def trained_section(results: dict[str, Any]) -> str:
    """Trained mixers: local linear attention, softmax, Parallax and global regressions."""
    found = verdicts(results)
    lines = [
        f"- {question}: {counts_of({name: row[rival] for name, row in found.items()})}"
        for rival, question in QUESTIONS.items()
    ]
    wins = [name for name, row in found.items() if word_of(name, row["global"]) == "lower"]
    titles = "; ".join(title_of(name) for name in wins)
    return f"""
## Trained local regressions

Error in the {len(found)} tasks, {len(SEEDS)} seeds each:

{chr(10).join(lines)}

Local regressions have the lower error in: {titles}.
"""


def counts_of(found: dict[str, Comparison | str]) -> str:
    """In how many tasks each verdict was found, and the range of the effects."""
    by_word: dict[str, list[str]] = {}
    for name, comparison in found.items():
        by_word.setdefault(word_of(name, comparison), []).append(name)
    said = []
    for word, names in sorted(by_word.items(), key=lambda item: WORDS.index(item[0])):
        effects = [effect_of(name, found[name]) for name in names]
        shares = sorted(int(e.split()[0]) for e in effects if e.endswith(("lower", "higher")))
        span = f" (by {shares[0]} to {shares[-1]} %)" if word in WORDS[:2] and shares else ""
        said.append(f"{word} in {len(names)}{span}")
    return ", ".join(said) + "."


def answer(results: dict[str, Any]) -> str:
    """State whether the direction was found: cosines of any task, seed, block and head."""
    found = {
        what: np.concatenate([
            direction.ends(runs, f"{what}, {direction.SHOWN}").ravel() for runs in results.values()
        ])
        for what in ("direction", "correction")
    }  # fmt: skip
    most = max(found["direction"].max(), 0.0)
    word = "It does" if found["direction"].min() > 0.9 else (
        "Some heads do" if most > 0.9 else "It does not"
    )  # fmt: skip
    return (
        f"{word}: the largest cosine of a head is {most:.2f}, "
        f"the mean {found['direction'].mean():.2f}; that of corrections "
        f"{found['correction'].mean():.2f}."
    )


def parallax_conclusion(found: dict[str, Any]) -> list[str]:
    """The sentence about Parallax's direction, if it has been measured."""
    if not (r := found["parallax-direction"]):
        return []
    return [f"**Does Parallax find the direction that solving gives?** {answer(r)}"]
