"""Delta rules that filter what they write: recall, drift, and the distance to the exact filter.

    python -m benchmarks.reports.filtered_rules  # some minutes; rewrites the results

Distance: predictions of ``kalman_delta`` compared with those of the Kalman filter of the whole
covariance (``forget=RandomWalk(drift)``), at the same noise, drift and start.  Errors: squared
one-step-ahead errors of every rule's float64 recurrence on streams of pairs, with the options that
were the best of a grid on other streams.  Nothing is trained.
Results: ``benchmarks/results/filtered_rules.json``; docs/measurements/sequences.md shows them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import olsq
from benchmarks.reports.registry import write_blocks
from benchmarks.suites.sequence_streams import unit
from benchmarks.support import machine
from olsq.forgetting import RandomWalk
from olsq.reference import oracle_of

RESULTS = Path(__file__).parents[1] / "results" / "filtered_rules.json"
Floats = NDArray[np.float64]
Stream = tuple[Floats, Floats]

WIDTH, TARGETS, TOKENS, NOISE = 16, 4, 400, 0.1
WALK = 0.01  # variance of a coefficient's step per token
CHOOSE, JUDGE = 5, 10  # streams to choose options on, and to judge them on

NOISES, DRIFTS = (1e-4, 1e-3, 0.01, 0.1, 1.0), (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
FORGET = (1.0, 0.99, 0.97, 0.9, 0.8)
FILTER = [{"weight": 1 / r, "drift": w} for r, w in product(NOISES, DRIFTS)]


def axes(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Keys that are the axes, in random order."""
    return np.eye(width)[rng.integers(0, width, n)]


