"""Training on token tasks, shared by the experiments: AdamW, warm-up, cosine, one figure."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax

from olsq.tasks import Tokens, token_accuracy
from olsq.tasks.tokens import IGNORE
from olsq.train import Trainer, decay_mask, token_loss

DECAYED = "projections and gates"  # absent in runs in which all with two axes or more decayed
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


# Layers that start at one half with ``forget_bias=0.0``, and of themselves near .99.
GATED = (
    "mesa", "mesa_window", "kalman", "gla", "mamba2", "log_linear_mamba2", "gated_delta",
    "gated_delta_product", "comba", "preconditioned_delta", "preconditioned_gated_delta",
    "forgetting", "momentum_delta",
)  # fmt: skip


def paper_gates(*mixers: str) -> dict[str, dict[str, Any]]:
    """``mixer_options`` with which forget gates start at one half, as in the MesaNet paper.

    Stored results were found so unless their page says otherwise: layers did so by default then.
    """
    return {mixer: {"forget_bias": 0.0} for mixer in mixers if mixer in GATED}


def loss_of(model: Any, inputs: Any, targets: Any) -> Any:
    """Mean cross entropy over the targets that are asked for."""
    return token_loss(model(inputs), targets, ignore=IGNORE)


def optimiser(lr: float, steps: int, *, warm_up: int, weight_decay: float) -> Any:
    """The MesaNet paper's: AdamW (.9, .98), warm-up from 1e-7, cosine to 1e-5, clipping at 1.

    Only matrices of projections and gates decay: not embeddings, norms, convolutions or ridges.
    """
    warm_up = min(warm_up, steps // 4)
    schedule = optax.warmup_cosine_decay_schedule(1e-7, lr, warm_up, steps, 1e-5)
    adamw = optax.adamw(schedule, b1=0.9, b2=0.98, weight_decay=weight_decay, mask=decay_mask)
    return optax.chain(optax.clip_by_global_norm(1.0), adamw)


def batches(data: Tokens, size: int, steps: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Batches of a finite set, shuffled anew in every epoch: a function of the seed alone."""
    rng, order = np.random.default_rng(seed), np.zeros(0, np.int64)
    for _ in range(steps):
        if len(order) < size:
            order = np.concatenate([order, rng.permutation(len(data.inputs))])
        taken, order = order[:size], order[size:]
        yield data.inputs[taken], data.targets[taken]


def accuracy(model: Any, data: Tokens, *, size: int = 64) -> dict[str, float]:
    """Micro and macro accuracy over the targets that are asked for."""
    predict = eqx.filter_jit(lambda model, x: jnp.argmax(model(x), -1))
    parts = [
        np.asarray(predict(model, data.inputs[i : i + size]))
        for i in range(0, len(data.inputs), size)
    ]
    guess = np.concatenate(parts)
    return {kind: token_accuracy(guess, data.targets, average=kind) for kind in ("micro", "macro")}


def train(
    model: Any,
    data: Iterator[tuple[Any, Any]],
    test: Tokens | Callable[[Any], dict[str, float]],
    *,
    steps: int,
    lr: float = 3e-3,
    warm_up: int = 50,
    weight_decay: float = 0.01,
    every: int = 50,
    target: float = 0.999,
    say: Any = print,
) -> tuple[Any, dict[str, Any]]:
    """Train, measuring accuracy as it goes; stops early at ``target``.  Model and record.

    ``test`` may be a function that scores a model: a dict with ``micro``, which is compared with
    the target.
    """
    trainer = Trainer(
        model, batches=data, loss=loss_of, steps=steps, evaluate_every=every,
        optimizer=optimiser(lr, steps, warm_up=warm_up, weight_decay=weight_decay),
        evaluation=test if callable(test) else lambda model: accuracy(model, test),
    )  # fmt: skip
    record: dict[str, Any] = {"step": [], "loss": []}
    began, losses = time.perf_counter(), []
    for done in trainer.run():
        losses.append(done.loss)
        if done.skipped:
            raise FloatingPointError(
                f"loss {done.loss}, gradient {done.gradient_norm} at step {done.step}"
            )
        if scored := done.scores:
            row = {"step": done.step, "loss": float(np.mean(losses)), **scored}
            for name, value in row.items():
                record.setdefault(name, []).append(value)
            losses = []
            say(f"step {done.step:5d}  loss {row['loss']:.4f}  accuracy {row['micro']:.4f}")
            if scored["micro"] >= target:
                break
    record["seconds"] = time.perf_counter() - began
    record["decayed"] = DECAYED
    return trainer.model, record


def load_results(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """What earlier runs of an experiment left: it goes on from there."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def add_result(
    name: str, keys: tuple[str, ...], value: Any, folder: Path = RESULTS
) -> dict[str, Any]:
    """Set ``results[keys...] = value`` in the file, which other processes may write too; all of it.

    So that one experiment can run on several cores, each process with its own mixers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = load_results(name, folder)
        inner = results
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
        save_results(name, results, folder)
    return results


def save_results(name: str, results: dict[str, Any], folder: Path = RESULTS) -> None:
    """Write results whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(results, indent=1) + "\n")
    draft.replace(path)
