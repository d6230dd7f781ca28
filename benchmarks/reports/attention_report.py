"""Tables and figures of the attention rules: the registry in docs/the-family.md, and the results
of ``attention_table.py`` in docs/measurements/sequences.md."""

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

MEASURED = "{date}: {cpu}, {cores} cores, JAX {jax}."
ERRORS = """\
The largest error of an output against the rule's float64 recurrence is at most {usual:.0e} of the
largest output, except for {others}."""
WAYS = ("forward", "both")
SIZES = {"K": 64, "V": 64, "T": 1024, "w": 256}  # at which a state is counted
USUAL = 1e-6  # an error of an output that needs no mention


def map_of_rules():
    """Return the two choices as a table: objectives down, methods across."""
    body = []
    for objective in OBJECTIVES:
        cells = []
        for method in METHODS:
            inside = [f"`{r.name}`" for r in RULES if r.place == (objective, method)]
            cells.append(", ".join(inside))
        body.append([f"**{objective}**", *cells])
    return "\n".join(table("| descends | " + " | ".join(METHODS) + " |", body))


def rows_of_rules():
    """Return the registry as a table."""
    body = [[f"`{r.name}`", f"`{escape(r.recurrence)}`"] for r in RULES]
    return "\n".join(table("| rule | per token |", body))


def escape(text):
    return text.replace("|", "\\|")


def costs_of_rules(cache):
    """Return the sizes of the states, the measured costs of every rule, and the machine."""
    head = "| rule | remembers | forward / gla | with backward / gla | per token, ms |"
    costs = "\n".join(table(head, list(cost_rows(cache))))
    return "\n\n".join([costs, errors_text(cache), MEASURED.format(**cache["about"])])


def draw(cache, folder):
    """Draw the figures of the attention rules."""
    one_shot(folder / "family-one-shot.png")
    attention_map.main(folder / "family-map.png")
    if any(k.startswith("growth|") for k in cache):
        growth(cache, folder / "family-time.png")


def measured(cache, name):
    """Return a rule's ratios to gla and its error."""
    found = cache[f"speed|{name}"]
    return {m: found[m]["ms"] / found[m]["gla"] for m in WAYS} | {"error": found["error"]}


def cost_rows(cache):
    """Yield the size of every rule's state and its measured costs."""
    for rule in RULES:
        found, step = measured(cache, rule.name), cache.get(f"step|{rule.name}")
        times = [f"{found[way]:.1f}" for way in WAYS]
        token = f"{step['ms']:.2f}" if step else ""
        yield [f"`{rule.name}`", f"{rule.state_size(**SIZES):,}", *times, token]


def errors_text(cache):
    """State the largest usual error, and those of the rules that have more."""
    errors = {r.name: measured(cache, r.name)["error"] for r in RULES}
    others = [f"`{n}` ({errors[n]:.0e})" for n in sorted(errors, key=errors.get)
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
    label_lines(axes, fontsize=8)
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
