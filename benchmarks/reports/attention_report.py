"""The Markdown of docs/the-family.md: the registry and results of ``attention_table.py``."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import olsq
from benchmarks.reports import attention_map
from benchmarks.reports.sequence_report import table
from olsq import attention
from olsq.attention.registry import METHODS, OBJECTIVES, RULES
from olsq.plot.labels import label_lines

INTRO = """\
# Attention rules as online learners

```python
import jax, olsq

q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 256, 2, 16))      # (batch, time, heads, dim)
gates = {"forget": 0.99, "weight": 0.5}
o, state = olsq.attention.gated_delta(q, k, v, **gates)
o, state = olsq.attention.gated_delta_step(q[:, 0], k[:, 0], v[:, 0], **gates, state=state)
```

`rule(q, k, v, ...) -> (o, state)` processes a sequence, `rule_step` one token. All rules learn one
regression online, of values on keys; they differ in the loss that they descend and in how far they
go at a token. `v` may have a multiple of the heads of `q` and `k`, such as 32 for 16: neighbouring
heads of values then share a key, and gates and states have the heads of `v`.

![One pass over correlated keys](img/family-one-shot.png)

Recall after one to thirty passes over eight correlated keys: the solve is right after one pass, the
delta rule needs many, and steps on the dot product, or along a diagonal only, never get there.

## The map

![A constant or a line, fitted to all tokens or to those like the query](img/family-map.png)

A fit is *global* (every token counts, however far its key is from the query) or *local*, and
*constant* or *linear*. The red dot is the fit's answer at the query, the circle the truth. Rules
"by steps" move towards the fit instead of solving for it.

"""
AFTER_MAP = """
A gate shrinks the state before the step, which is weight decay of the loss. Rules further right or
down cost more per token and remember more: a delta rule corrects what the state predicts for one
key, a solve for all keys at once.

