"""One token after another: update a state, query it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .common import need, ratio

RIDGE = 0.25


def start(d: int, side: str, heads: int = 8):
    """A state, a key and a value, (heads, d), on NumPy or JAX arrays."""
    (moments,) = need("olsq.Moments")
    need("olsq.update", "olsq.query")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((heads, 4 * d, d)).astype(np.float32)
    gram = rows.swapaxes(-1, -2) @ rows
    key, value = rng.standard_normal((2, heads, d)).astype(np.float32)
    arrays = (gram, gram[:, ::-1].copy(), key, value)
    gram, cross, key, value = map(jnp.asarray, arrays) if side == "jax" else arrays
    return moments(gram, cross), key, value


class Token:
    """``update`` and ``query`` of 8 heads."""

    params = ([16, 64], ["numpy", "jax"])
    param_names = ("d", "side")

    def setup(self, d: int, side: str) -> None:
        update, query = need("olsq.update", "olsq.query")
        self.state, self.key, self.value = start(d, side)

        def token(state, key, value):
            state = update(state, key, value, forget=0.999)
            return state, query(state, key, ridge=RIDGE)

        self.run = jax.jit(token) if side == "jax" else token
        try:
            self.time_token(d, side)
        except TypeError as error:
            raise NotImplementedError(f"this commit decodes on JAX only: {error}") from error

    def time_token(self, d: int, side: str) -> None:
        jax.block_until_ready(self.run(self.state, self.key, self.value))

    def track_over_gla(self, d: int, side: str) -> float:
        """Over the same update with a product in place of the solve."""
        if side == "numpy":
            cross, key, value = map(np.asarray, (self.state.cross, self.key, self.value))

            def other():
                S = 0.999 * cross + value[:, :, None] * key[:, None]
                return (S @ key[:, :, None])[..., 0]
        else:

            @jax.jit
            def product(cross, key, value):
                S = 0.999 * cross + value[:, :, None] * key[:, None]
                return S, (S @ key[:, :, None])[..., 0]

            def other():
                return jax.block_until_ready(product(self.state.cross, self.key, self.value))

        return ratio(lambda: self.time_token(d, side), other)

    track_over_gla.unit = "ratio of processor time"


class Factor:
    """``start_decoding`` keeps a factor: a token costs d^2, not d^3."""

    params = ([16, 64],)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        begin, update, query = need("olsq.sequence.start_decoding", "olsq.update", "olsq.query")
        state, self.key, self.value = start(d, "jax")
        self.state = begin(state, ridge=RIDGE)

        def token(state, key, value):
            state = update(state, key, value, forget=0.999)
            return state, query(state, key)

        self.run = jax.jit(token)
        self.time_token(d)

    def time_token(self, d: int) -> None:
        jax.block_until_ready(self.run(self.state, self.key, self.value))
