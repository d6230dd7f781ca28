"""Language models that differ in their mixer: a training step, a token decoded."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .common import library, need, ratio

MIXERS = [
    "softmax", "sliding_window", "linear", "retention", "mamba2", "gla", "delta", "gated_delta",
    "kda", "rwkv7", "longhorn", "hawk", "mlstm", "ttt_linear", "mesa", "mesa_discounted", "kalman",
]  # fmt: skip
VOCABULARY, BATCH, LENGTH = 256, 2, 128


def make(name: str):
    """A model of about a million parameters."""
    nn, preset = need("olsq.nn", "olsq.nn.preset")
    if name not in nn.MIXERS:
        raise NotImplementedError(f"this commit has no mixer {name}")
    return preset("1m", vocab_size=VOCABULARY, mixer=name, key=jax.random.key(0))


def training(name: str):
    """The jitted loss and gradient, and its arguments."""
    eqx, optax = library("equinox"), library("optax")
    params, static = eqx.partition(make(name), eqx.is_inexact_array)
    tokens = jax.random.randint(jax.random.key(1), (BATCH, LENGTH + 1), 0, VOCABULARY)

    def loss(params, tokens):
        logits = eqx.combine(params, static)(tokens[:, :-1])
        entropy = optax.softmax_cross_entropy_with_integer_labels
        return entropy(logits, tokens[:, 1:]).mean()

    return jax.jit(jax.value_and_grad(loss)), (params, tokens)


class Training:
    """Loss and gradient on 2 sequences of 128 tokens."""

    params = (MIXERS,)
    param_names = ("mixer",)
    timeout = 600

    def setup(self, mixer: str) -> None:
        self.run, self.args = training(mixer)
        self.time_step()

    def time_step(self, *_) -> None:
        jax.block_until_ready(self.run(*self.args))

    def track_over_linear(self, mixer: str) -> float:
        """Over the same model with linear attention."""
        run, args = training("linear")
        return ratio(self.time_step, lambda: jax.block_until_ready(run(*args)))

    def track_temporary_bytes(self, mixer: str) -> int:
        return self.run.lower(*self.args).compile().memory_analysis().temp_size_in_bytes

    track_over_linear.unit = "ratio of processor time"
    track_temporary_bytes.unit = "bytes"


class Decoding:
    """One token of one stream, after a prompt of 128."""

    params = (MIXERS,)
    param_names = ("mixer",)
    timeout = 600

    def setup(self, mixer: str) -> None:
        eqx = library("equinox")
        need("olsq.nn.LanguageModel.prefill", "olsq.nn.LanguageModel.step")
        model = make(mixer)
        prompt = jnp.zeros((1, LENGTH), jnp.int32)
        prefill = eqx.filter_jit(lambda model: model.prefill(prompt, capacity=2 * LENGTH))
        _, self.state = prefill(model)
        step = eqx.filter_jit(lambda model, token, state: model.step(token, state))
        token = jnp.zeros(1, jnp.int32)
        self.run = lambda: jax.block_until_ready(step(model, token, self.state))
        self.run()

    def time_token(self, mixer: str) -> None:
        self.run()

    def track_state_bytes(self, mixer: str) -> int:
        return sum(x.nbytes for x in jax.tree.leaves(self.state))

    track_state_bytes.unit = "bytes"
