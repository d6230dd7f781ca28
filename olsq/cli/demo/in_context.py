"""The third act of ``olsq demo``: attention rules learn a drifting regression token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEQUENCES, TOKENS, DIM = 64, 256, 8
JUMP = TOKENS // 2
EARLY, LATE = slice(JUMP - 40, JUMP - 1), slice(TOKENS - 41, TOKENS - 1)
FORGET, RIDGE = 0.95, 1e-3
STEP = 1.0  # of the delta rules; measured: 0.5 and 1.4 end with more error

# The programs run once: XLA's optimisations would take longer than the work that they save.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@dataclass(frozen=True)
class Reading:
    """Errors of one rule on the sequences: relative squared error (T - 1,) of each next value.

    The mean over sequences of squared errors, divided by the mean square of the values: 1 is what
    answering 0 costs.
    """

    name: str
    error: NDArray[np.float64]
    best: bool = False


def drifting_sequences(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Make keys and values (B, T, 1, d): linear maps, one per sequence, that drift and jump
    half-way.

    The second moment of the keys has a condition number of 100, as embeddings do; on white keys a
    delta rule does as well as the exact solve, since its one step points straight at the answer.
    """
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.standard_normal((SEQUENCES, DIM, DIM)))[0] * np.logspace(0, -1, DIM)
    white = rng.standard_normal((SEQUENCES, TOKENS, DIM)) / np.sqrt(DIM)
    keys = np.einsum("bij,btj->bti", turned, white)
    steps = 0.01 * rng.standard_normal((SEQUENCES, TOKENS, DIM, DIM))
    steps[:, 0] += rng.standard_normal((SEQUENCES, DIM, DIM))
    steps[:, JUMP] += rng.standard_normal((SEQUENCES, DIM, DIM))
    values = np.einsum("btij,btj->bti", np.cumsum(steps, axis=1), keys)
    values += 0.01 * rng.standard_normal(values.shape)
    return keys[:, :, None].astype(np.float32), values[:, :, None].astype(np.float32)


def read_sequences(keys: NDArray[np.float32], values: NDArray[np.float32]) -> list[Reading]:
    """Run each rule on all sequences: learn token t, then predict the value of token t + 1."""
    import jax

    from olsq import attention
    from olsq.solvers import Dense

    k, v, q = keys[:, :-1], values[:, :-1], keys[:, 1:]
    length = np.linalg.norm(k, axis=-1, keepdims=True)
    unit, scaled = k / length, v / length  # delta rules want keys of length 1

    def linear(q: Any, k: Any, v: Any, forget: Any) -> Any:
        return attention.gla(q, k, v, forget=forget)[0]

    def delta(q: Any, k: Any, v: Any, forget: Any) -> Any:
        return attention.gated_delta(q, k, v, forget=forget, weight=STEP)[0]

    def solve(q: Any, k: Any, v: Any, forget: Any) -> Any:
        # Dense solves every token by itself: the answers of the default, which compiles longer.
        return attention.mesa(q, k, v, forget=forget, ridge=RIDGE, solver=Dense())[0]

    # linear attention sums over the tokens so far, so its output is divided by their number
    seen = np.arange(1, TOKENS, dtype=np.float32)[:, None, None]
    runs: list[tuple[str, Callable[..., Any], tuple[Any, ...], float, Any]] = [
        ("linear attention", linear, (q * DIM, k, v), 1.0, seen),
        ("delta rule", delta, (q, unit, scaled), 1.0, 1.0),
        ("gated delta rule, forgetting 0.99", delta, (q, unit, scaled), 0.99, 1.0),
        ("exact solve (Mesa), nothing forgotten", solve, (q, k, v), 1.0, 1.0),
        (f"exact solve (Mesa), forgetting {FORGET}", solve, (q, k, v), FORGET, 1.0),
    ]
    programs: dict[Callable[..., Any], Any] = {}
    readings = []
    for name, rule, streams, forget, divisor in runs:
        if rule not in programs:
            lowered = jax.jit(rule).lower(*streams, np.float32(forget))
            programs[rule] = lowered.compile(compiler_options=_QUICK)
        answers = np.asarray(programs[rule](*streams, np.float32(forget))) / divisor
        squared = np.square(answers - values[:, 1:], dtype=np.float64).mean((0, 2, 3))
        relative = squared / np.square(values, dtype=np.float64).mean()
        readings.append(Reading(name, relative, best=rule is solve and forget < 1))
    return readings
