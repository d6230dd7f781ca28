"""Shared by the experiments on in-context learning: a training loop that draws its data inside."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from olsq.train import make_scan

# A context in which float64 is float64; JAX has moved it.
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def train(
    loss: Callable[[Any, Any], Any],
    weights: Any,
    draw: Callable[[Any], Any],
    tune: Any,
    *,
    steps: int,
    key: Any,
    every: int,
    measure: Callable[[Any, Any], dict[str, Any]] | None = None,
    test: Any = None,
    say: str = "",
) -> tuple[Any, dict[str, list[Any]]]:
    """Minimise ``loss(weights, draw(key))``, fresh data at every step; weights and their record.

    ``tune`` is an optax transformation.  ``measure(weights, test)`` is recorded at step 0 and then
    every ``every`` steps.  The data are a function of the key alone.
    """
    every = min(every, steps)

    advance = make_scan(loss, tune, lambda key: (draw(key),), steps=every)
    measured = jax.jit(measure) if measure is not None else None
    record: dict[str, list[Any]] = {"step": [], "loss": []}

    def note(number: int, value: float) -> None:
        row = {} if measured is None else jax.tree.map(np.asarray, measured(weights, test))
        for name, number_or_array in {"step": number, "loss": value, **row}.items():
            record.setdefault(name, []).append(
                number_or_array.tolist()
                if isinstance(number_or_array, np.ndarray)
                else number_or_array
            )

    memory = tune.init(weights)
    note(0, float("nan"))
    for start in range(0, steps, every):
        weights, memory, metrics = advance(weights, memory, key, start)
        value = metrics.loss.mean()
        if not np.isfinite(value):
            raise FloatingPointError(f"loss {value} before step {start + every}")
        note(start + every, float(value))
        if say:
            print(f"{say}: step {start + every:6d}  loss {float(value):.5f}", flush=True)
    return weights, record


def adam(lr: Any, clip: float) -> Any:
    """Adam behind an elementwise clip, as the chapter's code has it."""
    return optax.chain(optax.clip(clip), optax.adam(lr))


def settle(lr: float, steps: int) -> Any:
    """A rate that is constant for the first half of ``steps`` and goes to 0 in the second."""
    half = steps // 2
    parts = [optax.constant_schedule(lr), optax.cosine_decay_schedule(lr, steps - half)]
    return optax.join_schedules(parts, [half])


def decayed(lr: float, steps: int, *, warm_up: int, clip: float = 1.0) -> Any:
    """AdamW (weight decay .05) with warm-up and a cosine to 1e-5, behind an elementwise clip."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, lr, min(warm_up, steps // 4), steps, 1e-5)
    return optax.chain(optax.clip(clip), optax.adamw(schedule, b2=0.999, weight_decay=0.05))


def options(doc: str, seeds: Sequence[int]) -> argparse.ArgumentParser:
    """What every experiment can be asked: its --quick mode, and which seeds."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a minute at most, asserted")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    return parser


class Claim(dict):
    """One row of the results page: what the paper has, what we have, and whether it passes."""

    def __init__(self, paper: str, ours: str, criterion: str, passed: Any, note: str = "") -> None:
        super().__init__(paper=paper, ours=ours, criterion=criterion, passed=bool(passed))
        if note:
            self["note"] = note


def run_notes(
    command: str, began: float, earlier: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """How a result was made, for its file; ``earlier`` are the notes of what it went on from."""
    seconds = time.perf_counter() - began + (earlier or {}).get("seconds", 0.0)
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        **more,
    }
