"""Where the forget gates of a fresh Mesa layer should start: near a half, or near 1.

    python examples/experiments/gate_start.py            # goes on where it stopped
    python examples/experiments/gate_start.py --quick    # seconds, asserted

Gates start at ``sigmoid`` of a bias, which each of ``STARTS`` sets, plus a random projection of
the token.  Noisy recall at its MAD baseline and bytes of the novels that olsq ships, two blocks of
width 64 with four heads of 16.  Every start takes each of three learning rates with seed 0, then
two more seeds at the rate whose score was best.  Results: docs/results/gate-start.json, run by run.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from panels import COLOURS, in_house_style, label_lines, panels, seed_lines
from task_training import RESULTS, add_result, batches, load_results, loss_of, optimiser

import olsq.datasets
import olsq.nn
from olsq.tasks import mad
from olsq.tasks.tokens import IGNORE
from olsq.train import make_step, token_loss

NAME = "gate-start"
HEADS = 4


def logit(gate: float) -> float:
    return math.log(gate / (1 - gate))


# The bias of each head.  "spread": memories 1 / (1 - gate) of 10 to 1,000 tokens, log-uniform.
STARTS: dict[str, list[float]] = {
    "0.5": [0.0] * HEADS,
    "0.9": [logit(0.9)] * HEADS,
    "0.99": [logit(0.99)] * HEADS,
    "0.999": [logit(0.999)] * HEADS,
    "spread": [logit(1 - 1 / memory) for memory in np.geomspace(10, 1000, HEADS)],
}
BLOCKS = 2
# Of each task: width of the stream and of a head's keys, learning rates, steps, sequences a step.
SIZES: dict[str, dict[str, int]] = {
    "recall": {"dim": 32, "key_size": 8},
    "language": {"dim": 64, "key_size": 16},
}
RATES = {"recall": (3e-3, 1e-2, 3e-2), "language": (2e-3, 6e-3, 2e-2)}
STEPS = {"recall": 300, "language": 300}
BATCH = {"recall": 16, "language": 4}
LENGTH, VALIDATED, PART = 256, 48, 16  # tokens of a text, texts that validate, evaluated at once
EVERY, WARM_UP = 20, 30
SEEDS = (0, 1, 2)


def make_model(vocab: int, task: str, start: str, seed: int) -> Any:
    """A model whose gates start as ``start`` says; all of a task share one program."""
    model = olsq.nn.LanguageModel(
        vocab, blocks=BLOCKS, heads=HEADS, key=jax.random.key(seed), **SIZES[task]
    )

    def biases(model: Any) -> list[Any]:
        return [block.mixer.forget.project.bias for block in model.backbone.blocks]

    return eqx.tree_at(biases, model, [jnp.array(STARTS[start])] * BLOCKS)


def mean_gates(model: Any, tokens: Any) -> list[list[float]]:
    """Mean forget gate of each head, for each block."""
    found = olsq.nn.diagnose(model, tokens[:4], every=tokens.shape[1])
    return [np.mean(np.asarray(block.forget), (0, 1)).tolist() for block in found.values()]


@functools.cache
def programs(task: str) -> tuple[Any, Any, Any]:
    """Optimiser, step and score of a task; the learning rate is in the optimiser's state.

    So that JAX compiles each once for all runs.
    """
    schedule = optimiser(1.0, STEPS[task], warm_up=WARM_UP, weight_decay=0.01)
    rate = optax.inject_hyperparams(optax.scale)(step_size=1.0)
    optimizer = optax.chain(schedule, rate)

    @eqx.filter_jit
    def score(model: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        logits, asked = model(inputs), targets != IGNORE
        right = ((jnp.argmax(logits, -1) == targets) & asked).sum() / asked.sum()
        return token_loss(logits, targets, ignore=IGNORE), right

    return optimizer, make_step(loss_of, optimizer), score


def learn(
    task: str, model: Any, lr: float, stream: Iterator[tuple[Any, Any]], test: tuple[Any, Any]
) -> dict[str, Any]:
    """Train; test loss and accuracy on the way, gates at the start and the end."""
    optimizer, step, score = programs(task)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    state[-1].hyperparams["step_size"] = jnp.asarray(lr)
    record: dict[str, Any] = {"step": [], "test_loss": [], "accuracy": []}
    gates, began = [mean_gates(model, test[0])], time.process_time()
    for number, batch in enumerate(stream, 1):
        model, state, metrics = step(model, state, *batch)
        if bool(metrics.skipped):
            raise FloatingPointError(f"loss {metrics.loss} at step {number}")
        if number % EVERY == 0:
            parts = [score(model, *(x[i : i + PART] for x in test))
                     for i in range(0, len(test[0]), PART)]  # fmt: skip
            loss, right = np.mean(np.array(parts, float), 0)
            record["step"].append(number)
            record["test_loss"].append(float(loss))
            record["accuracy"].append(float(right))
    gates.append(mean_gates(model, test[0]))
    return {**record, "gates": gates, "cpu_seconds": time.process_time() - began}


def recall(start: str, lr: float, seed: int) -> dict[str, Any]:
    """Noisy recall from scratch."""
    setting = mad.BASELINES["noisy_recall"]._replace(n_train=6400)
    data, test = mad.split(setting, seed, n_test=128)
    stream = batches(data, BATCH["recall"], STEPS["recall"], seed)
    model = make_model(setting.classes, "recall", start, seed)
    return learn("recall", model, lr, stream, (test.inputs, test.targets))


def language(start: str, lr: float, seed: int) -> dict[str, Any]:
    """A model of the bytes of two novels."""
    text = np.frombuffer(olsq.datasets.austen().encode(), np.uint8).astype(np.int32)
    cut = len(text) * 9 // 10
    rng = np.random.default_rng(seed)

    def take(first: Any) -> tuple[Any, Any]:
        rows = text[first[:, None] + np.arange(LENGTH + 1)]
        return rows[:, :-1], rows[:, 1:]

    size = cut - LENGTH, BATCH["language"]
    stream = (take(rng.integers(0, *size[:1], size[1])) for _ in range(STEPS["language"]))
    apart = np.linspace(cut, len(text) - LENGTH - 1, VALIDATED).astype(int)  # the same for all
    return learn("language", make_model(256, "language", start, seed), lr, stream, take(apart))


TASKS = {"recall": recall, "language": language}


def key_of(task: str, start: str, lr: float, seed: int) -> str:
    return f"{task}, {start}, lr {lr:g}, seed {seed}"


def best_rate(runs: dict[str, Any], task: str, start: str) -> float:
    """The learning rate with the least loss at seed 0."""
    return min(RATES[task], key=lambda lr: runs[key_of(task, start, lr, 0)]["test_loss"][-1])


def plan(runs: dict[str, Any]) -> Iterator[tuple[str, str, float, int]]:
    """Every run, the rates of seed 0 first; ``runs`` grows while this goes on."""
    middle, *edges = (1, 0, 2)
    for i in (middle, *edges):
        for task in TASKS:
            for start in STARTS:
                yield task, start, RATES[task][i], 0
    for seed in SEEDS[1:]:
        for task in TASKS:
            for start in STARTS:
                yield task, start, best_rate(runs, task, start), seed


def at_best(runs: dict[str, Any], task: str, start: str) -> list[dict[str, Any]]:
    """The runs at the best rate, by seed."""
    lr = best_rate(runs, task, start)
    keys = [key_of(task, start, lr, seed) for seed in SEEDS]
    return [runs[key] for key in keys if key in runs]


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Test accuracy and validation loss along training, at the best rate of each start."""
    runs = results["runs"]
    fig, axes = panels(2, height=2.8)
    for colour, start in zip(COLOURS, STARTS, strict=False):
        for ax, task, what in zip(axes, TASKS, ("accuracy", "test_loss"), strict=True):
            found = at_best(runs, task, start)
            seed_lines(ax, found[0]["step"], [r[what] for r in found], colour, start)
    axes[0].set(xlabel="step", title="Noisy recall: test accuracy (lines: gates at the start)")
    axes[1].set(xlabel="step", title="Bytes of novels: validation loss, nats per byte")
    axes[1].set(ylim=(None, 3.5))
    for ax in axes:
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small model's gates, asserted")
    parser.add_argument("--draw", action="store_true", help="the figure again")
    args = parser.parse_args(argv)
    if args.quick:
        model = make_model(16, "recall", "spread", 0)
        gates = mean_gates(model, np.zeros((1, 8), np.int32))[0]
        # each within three of its start in log-odds: a token's projection moves it by about one
        apart = np.log(gates) - np.log1p(-np.array(gates)) - np.array(STARTS["spread"])
        assert np.abs(apart).max() < 3, gates
        return
    results = {"runs": {}, **load_results(NAME)}
    if not args.draw:
        for task, start, lr, seed in plan(results["runs"]):
            key = key_of(task, start, lr, seed)
            if key in results["runs"]:
                continue
            found = TASKS[task](start, lr, seed)
            loss, seconds = found["test_loss"][-1], found["cpu_seconds"]
            print(f"{key}: {loss:.4f} in {seconds:.0f} s", flush=True)
            found["date"] = datetime.date.today().isoformat()
            add_result(NAME, ("command",), " ".join(["python", *sys.argv[:1]]))
            results["runs"][key] = found  # which the plan reads on the way
            add_result(NAME, ("runs", key), found)
    fig = figure(results)
    fig.savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()
