"""Tables and figures of the stability results, put into ``docs/measurements/accuracy.md``."""

from __future__ import annotations

import numpy as np

from ..support import machine
from ..support.peers import OLSQ, PEERS
from ..support.stability_cases import CONDITIONS, special_cases, table_name
from . import rolling_drift
from .numerics_figures import draw
from .registry import write_blocks

SHOWN_FORGETS = [0.99, 1.0]  # the page's; the others fail after proportionally many rows
FLOAT32_METHODS = [*OLSQ, *(name for name in PEERS if "textbook" in name)]


def count(n: int) -> str:
    """Row counts as people write them: 950, 15.7k, 1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def cell(record: dict | None) -> str:
    """One cell: what became of the method, and how exact it was at the end."""
    if record is None:
        return "-"
    lost = "" if record["lost_at"] is None else f"*lost* {count(record['lost_at'])}"
    if record["status"] != "ok":
        what = "NaN" if record["status"] == "nonfinite" else "raises"
        return f"{lost}{', ' if lost else ''}**{what}** {count(record['at'])}"
    text = f"{lost} ({record['error']:.0e})" if lost else f"{record['error']:.0e}"
    if record["moved"] is not None:
        text += f"; moved {record['moved']:.0e}"
    return text + (f" (n {count(record['n'])})" if record.get("short") else "")


def _table(names: list[str], rows: list[tuple[str, dict]]) -> str:
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for label, cells in rows:
        lines.append(f"| {label} | " + " | ".join(cell(cells.get(n)) for n in names) + " |")
    return "\n".join(lines)


def main_table(cells: dict, dtype: type, methods: list[str]) -> str:
    """Condition numbers by forgetting factors for one data type."""
    full = 1_000_000 if dtype is np.float64 else 100_000
    rows = []
    for forget in SHOWN_FORGETS if dtype is np.float64 else SHOWN_FORGETS[:1]:
        for cond in CONDITIONS:
            found = cells.get(table_name(dtype, cond, forget), {})
            for record in found.values():
                record["short"] = record["status"] == "ok" and record["n"] < full
            rows.append((f"{forget}, {cond:.0e}", found))
    return _table(methods, rows)


def tables(results: dict) -> dict[str, str]:
    """The marked parts of the page."""
    cells = results["cells"]
    everyone = [*OLSQ, *PEERS]  # ours first: a page need not be scrolled to see them
    facts, ours = results["machine"]["peers"], results["machine"]["olsq"]
    words = machine.sentence(facts, *(name for name in PEERS if name in facts["versions"]))
    words += f" olsq's own numbers: {ours['date']}, {ours['cpu']}."
    special = [(case.name, cells.get(case.name, {})) for case in special_cases()]
    streaming = [name for name in everyone if name != "statsmodels"]
    rolling = []
    for name, (_, rows) in rolling_drift.STREAMS.items():
        found = cells.get(f"rolling {name}", {})
        for record in found.values():
            record["short"] = record["n"] < rows
        rolling.append((f"{name}, {count(rows)} rows", found))
    return {
        "machine": words,
        "float64": main_table(cells, np.float64, everyone),
        "float32": main_table(cells, np.float32, FLOAT32_METHODS),
        "special": _table(streaming, special),
        "rolling": _table(list(rolling_drift.METHODS), rolling),
    }


def write(results: dict) -> None:
    """Rewrite the marked parts of the page and its figures."""
    write_blocks("stability", results)
    draw()
