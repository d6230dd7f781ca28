"""Counts of a compiled program, read from its text: kernels, iterations, flops, bytes, arrays.

The program is compiled for the CPU of this machine and never run. A fusion or product of it stands
for a kernel of an accelerator, whose compiler fuses by other rules but not much less or more.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import jax

from olsq.sequence.jax.chunk_exact import CORRECTIONS
from olsq.sequence.jax.factor import ROUNDS

# Most of a compilation is code generation, which the text of the optimised program does not need.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Iterations of loops that a scope names; gates of .99 to 1 take 4 corrections at 64 tokens a chunk.
USUAL = {ROUNDS: 1, CORRECTIONS: 4}
FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier",
}  # fmt: skip
SUMS = {"dot", "reduce", "reduce-window", "gather", "custom-call", "sort", "scatter"}
WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "s64": 8, "u64": 8, "f64": 8}
LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
NAME = re.compile(r"%([\w.\-]+)")


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    op: str
    operands: tuple[str, ...]
    rest: str
    root: bool

    def called(self, key: str) -> str:
        """Return the computation of an attribute such as ``body=%name``."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.rest)
        assert found, (key, self.rest[:200])
        return found[1]

    def branches(self) -> list[str]:
        """Return the computations of a conditional, false before true."""
        found = re.search(r"branch_computations=\{([^}]*)\}", self.rest)
        if found:
            return [x.strip().lstrip("%") for x in found[1].split(",")]
        return [self.called("false_computation"), self.called("true_computation")]


class Counts(NamedTuple):
    """What one run of a program does."""

    kernels: float = 0
    iterations: float = 0  # of all loops, those inside others too
    flops: float = 0  # of matrix products
    bytes: float = 0  # read and written by kernels
    largest: float = 0  # bytes of the largest array that is not an argument
    open_loops: int = 0  # whose length the program does not say

    def plus(self, other: Counts, times: float = 1) -> Counts:
        """Add ``times`` runs of another program."""
        sums = [a + times * b for a, b in zip(self[:4], other[:4], strict=True)]
        return Counts(*sums, max(self.largest, other.largest), self.open_loops + other.open_loops)


def sizes(shape: str) -> list[tuple[int, int]]:
    """Return (numbers, bytes) of each array of a shape."""
    found = []
    for kind, dims in ARRAY.findall(shape):
        numbers = math.prod(int(d) for d in dims.split(",") if d)
        found.append((numbers, numbers * WIDTHS.get(kind, 4)))
    return found


def bytes_of(shape: str) -> int:
    """Return the bytes of all arrays of a shape."""
    return sum(size for _, size in sizes(shape))


def parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Return the computations of a program's text by name, and the name of the first."""
    computations: dict[str, list[Instruction]] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if not line.startswith(" ") and line.endswith("{") and not line.startswith("HloModule"):
            words = line.split()
            current = words[1 if words[0] == "ENTRY" else 0].lstrip("%").split("(")[0]
            entry = current if words[0] == "ENTRY" else entry
            computations[current] = []
            continue
        found = LINE.match(re.sub(r"/\*.*?\*/", "", line))
        if found and current:
            root, name, shape, op, rest = found.groups()
            inside, depth = rest, 1
            for at, letter in enumerate(rest):
                depth += (letter == "(") - (letter == ")")
                if not depth:
                    inside = rest[:at]
                    break
            operands = tuple(NAME.findall(inside))
            computations[current].append(Instruction(name, shape, op, operands, rest, bool(root)))
    return computations, entry


