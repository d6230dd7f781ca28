"""Sander et al.'s figures 5, 7, 8 and 9 in words: what the rows of sander_trained.py amount to."""

from __future__ import annotations

from typing import Any

import numpy as np
from icl_training import Claim
from sander_models import RULES, STEPS, Descent, orthogonal_sequences

TEST = 2**10  # sequences
HEADS = (1, 2, 4, 8, 16, 32)
FIRST = ("same", "random")
DEEP, LONGER = STEPS["fig5"], 3 * STEPS["fig5"]


def values_of(rows: list[dict[str, Any]], what: str = "mse", **match: Any) -> list[float]:
    """Of every seed of the rows that match."""
    return [row[what] for row in rows if all(row[name] == v for name, v in match.items())]


def mean_of(rows: list[dict[str, Any]], what: str = "mse", **match: Any) -> float:
    """Mean over the seeds of the rows that match."""
    return float(np.mean(values_of(rows, what, **match)))


def range_of(rows: list[dict[str, Any]], what: str = "mse", **match: Any) -> str:
    """Mean and, of several seeds, the range, for a reader."""
    values = values_of(rows, what, **match)
    several = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{several}"


def claim_5(rows: list[dict[str, Any]]) -> Claim:
    """E3."""
    rule, constant = RULES
    at = {n: range_of(rows, layers=n, steps=DEEP) for n in (1, 4)}
    descent = {r: {n: mean_of(rows, f"descent, {r}", layers=n) for n in (1, 4)} for r in RULES}
    longer = mean_of(rows, layers=4, steps=LONGER)
    excess, error = (
        mean_of(rows, f"{name}, {rule}", layers=4, steps=LONGER)
        for name in ("model minus descent", "its standard error")
    )
    scaled = Descent(orthogonal_sequences(TEST, 2), rule).scaled(1)
    ours = [mean_of(rows, layers=n, steps=DEEP) for n in (1, 4)]
    return Claim(
        "one to six linear layers: as good as gradient descent up to two, worse by orders of "
        "magnitude above three (figure 5)",
        f"mean squared errors. L = 1: model {at[1]}, descent {descent[rule][1]:.4f} with steps "
        f"eta / (t - 1), {descent[constant][1]:.4f} with eta, {scaled:.4f} with its predictions "
        f"scaled to one norm, as the model's layer norm does. L = 4: model {at[4]}, descent "
        f"{descent[rule][4]:.4f} and {descent[constant][4]:.4f}; model trained three times as long "
        f"{longer:.4f}, which is {excess:+.4f} ± {error:.4f} from descent",
        "steps eta / (t - 1): model <= 1.1 descent at L = 1, > at L = 4, longer too",
        ours[0] <= 1.1 * descent[rule][1] and descent[rule][4] < min(ours[1], longer),
        "at L = 4 the model wins with three times the steps; L = 5 and 6 were not trained longer",
    )


def claim_7(rows: list[dict[str, Any]]) -> Claim:
    """E5."""
    few, many = HEADS[0], HEADS[-1]
    found = {(h, n): range_of(rows, heads=h, copies=n) for h in (few, many) for n in (1, 2)}
    one, several = (mean_of(rows, heads=h, copies=2) for h in (few, many))
    return Claim(
        "more heads help, with duplicated tokens only (figure 7)",
        f"mean squared error with {few} and {many} heads: {found[few, 2]}, {found[many, 2]} with "
        f"tokens (s, s), {found[few, 1]}, {found[many, 1]} with tokens s",
        f"duplicated: error with {many} heads < half of that with one head", several < 0.5 * one,
        "32 heads are hardly better than 16, with d = 5 instead of 10; more heads help without "
        "copies too",
    )  # fmt: skip


def claim_8(rows: list[dict[str, Any]]) -> Claim:
    """E6."""
    ratio = {
        (first, when): range_of(rows, f"off / diagonal, {when}", **{"first state": first})
        for first in FIRST
        for when in ("start", "end")
    }
    folded = [range_of(rows, "folded, end", **{"first state": first}) for first in FIRST]
    before, after = (
        mean_of(rows, f"off / diagonal, {when}", **{"first state": "same"})
        for when in ("start", "end")
    )
    return Claim(
        "the sum of B_h^T B_h becomes diagonal (figure 8)",
        "mean size off the diagonal over that on it, before and after training: "
        f"{ratio['same', 'start']}, {ratio['same', 'end']} with the same s[1] for all sequences, "
        f"{ratio['random', 'start']}, {ratio['random', 'end']} with a random one; after, both "
        f"copies of a token added up: {folded[0]} and {folded[1]}",
        "the same s[1]: after < 0.3 before", after < 0.3 * before,
        "with the same s[1] the heads treat its direction apart; with a random one, both copies "
        "added up are diagonal",
    )  # fmt: skip


def claim_9(rows: list[dict[str, Any]]) -> Claim:
    """E7."""
    kinds = {"linear": False, "softmax": True}
    shown = {
        (name, mlp): range_of(rows, softmax=softmax, mlp=mlp)
        for name, softmax in kinds.items()
        for mlp in (False, True)
    }
    linear, softmax = (mean_of(rows, softmax=s, mlp=False) for s in kinds.values())
    return Claim(
        "one dimension: linear attention learns the task, softmax attention does not (figure 9)",
        f"mean squared error of linear attention {shown['linear', False]}, with an MLP "
        f"{shown['linear', True]}; of softmax attention {shown['softmax', False]}, with an MLP "
        f"{shown['softmax', True]}",
        "without MLP: softmax > 10 linear", softmax > 10 * linear,
    )  # fmt: skip
