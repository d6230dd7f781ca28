"""A drifting regression read by attention rules: who learns it while reading?

    python examples/gallery/in_context_regression.py [--figure rules.png]

Each sequence is a regression of its own.  Its map drifts, and jumps half-way.  A rule reads key and
value at every token and is asked for the value of the next key.  Linear attention adds up, the
delta rules take a gradient step, Mesa solves the least-squares problem; with forgetting it follows.

Keys are correlated (condition number 10), as they are in practice.  On white keys a delta rule does
as well as the exact solve: its one step then points straight at the answer.
"""

from __future__ import annotations

import figures
import jax
import jax.numpy as jnp
import numpy as np

from olsq import attention

SEQUENCES, TOKENS, DIM = 64, 256, 8
COLOURS = ["#9aa5b1", "#d9730d", "#c0362c", "#7fb3d5", "#2166ac"]


def streams(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys (B, T, 1, d) of length about 1, values (B, T, 1, d) of a map that drifts and jumps."""
    k, turn, w, walk, jump, noise = jax.random.split(key, 6)
    turned = jnp.linalg.qr(jax.random.normal(turn, (SEQUENCES, DIM, DIM)))[0]
    white = jax.random.normal(k, (SEQUENCES, TOKENS, DIM)) / DIM**0.5
    keys = jnp.einsum("bij,btj->bti", turned * jnp.logspace(0, -1, DIM), white)
    start = jax.random.normal(w, (SEQUENCES, 1, DIM, DIM))
    steps = 0.01 * jax.random.normal(walk, (SEQUENCES, TOKENS, DIM, DIM))
    maps = start + jnp.cumsum(steps, axis=1)
    maps = maps.at[:, TOKENS // 2 :].add(jax.random.normal(jump, (SEQUENCES, 1, DIM, DIM)))
    values = jnp.einsum("btij,btj->bti", maps, keys)
    values = values + 0.01 * jax.random.normal(noise, values.shape)
    return keys[:, :, None], values[:, :, None]


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    keys, values = streams(jax.random.key(0))
    # [use]
    k, v, q = keys[:, :-1], values[:, :-1], keys[:, 1:]  # learn token t, answer for token t + 1
    unit = k / jnp.linalg.norm(k, axis=-1, keepdims=True)  # delta rules want keys of length 1
    scale = jnp.linalg.norm(k, axis=-1, keepdims=True)
    length = jnp.linalg.norm(q, axis=-1, keepdims=True)
    seen = jnp.arange(1, TOKENS)[:, None, None]
    gated, _ = attention.gated_delta(q / length, unit, v / scale, weight=0.5, forget=0.99)
    outputs = {
        "linear attention": attention.linear(q, k, v)[0] * DIM / seen,
        "gated delta": gated * length,
        "delta": attention.delta(q / length, unit, v / scale, weight=1.0)[0] * length,
        "mesa, nothing forgotten": attention.mesa(q, k, v, ridge=1e-3)[0],
        "mesa, forgetting 0.95": attention.mesa(q, k, v, forget=0.95, ridge=1e-3)[0],
    }
    # [end]
    error = {n: np.mean((o - values[:, 1:])[:, :, 0] ** 2, (0, 2)) for n, o in outputs.items()}
    late = slice(TOKENS - 40, None)
    for name, found in error.items():
        print(f"{name:24s} squared error of the last 40 tokens {found[late].mean():.4f}")
    best = error.pop("mesa, forgetting 0.95")
    assert all(best[late].mean() < 0.5 * found[late].mean() for found in error.values())
    error["mesa, forgetting 0.95"] = best

    def draw(ax):
        for (name, found), colour in zip(error.items(), COLOURS, strict=True):
            smooth = np.convolve(found, np.ones(8) / 8, "valid")
            ax.semilogy(np.arange(len(smooth)) + 8, smooth, color=colour, label=name)
        ax.axvline(TOKENS // 2, color="#6b7785", lw=0.8, ls=":")
        ax.set_xlabel("token (the map jumps at the dotted line)")
        ax.set_title("Squared error of the next value", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
