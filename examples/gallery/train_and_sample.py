"""Train a small Mesa model on a text and let it go on with a prompt.

    python examples/gallery/train_and_sample.py [--steps 300] [--figure loss.png]

The text is made of three sentences that come in random order, so that a model of 60,000 parameters
learns it in seconds.  It must learn the sentences by heart, and cannot know which comes next.
"""

from __future__ import annotations

import figures
import jax
import jax.numpy as jnp
import numpy as np
import optax

import olsq.nn
from olsq.train import Corpus, Trainer, decay_mask

SENTENCES = [b"every row is learned once. ", b"nothing drifts. ", b"the answer is exact. "]


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, steps=200)
    rng = np.random.default_rng(0)
    text = b"".join(SENTENCES[i] for i in rng.integers(0, 3, 2000))
    data = np.frombuffer(text, np.uint8).astype(np.int32)
    # [use]
    model = olsq.nn.LanguageModel(
        128, dim=32, blocks=2, heads=2, mixer="mesa", key=jax.random.key(0)
    )
    rate = optax.warmup_cosine_decay_schedule(1e-4, 1e-2, 20, options.steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.1, mask=decay_mask)
    )
    batches = Corpus.split(data).batches(batch=16, length=64)
    trainer = Trainer(model, batches=batches, optimizer=optimizer, steps=options.steps).fit()
    losses = trainer.log["loss"]
    prompt = jnp.array([list(b"nothing dr")])
    more = trainer.model.generate(prompt, 40, key=jax.random.key(1), temperature=0.5)
    # [end]
    said = bytes(np.asarray(more[0], np.uint8)).decode(errors="replace")
    print(f"loss: {losses[0]:.2f} to {np.mean(losses[-10:]):.2f} nats per byte")
    print("nothing dr|" + said)
    assert np.mean(losses[-10:]) < losses[0] / 5
    assert said.startswith("ifts. ")

    def draw(ax):
        # Which of three sentences comes next cannot be known.
        chance = np.log(3) / np.mean([len(sentence) for sentence in SENTENCES])
        ax.semilogy(losses, color="#2166ac", label="training")
        ends, name = [0, len(losses) - 1], "the choice of\nsentences"
        ax.plot(ends, [chance, chance], color="#6b7280", linewidth=1, label=name)
        ax.set_ylim(bottom=chance / 2)  # room for its name
        ax.set_xlabel("step")
        ax.set_title("Loss in nats per byte", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
