"""Language models of 3M parameters on ten times the tokens of language_models.py.

    python examples/experiments/language_models_3m.py                # resumes; 8 hours
    python examples/experiments/language_models_3m.py --minutes 60   # begins no run after that
    python examples/experiments/language_models_3m.py --figures      # from the runs there are
    python examples/experiments/language_models_3m.py --quick        # seconds, asserted

Width 256, 4 blocks, 4 heads of 64, bytes of the novels that olsq ships (five times through them:
byte pairs would be read fourteen times), sequences of 512, layers as they come.  Each mixer first
takes 300 steps at three peak learning rates, and at further ones while the best of them is an end
of the grid; then 3,000 steps at the best.  A long run keeps checkpoints in --models and goes on
from them.  Results, run by run: docs/results/language-models-3m.json.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from language_models import BINS, MIXERS
from language_models_3m_report import parts, section
from panels import colour_of, in_house_style, label_lines, line, panels
from task_training import RESULTS, add_result, load_results, paper_gates

import olsq.datasets
import olsq.nn
from olsq.train import ByteTokenizer, Corpus, TrainConfig, fit

NAME = "language-models-3m"
# Stored results are from when the gates of mesa started near .99 and those of others at one half.
FROM_HALF = paper_gates("gla", "gated_delta", "mamba2")
# Softmax comes without the short convolution that the others have, and is there with it too.
CONVOLVED = "softmax, convolution"
CHOSEN = ("mesa", "gla", "gated_delta", "mamba2", CONVOLVED, "hawk-mesa", "softmax")
MODEL: dict[str, Any] = {"dim": 256, "blocks": 4, "heads": 4, "key_size": 64}
RATES, FACTOR = (1e-3, 3e-3, 1e-2), 10**0.5
SEARCH, STEPS = 300, 3000


def load_bytes() -> Corpus:
    """The shipped novels, byte by byte."""
    return Corpus.split(ByteTokenizer().encode(olsq.datasets.austen()))


def run(
    mixer: str, lr: float, steps: int, corpus: Corpus, folder: Path | None = None, **sizes: Any
) -> dict[str, Any]:
    """Train one model, on from the checkpoint in ``folder`` where there is one."""
    kind, options = MIXERS.get(mixer), {mixer: FROM_HALF[mixer]} if mixer in FROM_HALF else {}
    if mixer == CONVOLVED:
        kind, options = "softmax", {"softmax": {"convolution": True}}
    model = olsq.nn.LanguageModel(
        256, mixer=kind, mixer_options=options, key=jax.random.key(0), **{**MODEL, **sizes}
    )
    # A search is judged by its end; twenty validations on the way would be a third of its time.
    every = steps if steps == SEARCH else None
    config = TrainConfig(steps=steps, batch=4, length=512, lr=lr, evaluate_every=every)
    began = time.process_time()
    trainer = fit(model, corpus, config, resume=folder is not None, directory=folder)
    found = trainer.evaluate()
    bins, log = found.binned(BINS), trainer.log
    validated = np.isfinite(log["validation_loss"])
    return {
        "loss": found.loss, "parameters": olsq.nn.count_parameters(model),
        "skipped": int(log.skipped), "steps": log["step"][validated].astype(int).tolist(),
        "validation": log["validation_loss"][validated].tolist(),
        "position": [bins.first.tolist(), bins.last.tolist()], "by_position": bins.loss.tolist(),
        "processor_seconds": round(time.process_time() - began),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def key_of(mixer: str, lr: float) -> str:
    return f"{mixer}, lr {lr:.2g}"


def rates_of(search: dict[str, Any], mixer: str) -> dict[float, float]:
    """Losses by the rates that were tried, in order."""
    found = {parts(key): row["loss"] for key, row in search.items()}
    tried = {float(lr): loss for (name, lr), loss in found.items() if name == mixer}
    return {lr: loss if math.isfinite(loss) else math.inf for lr, loss in sorted(tried.items())}


def next_rate(search: dict[str, Any], mixer: str) -> float | None:
    """The rate to try next; None once the best has a worse one on either side."""
    tried = rates_of(search, mixer)
    for lr in RATES:
        if lr not in tried:
            return lr
    best, ends = min(tried, key=tried.__getitem__), (min(tried), max(tried))
    if best == ends[0]:
        return float(f"{best / FACTOR:.2g}")
    return float(f"{best * FACTOR:.2g}") if best == ends[1] else None


def missing(mixers: tuple[str, ...]) -> Iterator[tuple[str, str, float, int]]:
    """Runs that are not there yet: all searches before the long runs."""
    for mixer in mixers:
        while (lr := next_rate(load_results(NAME).get("search", {}), mixer)) is not None:
            yield "search", mixer, lr, SEARCH
    for mixer in mixers:
        tried = rates_of(load_results(NAME)["search"], mixer)
        best = min(tried, key=tried.__getitem__)
        if key_of(mixer, best) not in load_results(NAME).get("runs", {}):
            yield "runs", mixer, best, STEPS


@in_house_style
def figure(runs: dict[str, Any]) -> Any:
    """Validation loss over training, and by position against softmax with the convolution."""
    fig, axes = panels(2, height=3.0)
    by_mixer = {parts(key)[0]: row for key, row in runs.items()}
    softmax = by_mixer.get(CONVOLVED)
    for name, row in by_mixer.items():
        late = np.array(row["steps"]) >= STEPS / 5  # the fall before it hides all that is between
        shown = slice(None) if not late.any() else late
        steps, losses = (np.array(row[field])[shown] for field in ("steps", "validation"))
        axes[0].plot(steps, losses, color=colour_of(name), label=name)
        first, last = map(np.array, row["position"])
        if softmax is not None and name != CONVOLVED:
            gap = np.subtract(row["by_position"], softmax["by_position"])
            axes[1].plot(np.sqrt(first * last), gap, color=colour_of(name), label=name)
    axes[0].set(xlabel="step", ylabel="validation loss, nats per byte", title="Training")
    line(axes[1], 0.0, CONVOLVED, across=0.3)
    axes[1].set(xscale="log", xlabel="position in the sequence", ylabel="nats per byte",
                title=f"Loss minus that of {CONVOLVED}")  # fmt: skip
    for ax in axes:
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mixers", nargs="+", choices=CHOSEN, default=CHOSEN)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no run after so many"
    )
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--figures", action="store_true", help="draw them only")
    parser.add_argument("--quick", action="store_true", help="a small model, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        return quick()
    if not args.figures:
        corpus = load_bytes()
        began = time.monotonic()
        for kind, mixer, lr, steps in missing(tuple(args.mixers)):
            if (time.monotonic() - began) / 60 > args.minutes:
                break
            key = key_of(mixer, lr)
            name = f"{NAME}-{mixer.replace(', ', '-')}-{lr:.2g}"
            folder = args.models / name if kind == "runs" else None
            jax.clear_caches()  # programs of the run before: mappings of memory, and memory
            row = run(mixer, lr, steps, corpus, folder)
            add_result(NAME, (kind, key), row)
            spent = f"{row['processor_seconds']} s of a processor"
            print(f"{kind} {key}: loss {row['loss']:.4f}, {spent}", flush=True)
    if runs := load_results(NAME).get("runs"):
        figure(runs).savefig(RESULTS / f"{NAME}.png", dpi=150)
    return None


def quick() -> None:
    """A search that goes on past the end of its grid, and a small run."""
    corpus = load_bytes()
    sizes = {"dim": 32, "blocks": 1, "heads": 2, "key_size": 16}
    row = run("gla", 1e-2, 20, corpus, **sizes)
    assert row["validation"][-1] < row["validation"][0], row["validation"]
    search: dict[str, Any] = {}
    for wanted in (1e-3, 3e-3, 1e-2, 3.2e-2, None):
        assert next_rate(search, "gla") == wanted, (search, wanted)
        if wanted is not None:  # best at 1e-2
            search[key_of("gla", wanted)] = {"loss": abs(math.log(wanted / 1e-2))}
    runs = {key_of(name, 1e-2): row for name in ("gla", CONVOLVED)}
    figure(runs)
    assert f"| `{CONVOLVED}` | 0.01 |" in section({"runs": runs, "search": runs})


if __name__ == "__main__":
    main()
