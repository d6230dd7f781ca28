"""Train a small MesaNet on two novels, look at what it learned, and spend less compute on it.

    pip install ".[cli,nn]"
    python examples/train_lm.py                # some minutes on two cores
    python examples/train_lm.py gla --steps 50

Stop it whenever you like: the same command goes on from the last checkpoint, to the same weights,
bit for bit, as without the stop.  ``examples/train_text.py`` has options for
all of this.
"""

import argparse

import jax

import olsq
import olsq.nn
from olsq.datasets import austen
from olsq.train import (
    ByteTokenizer,
    Corpus,
    TrainConfig,
    evaluate,
    fit,
    sample_text,
    write_results,
)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("mixer", nargs="?", default="mesa", help="a key of olsq.nn.MIXERS")
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()

# A text is a sequence of tokens; its last tenth is kept for validation.
tokenizer = ByteTokenizer()
corpus = Corpus.split(tokenizer.encode(austen()), validation=0.1)

# Every mixer fits into the same backbone: swap the name, keep the rest.
model = olsq.nn.LanguageModel(
    tokenizer.vocab_size, dim=64, blocks=2, heads=2, mixer=options.mixer, key=jax.random.key(0)
)
print(f"{options.mixer}: {olsq.nn.count_parameters(model):,} parameters")

# AdamW with warm-up and cosine decay.  Which sequences a step sees depends on the seed and the
# step only, so that every mixer sees the same data in the same order.
config = TrainConfig(steps=options.steps, batch=8, length=128, lr=3e-3, seed=0)
directory = f"train_lm-{options.mixer}-{options.steps}"


def show(record):
    if record.validation_loss is not None:
        print(f"step {record.step:>5,}  validation loss {record.validation_loss:.3f}", flush=True)


run = fit(
    model, corpus, config, directory=directory, tokenizer=tokenizer, resume=True, callback=show,
    setup={"mixer": options.mixer}, checkpoint_every=20.0,
)  # fmt: skip

# Does it use what it has read?  Perplexity by position falls for as long as it does.
evaluation = run.evaluate()
for first, last, loss, error in zip(*evaluation.binned(8), strict=True):
    print(f"positions {first:>4} to {last:>4}: loss {loss:.3f} +- {error:.3f}")
print(f"perplexity {evaluation.perplexity:.2f};", *write_results(directory, run.log, evaluation))
print(sample_text(run.model, tokenizer, "It is a truth universally ", 200))

# A trained model can solve its regressions less exactly, for less time: no weight changes.
if hasattr(olsq.nn.mixers_of(run.model)[0], "solver"):
    windows = corpus.windows(config.length, 64)
    for steps in (1, 3, 10, 30):
        cheap = run.model.with_solver(olsq.ConjugateGradient(max_steps=steps, tol=0.0))
        print(f"{steps:>2} steps of conjugate gradients: loss {evaluate(cheap, windows).loss:.4f}")
