"""When is solving worth it?  Mixers that solve a regression beside those that take a step.

    python examples/experiments/when_to_solve.py                  # the grid; resumes; hours
    python examples/experiments/when_to_solve.py --minutes 30     # begins no run after that
    python examples/experiments/when_to_solve.py --tasks drift-slow --mixers mesa gla
    python examples/experiments/when_to_solve.py --search         # three rates, one seed: first
    python examples/experiments/when_to_solve.py --speed          # what a step costs, and flops
    python examples/experiments/when_to_solve.py --figures        # from the runs there are
    python examples/experiments/when_to_solve.py --quick          # one small pair, asserted

Tasks, in this order: regression in context whose coefficients drift slowly, fast, not at all, or
switch; the word problem of S3; multi-query recall of 4 and 8 pairs with keys of 2, 4 and 8; the
word problem of S5; parity; noisy recall; RegBench; regression on piecewise linear functions and on
random networks.  Every mixer has the same two blocks of width 32 and gets three learning rates with
seed 0, then two more seeds at the rate whose validation error is least.  A run is written to
when-to-solve.json as it ends, and is not run again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from drifting_regression import Drift, references
from solving_figures import draw_figures
from solving_found import NAME, SEEDS, best_rate, key_of
from solving_report import section
from solving_speed import flops, measure
from solving_tasks import MIXERS, TASKS, TEST, VALID, Task
from task_training import RESULTS, add_result, load_results, optimiser

import olsq.nn
from olsq.train import Trainer, TrainingError

POINTS = 16  # of a learning curve


def run(task: Task, mixer: str, lr: float, seed: int, *, tests: int = 512) -> dict[str, Any]:
    """Train once; errors by position on test sequences, and the score on validation ones."""
    began, clock = time.process_time(), time.perf_counter()
    model = task.build(mixer, jax.random.key(seed), task.size)

    def batch(step: int) -> Any:
        return tuple(task.draw(np.random.default_rng([seed, step]), task.batch))

    trainer = Trainer(
        model, batches=batch, loss=task.loss, steps=task.steps,
        optimizer=optimiser(lr, task.steps, warm_up=50, weight_decay=0.01),
    )  # fmt: skip
    record: dict[str, Any] = {"parameters": olsq.nn.count_parameters(model), "steps": task.steps}
    try:
        skipped = [(done.loss, done.skipped) for done in trainer.run()]
    except TrainingError as error:  # a hundred steps in a row that were not finite
        return {**record, "score": None, "failed": str(error)}
    losses = np.array([loss for loss, _ in skipped])
    every = max(task.steps // POINTS, 1)
    curve = losses[: every * (task.steps // every)].reshape(-1, every)
    predict = eqx.filter_jit(lambda model, x: model(x))

    def errors(seed: int, n: int, draw: Any = task.draw) -> Any:
        given, targets = draw(np.random.default_rng([seed, 0]), n)
        parts = [
            np.asarray(task.errors(predict(trainer.model, a), b), np.float64)
            for a, b in zip(*(np.array_split(x, max(n // 64, 1)) for x in (given, targets)),
                            strict=True)
        ]  # fmt: skip
        return np.concatenate(parts)

    test = errors(TEST, tests)
    if not np.isfinite(curve[-1]).all() or not np.isfinite(test[:, task.scored]).any():
        return {**record, "score": None, "failed": "what it says is not finite"}
    flat = test.reshape(*test.shape[:2], -1)
    asked = ~np.isnan(flat).all((0, 2))
    by_position = [
        float(np.nanmean(flat[:, t])) if asked[t] else None for t in range(flat.shape[1])
    ]
    return {
        **record,
        "score": float(np.nanmean(flat[:, task.scored])),
        "validation": float(np.nanmean(errors(VALID, tests // 2)[:, task.scored])),
        "elsewhere": {
            name: float(np.nanmean(errors(TEST, tests, draw)[:, task.scored]))
            for name, draw in task.elsewhere.items()
        },
        "by_position": by_position,
        "curve": {"step": [every * (i + 1) for i in range(len(curve))],
                  "loss": np.nanmean(curve, -1).tolist()},
        "skipped": int(sum(bad for _, bad in skipped)),
        "processor_seconds": round(time.process_time() - began, 1),
        "seconds": round(time.perf_counter() - clock, 1),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def missing(
    name: str, task: Task, mixers: list[str], where: Path, seeds: tuple[int, ...] = SEEDS
) -> Iterator[tuple[str, float, int]]:
    """Runs of a task that are not there yet, those of the best rate once it is known."""

    def runs() -> dict[str, Any]:
        return load_results(NAME, where).get("runs", {}).get(name, {})

    for mixer in mixers:
        for lr in task.rates:
            if key_of(mixer, lr, seeds[0]) not in runs():
                yield mixer, lr, seeds[0]
        best = best_rate(runs(), task, mixer)
        for seed in seeds[1:]:
            if best is not None and key_of(mixer, best, seed) not in runs():
                yield mixer, best, seed


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(dict.fromkeys(mixer for task in TASKS.values() for mixer in task.compared))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--mixers", nargs="+", choices=known, metavar="MIXER")
    parser.add_argument("--minutes", type=float, help="begin no run after so many")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    for option, what in (("speed", "measure what steps cost"), ("figures", "draw them only"),
                         ("search", "the three rates with seed 0 only"),
                         ("quick", "one small pair, asserted")):  # fmt: skip
        parser.add_argument(f"--{option}", action="store_true", help=what)
    args = parser.parse_args(argv)
    if args.quick:
        return quick()
    where = args.results
    if args.speed:
        for name in args.tasks:
            time_mixers(name, args.mixers, where)
        return None
    if not args.figures:
        seeds = SEEDS[:1] if args.search else SEEDS
        train_all(args.tasks, args.mixers, where, args.minutes, seeds)
    draw_figures(load_results(NAME, where), where)
    return None


def time_mixers(name: str, mixers: list[str] | None, where: Path) -> None:
    """Time those mixers of a task that are not timed yet, in turn with gla.

    Speeds are stored in units of those that were there before, by gla's, so that ratios hold.
    """
    task = TASKS[name]
    stored = load_results(NAME, where).get("speed", {}).get(name)
    done = {} if stored is None else stored["mixers"]
    wanted = [m for m in task.compared if m in (mixers or task.compared) and m not in done]
    if not wanted:
        return
    found = measure(task, list(dict.fromkeys(("gla", *wanted))))
    if done:
        least = "tokens_per_second"
        units = done["gla"][least] / found["mixers"]["gla"][least]
        rows = {m: {**r, least: units * r[least]} for m, r in found["mixers"].items()}
        found = {**stored, "mixers": {**rows, **done}}
    add_result(NAME, ("speed", name), found, where)


def train_all(
    tasks: list[str], mixers: list[str] | None, where: Path, minutes: float | None,
    seeds: tuple[int, ...] = SEEDS,
) -> None:  # fmt: skip
    """Every run that is not there, in order, as long as there is time; one line for each."""
    began = time.monotonic()
    for name in tasks:
        task = TASKS[name]
        done = load_results(NAME, where)
        if task.references and name not in done.get("references", {}):
            add_result(NAME, ("references", name), task.references(), where)
        chosen = [m for m in mixers or task.compared if m in task.compared]
        for mixer, lr, seed in missing(name, task, chosen, where, seeds):
            spent = (time.monotonic() - began) / 60
            if minutes is not None and spent > minutes:
                print(f"{spent:.0f} minutes: stopped before {name}, {mixer}", flush=True)
                return
            jax.clear_caches()  # a run's programs are of no use to the next, and are 1,100 mappings
            found = run(task, mixer, lr, seed)
            add_result(NAME, ("runs", name, key_of(mixer, lr, seed)), found, where)
            score = "failed" if found["score"] is None else f"{found['score']:.4f}"
            now, seconds = time.strftime("%H:%M:%S"), found.get("processor_seconds", 0.0)
            key = key_of(mixer, lr, seed)
            print(f"{now} {name}: {key}: {score}, {seconds:.0f} s of a processor", flush=True)


def quick() -> None:
    """One mixer, small: it learns, flops are counted, a page of few runs can be drawn."""
    small = {"dim": 16, "blocks": 1, "heads": 1, "key_size": 12}
    task = TASKS["drift-slow"]._replace(steps=40, batch=8, size=small)
    found = run(task, "gla", 1e-2, 0, tests=64)
    losses = found["curve"]["loss"]
    assert np.mean(losses[-4:]) < np.mean(losses[:4]), losses
    assert 0.0 < found["score"] < 2.0, found
    a, b = np.ones((3, 5), np.float32), np.ones((5, 5), np.float32)
    assert flops(lambda a, b: a @ b, a, b) == (2 * 3 * 5 * 5, False)
    looped = flops(lambda a, b: jax.lax.fori_loop(0, 7, lambda _, a: a @ b, a), a, b)
    assert looped[0] >= 7 * 2 * 3 * 5 * 5, looped
    for drift in (Drift(1 - 1 / 256), Drift(1 - 1 / 32, switches=True)):
        errors = references(drift, 0, 256, 64, 32)
        bayes, *others = (np.array(e["by_position"]) for e in errors.values())
        assert all(bayes[32:].mean() < e[32:].mean() for e in others), errors
        assert all((bayes[1:] < 1.05 * e[1:]).all() for e in others), errors
    tried = [(lr, 0) for lr in task.rates] + [(min(task.rates), 1)]
    two = ("gla", "mamba2")  # as if both had been run
    results = {
        "runs": {"drift-slow": {key_of(m, lr, seed): found for m in two for lr, seed in tried}},
        "references": {"drift-slow": errors},
        "speed": {
            "drift-slow": {"mixers": {m: {"tokens_per_second": 1.0, "flops": 1.0} for m in two}}
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        draw_figures(results, Path(folder))
        assert len(list(Path(folder).glob("*.png"))) == 2
    assert "not run yet" in section(results)
    check_verdict(found)


def check_verdict(found: dict[str, Any]) -> None:
    """As if softmax had won, and mesa been better than the others by a little."""
    rates, score = TASKS["regbench"].rates, {"softmax": 0.16, "mesa": 0.19, "gla": 0.2}
    runs = {}
    for mixer, lr, seed in product(MIXERS, rates, SEEDS):
        error = score.get(mixer, 0.3) + seed / 1000
        runs[key_of(mixer, lr, seed)] = {**found, "score": error, "validation": error}
    said = section({"runs": {"regbench": runs}})
    assert "| **loss** | `mesa` | `softmax` | 19 % higher error | 3 of 3 seeds |" in said, said
    assert "| small gain | `mesa` | `gla` | 5 % lower error |" in said, said


if __name__ == "__main__":
    main()
