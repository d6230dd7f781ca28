"""How large the effect behind each claim was, on how many runs, and which runs are too small.

Made from the results that the experiments left, for claims_report.py.  A claim is "met" or "not
met" by its criterion, and "too small to test" where models, data or seeds are too few
for the criterion to mean what the claim says, whichever way it came out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import combine_pvalues, spearmanr
from task_training import load_results

MET, NOT_MET, TOO_SMALL = "met", "not met", "too small to test"
CHANCE = 0.05  # of a rank correlation as large without any


class Effect(NamedTuple):
    """What was seen, on how many, and why that is too little to judge by, if it is."""

    size: str
    n: str
    too_small: str = ""


def verdict(passed: bool | None, effect: Effect) -> str:
    """One of the three, or nothing for what has not run."""
    if passed is None:
        return ""
    return TOO_SMALL if effect.too_small else (MET if passed else NOT_MET)


def spread(numbers: Any, form: str = ".1%") -> str:
    """Least and largest of some numbers."""
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def one_step(r: dict[str, Any]) -> dict[str, Effect]:
    runs = list(r["runs"].values())
    n = f"{len(runs)} seeds"
    near = [a / b - 1 for run in runs for kind in ("inputs", "teacher")
            for a, b in run["elsewhere"][kind][:5]]  # fmt: skip
    falls = {
        damping: 1 - np.mean([run["repeated"][damping]["rising"] for run in runs])
        for damping in ("0.75", "1.0")
    }
    return {
        "B1": Effect(f"losses {spread([x['lsa'] / x['gd'] - 1 for x in runs], '+.2%')} apart", n),
        "B2": Effect(f"losses {spread(near, '+.1%')} apart", n),
        "B3": Effect(
            f"falls on {falls['0.75']:.0%} of test sets, against {falls['1.0']:.0%}",
            f"{n}, 5 test sets",
        ),
    }


def gdpp(r: dict[str, Any]) -> dict[str, Effect]:
    paper = {"10": 0.179, "25": 0.099, "50": 0.056, "100": 0.029}
    printed = {"10": 4.6, "25": 7.712, "50": 10.85, "100": 17.2}
    best = [r["best"][k]["gd++"][1] / x - 1 for k, x in paper.items()]
    runs = r["runs"].items()
    gamma = [x["gamma"] / paper[k.split(",")[0]] - 1 for k, x in runs]
    loss = [x["transformer"] / x["gd++"] - 1 for _, x in runs]
    largest = [r["extremes"][k]["largest"][1] / x - 1 for k, x in printed.items()]
    grid = r["conditions"]["gamma"]
    least = {q: grid[int(np.argmin(r["conditions"][q]))] for q in ("0.5", "1")}
    n = f"{len(r['runs'])} runs"
    return {
        "B4": Effect(f"largest eigenvalues {spread(largest, '+.0%')} off", "20 draws of each"),
        "B5, optimised": Effect(f"gamma {spread(best, '+.1%')} off", "4 numbers of samples"),
        "B5, trained": Effect(
            f"gamma {spread(gamma, '+.1%')} off; {sum(abs(x) < 0.15 for x in gamma)} of "
            f"{len(gamma)} within 15 %", n,
        ),
        "B6": Effect(
            f"loss {spread(sorted(loss)[:-1], '+.1%')} from GD++ in {len(loss) - 1} runs, "
            f"{max(loss):+.0%} in one", n,
        ),
        "B8": Effect(
            f"least at gamma {least['0.5']:.3f} (median task), {least['1']:.3f} (worst)",
            "10,000 tasks",
        ),
    }  # fmt: skip


def sines(r: dict[str, Any]) -> dict[str, Effect]:
    runs = list(r["runs"].values())
    off = [x["transformer"]["loss"] / x["gradient step"]["loss"] - 1 for x in runs]
    return {"B9": Effect(f"losses {spread(off, '+.1%')} apart", f"{len(runs)} seeds")}


def heads(r: dict[str, Any]) -> dict[str, Effect]:
    runs = r["runs"]
    seeds = sorted({key.split(", ")[1] for key in runs})
    gap = {h: [runs[f"{h}, {s}"]["loss"] - runs[f"{h}, {s}"]["gd"] for s in seeds] for h in (1, 2)}
    share = [b / a for a, b in zip(gap[1], gap[2], strict=True)]
    return {"B11": Effect(f"{spread(share, '.0%')} of the gap is left", f"{len(seeds)} seeds")}


def one_layer(r: dict[str, Any]) -> dict[str, Effect]:
    linear = [x for k, x in r["runs"].items() if k.startswith("linear")]
    mesa = [x for k, x in r["runs"].items() if k.startswith("mesa")]
    n = f"{len(linear)} seeds"
    gd = np.array(r["controls"]["gd"]["by_step"])
    least = int(gd.argmin())
    a3 = [abs(x["coefficients"][0][2]) for x in linear]
    return {
        "C1": Effect(f"{gd.mean():.4f}, standard error .005", "1 test set"),
        "C2": Effect(f"loss {spread([x['loss'] for x in linear], '.4f')}", n),
        "C3": Effect(f"|A3| {spread(a3, '.4f')}", n),
        "C4": Effect(f"loss {spread([x['loss'] for x in mesa], '.4f')}", f"{len(mesa)} seeds"),
        "C4, gradient descent": Effect(
            f"{gd[least]:.3f} at t = {least + 1}, {gd[-1]:.3f} at t = {len(gd)}", "1 test set"
        ),
    }


def deep(r: dict[str, Any]) -> dict[str, Effect]:
    loss = [r["runs"][f"{d}, 0"]["loss"] for d in range(2, 7)]
    rise = max(b - a for a, b in itertools.pairwise(loss))
    left = {name: min(shares) for name, shares in r["probes"]["6, 0"].items()}
    return {
        "C5": Effect(f"one neighbour of five in the wrong order, by {rise:.4f}",
                     "1 seed of each depth, 2 of five layers"),
        "C6": Effect(
            f"undecoded at best: next state {left['target']:.0%}, preconditioned input "
            f"{left['inverse']:.0%} (of {r['probes']['6, 0']['inverse'][0]:.0%} before)",
            "1 model, 6 layers' outputs",
            "most of the preconditioned input is not decoded at any layer"
            if left["inverse"] > 0.5 else "",
        ),
    }  # fmt: skip


def few_shot(r: dict[str, Any]) -> dict[str, Effect]:
    off = [np.abs(np.array(x["mesa"]) / x["control"] - 1).max() for x in r["runs"]]
    return {"C8": Effect(f"at most {spread(off)} off, each", f"{len(off)} seeds")}


def recall(r: dict[str, Any]) -> dict[str, Effect]:
    best = max(r["mesa"]["micro"]) if "mesa" in r else 0.0
    return {"D1, noisy recall": Effect(f"{best:.2%}, a guess 12.5%", "1 seed, 320 sequences")}


def languages(r: dict[str, Any]) -> dict[str, Effect]:
    ends: dict[str, list[float]] = {}
    for key, x in r["runs"].items():
        ends.setdefault(key.split(", ")[0], []).append(x["micro"][-1])
    mean = {name: np.mean(x) for name, x in ends.items()}
    others = max(mean[name] for name in mean if name not in ("mesa", "softmax"))
    seeds = min(map(len, ends.values()))
    control = r["controls"]["3-grams of the sequence"]
    count = f"{seeds} seed" + "s" * (seeds > 1)
    apart = max(np.ptp(x) for x in ends.values())
    doubts = [
        f"{count} of each" if seeds < 3 else "",
        f"seeds of one mixer are up to {apart:.3f} apart" if seeds > 1 else "",
        f"all models are below 3-grams ({control:.3f})" if max(mean.values()) < control else "",
        "the criterion leaves softmax out",
    ]
    why = ", ".join(filter(None, doubts)) if any(doubts[:3:2]) else ""
    size = (
        f"mesa {mean['mesa'] - others:+.3f} from the best other recurrent mixer, "
        f"{mean['mesa'] - mean['softmax']:+.3f} from softmax"
    )
    return {"D2": Effect(size, count, why)}


def parities(r: dict[str, Any]) -> dict[str, Effect]:
    end: dict[str, list[float]] = {}
    for key, x in r["runs"].items():
        if not key.endswith("steps"):
            end.setdefault(key.rsplit(", ", 1)[0], []).append(np.mean(x["by_position"][-40:]))
    size = "; ".join(f"{gates}: {spread(x, '.3f')}" for gates, x in end.items())
    return {"D3": Effect(size, f"{min(map(len, end.values()))} seeds of each")}


def spending(r: dict[str, Any]) -> dict[str, Effect]:
    out = {}
    for model, x in r.items():
        spent = x["spend"]
        fixed = dict(zip(spent["steps"], spent["fixed"], strict=True))
        hurt = fixed[5] - fixed[30]
        systems = x["conditions"]["heads"]
        worst = max(max(h["condition"]) for h in systems)
        out[f"D4, {model}"] = Effect(
            f"5 steps cost {hurt:+.1e}", "1 model",
            "" if hurt > 1e-4 else
            f"condition numbers of at most {worst:.0f}: five steps solve such systems",
        )  # fmt: skip
        gates, ends = [h["forget"] for h in systems], [h["condition"][-1] for h in systems]
        order = spearmanr(gates, ends)
        remembers = sum(g > 0.62 for g in gates)
        out[f"D5, {model}"] = Effect(
            f"rank correlation {order.statistic:.2f}, p = {order.pvalue:.2g}",
            f"{len(gates)} heads of 1 model",
            "" if order.pvalue < CHANCE else
            f"{remembers} of {len(gates)} heads has a mean gate above .62",
        )  # fmt: skip
    return out


def over_training(r: dict[str, Any]) -> dict[str, Effect]:
    runs = list(r["runs"].values())
    fixed = [dict(zip(x["spend"]["steps"], x["spend"]["fixed"], strict=True)) for x in runs]
    hurt = max(f[5] - f[30] for f in fixed)
    worst = max(np.max(x["heads"]["condition"]) for x in runs)
    models = f"{len(runs)} models"
    said = ", ".join(f"{x['rank_correlation_p']:.1g}" for x in runs)
    chance = combine_pvalues([x["rank_correlation_p"] for x in runs]).pvalue
    return {
        "D4, language, two starts of the gates": Effect(
            f"5 steps cost at most {hurt:+.1e}", models,
            "" if hurt > 1e-4 else
            f"condition numbers of at most {worst:.0f}: five steps solve such systems",
        ),
        "D5, language, two starts of the gates": Effect(
            f"p = {said}; {chance:.1g} together (Fisher)", f"16 heads of each of {models}",
            "" if chance < CHANCE else "no more than chance",
        ),
    }  # fmt: skip


def population(r: dict[str, Any]) -> dict[str, Effect]:
    off = [x["largest |p_T C - I|"] for x in r["unitary"]]
    got = [x["reached"] for x in r["rotations"]]
    rough = [p["roughness"] for p in r["positions"]]
    return {
        "E1": Effect(f"at most {max(off):.0e}", f"{len(off)} runs"),
        "E2": Effect(f"{sum(got)} of {len(got)} get there", f"{len(got)} runs"),
        "E4": Effect(f"roughness falls {rough[0] / rough[-1]:.0f} times", "4 µ, 1 run of each"),
    }


def trained(r: dict[str, Any]) -> dict[str, Effect]:
    def of(part: str, key: str, name: str) -> list[float]:
        return [x[name] for k, x in r[part].items() if k.startswith(key) and "longer" not in k]

    rule = "eta / (t - 1)"
    ratio = {d: [a / b for a, b in zip(of("fig5", f"layers={d},", "mse"),
                                       of("fig5", f"layers={d},", f"descent, {rule}"),
                                       strict=True)] for d in (1, 4)}  # fmt: skip
    more = [a / b for a, b in zip(of("fig7", "heads=32, copies=2", "mse"),
                                  of("fig7", "heads=1, copies=2", "mse"), strict=True)]  # fmt: skip
    off = [a / b for a, b in zip(of("fig8", "first=same", "off / diagonal, end"),
                                 of("fig8", "first=same", "off / diagonal, start"),
                                 strict=True)]  # fmt: skip
    one = of("fig9", "softmax=False, mlp=False", "mse")
    soft = of("fig9", "softmax=True, mlp=False", "mse")
    seeds = f"{len(one)} seeds"
    return {
        "E3": Effect(f"error over descent's: {spread(ratio[1], '.2f')} with one layer, "
                     f"{spread(ratio[4], '.2f')} with four", "2 seeds, longer 1"),
        "E5": Effect(f"error of 32 heads over that of one: {spread(more, '.2f')}", seeds),
        "E6": Effect(f"after over before: {spread(off, '.2f')}", seeds),
        "E7": Effect(f"softmax's error at least {min(soft) / max(one):.0e} times as large", seeds),
    }  # fmt: skip


MAKERS: dict[str, Callable[[dict[str, Any]], dict[str, Effect]]] = {
    "one-step-gd": one_step,
    "gdpp": gdpp,
    "sine-regression": sines,
    "softmax-heads": heads,
    "dynamics-one-layer": one_layer,
    "dynamics-deep": deep,
    "dynamics-few-shot": few_shot,
    "noisy-recall": recall,
    "regbench": languages,
    "parity": parities,
    "test-time-compute": spending,
    "heads-over-training": over_training,
    "sander-population": population,
    "sander-trained": trained,
}


def effects() -> dict[str, Effect]:
    """The effect behind every claim whose experiment has run."""
    out = {"D6": Effect("no counterexample", "hypothesis, tests/nn")}
    for name, maker in MAKERS.items():
        if found := load_results(name):
            out |= maker(found)
    return out
