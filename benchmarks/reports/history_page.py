"""Tables of asv's results over commits; see ``history.py``."""

from __future__ import annotations

import itertools
from collections.abc import Callable


def values_of(found: dict, name: str, keep: Callable[[tuple], tuple | None]) -> dict[tuple, list]:
    """Per kept parameters, the largest value of each commit; parameters as asv writes them."""
    entry = found["benchmarks"].get(name)
    if entry is None:
        return {}
    rows: dict[tuple, list] = {}
    commits = [commit for commit, _, _ in found["commits"]]
    for i, params in enumerate(itertools.product(*entry["params"])):
        key = keep(tuple(p.strip("'") for p in params))
        if key is None:
            continue
        row = rows.setdefault(key, [None] * len(commits))
        for j, commit in enumerate(commits):
            values = entry["values"].get(commit)
            if values and values[i] is not None:
                row[j] = values[i] if row[j] is None else max(row[j], values[i])
    return {key: row for key, row in rows.items() if any(v is not None for v in row)}


def table(found: dict, head: str, rows: dict[tuple, list], form: Callable[[float], str]) -> str:
    """A Markdown table: a column for each commit."""
    commits = [commit for commit, _, _ in found["commits"]]
    lines = [f"| {head} | " + " | ".join(f"`{c}`" for c in commits) + " |"]
    lines.append("|---" * (len(commits) + head.count("|") + 1) + "|")
    for key, row in rows.items():
        cells = ["–" if v is None else form(v) for v in row]
        lines.append("| " + " | ".join([*key, *cells]) + " |")
    return "\n".join(lines)


