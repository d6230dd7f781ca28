"""asv: language models that differ in their mixer: a training step, a token decoded, memory."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import olsq.nn

NAMES = [name for name, kind in olsq.nn.MIXERS.items() if kind.causal]
VOCABULARY, BATCH, LENGTH = 1024, 4, 512


def make(name: str) -> olsq.nn.LanguageModel:
    return olsq.nn.preset("1m", vocab_size=VOCABULARY, mixer=name, key=jax.random.key(0))


class Training:
    """Loss and gradient of a model of about 1M parameters on 4 sequences of 512 tokens."""

    params = NAMES
    param_names = ("mixer",)
    timeout = 600

    def setup(self, name):
        params, static = eqx.partition(make(name), eqx.is_inexact_array)
        tokens = jax.random.randint(jax.random.key(1), (BATCH, LENGTH + 1), 0, VOCABULARY)

        def loss(params, tokens):
            logits = eqx.combine(params, static)(tokens[:, :-1])
            entropy = optax.softmax_cross_entropy_with_integer_labels
            return entropy(logits, tokens[:, 1:]).mean()

        self.args = (params, tokens)
        self.run = jax.jit(jax.value_and_grad(loss))
        jax.block_until_ready(self.run(*self.args))

    def time_step(self, _):
        jax.block_until_ready(self.run(*self.args))

    def track_temporary_bytes(self, _):
        return self.run.lower(*self.args).compile().memory_analysis().temp_size_in_bytes


class Decoding:
    """One token of one stream, after a prompt of 512."""

    params = NAMES
    param_names = ("mixer",)
    timeout = 600

    def setup(self, name):
        model = make(name)
        prompt = jnp.zeros((1, LENGTH), jnp.int32)
        prefill = eqx.filter_jit(lambda model: model.prefill(prompt, capacity=2 * LENGTH))
        _, self.state = prefill(model)
        step = eqx.filter_jit(lambda model, token, state: model.step(token, state))
        token = jnp.zeros(1, jnp.int32)
        self.run = lambda: jax.block_until_ready(step(model, token, self.state))
        self.run()

    def time_token(self, _):
        self.run()

    def track_state_bytes(self, _):
        return sum(x.nbytes for x in jax.tree.leaves(self.state))