def any_direction(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Unit keys in all directions alike."""
    return unit(rng.normal(size=(n, width)))


def correlated(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Unit keys of which some directions are rare."""
    mix = np.eye(width) + 0.5 * rng.normal(size=(width, width))
    return unit(rng.normal(size=(n, width)) @ mix)


KEYS = {"axes": axes, "any direction": any_direction, "correlated": correlated}


def recall(rng: np.random.Generator) -> Stream:
    """WIDTH correlated keys in random order, each with the same value again and again."""
    keys, values = correlated(rng, WIDTH, WIDTH), rng.normal(size=(WIDTH, TARGETS))
    shown = rng.integers(0, WIDTH, TOKENS)
    return keys[shown], values[shown] + NOISE * rng.normal(size=(TOKENS, TARGETS))


def drift(
    rng: np.random.Generator, draw: Callable[..., Floats] = correlated, width: int = WIDTH
) -> Stream:
    """Keys, and values of coefficients that walk at random."""
    keys, truth = draw(rng, TOKENS, width), rng.normal(size=(TARGETS, width))
    values = np.empty((TOKENS, TARGETS))
    for t, k in enumerate(keys):
        truth = truth + WALK**0.5 * rng.normal(size=truth.shape)
        values[t] = truth @ k + NOISE * rng.normal(size=TARGETS)
    return keys, values


def exact(keys: Floats, values: Floats, weight: float = 1.0, drift: float = 0.0) -> Floats:
    """Predictions (T - 1, M) of tokens after the first by the filter of the whole covariance."""
    walk = RandomWalk(drift * weight)
    path = olsq.coefficient_path(keys, values, forget=walk, ridge=1 / weight)
    return np.einsum("tmk,tk->tm", path.coef[:-1], keys[1:])


def ahead(rule: str, **fixed: Any) -> Callable[..., Floats]:
    """The same of a rule, whose query is the next key."""

    def predict(keys: Floats, values: Floats, **options: Any) -> Floats:
        return oracle_of(rule)(keys[1:], keys[:-1], values[:-1], **options, **fixed)[0]

    return predict


def of_values(**values: tuple[float, ...]) -> list[dict[str, float]]:
    """All combinations of options."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


RULES: dict[str, tuple[Callable[..., Floats], list[dict[str, Any]]]] = {
    "`gated_delta`": (
        ahead("gated_delta"), of_values(forget=FORGET, weight=(0.1, 0.3, 0.6, 1.0, 1.5)),
    ),
    "`momentum_delta`": (
        ahead("momentum_delta"),
        of_values(forget=FORGET, weight=(0.03, 0.1, 0.3, 0.6, 1.0), momentum=(0.2, 0.5, 0.8)),
    ),
    "`kalman_delta`": (ahead("kalman_delta"), FILTER),
    "`kalman_delta`, `information=1`": (ahead("kalman_delta", information=1.0), FILTER),
    "`kalman_delta`, `isotropic=True`": (ahead("kalman_delta", isotropic=True), FILTER),
    "`mesa`": (ahead("mesa"), of_values(forget=FORGET, ridge=(1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0))),
    "exact filter": (exact, FILTER),
}  # fmt: skip
TASKS = {"recall": recall, "drift": drift}


def error(predicted: Floats, values: Floats) -> float:
    """Mean squared error of the later half of the tokens; NaN counts as infinite."""
    late = (values[1:] - predicted)[TOKENS // 2 :]
    found = float((late**2).mean())
    return found if np.isfinite(found) else np.inf


def errors() -> Iterator[dict[str, Any]]:
    """Errors of every rule on every task."""
    for place, (task, draw) in enumerate(TASKS.items()):
        streams = [draw(np.random.default_rng([place, s])) for s in range(CHOOSE + JUDGE)]
        for name, (predict, grid) in RULES.items():
            with np.errstate(all="ignore"):  # some options of the grid diverge
                totals = [
                    sum(error(predict(*s, **options), s[1]) for s in streams[:CHOOSE])
                    for options in grid
                ]
            best = grid[int(np.argmin(totals))]
            judged = [error(predict(*s, **best), s[1]) for s in streams[CHOOSE:]]
            spread = float(np.std(judged, ddof=1) / JUDGE**0.5)
            yield {
                "task": task, "rule": name, "options": best, "error": float(np.mean(judged)),
                "standard error": spread,
            }  # fmt: skip


def distances() -> Iterator[dict[str, Any]]:
    """Root mean square distance of predictions to the exact filter's, over their own."""
    options = {"weight": 1 / NOISE**2, "drift": WALK}
    forms = {
        "`information=1`": {"information": 1.0},
        "`information=K`": {},
        "isotropic, `information=K`": {"isotropic": True},
    }
    for width, (kind, draw) in product((4, 16, 64), KEYS.items()):
        found: dict[str, list[float]] = {form: [] for form in forms}
        for seed in range(JUDGE):
            keys, values = drift(np.random.default_rng([9, width, seed]), draw, width)
            want = exact(keys, values, **options)
            for form, fixed in forms.items():
                got = ahead("kalman_delta", **fixed)(keys, values, **options)
                off = np.sqrt(((got - want) ** 2).mean() / (want**2).mean())
                found[form].append(float(off))
        yield {
            "width": width, "keys": kind, **{form: float(np.mean(x)) for form, x in found.items()},
        }  # fmt: skip


def error_table(rows: list[dict[str, Any]]) -> str:
    """The page's table of errors, in units of the noise's variance."""
    lines = ["| rule | " + " | ".join(TASKS) + " |", "|---|" + "---|" * len(TASKS)]
    for name in RULES:
        own = {row["task"]: row for row in rows if row["rule"] == name}
        cells = [
            f"{own[t]['error'] / NOISE**2:.2f} +- {own[t]['standard error'] / NOISE**2:.2f}"
            for t in TASKS
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def distance_table(rows: list[dict[str, Any]], date: str) -> str:
    """A table of distances."""
    forms = [name for name in rows[0] if name not in ("width", "keys")]
    lines = ["| keys | K | " + " | ".join(forms) + " |", "|---|---|" + "---|" * len(forms)]
    for row in rows:
        cells = [f"{row[form]:.1%}" if row[form] > 1e-9 else "0" for form in forms]
        lines.append(f"| {row['keys']} | {row['width']} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"Both tables: {JUDGE} seeds, {date}."])


def main() -> None:
    """Measure, store, write the page."""
    found: dict[str, Any] = {"date": datetime.date.today().isoformat()}
    found |= {"command": "python -m benchmarks.reports.filtered_rules", "seeds": JUDGE}
    found |= {"machine": machine.describe(), "distances": list(distances())}
    found["errors"] = []
    for row in errors():
        found["errors"].append(row)
        print(row, flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    write_blocks("filtered_rules", found)
    print(distance_table(found["distances"], found["date"]))


if __name__ == "__main__":
    main()