[Local least squares](local-least-squares.md) derives `local_linear` and `parallax`,
[chunk-exact least squares](chunk-exact.md#a-gate-per-key-dimension) `mesa_channel`.

## The rules

`S` (V, K) is a head's memory for keys of width K and values of width V; `o = S q` unless the row
says otherwise. The map has the kind of each step; `kalman` takes 30 Chebyshev steps, and
`mesa_channel` is exact without gates. Layers are those of `olsq.nn`; [weights of
flash-linear-attention](layers-interop.md#weights-of-flash-linear-attention) are read and written
for half of them.

"""
RECIPES = """
## Step sizes of delta rules

```python
from jax import numpy as jnp

b, eta, eps = 0.5, 1.0, 1e-6
size = (k * k).sum(-1)  # |k|^2, (batch, time, heads)
error_free = jnp.where(size > 0, -jnp.expm1(-b * size) / jnp.where(size > 0, size, 1), b)
kaczmarz = eta / (size + eps)
for step in (error_free, kaczmarz):
    o, state = olsq.attention.gated_delta(q, k, v, forget=0.99, weight=step)
    o, state = olsq.attention.delta(q, k, v, weight=step)  # without gates
```

*Error-free linear attention* is the delta rule with `beta = (1 - exp(-b |k|^2)) / |k|^2`: it
follows the gradient flow `dS/dt = (v - S k) k^T` exactly for a time b, where the delta rule takes
one Euler step of length b. *Kaczmarz' step*, `beta = eta / (|k|^2 + eps)`, with `eta = 1` moves S
to the nearest memory that answers this key with its value. Both are stable for keys of any length;
with `|k| = 1` they are constants.
"""
MEASURED = """
## Cost of a token and of a sequence

*Remembers* and *flops* count the numbers that a head keeps and one token's update and read, at
K = V = 64 after T = 1,024 tokens, with a window of w = 256. Solves factorise at every token; a
state of `olsq.sequence.start_decoding` needs one to three steps of 4K² instead.

Times are of 4,096 tokens, 8 heads, K = V = 64, float32, over those of `gla`, which took turns with
each rule ({date}: {cpu}, {cores} cores, JAX {jax}); *a token* is on a state after 64 others
(`python -m benchmarks.reports.attention_table`).

"""
ERRORS = """
The largest error of an output against the rule's float64 recurrence is at most {usual:.0e} of the
largest output, but {others}.
"""
WAYS = ("forward", "both")
USUAL = 1e-6  # an error of an output that needs no mention
GROWTH = """
![Time against length](img/family-time.png)

One head, forward. All rules but `softmax`, `forgetting`, `local_linear` and `parallax` are linear
in the length; fixed costs show below 2,048 tokens.
"""


def costs():
    sizes = {"K": 64, "V": 64, "T": 1024, "w": 256}
    for rule in RULES:
        terms = (f"{round(c, 2):g}{product(term)}" for term, c in rule.flops.items())
        yield rule, " + ".join(terms), rule.flop_count(**sizes), rule.state_size(**sizes)


def product(term):
    """A product of sizes as in a formula: K³, VK."""
    powers = {1: "", 2: "²", 3: "³"}
    return "".join(f"{size}{powers[term.count(size)]}" for size in dict.fromkeys(term))


def map_of_rules():
    """The two choices as a table: objectives down, methods across."""
    body = []
    for objective in OBJECTIVES:
        cells = []
        for method in METHODS:
            inside = [f"`{r.name}`" for r in RULES if r.place == (objective, method)]
            cells.append(", ".join(inside))
        body.append([f"**{objective}**", *cells])
    return table("| descends | " + " | ".join(METHODS) + " |", body)


def rows_of_rules():
    """The registry as a table."""
    head = "| rule | layers | a token | gates | descends | paper |"
    body = []
    for r in RULES:
        recurrence, loss = (f"`{escape(text)}`" for text in (r.recurrence, r.loss))
        layers = ", ".join(f"`{layer.place.partition(':')[2]}`" for layer in r.layers)
        body.append([f"`{r.name}`", layers, recurrence, r.gates, loss, r.source])
    return table(head, body)


def escape(text):
    return text.replace("|", "\\|")


def text(cache):
    """The page."""
    lines = [INTRO, *map_of_rules(), AFTER_MAP]
    lines += rows_of_rules()
    lines += [RECIPES, MEASURED.format(**cache["about"])]
    head = "| rule | remembers | flops | forward / gla | with backward / gla | a token, ms |"
    lines += table(head, list(cost_rows(cache)))
    lines.append(errors_text(cache))
    if any(k.startswith("growth|") for k in cache):
        lines.append(GROWTH)
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip("\n") + "\n"


def write(cache, out):
    """Write the page and its figures."""
    out.parent.joinpath("img").mkdir(parents=True, exist_ok=True)
    one_shot(out.parent / "img/family-one-shot.png")
    attention_map.main(out.parent / "img/family-map.png")
    if any(k.startswith("growth|") for k in cache):
        growth(cache, out.parent / "img/family-time.png")
    out.write_text(text(cache))


def measured(cache, name):
    """Return a rule's ratios to gla and its error."""
    found = cache[f"speed|{name}"]
    return {m: found[m]["ms"] / found[m]["gla"] for m in WAYS} | {"error": found["error"]}


def cost_rows(cache):
    """Yield the counted and the measured costs of every rule."""
    for rule, formula, _, size in costs():
        found, step = measured(cache, rule.name), cache.get(f"step|{rule.name}")
        times = [f"{found[way]:.1f}" for way in WAYS]
        token = f"{step['ms']:.2f}" if step else ""
        yield [f"`{rule.name}`", f"{size:,}", formula, *times, token]


def errors_text(cache):
    """State the largest usual error, and those of the rules that have more."""
    errors = {r.name: measured(cache, r.name)["error"] for r in RULES}
    others = [f"{errors[n]:.0e} for `{n}`" for n in sorted(errors, key=errors.get)
              if errors[n] > USUAL]  # fmt: skip
    usual = max(error for error in errors.values() if error <= USUAL)
    return ERRORS.format(usual=usual, others=", ".join(others))


# The rules that are compared most; the others are grey.
COLOURS = {
    "mesa": "#2166ac", "mesa_discounted": "#2166ac", "gla": "#d9730d", "gated_delta": "#1b7f4d",
    "softmax": "#c0362c", "mamba2": "#8a6100", "kalman": "#7b4fa3",
}  # fmt: skip


def growth(cache, path):
    """Time against T of all rules, named at their ends."""
    figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    found = {r.name: cache[f"growth|{r.name}"] for r in RULES if f"growth|{r.name}" in cache}
    order = sorted(found, key=lambda n: -list(found[n].values())[-1])
    t = np.array(sorted({int(x) for rows in found.values() for x in rows}))
    for name in order:
        colour = COLOURS.get(name, "#7a7a7a")
        tokens, ms = map(int, found[name]), found[name].values()
        axes.loglog(list(tokens), list(ms), "o-", ms=2, lw=0.9, color=colour, label=name)
    axes.set(xlabel="tokens", ylabel="milliseconds, one head of width 64", xticks=t, xticklabels=t)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    label_lines(axes, fontsize=7.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def recall_errors(passes=30, size=8, width=16):
    """Error of what each memory says about 8 correlated pairs, after each pass over them."""
    rng = np.random.default_rng(3)
    k = rng.normal(size=(size, width)) + 0.5
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.normal(size=(size, width))
    rules = {
        "gla": attention.gla_step,
        "delta": attention.delta_step,
        "longhorn": lambda *x, state: attention.longhorn_step(*x, state=state),
        "mesa": lambda *x, state: attention.mesa_step(*x, ridge=1e-4, state=state),
    }
    found = {}
    for name, step in rules.items():
        state, errors = None, []
        for _ in range(passes):
            for i in range(size):
                pair = (x[i][None, None].astype(np.float32) for x in (k, k, v))
                _, state = step(*pair, state=state)
            if isinstance(state, olsq.Moments):
                says = np.asarray(
                    olsq.query(state, k[:, None, None].astype(np.float32), ridge=1e-4)
                )
                says = says[:, 0, 0]
            else:
                says = k @ np.asarray(state.matrix)[0, 0].T
            errors.append(np.linalg.norm(says - v) / np.linalg.norm(v))
        found[name] = errors
    return found


def one_shot(path):
    """Recall against passes."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, errors in recall_errors().items():
        (line,) = axes.semilogy(range(1, len(errors) + 1), errors, "o-", ms=3)
        axes.annotate(
            name, (len(errors), errors[-1]), (6, 0), textcoords="offset points", va="center",
            color=line.get_color(),
        )  # fmt: skip
    axes.set(xlabel="passes over eight correlated pairs", ylabel="relative error of recall")
    axes.set_xlim(right=len(errors) * 1.16)
    figure.savefig(path, dpi=150)
    plt.close(figure)
