"""The noiseless linear regressions of "Transformers learn in-context by gradient descent".

The text says inputs from U(-1, 1); its code, and its numbers, have U(-1/2, 1/2).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from olsq.icl import AttentionWeights, random_attention, regression_tokens, run_layers

DIM = 10
WIDTH = DIM + 1
SAMPLES = 10
RANGE = 0.5


def uniform(key: Any, shape: tuple[int, ...]) -> Any:
    """The inputs of training."""
    return jax.random.uniform(key, shape, minval=-RANGE, maxval=RANGE)


def tasks(
    key: Any,
    number: int,
    samples: int = SAMPLES,
    *,
    inputs: Any = uniform,
    scale: Any = 1.0,
    teacher: Any = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """x (n, N, d), y (n, N, 1), query (n, 1, d), target (n, 1, 1): one teacher for each task."""
    draws = jax.random.split(key)
    w = teacher * jax.random.normal(draws[0], (number, DIM, 1))
    x = scale * inputs(draws[1], (number, samples + 1, DIM))
    y = x @ w
    return x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:]


def start(seed: int, *, heads: int = 1, scale: float = 2e-3) -> AttentionWeights:
    """Small weights to train."""
    return random_attention(jax.random.key(seed), WIDTH, heads=heads, scale=scale)


def predict(layers: Any, task: Any, **options: Any) -> Any:
    """What the query's token says after the layers, its keys left out: (n, 1, 1)."""
    x, y, query, _ = task
    trace = run_layers(regression_tokens(x, y, query), layers, context=-1, **options)
    return -trace[-1][:, -1:, -1:]


def query_gradient(layers: Any, task: Any, **options: Any) -> Any:
    """Derivative of the prediction by the query's input: the model in use, (n, d)."""
    x, y, query, target = task

    def total(query: Any) -> Any:
        return predict(layers, (x, y, query, target), **options).sum()

    return jax.grad(total)(query)[:, 0]


def half_mse(guess: Any, task: Any) -> Any:
    """Half the mean squared error."""
    return ((guess - task[3]) ** 2).mean() / 2


def alignment(ours: Any, theirs: Any) -> Any:
    """Mean cosine between two sets of vectors."""
    norms = jnp.linalg.norm(ours, axis=-1) * jnp.linalg.norm(theirs, axis=-1)
    return ((ours * theirs).sum(-1) / jnp.maximum(norms, 1e-30)).mean()