class Program:
    """Counter over the computations of one program."""

    def __init__(self, text: str, steps: int = 1):
        self.steps = steps  # of loops that go on until something holds
        self.computations, self.entry = parse(text)
        self.done: dict[str, Counts] = {}

    def count(self, name: str | None = None) -> Counts:
        """Count one run of a computation, by default of the whole program."""
        name = self.entry if name is None else name
        if name not in self.done:
            shapes = {i.name: i.shape for i in self.computations[name]}
            total = Counts()
            for instruction in self.computations[name]:
                total = total.plus(self._one(instruction, shapes))
            self.done[name] = total
        return self.done[name]

    def _one(self, i: Instruction, shapes: dict[str, str]) -> Counts:
        if i.op in FREE:
            return Counts()
        if i.op == "while":
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', i.rest)
            body = self.count(i.called("body"))
            usual = [n for loop, n in USUAL.items() if f'{loop}/while"' in i.rest]
            n = int(trips[1]) if trips else usual[0] if usual else self.steps
            return Counts(iterations=n, open_loops=0 if trips or usual else 1).plus(body, n)
        if i.op == "conditional":
            return Counts(kernels=1).plus(self.count(self._usual(i.branches())))
        if i.op == "call":
            return self.count(i.called("to_apply"))
        moved = sum(bytes_of(shapes.get(x, "")) for x in i.operands) + bytes_of(i.shape)
        if i.op == "dynamic-slice":
            moved = 2 * bytes_of(i.shape)
        elif i.op == "dynamic-update-slice":
            moved = 2 * bytes_of(shapes[i.operands[1]])
        flops = self._product(i, shapes) if i.op == "dot" else 0
        if i.op == "fusion":
            inside = self.computations[i.called("calls")]
            within = {x.name: x.shape for x in inside}
            flops = sum(self._product(x, within) for x in inside if x.op == "dot")
            moved = self._moved(inside, within)
        largest = max((size for _, size in sizes(i.shape)), default=0)
        return Counts(1, 0, flops, moved, largest)

    def _usual(self, branches: list[str]) -> str:
        """Choose the branch of mild gates: no special care.

        A branch is taken by ``lax.cond`` if its predicate holds, and all predicates of olsq ask
        whether something is harsh, lost or indefinite.
        """
        return branches[0]

    @staticmethod
    def _product(i: Instruction, shapes: dict[str, str]) -> int:
        dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.rest)
        left = ARRAY.search(shapes[i.operands[0]])
        assert dims, i
        assert left, i
        sides = [int(d) for d in left[2].split(",") if d]
        return 2 * sizes(i.shape)[0][0] * math.prod(sides[int(d)] for d in dims[1].split(",") if d)

    @staticmethod
    def _moved(inside: list[Instruction], shapes: dict[str, str]) -> int:
        """Count what a fusion reads and writes: of an array that it slices, the slice.

        A fusion without sums reads no more of an array than one number for each that it writes.
        """
        total = 0
        root = next(x for x in inside if x.root)
        sums = any(x.op in SUMS for x in inside)
        most = math.inf if sums else sum(numbers for numbers, _ in sizes(root.shape))
        for one in inside:
            if one.op == "parameter":
                uses = _uses(one.name, inside)
                cut = [x for x in uses if x.op in ("dynamic-slice", "slice")]
                into = [x for x in uses if x.op == "dynamic-update-slice"]
                into = [x for x in into if x.operands[0] in (one.name, *_views(one.name, inside))]
                if uses and len(cut) + len(into) == len(uses):
                    total += sum(bytes_of(x.shape) for x in cut)
                else:
                    numbers, size = sizes(one.shape)[0] if sizes(one.shape) else (1, 0)
                    total += size * min(1, most / max(numbers, 1))
        by_name = {x.name: x for x in inside}
        outs = [by_name[x] for x in root.operands] if root.op == "tuple" else [root]
        for out in outs:
            written = shapes[out.operands[1]] if out.op == "dynamic-update-slice" else out.shape
            total += bytes_of(written)
        return total


def _views(name: str, inside: list[Instruction]) -> list[str]:
    """List what is the array ``name`` in another shape or order."""
    views: list[str] = []
    for one in inside:  # in order of definition
        seen = one.operands and one.operands[0] in (name, *views)
        if seen and one.op in ("bitcast", "reshape", "transpose", "copy", "convert"):
            views.append(one.name)
    return views


def _uses(name: str, inside: list[Instruction]) -> list[Instruction]:
    """List what reads the array ``name``, also in another shape."""
    views = _views(name, inside)
    return [x for x in inside if x.name not in views and {name, *views} & set(x.operands)]


def count_program(function, *shapes, steps: int = 1) -> dict[str, float]:
    """Compile ``function`` for arrays of these shapes, without running it, and count."""
    compiled = jax.jit(function).trace(*shapes).lower().compile(compiler_options=QUICK)
    found = Program(compiled.as_text(), steps).count()._asdict()
    memory = compiled.memory_analysis()
    return found | {"temporary": float(memory.temp_size_in_bytes)}
