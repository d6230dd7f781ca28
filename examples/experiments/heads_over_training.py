"""How hard the systems of a Mesa language model are, head by head, as it trains.

    python examples/experiments/heads_over_training.py           # goes on where it stopped; an hour
    python examples/experiments/heads_over_training.py --quick   # seconds, asserted

The model of language_models.py (1M parameters, byte pairs, sequences of 256) whose gates start near
one half, as in its paper, or near .99, as those of new layers do.  As it trains, on sequences that
it does not train on: mean gate, condition number late in a sequence, and the steps of conjugate
gradient to 1e-4, of every head.  At the end, what fixed numbers of steps lose (MesaNet, section 6,
figures 7 and 13).  Results: docs/results/heads-over-training.json and a figure, run by run.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np
from language_models import MODEL, load_corpus
from matplotlib.ticker import LogLocator
from panels import COLOURS, in_house_style, label_lines, panels
from scipy.stats import spearmanr
from task_training import RESULTS, add_result, load_results, paper_gates
from test_time_compute import spend, token_mean

import olsq
import olsq.nn
from olsq.train import Corpus, CorpusTrainer, TrainConfig

NAME = "heads-over-training"
STARTS: dict[str, dict[str, Any]] = {"one half": paper_gates("mesa"), ".99": {}}
SEEDS = (0, 1)
STEPS, EVERY, LENGTH = 1200, 100, 256
TOLERANCE = 1e-4  # of the steps that are counted


def look(model: Any, windows: Any) -> dict[str, list[list[float]]]:
    """Gate, condition number and steps of every block and head, over the later half of tokens."""
    solver = olsq.ConjugateGradient(max_steps=200, tol=TOLERANCE)
    tokens = windows[:, :-1]
    found = olsq.nn.diagnose(model.with_solver(solver), tokens, every=16)
    half = tokens.shape[1] // 2
    rows: dict[str, list[list[float]]] = {"forget": [], "condition": [], "steps": []}
    for d in found.values():
        late = np.asarray(d.positions) >= half
        rows["forget"].append(np.asarray(d.forget).mean((0, 1)).tolist())
        logs = np.log(np.asarray(d.condition)[:, late])
        rows["condition"].append(np.exp(logs.mean((0, 1))).tolist())
        rows["steps"].append(np.asarray(d.steps)[:, half:].mean((0, 1)).tolist())
    return rows


def run(
    start: str, seed: int, corpus: Corpus, vocab_size: int, steps: int = STEPS, **sizes: Any
) -> dict[str, Any]:
    """Train one model, and look at it every ``EVERY`` steps."""
    model = olsq.nn.LanguageModel(
        vocab_size, mixer="mesa", mixer_options=STARTS[start], key=jax.random.key(seed),
        **{**MODEL, **sizes},
    )  # fmt: skip
    config = TrainConfig(steps=steps, batch=8, length=LENGTH, lr=3e-3, seed=seed)
    trainer = CorpusTrainer(model, corpus, config, ahead=0)
    windows = corpus.windows(LENGTH, 16)
    began, at, looks, losses = time.perf_counter(), [0], [look(model, windows)], []
    for record in trainer.run():
        if record.validation_loss is not None:
            losses.append([record.step, record.validation_loss])
        if record.step % EVERY == 0 or record.step == steps:
            at.append(record.step)
            looks.append(look(trainer.model, windows))
    seconds = time.perf_counter() - began
    heads = {name: [found[name] for found in looks] for name in looks[0]}
    last = [np.ravel(heads[name][-1]) for name in ("forget", "condition")]
    order = spearmanr(*last)
    tested = corpus.windows(LENGTH, 64)
    return {
        "loss": trainer.evaluate().loss, "validation": losses, "steps": at, "heads": heads,
        "rank_correlation": float(order.statistic), "rank_correlation_p": float(order.pvalue),
        "spend": spend(trainer.model, token_mean(tested), tested, (0, 1, 2, 3, 5, 10, 30),
                       (1e-1, 1e-2, 1e-3, 1e-4)),
        "seconds": round(seconds), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


@in_house_style
def figure(runs: dict[str, Any]) -> Any:
    """By start, heads as lines: gate, condition number and steps over training."""
    fig, axes = panels(3, height=2.6, sharex=True)
    for i, start in enumerate(STARTS):
        mine = [row for key, row in runs.items() if key.startswith(f"{start},")]
        for ax, name in zip(axes, ("forget", "condition", "steps"), strict=True):
            lines = [
                np.ravel(np.asarray(row["heads"][name])[:, block, head])
                for row in mine
                for block, head in np.ndindex(np.shape(row["heads"][name])[1:])
            ]
            if lines:
                at = mine[0]["steps"]
                ax.plot(at, np.transpose(lines), color=COLOURS[i], lw=0.5, alpha=0.35)
                median = np.median(lines, 0)
                ax.plot(
                    at,
                    median,
                    color=COLOURS[i],
                    lw=1.8,
                    label=f"start {start}".replace(" .", " 0."),
                )
    axes[0].set(ylabel="mean gate", title="Forget gate: every head, median")
    axes[1].set(
        yscale="log", ylabel="condition number", title="Condition number, tokens 129 to 256"
    )
    axes[1].yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for which in (axes[1].yaxis.set_major_formatter, axes[1].yaxis.set_minor_formatter):
        which("{x:g}")
    axes[2].set(ylabel="steps", title="Steps to 1e-4, tokens 129 to 256")
    for ax in axes:
        ax.set_xlabel("training step")
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--quick", action="store_true", help="a small model, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        corpus, tokenizer = load_corpus(512)
        sizes = {"dim": 32, "blocks": 1, "heads": 2, "key_size": 16}
        found = run(".99", 0, corpus, tokenizer.vocab_size, steps=4, **sizes)
        assert found["steps"] == [0, 4], found["steps"]
        assert np.min(found["heads"]["condition"]) >= 1, found["heads"]
        figure({"one half, seed 0": found, ".99, seed 0": found})
        return
    corpus, tokenizer = load_corpus(1024)
    for seed in SEEDS:
        for start in args.starts:
            key = f"{start}, seed {seed}"
            if key in load_results(NAME).get("runs", {}):
                continue
            row = run(start, seed, corpus, tokenizer.vocab_size)
            add_result(NAME, ("runs", key), row)
            print(f"{key}: loss {row['loss']:.4f} in {row['seconds']} s", flush=True)
    figure(load_results(NAME)["runs"]).savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()
