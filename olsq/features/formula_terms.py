"""Terms of a formula: the variables, lags and levels they use, and the rows without a value."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

# Factors that name one of these decide themselves what a missing value becomes.
FILLING = {
    "fillna",
    "ffill",
    "bfill",
    "interpolate",
    "isna",
    "isnull",
    "notna",
    "notnull",
    "isnan",
    "nan_to_num",
    "where",
    "mask",
}


def lag_depth(parsed: Any) -> int:
    """Return how many rows the formula's lags reach back; ValueError for one that looks ahead."""
    codes = [tree for tree, _, _ in parse_factors(parsed)]
    return max((total_lag(tree.body) for tree in codes), default=0)


def sides_of(formula: Any) -> list[Any]:
    """Return the sides of a formula, or their specifications; of one side, itself."""
    return [getattr(formula, name) for name in ("lhs", "rhs") if hasattr(formula, name)] or [
        formula
    ]


def parse_factors(parsed: Any) -> list[tuple[ast.Expression, dict[str, str], str]]:
    """Parse each factor as Python; return it, the names of its aliases for backquotes, its text."""
    factors = []
    for term in [term for side in sides_of(parsed) for term in side]:
        for factor in term.factors:
            quoted: dict[str, str] = {}
            code = f"`{factor.expr}`" if factor.eval_method.value == "lookup" else factor.expr
            for name in re.findall("`([^`]*)`", code):
                code = code.replace(f"`{name}`", f"_quoted{len(quoted)}_")
                quoted[f"_quoted{len(quoted)}_"] = name
            factors.append((ast.parse(code, mode="eval"), quoted, factor.expr))
    return factors


def list_variables(parsed: Any, columns: list[str]) -> tuple[list[str], list[str]]:
    """List the columns of a frame that a formula uses, and quoted names that are not columns.

    formulaic's own list leaves out what is inside of transforms that learn.
    """
    used, absent = set(), set()
    for tree, quoted, _ in parse_factors(parsed):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                name = quoted.get(node.id, node.id)
                if name in columns:
                    used.add(name)
                elif node.id in quoted:
                    absent.add(name)
    return sorted(used), sorted(absent)


def total_lag(node: ast.AST) -> int:
    """Add up the rows of nested lags at and below a node."""
    inner = max((total_lag(child) for child in ast.iter_child_nodes(node)), default=0)
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lag"):
        return inner
    return inner + own_lag(node)


def own_lag(node: Any) -> int:
    """Return k of a call ``lag(x, k)``; ValueError for one that looks ahead."""
    arguments = node.args[1:2] + [keyword.value for keyword in node.keywords if keyword.arg == "k"]
    try:
        k = ast.literal_eval(arguments[0]) if arguments else 1
    except ValueError:
        k = None
    if not isinstance(k, int) or k < 0:
        raise ValueError(
            f"{ast.unparse(node)}: a lag must be a number of rows >= 0; a negative one looks ahead"
        )
    return k


def has_levels(spec: Any, frame: Any) -> bool:
    """Test whether a side has columns by levels: of C(...), or of variables that are no numbers."""
    kinds = [kind.value for kind, _ in spec.encoder_state.values()]
    names, _ = list_variables(spec.formula, list(frame.columns))
    return "categorical" in kinds or any(frame[n].dtype.kind not in "biuf" for n in names)


def find_missing(spec: Any, joined: Any) -> list[tuple[list[str], Any]]:
    """List the columns of every factor with the rows (n,) that have no value for it.

    A variable is missing, or its lag is; or it has a level that was not learned.
    """
    missing = []
    for tree, quoted, code in parse_factors(spec.formula):
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if names & FILLING:
            continue
        encodings = [
            state for key, (_, state) in spec.encoder_state.items() if same_code(key, code)
        ]
        levels = encodings[0].get("categories") if encodings else None
        rows = mask_missing(tree.body, quoted, joined, levels)
        columns = [
            column
            for structure in spec.structure
            if any(same_code(factor.expr, code) for factor in structure.term.factors)
            for column in structure.columns
        ]
        missing.append((columns, rows))
    return missing


def same_code(one: Any, other: Any) -> bool:
    """Test whether two texts are the same factor, whatever its spaces and backquotes."""
    return re.sub(r"[\s`]", "", str(one)) == re.sub(r"[\s`]", "", str(other))


def mask_missing(node: ast.AST, quoted: dict[str, str], joined: Any, levels: Any) -> Any:
    """Mask the rows (n,) in which an expression has a missing value, or none of ``levels``.

    Levels are those of the variable at the bottom of C(...) and lag(...); None for numbers.
    """
    if isinstance(node, ast.Name):
        name = quoted.get(node.id, node.id)
        if name not in joined:
            return np.zeros(len(joined), np.bool_)
        gone = joined[name].isna().to_numpy()
        return gone if levels is None else gone | ~joined[name].isin(levels).to_numpy()
    called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    inner = levels if called in ("C", "lag") else None
    gone = np.zeros(len(joined), np.bool_)
    for child in ast.iter_child_nodes(node):
        gone = gone | mask_missing(child, quoted, joined, inner)
    if called == "lag":
        k = min(own_lag(node), len(gone))
        gone = np.concatenate([np.ones(k, np.bool_), gone[: len(gone) - k]])
    return gone
