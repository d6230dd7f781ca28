"""Speed and error of every attention rule: writes tables of docs/the-family.md
and docs/measurements/sequences.md, and their figures.

    python -m benchmarks.reports.attention_table speed growth

Times are the best of several rounds in which all rules take turns, in one process; read the
ratios.  Progress is kept in ``--cache`` (JSON), so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reports.attention_report import draw
from benchmarks.reports.registry import write_blocks
from benchmarks.reports.sequence_table import SGEMM_FLOPS, about, sgemm, take_turns
from benchmarks.suites.attention_inputs import arguments, one_head, runner, static
from benchmarks.support.flops import matrix_flops
from olsq.attention.registry import BY_NAME, RULES

NAMES = [rule.name for rule in RULES]
LENGTHS = (512, 2048, 8192, 32768)
QUADRATIC = ("softmax", "forgetting", "local_linear", "parallax")


def gradient(f):
    """Gradient of the outputs' square by every array."""
    return jax.jit(jax.grad(lambda x, named: (f(x, named) ** 2).sum(), argnums=(0, 1)))


@cache
def jitted(rule):
    """A rule and its gradient; gla, which all others take turns with, compiles once."""
    return {"forward": jax.jit(runner(rule)), "both": gradient(runner(rule))}


def speed(name, rounds, t=4096):
    """Time and work of one rule and gla, forward and with the backward pass, and its error.

    Milliseconds, flops of matrix products, and the flops a second of large products that took turns
    with both ("peak"); the error is against float64, relative to the largest output.
    """
    rows = {rule: arguments(rule, t) for rule in dict.fromkeys((name, "gla"))}
    found = {}
    for mode in ("forward", "both"):
        runs = {r: partial(jitted(r)[mode], *x) for r, x in rows.items()}
        best = take_turns({**runs, "peak": sgemm()}, (), rounds)
        work = {r: matrix_flops(jitted(r)[mode], *x) for r, x in rows.items()}
        found[mode] = {
            "ms": best[name] * 1e3, "gla": best["gla"] * 1e3, "flops": work[name],
            "gla_flops": work["gla"], "peak": SGEMM_FLOPS / best["peak"],
        }  # fmt: skip
    arrays, named = rows[name]
    got = np.asarray(jitted(name)["forward"](arrays, named), np.float64)[0, :, 0]
    want = one_head(name, arrays, named)
    found["error"] = float(np.abs(got - want).max() / np.abs(want).max())
    return found


def step(name, rounds, t=64, heads=8, width=64):
    """Milliseconds and XLA's flops of one token on the state after t others."""
    rule = BY_NAME[name]
    if rule.one_token is None:
        return None
    arrays, named = arguments(name, t, heads, width)
    room = {"capacity": 1024} if name in QUADRATIC else {}
    _, state = rule.function(*arrays, **named, **static(name), **room)

    def last(key, x):
        if key in ("rate", "bonus", "initial", "ridge") or jnp.ndim(x) == 0:
            return x
        return x[:, -1]

    token = tuple(x[:, -1] for x in arrays)
    options = {n: jax.tree.map(lambda a, n=n: last(n, a), x) for n, x in named.items()}
    if name == "mesa_discounted":
        options.pop("ridge")  # the state holds it
    fixed = static(name)
    run = jax.jit(lambda x, named, state: rule.one_token(*x, **named, **fixed, state=state))
    cost = run.lower(token, options, state).compile().cost_analysis()
    ms = take_turns({"": run}, (token, options, state), 20 * rounds)[""] * 1e3
    return {"ms": ms, "flops": cost["flops"] / heads}


def growth(name, rounds):
    """Milliseconds forward against T, one head of width 64."""
    found = {}
    for t in LENGTHS:
        if name in QUADRATIC and t > 8192:
            continue  # the slope is plain, and each run would take as long as all other rules
        arrays, named = arguments(name, t, heads=1)
        best = take_turns({"": jax.jit(runner(name))}, (arrays, named), rounds)
        found[t] = best[""] * 1e3
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="speed, step, growth; none: only write the pages")
    parser.add_argument("--rules", default=",".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096, help="of speed")
    parser.add_argument("--cache", type=Path, default=Path("benchmarks/results/attention.json"))
    given = parser.parse_args()
    cache = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    cache.setdefault("about", about())
    of_length = partial(speed, t=given.tokens)
    measure = {"speed": of_length, "step": step, "growth": growth}
    if unknown := set(given.kinds) - set(measure):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(measure)}")
    todo = [f"{kind}|{name}" for kind in given.kinds for name in given.rules.split(",")]
    for i, key in enumerate(todo):
        if key not in cache:
            kind, name = key.split("|")
            cache[key] = measure[kind](name, given.rounds)
            given.cache.write_text(json.dumps(cache, indent=1))
        print(f"{i + 1}/{len(todo)} {key} {cache[key]}", flush=True)
    draw(cache, Path("docs/img"))
    write_blocks("attention", cache)


if __name__ == "__main__":
    main()
