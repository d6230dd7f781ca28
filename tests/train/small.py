"""A model, a corpus and options so small that a test trains in a second.

Run as a program it trains in a directory, to be killed and resumed.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.train import ByteTokenizer, Corpus, CorpusTrainer, TrainConfig

TEXT = "The quick brown fox jumps over the lazy dog. " * 40


class SmallModel(eqx.Module):
    """Predicts a token from the two before it: an embedding, a hidden layer, logits."""

    embedding: jax.Array
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear
    norm: jax.Array

    def __init__(self, vocab_size=256, dim=16, seed=0):
        keys = jax.random.split(jax.random.key(seed), 3)
        self.embedding = jax.random.normal(keys[0], (vocab_size, dim))
        self.hidden = eqx.nn.Linear(2 * dim, dim, key=keys[1])
        self.output = eqx.nn.Linear(dim, vocab_size, key=keys[2])
        self.norm = jnp.broadcast_to(jnp.asarray(1.0), (2, dim))  # weakly typed

    def __call__(self, tokens):
        x = self.embedding[tokens]
        before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        pair = jnp.concatenate([x * self.norm[0], before * self.norm[1]], -1)
        return jax.vmap(jax.vmap(lambda u: self.output(jax.nn.silu(self.hidden(u)))))(pair)


def config(**changes):
    return TrainConfig(**{"steps": 40, "batch": 4, "length": 16, "lr": 3e-3, **changes})


def corpus(text=TEXT):
    return Corpus.split(ByteTokenizer().encode(text))


def trainer(directory=None, **options):
    changes = options.pop("config", {})
    model = options.pop("model", None) or SmallModel()
    return CorpusTrainer(
        model, corpus(), config(**changes), directory=directory, tokenizer=ByteTokenizer(),
        **options,
    )  # fmt: skip


def weights(model):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))]


def same_bits(a, b):
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    steps = int(sys.argv[2])
    run = trainer(sys.argv[1], config={"steps": steps}, checkpoint_every=0.0)
    run.resume()
    for record in run.run():
        print(record.step, flush=True)
