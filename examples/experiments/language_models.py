"""Small language models that differ in their mixer only: loss, loss by position, speed.

    python examples/experiments/language_models.py               # goes on where it stopped
    python examples/experiments/language_models.py --speed       # tokens/s, on a quiet machine
    python examples/experiments/language_models.py --quick       # seconds, asserted

About 1M parameters (width 128, 4 blocks, 4 heads of 32), byte pairs (vocabulary 1,024) of the
novels that olsq ships, sequences of 256; the same budget, the same data in the same order for all,
two peak learning rates and two seeds each.  Trained models are kept in --models for
test_time_compute.py.  Results: docs/results/language-models.json and figures beside it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from panels import COLOURS, colour_of, in_house_style, label_lines, line, panels, seed_lines
from task_training import RESULTS, add_result, load_results, paper_gates

import olsq
import olsq.datasets
import olsq.nn
from olsq.train import Corpus, TrainConfig, fit, make_tokenizer, token_loss

NAME = "language-models"
MIXERS: dict[str, Any] = {
    "mesa": "mesa",
    "gla": "gla",
    "gated_delta": "gated_delta",
    "delta": "delta",
    "mlstm": "mlstm",
    "mamba2": "mamba2",
    "hawk": "hawk",
    "hawk-mesa": ("hawk", "mesa"),
    "softmax": "softmax",
    "sliding_window": "sliding_window",
}
MODEL: dict[str, Any] = {
    "dim": 128, "blocks": 4, "heads": 4, "key_size": 32, "initialisation": "fan-in",
}  # fmt: skip
WINDOW = 64
RATES, SEEDS = (3e-3, 1e-3), (0, 1)
BINS = 12


def make_model(mixer: Any, vocab_size: int, seed: int, **sizes: Any) -> Any:
    options: dict[str, Any] = paper_gates(*([mixer] if isinstance(mixer, str) else mixer))
    if mixer == "sliding_window":
        options = {mixer: {"window": WINDOW}}
    return olsq.nn.LanguageModel(
        vocab_size, mixer=mixer, mixer_options=options, key=jax.random.key(seed),
        **{**MODEL, **sizes},
    )  # fmt: skip


def load_corpus(vocabulary: int) -> tuple[Corpus, Any]:
    """The shipped novels as byte pairs."""
    text = olsq.datasets.austen()
    tokenizer = make_tokenizer(f"bpe:{vocabulary}", text)
    return Corpus.split(tokenizer.encode(text)), tokenizer


def run(mixer: Any, corpus: Corpus, vocab_size: int, config: TrainConfig) -> tuple[Any, dict]:
    """Train one model; what the tables and figures need."""
    model = make_model(mixer, vocab_size, config.seed)
    began = time.perf_counter()
    trainer = fit(model, corpus, config)
    seconds = time.perf_counter() - began
    found = trainer.evaluate()
    bins = found.binned(BINS)
    log = trainer.log
    validated = np.isfinite(log["validation_loss"])
    return trainer.model, {
        "loss": found.loss,
        "parameters": olsq.nn.count_parameters(model),
        "skipped": int(log.skipped),
        "seconds": seconds,
        "steps": log["step"][validated].astype(int).tolist(),
        "validation": log["validation_loss"][validated].tolist(),
        "position": [bins.first.tolist(), bins.last.tolist()],
        "by_position": bins.loss.tolist(),
    }


def speed(mixer: Any, vocab_size: int, *, length: int = 256, batch: int = 8) -> dict[str, float]:
    """Tokens per second: a training step, and one stream decoded token by token."""
    model = make_model(mixer, vocab_size, 0)
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, vocab_size)

    @eqx.filter_jit
    def gradient(model: Any, tokens: Any) -> Any:
        def loss(model: Any) -> Any:
            return token_loss(model(tokens[:, :-1]), tokens[:, 1:])

        return eqx.filter_value_and_grad(loss)(model)

    works = {
        "train": lambda: gradient(model, tokens),
        "decode": lambda: model.generate(tokens[:1, :length], 128, temperature=0),
    }
    rates = {}
    for name, work in works.items():
        jax.block_until_ready(work())
        times = []
        for _ in range(5):
            began = time.perf_counter()
            jax.block_until_ready(work())
            times.append(time.perf_counter() - began)
        rates[name] = (batch * length if name == "train" else 128) / min(times)
    return rates


def key_of(name: str, lr: float, seed: int) -> str:
    return f"{name}, lr {lr:g}, seed {seed}"


def best_rate(runs: dict[str, Any], name: str) -> float | None:
    """The learning rate with the smaller mean loss over the seeds that both have."""
    means = {}
    for lr in RATES:
        losses = [runs[key_of(name, lr, s)]["loss"] for s in SEEDS if key_of(name, lr, s) in runs]
        if losses:
            means[lr] = np.mean(losses)
    return min(means, key=means.__getitem__) if means else None


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Loss at both rates; by position against softmax, and in training, at the better one."""
    runs = results["runs"]
    fig, axes = panels(3, height=3.0)
    rows = []
    for name in MIXERS:
        lr = best_rate(runs, name)
        if lr is not None:
            found = [runs[key_of(name, lr, s)] for s in SEEDS if key_of(name, lr, s) in runs]
            rows.append((name, lr, found))
    order = sorted(rows, key=lambda row: np.mean([r["loss"] for r in row[2]]))
    for j, lr in enumerate(RATES):
        for i, (name, _, _) in enumerate(order):
            losses = [runs[key]["loss"] for s in SEEDS if (key := key_of(name, lr, s)) in runs]
            axes[0].plot(losses, [i] * len(losses), "os"[j], color=COLOURS[j], ms=4)
            if i == 0 and losses:
                axes[0].annotate(
                    f"rate {lr:g}", (losses[-1], i), (8, 0), textcoords="offset points",
                    fontsize=8, color=COLOURS[j], va="center",
                )  # fmt: skip
    axes[0].set_yticks(range(len(order)), [row[0] for row in order])
    axes[0].invert_yaxis()
    axes[0].set(xlabel="validation loss, nats per token (dots: seeds)", title="Loss")
    softmax = {row[0]: row[2] for row in rows}.get("softmax")
    for name, _, found in rows:
        first, last = (np.array(x) for x in found[0]["position"])
        middle = np.sqrt(first * last)
        if softmax is not None and name != "softmax":
            paired = zip(found, softmax, strict=False)
            gap = [np.array(a["by_position"]) - b["by_position"] for a, b in paired]
            seed_lines(axes[1], middle, gap, colour_of(name), name)
        curves = [r["validation"] for r in found]
        seed_lines(axes[2], found[0]["steps"], curves, colour_of(name), name)
    line(axes[1], 0.0, "softmax", across=0.3)
    axes[1].set(xscale="log", xlabel="position in the sequence", ylabel="nats per token",
                title="Loss minus that of softmax, better rate")  # fmt: skip
    axes[2].set(xlabel="step", ylabel="validation loss", title="Training, better rate",
                xlim=(100, None), ylim=(3.5, 4.6))  # fmt: skip
    for ax in axes[1:]:
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mixers", nargs="+", choices=MIXERS, default=list(MIXERS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--speed", action="store_true", help="measure tokens/s and stop")
    parser.add_argument("--quick", action="store_true", help="a small Mesa model, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        corpus, tokenizer = load_corpus(512)
        config = TrainConfig(
            steps=30, warmup=3, batch=4, length=32, lr=1e-2, evaluate_every=30,
            evaluate_sequences=8,
        )  # fmt: skip
        solver = olsq.ConjugateGradient(max_steps=8)  # compiles in half of the exact one's time
        sizes = {"dim": 64, "blocks": 1, "heads": 2, "key_size": 16}
        model = make_model("mesa", tokenizer.vocab_size, 0, solver=solver, **sizes)
        start, end = (fit(model, corpus, config).log["loss"][i] for i in (0, -1))
        assert end < start - 1, (start, end)
        return
    results = {"steps": args.steps, "runs": {}, "speed": {}, **load_results(NAME)}
    if results["steps"] != args.steps:
        raise SystemExit(f"docs/results/{NAME}.json holds runs of {results['steps']} steps")
    add_result(NAME, ("steps",), args.steps)
    corpus, tokenizer = load_corpus(1024)
    if args.speed:
        for name in args.mixers:
            found = speed(MIXERS[name], tokenizer.vocab_size)
            print(name, found, flush=True)
            add_result(NAME, ("speed", name), found)
        return
    args.models.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for lr in RATES:
            for name in args.mixers:
                key = key_of(name, lr, seed)
                if key in results["runs"]:
                    continue
                config = TrainConfig(steps=args.steps, batch=8, length=256, lr=lr, seed=seed)
                model, row = run(MIXERS[name], corpus, tokenizer.vocab_size, config)
                print(f"{key}: loss {row['loss']:.4f} in {row['seconds']:.0f} s", flush=True)
                olsq.nn.save(args.models / f"{name}-{lr:g}-{seed}.safetensors", model)
                results = add_result(NAME, ("runs", key), row)
    fig = figure(results)
    fig.savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()
