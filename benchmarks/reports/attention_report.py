"""The Markdown of docs/the-family.md: the registry and results of ``attention_table.py``."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import olsq
from benchmarks.reports.sequence_report import table
from olsq import attention
from olsq.attention.registry import METHODS, OBJECTIVES, RULES
from olsq.plot.labels import label_lines

INTRO = """\
# The family

Every rule below reads a sequence of keys and values and keeps a small state that maps a key to a
value. Seen that way, all of them are online learners of one regression, and differ in two choices:
what they descend, and how far they go at each token. `olsq.attention` has each as a function
`rule(q, k, v, ...) -> (o, state)` on arrays (batch, time, heads, dim), with `rule_step` for one
token on the same state. This page is made from `olsq.attention.registry` by
`python -m benchmarks.reports.attention_table`; the tests hold its rows against the code.

## The map

"""
AFTER_MAP = """
A gate makes any of them forget: it shrinks the state before the step, which is weight decay of the
loss. Moving right or down costs more per token and remembers more: a delta rule corrects what it
already says about a key, a solve corrects what it says about all of them at once.

Of the newer rules, `gated_delta_product` takes several gradient steps a token, each on a pair of
its own; `kda` takes `gated_delta`'s step after every key dimension has decayed at its own rate.
`comba` steps from the memory before it decays, and takes only a share of what it says for its
answer; `rwkv7` steps from there too and, where it writes what it removes, preconditions the step by
a rate for each key dimension. `forgetting` takes no step: it solves the kernel-weighted average
anew for each query, with gates that discount old samples as they do in `mesa`. `gsa` solves it over
a fixed number of slots, each a leaky average of keys and of values: a gradient step of size 1 - a_m
towards the token on `|k - k_m|^2 / 2 + |v - v_m|^2 / 2`, whatever the other slots hold.
`log_linear_mamba2` takes the gradient step of `mamba2` on the dot product in a memory for each
block of tokens, and a token weighs what it reads of near and far ones. `mamba3` divides that step
between a token and the one before it, and turns all earlier keys by angles that the token says.
`mesa_channel` has a gate per key dimension that takes from what is known of the dimension's
coefficients and leaves them as they are, so that new samples count for more
([why](chunk-exact.md#a-gate-per-key-dimension)).

![One pass over correlated keys](img/family-one-shot.png)

How wrong each memory is about all pairs it was shown, after one to thirty passes over eight
correlated keys of width sixteen. The solve recalls all after one pass, the delta rule needs many,
and steps on the dot product, or along a diagonal only, never do.

## The rules

`S` (V, K) is a head's memory, `o = S q` unless said. K and V are the widths of keys and values.

"""
COSTS = """
## What a token costs

Numbers that a head remembers and flops of one token's update and read (the MesaNet paper's Table 4,
for all rules), for K = V = 64, 1,024 tokens before and a window of 256. "XLA" is its own count for
the compiled one-token form, which also masks what is not finite. The solves here factorise anew at
every token; a state from `olsq.sequence.start_decoding` carries its factor along and needs one to
three conjugate-gradient steps of 4 K K instead of the 2 K K K.

"""
MEASURED = """
## Measured

{date}: {cpu}, {cores} cores, {sgemm} GF/s in a large float32 product, JAX {jax}. One sequence of
4,096 tokens, 8 heads, K = V = 64, float32; one token is on the state after 64 others. Each rule
takes turns with `gla` in one process, best of several rounds: read ratios, not times. Flops are
those of matrix products and factorisations, counted in the traced program
(`benchmarks/support/flops.py`), and the peak is that of large products which took turns too;
elementwise rules (`mamba`, `rg_lru`) work mostly on what is not counted. Errors are the largest of
one head against its float64 recurrence, relative to the largest output.

"""
LATER = """
Rules added since, and two older ones to compare with: processor time over that of `gla`, taking
turns, the same sizes ({date}: {cpu}, {cores} busy cores, JAX {jax}).

"""
GROWTH = """
![Time against length](img/family-time.png)

One head, forward. All but `softmax`, and `forgetting`, are linear in the length; fixed costs show
below 2,048.
"""


def costs():
    sizes = {"K": 64, "V": 64, "T": 1024, "w": 256}
    for rule in RULES:
        terms = (f"{round(c, 2):g} {' '.join(term)}" for term, c in rule.flops.items())
        yield rule, " + ".join(terms), rule.flop_count(**sizes), rule.state_size(**sizes)


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
    head = "| rule | a token | gates | descends | by | paper |"
    body = []
    for r in RULES:
        recurrence, loss = (f"`{escape(text)}`" for text in (r.recurrence, r.loss))
        body.append([f"`{r.name}`", recurrence, r.gates, loss, r.step, r.source])
    return table(head, body)


def escape(text):
    return text.replace("|", "\\|")


def text(cache):
    """The page."""
    lines = [INTRO, *map_of_rules(), AFTER_MAP]
    lines += rows_of_rules()
    lines.append(COSTS)
    body = []
    for rule, formula, count, size in costs():
        measured = cache.get(f"step|{rule.name}")
        xla = f"{measured['flops']:,.0f}" if measured else ""
        body.append([f"`{rule.name}`", f"{size:,}", formula, f"{count:,.0f}", xla])
    lines += table("| rule | remembers | flops | that is | XLA |", body)
    if "about" in cache:
        lines.append(MEASURED.format(**cache["about"]))
        columns = "/ gla | flops / gla | of peak"
        head = f"| rule | forward, ms | {columns} | with backward, ms | {columns} | one token, ms "
        head += "| error |"
        lines += table(head, list(measured_rows(cache)))
    later = {r.name: cache[f"ratio|{r.name}"] for r in RULES if f"ratio|{r.name}" in cache}
    if later:
        lines.append(LATER.format(**next(iter(later.values()))["about"]))
        head = "| rule | forward / gla | with backward / gla | error |"
        lines += table(head, [
            [f"`{name}`", f"{x['forward']:.1f}", f"{x['both']:.1f}", f"{x['error']:.0e}"]
            for name, x in later.items()
        ])  # fmt: skip
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
    if any(k.startswith("growth|") for k in cache):
        growth(cache, out.parent / "img/family-time.png")
    out.write_text(text(cache))


def measured_rows(cache):
    for rule in RULES:
        found, step = cache.get(f"speed|{rule.name}"), cache.get(f"step|{rule.name}")
        if found is None:
            continue
        cells = []
        for mode in ("forward", "both"):
            ms, floor = found[mode]["ms"], found[mode]["gla"]
            cells += [f"{ms:.0f}", f"{ms / floor:.1f}", *work(found[mode])]
        last = f"{step['ms']:.2f}" if step else ""
        yield [f"`{rule.name}`", *cells, last, f"{found['error']:.0e}"]


def work(found):
    """Flops over those of gla, and the share of the peak; empty where flops are not known."""
    flops = found.get("flops")
    if not flops:
        return ["", ""]
    ratio, rate = flops / found["gla_flops"], flops / (found["ms"] / 1e3)
    return [f"{ratio:.1f}", f"{rate / found['peak']:.0%}"]


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