def two_digits(value: float) -> str:
    """A ratio."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def milliseconds(value: float) -> str:
    """Seconds, in ms, two digits."""
    ms = 1e3 * value
    return f"{ms:.0f}" if ms >= 10 else f"{ms:.2g}"


def times(found: dict) -> dict[tuple, list]:
    """Of streams and of whole sequences: what was timed, its case."""
    named = {
        "rows, one at a time": "online.OneRow.time_partial_fit",
        "predictions, one at a time": "online.OneRow.time_predict",
        "rows, an array": "online.WholeArray.time_fit",
        "coefficients after every row": "paths.Path.time_path",
        "a sequence": "sequence.Solvers.time_solver",
        "a sequence and its gradient": "gradients.Gradients.time_gradient",
        "a token": "decode.Token.time_token",
        "a token, by its factor": "decode.Factor.time_token",
        "a model's token": "layers.Decoding.time_token",
    }
    return {
        (label, ", ".join(key)): row
        for label, name in named.items()
        for key, row in values_of(found, name, everything).items()
    }


def everything(params: tuple) -> tuple:
    return params


def memory_over_empty(found: dict) -> dict[tuple, list]:
    """Peak memory of each case less that of the empty one."""
    rows = values_of(found, "memory.Streams.peakmem_rows", everything)
    empty = rows.pop(("empty",), None)
    if empty is None:
        return {}
    return {
        key: [None if v is None or e is None else v - e for v, e in zip(row, empty, strict=True)]
        for key, row in rows.items()
    }


SECTIONS: tuple[tuple[str, str, str, Callable[[dict], dict], Callable[[float], str]], ...] = (
    (
        "Errors of streams of rows",
        "Last coefficients of 20,000 rows of 8 regressors against one dense float64 solve, next\n"
        "to the largest. At condition 1e6 that solve itself is off by 3e-12.",
        "method | stream",
        lambda f: values_of(f, "accuracy.Online.track_error", everything),
        lambda v: f"{v:.0e}",
    ),
    (
        "Errors of whole sequences",
        "512 tokens in float32, d 32, ridge .25: the largest error of an output, next to the\n"
        "largest output, over four streams (Zipf tokens, AR(1), long runs, one token for ever).\n"
        "Solvers of a fixed number of steps are shown as they are, where it is too few, too.",
        "solver | gate",
        lambda f: values_of(f, "accuracy.Sequence.track_error", lambda p: (p[0], p[2])),
        lambda v: f"{v:.0e}",
    ),
    (
        "Peak memory",
        "Of 200,000 rows of 16 regressors, over a process that holds the rows and the same code\n"
        "and computes nothing; MB. The coefficients of a path alone are 26 MB.",
        "what",
        memory_over_empty,
        lambda v: f"{v / 1e6:.0f}",
    ),
    (
        "Temporaries of compiled programs",
        "Bytes that XLA sets aside beside arguments and results, 2 heads, 512 tokens, d 64; kB.",
        "solver | mode",
        lambda f: values_of(f, "memory.Temporaries.track_temporary_bytes", everything),
        lambda v: f"{v / 1e3:.0f}",
    ),
    (
        "Ratios: many rows at once",
        "16 regressors, processor time of `partial_fit` over one pass through a triangle of P a\n"
        "row, which no update can do without, and over the textbook's recursion, compiled.",
        "over | method",
        lambda f: {
            (label, key[1]): row
            for label in ("traffic", "textbook")
            for key, row in values_of(f, f"online.Ratios.track_over_{label}", everything).items()
        },
        two_digits,
    ),
    (
        "Ratios: paths and windows",
        "A path over learning the same rows, by d; a rolling window over exponential forgetting.",
        "what | case",
        lambda f: {
            **{
                ("path", ", ".join(key)): row
                for key, row in values_of(f, "paths.Ratios.track_over_last", everything).items()
            },
            **{
                ("window", f"d {key[0]}"): row
                for key, row in values_of(
                    f, "rolling.Rolling.track_over_forgetting", everything
                ).items()
            },
        },
        two_digits,
    ),
    (
        "Ratios: sequence solvers",
        "Over gated linear attention, which solves nothing: 2 heads, 512 tokens, d 64.",
        "solver | d | gates",
        lambda f: values_of(f, "sequence.Solvers.track_over_gla", everything),
        two_digits,
    ),
    (
        "Other libraries",
        "Processor time of 300 rows, over olsq's `partial_fit` of them in the same process.",
        "library | d",
        lambda f: values_of(f, "peers.Loops.track_speedup", everything),
        two_digits,
    ),
    (
        "Attention rules",
        "Over gated linear attention's, processor time: 512 tokens, 2 heads of width 32, float32.",
        "rule | mode",
        lambda f: values_of(f, "attention.Rules.track_over_gla", lambda p: p),
        two_digits,
    ),
    (
        "Layers: a training step",
        "Loss and gradient of a model of a million parameters on 2 sequences of 128 tokens, over\n"
        "the same with linear attention, processor time.",
        "mixer",
        lambda f: values_of(f, "layers.Training.track_over_linear", everything),
        two_digits,
    ),
    (
        "Layers: temporaries of a training step",
        "Bytes that XLA sets aside; MB.",
        "mixer",
        lambda f: values_of(f, "layers.Training.track_temporary_bytes", everything),
        lambda v: f"{v / 1e6:.0f}",
    ),
    (
        "Layers: the state after a prompt",
        "Bytes of one stream after 128 tokens; kB.",
        "mixer",
        lambda f: values_of(f, "layers.Decoding.track_state_bytes", everything),
        lambda v: f"{v / 1e3:.0f}",
    ),
    (
        "Gradients",
        "Forward and backward over forward, processor time: 2 heads, 512 tokens, gates 0.999.",
        "solver | d",
        lambda f: values_of(f, "gradients.Gradients.track_over_forward", everything),
        two_digits,
    ),
    (
        "Decoding",
        "`update` and `query` of 8 heads over the same update with a product in place of the\n"
        "solve.",
        "d | arrays",
        lambda f: values_of(f, "decode.Token.track_over_gla", everything),
        two_digits,
    ),
    (
        "Times",
        "Milliseconds on one core, the median of asv's three.",
        "what | case",
        times,
        milliseconds,
    ),
    (
        "What an import brings",
        "Modules in `sys.modules` after `import olsq`.",
        "what",
        lambda f: values_of(f, "startup.Import.track_modules", lambda _: ("modules",)),
        lambda v: f"{v:.0f}",
    ),
)


def every_table(found: dict) -> str:
    """Format every section as a heading, a sentence and a table."""
    parts = []
    for title, words, head, rows_of, form in SECTIONS:
        if rows := rows_of(found):
            parts.append(f"## {title}\n\n{words}\n\n{table(found, head, rows, form)}\n")
    return "\n".join(parts)
