"""The attention rules' own table of draws, called with tensors."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

import olsq.torch

sys.path.append(str(Path(__file__).parent.parent / "attention"))
cases = importlib.import_module("attention_cases")

ROWS = cases.ROWS
FIRST = list({row.rule: row for row in reversed(ROWS)}.values())[::-1]  # one row of every rule


def plain(row, t, dtype=torch.float64, seed=3):
    """Arguments of the plain stream alone, whose gates and weights are inside of their ranges."""
    arrays, _ = cases.arrays_of(row, t, seed)
    if row.rule == "gsa":  # some strengths are 0, below which there are none
        arrays["weight"] = arrays["weight"] + 0.1
    timed = cases.timed(row, arrays)
    return {
        name: torch.tensor(a[:1] if name in timed else a, dtype=dtype) for name, a in arrays.items()
    }


def call(row, arrays, state=None, **options):
    """Call the rule of olsq.torch as the table calls the rule of olsq.attention."""
    held = cases.attention
    cases.attention = olsq.torch
    try:
        return cases.call(row, arrays, state, **options)
    finally:
        cases.attention = held


def tensors_of(tree):
    """Tensors of nested tuples."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [x for part in tree for x in tensors_of(part)] if isinstance(tree, tuple) else []
