"""Learn the features of a regression by differentiating through its fit at every row.

    python examples/gallery/learn_features.py [--figure features.png]

A signal is a sum of waves of three unknown frequencies whose amplitudes drift.  Given the
frequencies it is linear, and the exact online fit follows the amplitudes.  The frequencies, the
forgetting factor and the ridge are learned by the gradient of the one-step-ahead error through all
the fits.
"""

from __future__ import annotations

import figures
import jax
import jax.numpy as jnp
import numpy as np

import olsq

TRUE = np.array([0.11, 0.23, 0.37])  # radians a row


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, steps=100)
    rng = np.random.default_rng(0)
    t = np.arange(400)
    amplitude = 1 + np.cumsum(0.02 * rng.standard_normal((400, 6)), axis=0)
    waves = np.concatenate([np.cos(np.outer(t, TRUE)), np.sin(np.outer(t, TRUE))], axis=1)
    y = jnp.asarray((waves * amplitude).sum(1) + 0.1 * rng.standard_normal(400), jnp.float32)

    # [use]
    def loss(parameters):
        """Mean squared error of predicting each row from the rows before it."""
        phase = t[:, None] * parameters["frequency"]
        features = jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], axis=1)
        fit = olsq.online_lstsq(
            features[:-1],
            y[:-1, None],
            features[1:],  # asked for the row that comes next
            forget=jax.nn.sigmoid(parameters["forget"]),
            ridge=jnp.exp(parameters["ridge"]),
        )
        return jnp.mean((fit.value[50:, 0] - y[51:]) ** 2)

    @jax.jit
    def step(parameters, speed):
        value, slope = jax.value_and_grad(loss)(parameters)
        speed = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g**2, speed, slope)
        rate = {"frequency": 5e-4, "forget": 0.05, "ridge": 0.05}
        moved = {
            n: p - rate[n] * slope[n] / jnp.sqrt(speed[n] + 1e-12) for n, p in parameters.items()
        }
        return moved, speed, value

    # [end]
    parameters = {
        "frequency": jnp.asarray(TRUE + np.array([0.012, -0.01, 0.011]), jnp.float32),
        "forget": jnp.float32(3.0),
        "ridge": jnp.float32(0.0),
    }
    speed = jax.tree.map(jnp.zeros_like, parameters)
    losses, path = [], []
    for _ in range(options.steps):
        path.append(np.asarray(parameters["frequency"]))
        parameters, speed, value = step(parameters, speed)
        losses.append(float(value))
    print(f"one-step-ahead error: {losses[0]:.3f} at the start, {losses[-1]:.3f} learned")
    print("frequencies:", np.asarray(parameters["frequency"]).round(3), "true:", TRUE)
    print(f"forgetting factor: {float(jax.nn.sigmoid(parameters['forget'])):.3f}")
    assert losses[-1] < losses[0] / 2

    def draw(axes):
        axes[0].semilogy(losses, color="#2166ac")
        axes[0].set_title("One-step-ahead squared error", loc="left")
        axes[1].plot(path, color="#2166ac")
        axes[1].hlines(TRUE, 0, len(path) - 1, color="#6b7785", lw=1, ls=":")
        axes[1].set_title("Frequencies, and the true ones (dotted)", loc="left")
        axes[1].set_xlabel("step")

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()
