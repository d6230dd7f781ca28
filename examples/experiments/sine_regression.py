"""A layer on top of an MLP is a gradient step on a learned kernel: the thesis' figure 2.8.

    python examples/experiments/sine_regression.py          # two seeds of both, the figure
    python examples/experiments/sine_regression.py --quick  # the identity, a few steps, asserted

Sines of amplitude U(.1, .5) and phase U(0, pi), ten points x ~ U(-5, 5) and a query.  Both models
have an MLP 40 - 160 - 40 with a skip, and a linear start W_0 on its output.  The transformer has
one free linear attention layer after it; its control meta-learns the rate of one step of gradient
descent on the output weights (proposition 2 makes the second a case of the first).  10,000 steps of
512 fresh tasks, Adam at 1e-3 with a cosine to 0, both tested on the same 4,000 others.
Results: docs/results/sine-regression.json and .png.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from icl_training import Claim, adam, options, run_notes, train
from panels import COLOURS, in_house_style, label_lines, panels
from regression_tasks import alignment, half_mse
from task_training import RESULTS, add_result, load_results, save_results

from olsq.icl import (
    attend,
    best_rate,
    descend,
    gd_weights,
    random_attention,
    regression_tokens,
)  # fmt: skip

NAME = "sine-regression"
WIDTH, HIDDEN, POINTS = 40, 160, 10


def sines(key: Any, number: int) -> tuple[Any, Any, Any, Any]:
    """x (n, 10, 1), y, query (n, 1, 1), target."""
    keys = jax.random.split(key, 3)
    amplitude = jax.random.uniform(keys[0], (number, 1, 1), minval=0.1, maxval=0.5)
    phase = jax.random.uniform(keys[1], (number, 1, 1), maxval=np.pi)
    x = jax.random.uniform(keys[2], (number, POINTS + 1, 1), minval=-5.0, maxval=5.0)
    y = amplitude * jnp.sin(x + phase)
    return x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:]


def network(seed: int) -> dict[str, Any]:
    """The MLP that both models begin with."""
    sizes = {"in": (1, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    start: dict[str, Any] = {"w0": jnp.zeros((1, WIDTH))}
    for (name, (rows, columns)), key in zip(sizes.items(), keys, strict=True):
        a, b = jax.random.split(key)
        start[name] = jax.random.normal(a, (rows, columns)) / np.sqrt(rows)
        # Biases spread the kinks of the input's features over its range.
        start[f"{name} bias"] = jax.random.uniform(b, (columns,), minval=-1.0)
    return start


def features(p: dict[str, Any], x: Any) -> Any:
    """m(x) of shape (..., 40), divided by the square root of its width."""
    x = jax.nn.gelu(x @ p["in"] + p["in bias"])
    out = x + jax.nn.gelu(x @ p["up"] + p["up bias"]) @ p["down"] + p["down bias"]
    return out / np.sqrt(WIDTH)


def transformer(p: dict[str, Any], task: Any) -> Any:
    x, y, query, _ = task
    tokens = regression_tokens(features(p, x), y, features(p, query), w0=p["w0"])
    return -attend(tokens, p["layer"], context=-1)[:, -1:, -1:]


def control(p: dict[str, Any], task: Any) -> Any:
    x, y, query, _ = task
    return descend(features(p, x), y, features(p, query), rates=p["rate"], w0=p["w0"])[-1]


MODELS = {"transformer": transformer, "gradient step": control}


def start(kind: str, seed: int) -> dict[str, Any]:
    """Weights to train; the control starts at the best rate of its random network."""
    p = network(seed)
    if kind == "transformer":
        layer = random_attention(jax.random.key(seed + 1), WIDTH + 1, scale=0.05)
        return {**p, "layer": layer}
    x, y, query, target = sines(jax.random.key(seed), 1_000)
    rate = best_rate(features(p, x), y, features(p, query), target)
    return {**p, "rate": rate[None]}


def learn(kind: str, seed: int, test: Any, steps: int, batch: int, lr: float) -> tuple[Any, dict]:
    """A trained model and its record."""
    model = MODELS[kind]
    p, record = train(
        lambda p, task: half_mse(model(p, task), task), start(kind, seed),
        lambda key: sines(key, batch), adam(optax.cosine_decay_schedule(lr, steps), 10.0),
        steps=steps, key=jax.random.key(seed, impl="rbg"), every=max(steps // 25, 1), test=test,
        measure=lambda p, given: {"test": half_mse(model(p, given), given)},
        say=f"{kind}, seed {seed}",
    )  # fmt: skip
    return p, record


def compare(seed: int, test: Any, steps: int, batch: int, lr: float) -> dict[str, Any]:
    """Both models of one seed; how alike they are, and one task to look at."""
    found: dict[str, Any] = {}
    predictions, slopes = {}, {}
    one = jax.tree.map(lambda part: part[:1], test)
    line = jnp.linspace(-5, 5, 101)[None, :, None]
    for kind, model in MODELS.items():
        p, record = learn(kind, seed, test, steps, batch, lr)

        def total(query: Any, p: Any = p, model: Any = model) -> Any:
            return model(p, (*test[:2], query, test[3])).sum()

        predictions[kind], slopes[kind] = model(p, test), jax.grad(total)(test[2])
        many = jax.tree.map(lambda part: jnp.repeat(part, line.size, 0), one)
        curve = model(p, (*many[:2], jnp.moveaxis(line, 1, 0), many[3]))[:, 0, 0]
        initial = (features(p, line) @ p["w0"].T)[0, :, 0]
        found[kind] = {
            "loss": record["test"][-1], "record": record, "curve": np.asarray(curve).tolist(),
            "initial": np.asarray(initial).tolist(),
        }  # fmt: skip
    a, b = predictions.values()
    found["cosine of predictions"] = float(alignment(a.reshape(1, -1), b.reshape(1, -1)))
    a, b = slopes.values()
    found["cosine of slopes"] = float(alignment(a.reshape(1, -1), b.reshape(1, -1)))
    found["one task"] = [np.asarray(part[0, :, 0]).tolist() for part in test[:2]]
    return found


def claims(runs: list[dict[str, Any]]) -> dict[str, Claim]:
    """B9."""
    losses = np.array([[r[kind]["loss"] for kind in MODELS] for r in runs])
    off = np.abs(losses[:, 0] / losses[:, 1] - 1).max()
    return {
        "B9": Claim(
            "sine regression: transformer = meta-learned MLP and one step of gradient descent "
            "(figure 2.8)",
            f"losses {losses[:, 0].mean():.5f} and {losses[:, 1].mean():.5f}, at most {off:.1%} "
            f"apart in {len(runs)} seeds; cosine of the predictions "
            f"{min(r['cosine of predictions'] for r in runs):.4f}, of their slopes "
            f"{min(r['cosine of slopes'] for r in runs):.4f}",
            "losses within 10 %, every seed", off < 0.1,
        )
    }  # fmt: skip


@in_house_style
def figure(runs: list[dict[str, Any]]) -> Any:
    """One task before and after the step, and the losses over training."""
    fig, axes = panels(2, height=2.7)
    across = np.linspace(-5, 5, 101)
    for i, kind in enumerate(MODELS):
        own = {"color": COLOURS[i]}
        axes[0].plot(across, runs[0][kind]["curve"], label=f"{kind},\nadjusted", **own)
        axes[0].plot(across, runs[0][kind]["initial"], ":", lw=1, label="_start", **own)
        for j, r in enumerate(runs):
            record, label = r[kind]["record"], "_seed" if j else kind
            axes[1].semilogy(record["step"], record["test"], lw=0.9, label=label, **own)
    axes[0].plot(*runs[0]["one task"], "ko", ms=4, label="_data")
    axes[0].set(xlabel="x", title="One task, before (dotted) and after")
    axes[0].set_xlim(-5, 5)
    axes[1].set(xlabel="step", ylabel="loss of the query", title="Training")
    for ax in axes:
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    args = options(__doc__, [0, 1]).parse_args(argv)
    began = time.perf_counter()
    if args.quick:
        quick()
        return
    test = sines(jax.random.key(9_000), 4_000)
    results = load_results(NAME)
    for seed in args.seeds:
        if str(seed) not in results.get("runs", {}):
            found = compare(seed, test, steps=10_000, batch=512, lr=1e-3)
            results = add_result(NAME, ("runs", str(seed)), found)
    runs = list(results["runs"].values())
    results["claims"] = claims(runs)
    command, earlier = "python examples/experiments/sine_regression.py", results.get("run")
    results["run"] = run_notes(command, began, earlier)
    save_results(NAME, results)
    figure(runs).savefig(RESULTS / f"{NAME}.png", dpi=150)


def quick() -> None:
    """The control is a transformer with given weights; both learn."""
    test = sines(jax.random.key(9_000), 300)
    p, record = learn("gradient step", 0, test, steps=150, batch=128, lr=3e-3)
    layer = gd_weights(p["w0"], p["rate"][0], POINTS)
    same = transformer({**p, "layer": layer}, test)
    assert np.abs(same - control(p, test)).max() < 1e-5
    assert record["test"][-1] < 0.5 * record["test"][0], record["test"]


if __name__ == "__main__":
    main()
