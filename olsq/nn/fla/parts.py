"""Pairs of a weight of theirs and one of ours, and the conversion of arrays between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
Turn = Callable[[np.ndarray], np.ndarray]


class Form(NamedTuple):
    """Conversion of a weight's layout, in both directions."""

    ours: Turn
    theirs: Turn


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _transposed(x: np.ndarray) -> np.ndarray:
    return x.T


def _negated(x: np.ndarray) -> np.ndarray:
    return -x


PLAIN = Form(_same, _same)
TRANSPOSED = Form(_transposed, _transposed)
NEGATED = Form(_negated, _negated)
TAPS = Form(lambda x: x[:, 0, ::-1].T, lambda x: x.T[:, None, ::-1])


def compose_forms(first: Form, second: Form) -> Form:
    """Compose two forms: ``second`` after ``first``, from theirs to ours."""
    return Form(lambda x: second.ours(first.ours(x)), lambda x: first.theirs(second.theirs(x)))


def shared_by_heads(heads: int) -> Form:
    """Return the form of one vector shared by all heads, repeated in a row per head here."""
    return Form(lambda x: np.tile(x, (heads, 1)), lambda x: x[0])


def by_head(heads: int) -> Form:
    """Return the form of a flat vector that has one row per head here."""
    return Form(lambda x: x.reshape(heads, -1), lambda x: x.reshape(-1))


def by_step(steps: int, heads: int) -> Form:
    """Return the form of channels (step, head, size) on the first axis, (head, step, size) here."""

    def turned(x: np.ndarray, outer: int, inner: int) -> np.ndarray:
        blocks = x.reshape(outer, inner, -1, *x.shape[1:])
        return blocks.swapaxes(0, 1).reshape(x.shape)

    return Form(lambda x: turned(x, steps, heads), lambda x: turned(x, heads, steps))


class Part(NamedTuple):
    """One weight: its name there, its name here, its shape there and its form.

    Several of theirs with one name of ours lie side by side in it, along its last axis.
    """

    theirs: str
    ours: str
    shape: tuple[int, ...]
    form: Form = PLAIN


def linear(theirs: str, ours: str, outputs: int, inputs: int, form: Form = PLAIN) -> Part:
    """Return the part of a projection's weight."""
    return Part(
        f"{theirs}.weight", f"{ours}.weight", (outputs, inputs), compose_forms(form, TRANSPOSED)
    )


def convert_from_fla(parts: Sequence[Part], arrays: Arrays, at: str) -> Arrays:
    """Convert weights to our names and layout; theirs begin with ``at``."""
    converted: dict[str, list[np.ndarray]] = {}
    for part in parts:
        converted.setdefault(part.ours, []).append(part.form.ours(arrays[at + part.theirs]))
    return {name: x[0] if len(x) == 1 else np.concatenate(x, -1) for name, x in converted.items()}


def convert_to_fla(parts: Sequence[Part], arrays: Arrays, at: str) -> Arrays:
    """Convert weights to their names and layout, undoing :func:`convert_from_fla`."""
    count = Counter(part.ours for part in parts)
    taken: Counter[str] = Counter()
    theirs = {}
    for part in parts:
        x = arrays[part.ours]
        if count[part.ours] > 1:
            start = taken[part.ours]
            x = x[..., start : start + part.shape[0]]
            taken[part.ours] += part.shape[0]
        theirs[at + part.theirs] = np.ascontiguousarray(part.form.theirs(x))
    return theirs
