"""A trained linear layer is one step of gradient descent: the thesis' figures 2.3 and 2.12.

    python examples/experiments/one_step_gd.py          # five seeds, the figure
    python examples/experiments/one_step_gd.py --quick  # one seed, fewer steps, criteria asserted

One head, 10 samples and a query in 10 dimensions, Adam at 1e-3 behind an elementwise clip of
0.001, 5,000 steps of 2,048 fresh tasks.  Gradient descent has the best rate of 10,000 tasks; both
are tested on the same 10,000 others.  Inputs are U(-1/2, 1/2), see regression_tasks.py.
Results: docs/results/one-step-gd.json and .png.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from icl_training import Claim, adam, options, run_notes, train
from panels import COLOURS, in_house_style, label_lines, line, panels
from regression_tasks import (
    DIM,
    SAMPLES,
    alignment,
    half_mse,
    predict,
    query_gradient,
    start,
    tasks,
    uniform,
)  # fmt: skip
from task_training import RESULTS, add_result, load_results, save_results

from olsq.icl import best_rate, gd_weights, interpolate, regression_tokens, roll_out

NAME = "one-step-gd"
SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
DAMPINGS = (0.75, 0.85, 1.0)
ROLL = 50


def spread_like_uniform(draw: Any) -> Any:
    """Inputs of another law with the standard deviation of the training inputs."""
    deviation = 1.0 / np.sqrt(12.0)
    return lambda key, shape: deviation * draw(key, shape)


LAWS = {
    "uniform": uniform,
    "normal": spread_like_uniform(jax.random.normal),
    "laplace": spread_like_uniform(lambda k, s: jax.random.laplace(k, s) / np.sqrt(2.0)),
    "exponential": spread_like_uniform(lambda k, s: jax.random.exponential(k, s) - 1.0),
}


def construction() -> Any:
    """Gradient descent as a layer, at the best rate; the rate."""
    x, y, query, target = tasks(jax.random.key(1_000), 10_000)
    rate = best_rate(x, y, query, target)
    return gd_weights(jnp.zeros((1, DIM)), rate, SAMPLES), float(rate)


def learn(seed: int, test: Any, steps: int, batch: int, **optimiser: Any) -> tuple[Any, dict]:
    """A trained layer; its loss and its alignment with gradient descent as it goes."""
    reference, rate = construction()
    theirs = query_gradient([reference], test)
    guess = predict([reference], test)

    def measure(weights: Any, given: Any) -> dict[str, Any]:
        test, theirs, guess = given
        ours = query_gradient([weights], test)
        return {
            "test": half_mse(predict([weights], test), test),
            "cosine": alignment(ours, theirs),
            "model distance": jnp.linalg.norm(ours - theirs, axis=-1).mean(),
            "prediction distance": jnp.abs(predict([weights], test) - guess).mean(),
        }

    weights, record = train(
        lambda w, task: half_mse(predict([w], task), task),
        start(seed), lambda key: tasks(key, batch), adam(**optimiser),
        steps=steps, key=jax.random.key(seed, impl="rbg"), every=max(steps // 25, 1),
        measure=measure, test=(test, theirs, guess),
        say=f"seed {seed}",
    )  # fmt: skip
    found = {
        "gd": float(half_mse(guess, test)), "rate": rate,
        "lsa": record["test"][-1], "cosine": record["cosine"][-1],
        "between": float(half_mse(predict([interpolate(weights, reference)], test), test)),
    }  # fmt: skip
    return weights, {**found, "record": record}


def elsewhere(weights: Any, number: int = 10_000) -> dict[str, Any]:
    """Losses of the trained layer and of gradient descent on other data than in training."""
    reference, _ = construction()
    key = jax.random.key(2_000)

    def both(**change: Any) -> list[float]:
        task = tasks(key, number, **change)
        return [float(half_mse(predict([w], task), task)) for w in (weights, reference)]

    return {
        "inputs": [both(scale=a) for a in SCALES],
        "teacher": [both(teacher=a) for a in SCALES],
        "law": {name: both(inputs=law) for name, law in LAWS.items()},
    }


def repeated(weights: Any, sets: int = 5, number: int = 10_000) -> dict[str, Any]:
    """Mean losses when the layer, or the step of gradient descent, is applied again and again.

    On several sets of tasks, because the mean of a diverging process is made by its rarest tasks:
    the median curve, and the share of sets on which the loss rises at the end.
    """
    reference, _ = construction()

    @jax.jit
    def losses(layer: Any, damping: Any, key: Any) -> Any:
        task = tasks(key, number)
        trace = roll_out(regression_tokens(*task[:3]), layer, ROLL, damping=damping, context=-1)
        return jax.vmap(lambda now: half_mse(-now[:, -1:, -1:], task))(trace)

    keys = jax.random.split(jax.random.key(3_000), sets)
    out = {}
    for damping in DAMPINGS:
        curves = np.array([[losses(w, damping, key) for key in keys] for w in (weights, reference)])
        rises = ~(curves[..., -1] <= curves[..., -6])  # so that not a number counts as rising
        middle = np.median(np.nan_to_num(curves, nan=np.inf), axis=1)
        shown = np.where(np.isfinite(middle), middle, None)
        out[str(damping)] = {"curves": shown.tolist(), "rising": rises.mean(-1).tolist()}
    return out


def claims(runs: list[dict[str, Any]]) -> dict[str, Claim]:
    """What the thesis says, on all seeds."""
    gap = max(abs(r["lsa"] / r["gd"] - 1) for r in runs)
    between = max(r["between"] / r["gd"] - 1 for r in runs)
    cosine = min(r["cosine"] for r in runs)
    near = [pair for r in runs for kind in ("inputs", "teacher")
            for a, pair in zip(SCALES, r["elsewhere"][kind], strict=True) if a <= 1.5]  # fmt: skip
    off = max(abs(a / b - 1) for a, b in near)
    rises = [r["elsewhere"]["inputs"][-1][1] / r["gd"] for r in runs]
    rising = {  # of trained layers and of descent
        damping: np.mean([r["repeated"][damping]["rising"] for r in runs], 0)
        for damping in ("0.75", "1.0")
    }
    return {
        "B1": Claim(
            "trained layer = one step of gradient descent (figure 2.3)",
            f"losses {np.mean([r['lsa'] for r in runs]):.4f} and {runs[0]['gd']:.4f} "
            f"(rate {runs[0]['rate']:.2f}); worst of {len(runs)} seeds: {gap:.2%} apart, "
            f"cosine {cosine:.5f}, halfway between the weights {between:+.2%}",
            "losses within 1 %, cosine > .999, interpolation within 1 %",
            gap < 0.01 and cosine > 0.999 and abs(between) < 0.01,
        ),
        "B2": Claim(
            "same losses on other data (figure 2.3, lower right)",
            f"largest difference for scales up to 1.5: {off:.2%}; twice the inputs: "
            f"{np.mean(rises):.1f} times the loss",
            "within 5 % for scales <= 1.5, loss rises fast above 1",
            off < 0.05 and min(rises) > 2,
        ),
        "B3": Claim(
            "repeated 50 times: stable with damping .75, diverges with 1 (figure 2.12)",
            "share of test sets of 10,000 tasks on which the mean loss still falls after 50 times: "
            + "; ".join(
                f"damping {d}, trained {1 - r[0]:.0%}, descent {1 - r[1]:.0%}"
                for d, r in rising.items()
            ),
            "sign of the last slope, both methods, on most test sets",
            max(rising["0.75"]) < 0.5 < min(rising["1.0"]),
            "one task in about 100,000 has an eigenvalue above 2 / (.75 rate / N) = 4.4 and "
            "diverges with damping .75 too, so that some test sets do",
        ),
    }


@in_house_style
def figure(runs: list[dict[str, Any]]) -> Any:
    """The panels of figure 2.3, and figure 2.12; a thin line a seed."""
    fig, axes = panels(5, height=2.6)
    black, blue, green, orange, red = "k", COLOURS[0], COLOURS[2], COLOURS[1], COLOURS[3]
    for i, r in enumerate(runs):
        record, first = r["record"], i == 0

        def draw(ax: Any, x: Any, y: Any, colour: str, label: str, first: bool = first,
                 **own: Any) -> None:  # fmt: skip
            ax.plot(x, y, color=colour, label=label if first else "_seed", **{"lw": 0.9, **own})

        draw(axes[0], record["step"], record["test"], blue, "trained\nlayer")
        draw(axes[1], record["step"], record["cosine"], green, "cosine of\nthe models")
        draw(axes[1], record["step"], record["model distance"], red, "distance\nof models")
        draw(axes[1], record["step"], record["prediction distance"], orange,
             "distance of\npredictions")  # fmt: skip
        for kind, style in (("inputs", "-"), ("teacher", "--")):
            ours, theirs = np.array(r["elsewhere"][kind]).T
            draw(axes[3], SCALES, ours, blue, f"scaled\n{kind}", ls=style)
            draw(axes[3], SCALES, theirs, black, "_gd", ls=style, lw=2.5, alpha=0.3)
    line(axes[0], runs[0]["gd"], "gradient descent, one step", across=0.3)
    axes[0].set(xlabel="step", ylabel="loss of the query", title="Training")
    axes[1].set(xlabel="step", title="Alignment with gradient descent", ylim=(-0.05, 1.05))
    names = {"gd": "gradient descent", "lsa": "trained", "between": "halfway"}
    for i, name in enumerate(names):
        axes[2].plot([i] * len(runs), [r[name] for r in runs], "o", color=blue, alpha=0.6)
    axes[2].set_xticks(range(len(names)), names.values())
    axes[2].set(title="Loss at weights between the two", ylim=(0, 0.3), xlim=(-0.5, 2.5))
    axes[3].set(xlabel="scale", ylabel="loss", title="Other data than in training (grey: GD)",
                yscale="log")  # fmt: skip
    for i, damping in enumerate(DAMPINGS):
        curves = runs[0]["repeated"][str(damping)]["curves"]
        for curve, style in zip(curves, ("-", "--"), strict=True):
            height = np.array(curve, float)
            axes[4].semilogy(height, style, color=COLOURS[i], label="_curve")
        inside = np.flatnonzero(height < 10)[-1]
        axes[4].annotate(f"damping {damping:g}", (inside, height[inside]), (4, -8),
                         textcoords="offset points", color=COLOURS[i], fontsize=8)  # fmt: skip
    axes[4].set(xlabel="times applied (dashed: gradient descent)", title="Repeated",
                ylim=(1e-2, 10), xlim=(0, 60))  # fmt: skip
    for ax in (axes[0], axes[1], axes[3]):
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    args = options(__doc__, range(5)).parse_args(argv)
    began = time.perf_counter()
    test = tasks(jax.random.key(4_000), 10_000)
    if args.quick:
        test = tuple(part[:3_000] for part in test)
        fast = optax.cosine_decay_schedule(5e-3, 750)
        weights, found = learn(0, test, steps=750, batch=1_024, lr=fast, clip=0.01)
        found |= {"elsewhere": elsewhere(weights, 1_000), "repeated": repeated(weights, 3, 1_000)}
        for name, claim in claims([found]).items():
            assert claim["passed"], (name, claim)
        return
    results = load_results(NAME)
    for seed in args.seeds:
        if str(seed) not in results.get("runs", {}):
            weights, found = learn(seed, test, steps=5_000, batch=2_048, lr=1e-3, clip=1e-3)
            found |= {"elsewhere": elsewhere(weights), "repeated": repeated(weights)}
            results = add_result(NAME, ("runs", str(seed)), found)
    runs = list(results["runs"].values())
    results["claims"] = claims(runs)
    command, earlier = "python examples/experiments/one_step_gd.py", results.get("run")
    results["run"] = run_notes(command, began, earlier, seeds=list(map(int, results["runs"])))
    save_results(NAME, results)
    figure(runs).savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()
