"""The linear dynamics of "Uncovering mesa-optimization algorithms in Transformers".

s_{t+1} = W s_t + N(0, .01^2), a Haar-orthogonal W for every sequence, 50 inputs and 50 labels.  The
text says s_1 from N(0, I); its code, and its numbers, have U(-1, 1).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from icl_training import x64

from olsq.icl import attend, dynamics_tokens, inverse_targets, mesa_gd_weights, mesa_update
from olsq.icl.probes import implicit_predictions

DIM, LENGTH, NOISE = 10, 50, 0.01
BATCH = 256


def sequences(key: Any, number: int) -> tuple[Any, Any]:
    """Inputs s_1 to s_T and labels s_2 to s_{T+1}, each (n, T, d)."""
    keys = jax.random.split(key, 3)
    w = jax.random.orthogonal(keys[0], DIM, (number,))
    first = jax.random.uniform(keys[1], (number, DIM), minval=-1.0)
    noise = NOISE * jax.random.normal(keys[2], (LENGTH, number, DIM))

    def step(s: Any, disturbance: Any) -> Any:
        s = jnp.einsum("nij,nj->ni", w, s) + disturbance
        return s, s

    labels = jnp.moveaxis(jax.lax.scan(step, first, noise)[1], 0, 1)
    return jnp.concatenate([first[:, None], labels[:, :-1]], 1), labels


def test_set(number: int) -> tuple[Any, Any]:
    """The sequences on which everything is compared."""
    return sequences(jax.random.key(79_000), number)


def errors(predictions: Any, labels: Any) -> Any:
    """Half the squared error, summed over entries and averaged over sequences: (T,)."""
    return ((predictions - labels) ** 2).sum(-1).mean(0) / 2


def linear_prediction(weights: Any, states: Any) -> Any:
    """One causal linear layer on tokens (0, s_t, s_{t-1}), read out with a minus."""
    return -attend(dynamics_tokens(states), weights, causal=True)[..., :DIM]


def descent(states: Any, rate: Any) -> Any:
    """One step of gradient descent from 0 at every t."""
    return linear_prediction(mesa_gd_weights(np.zeros((DIM, DIM)), rate), states)


def best_descent_rate(states: Any, labels: Any) -> Any:
    """The rate with the smallest loss: predictions are proportional to it."""
    one = descent(states, 1.0)
    return (one * labels).sum() / (one * one).sum()


def least_squares(states: Any, ridge: float) -> Any:
    """Ridge regression of s_{i+1} on s_i, i < t, at every t; in float64."""
    with x64(True):
        states = jnp.asarray(np.asarray(states), jnp.float64)
        return np.asarray(implicit_predictions(states, inverse_targets(states, ridge=ridge)))


def mesa_prediction(weights: dict[str, Any], states: Any) -> Any:
    """One mesa layer on tokens (0, s_t, s_{t-1}), read out with a minus."""
    ridge = jax.nn.softplus(weights["ridge"])
    return -mesa_update(dynamics_tokens(states), weights["heads"], ridge=ridge)[..., :DIM]
