"""The properties of a solver, each checked against the dense oracle or another computation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.problem import Moments
from olsq.solvers import Solver
from olsq.testing.backends import (
    Arrays,
    Backend,
    BatchResults,
    JaxBackend,
    NumpyBackend,
    join_state,
)
from olsq.testing.findings import Findings
from olsq.testing.kinds import Stream, stack_streams
from olsq.testing.truth import (
    STREAMS,
    Truth,
    allowed,
    earlier_state,
    empty_state,
    select_stream,
    slopes,
    solve_densely,
)

ORACLE, PREFIX, CHUNK, RESUME = "oracle", "prefix invariance", "chunk invariance", "resumption"
MERGE, SCALE, PERMUTE = "merging", "scale equivariance", "permutation of targets"
CAUSAL, CAUSAL_SLOPES = "causality", "causality of gradients"
LOOP, JIT, JVP, VJP = "vmap = loop", "jit = eager", "VJP against JVP", "VJP against oracle"
DTYPES, UNCHANGED = "dtype mixes", "arguments unchanged"
PROPERTIES = (
    ORACLE,
    PREFIX,
    CHUNK,
    RESUME,
    MERGE,
    SCALE,
    PERMUTE,
    CAUSAL,
    CAUSAL_SLOPES,
    LOOP,
    JIT,
    JVP,
    VJP,
    DTYPES,
    UNCHANGED,
)

CHUNK_LENGTH = 8  # streams are two whole chunks and a part
POWERS = (-20, 20)  # of two, by which everything is scaled
LEAST_SLOPE = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 3e-5}


class Batch(NamedTuple):
    """Streams of one shape, with the oracle's solution and the errors allowed."""

    names: list[str]
    arrays: Arrays
    state: Moments
    truths: list[Truth]
    allowed: NDArray  # (B, T, 1)
    rounding: NDArray  # (B,): error of a derivative, relative to the largest
    cotangent: NDArray
    direction: Any


class Setting(NamedTuple):
    """One form of a solver on one problem in one dtype, with the findings."""

    findings: Findings
    backend: Backend
    ridge_mode: str
    dtype: Any
    tolerance: float
    stated: Any  # error that a solver states
    comparable: bool  # whether its answer is the oracle's, to rounding or to what it states

    @property
    def label(self) -> str:
        return ", ".join((self.backend.name, self.ridge_mode, np.dtype(self.dtype).name))

    def judge(self, name: str, stream: str, got: Any, want: Any, allowed: Any) -> bool:
        return self.findings.judge(name, f"{self.label}: stream {stream!r}", got, want, allowed)


def with_chunk(solver: Solver, chunk: int) -> Solver | None:
    """Return the solver with another chunk, or None if it is not a dataclass with one."""
    fields = dataclasses.fields(solver) if dataclasses.is_dataclass(solver) else ()
    if not any(f.name == "chunk" for f in fields):
        return None
    return dataclasses.replace(solver, chunk=chunk)  # type: ignore[type-var]


def make_batch(s: Setting, streams: Mapping[str, Stream]) -> Batch:
    """Stack streams, first from nothing, then from earlier moments; solve them by the oracle."""
    eps = float(np.finfo(s.dtype).eps)
    arrays = stack_streams([*streams.values()] * 2, s.dtype)
    starts = empty_state(arrays, s.ridge_mode), earlier_state(arrays, s.ridge_mode)
    count = len(streams)
    pairs = zip(*starts, strict=True)
    state = Moments(*(np.concatenate([x[:count], y[count:]]).astype(s.dtype) for x, y in pairs))
    truths = [
        solve_densely(
            select_stream(arrays, i), s.ridge_mode, [x[i].astype(float) for x in state], s.stated
        )
        for i in range(2 * count)
    ]
    rng = np.random.default_rng(0)

    def noise(x: NDArray) -> NDArray:
        return rng.standard_normal(x.shape).astype(s.dtype)

    gram = noise(state.gram)
    direction = {n: noise(a) for n, a in arrays.items()}
    worst = np.array([t.condition.max() for t in truths])
    stated = np.array([t.stated for t in truths])
    return Batch(
        [*streams, *(f"{name}, from moments" for name in streams)],
        arrays,
        state,
        truths,
        np.stack([allowed(t, eps, s.tolerance) for t in truths]),
        np.maximum(LEAST_SLOPE[np.dtype(s.dtype)], s.tolerance * eps * worst + 10 * stated),
        noise(arrays["values"]),
        (direction, (gram + np.swapaxes(gram, -1, -2), noise(state.cross))),
    )


def window(arrays: Arrays, *cut: int | None) -> Arrays:
    """Slice the tokens of a batch."""
    return {n: a if n == "ridge" else a[:, slice(*cut)] for n, a in arrays.items()}


def differentiate(s: Setting, b: Batch) -> BatchResults:
    """Compute outputs, moments and derivatives of a batch."""
    return s.backend.differentiate(b.arrays, b.state, b.cotangent, b.direction)


def check_oracle(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that outputs and moments are those of a dense solve for each token."""
    eps = float(np.finfo(s.dtype).eps)
    for i, (name, truth) in enumerate(zip(b.names, b.truths, strict=True)):
        if s.comparable:
            s.judge(ORACLE, name, got.value[i], truth.value, b.allowed[i])
        for mine, expected in zip(got.state, truth.state, strict=True):
            limit = 40 * eps * max(np.abs(expected).max(), truth.size.max() * 1e-3)
            s.judge(ORACLE, f"{name} (state)", mine[i], expected, limit)


def check_slopes(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that the gradient is the oracle's."""
    for i, name in enumerate(b.names):
        if b.rounding[i] > 0.1 or not s.comparable:
            continue
        state = [x[i].astype(float) for x in b.state]
        want = slopes(select_stream(b.arrays, i), s.ridge_mode, state, b.cotangent[i].astype(float))
        for part, slope in got.slopes.items():
            limit = b.rounding[i] * np.abs(want[part]).max()
            s.judge(VJP, f"{name} (gradient of {part})", slope[i], want[part], limit)


def check_directions(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that the reverse derivative is the transpose of the forward one."""
    if got.change is None:
        return
    moved = {**b.direction[0], "gram": b.direction[1][0], "cross": b.direction[1][1]}
    for i, name in enumerate(b.names):
        forward = b.cotangent[i].astype(float) * got.change[i]
        terms = [slope[i].astype(float) * moved[n][i] for n, slope in got.slopes.items()]
        size = np.abs(forward).sum() + sum(np.abs(t).sum() for t in terms)
        if np.isfinite(size):
            limit = b.rounding[i] * size
            s.judge(JVP, name, sum(t.sum() for t in terms), forward.sum(), limit)
        else:
            s.findings.fail(JVP, f"{s.label}: stream {name!r}", "a derivative is not finite")


def check_cut(s: Setting, b: Batch, got: BatchResults, other: Backend) -> None:
    """Check prefixes, resumption and merging, in JAX with another chunk (it compiles anyway)."""
    if not any(map(s.findings.is_open, (PREFIX, RESUME, MERGE, CHUNK))):
        return
    trial = Findings("", "", PROPERTIES)
    _compare_halves(s._replace(findings=trial), b, got, other)
    if trial.failures and other is not s.backend:  # is it the chunk, or the cut?
        same = Findings("", "", PROPERTIES)
        _compare_halves(s._replace(findings=same), b, got, s.backend)
        if not same.failures:
            s.findings.fail(CHUNK, *next(iter(trial.failures.values())).split(": ", 1))
        trial = same
    for name, message in trial.failures.items():
        s.findings.fail(name, *message.split(": ", 1))


def _compare_halves(s: Setting, b: Batch, got: BatchResults, form: Backend) -> None:
    """Compare two halves of a batch, one after another and apart, with the whole."""
    half = b.arrays["keys"].shape[1] // 2
    head, tail = window(b.arrays, None, half), window(b.arrays, half, None)
    value, state = form.solve(head, b.state)
    tail_value, last = form.solve(tail, state)
    nothing = Moments(*(x.astype(s.dtype) for x in empty_state(tail, s.ridge_mode)))
    alone = form.solve(tail, nothing)[1]
    kept = tail["forget"].astype(float).prod(1)
    if s.ridge_mode == "discounted":  # the ridge is in both pieces
        alone = Moments(alone.gram - kept[:, None, None] * nothing.gram, alone.cross)
    merged = olsq.merge(state, alone, forget=kept)
    eps = float(np.finfo(s.dtype).eps)
    for i, name in enumerate(b.names):
        s.judge(PREFIX, name, value[i], got.value[i, :half], 2 * b.allowed[i, :half])
        s.judge(RESUME, name, tail_value[i], got.value[i, half:], 3 * b.allowed[i, half:])
        for mine, check in ((last, RESUME), (merged, MERGE)):
            for a, want in zip(mine, b.truths[i].state, strict=True):
                limit = 100 * eps * max(np.abs(want).max(), np.abs(b.state.gram[i]).max())
                s.judge(check, f"{name} (state)", a[i], want, limit)


def check_chunks(s: Setting, b: Batch, got: BatchResults, solver: Solver) -> None:
    """Check that chunks of 1, 3 and all tokens give the same outputs.

    For NumPy only: in JAX each chunk is a compilation.
    """
    for chunk in (1, 3, b.arrays["keys"].shape[1]):
        other = with_chunk(solver, chunk)
        if other is None or not s.findings.is_open(CHUNK):
            return
        value = NumpyBackend(other, s.ridge_mode).solve(b.arrays, b.state)[0]
        for i, name in enumerate(b.names):
            s.judge(CHUNK, f"{name}, chunk={chunk}", value[i], got.value[i], 2 * b.allowed[i])


def check_scale(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that outputs scale by c with keys, queries and values, and the ridge by c squared."""
    for power in POWERS:
        c = np.dtype(s.dtype).type(2.0**power)
        by = {"ridge": c * c, "forget": c / c, "weight": c / c}
        arrays = {n: a * by.get(n, c) for n, a in b.arrays.items()}
        state = Moments(*(x * c * c for x in b.state))
        value = s.backend.differentiate(arrays, state, b.cotangent).value
        for i, name in enumerate(b.names):
            where = f"{name}, times 2**{power}"
            s.judge(SCALE, where, value[i] / c, got.value[i], 2 * b.allowed[i])


def check_targets(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that targets in another order give outputs in that order."""
    arrays = {**b.arrays, "values": b.arrays["values"][..., ::-1].copy()}
    state = Moments(b.state.gram, b.state.cross[..., ::-1, :].copy())
    value = s.backend.differentiate(arrays, state, b.cotangent).value[..., ::-1]
    for i, name in enumerate(b.names):
        s.judge(PERMUTE, name, value[i], got.value[i], 2 * b.allowed[i])


def corrupt(arrays: Arrays, cut: int) -> Arrays:
    """Copy a batch with values that are not finite from token ``cut`` on."""
    corrupted = {n: a.copy() for n, a in arrays.items()}
    bad = np.nan, np.inf, np.nan, np.nan, np.inf
    for name, value in zip((*STREAMS, "forget", "weight"), bad, strict=True):
        corrupted[name][:, cut:] = value
    return corrupted


def check_causality(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that values that are not finite reach no earlier output or gradient."""
    cut = b.arrays["keys"].shape[1] * 3 // 5
    corrupted = corrupt(b.arrays, cut)
    cotangent = b.cotangent.copy()
    cotangent[:, cut:] = 0
    clean = s.backend.differentiate(b.arrays, b.state, cotangent)
    dirty = s.backend.differentiate(corrupted, b.state, cotangent)
    for i, name in enumerate(b.names):
        want = got.value[i].copy()
        want[cut:] = np.nan
        s.judge(CAUSAL, name, dirty.value[i], want, 2 * b.allowed[i])
        for part, slope in dirty.slopes.items():
            limit = 10 * b.rounding[i] * np.abs(clean.slopes[part][i]).max()
            where = f"{name} (gradient of {part})"
            s.judge(CAUSAL_SLOPES, where, slope[i], clean.slopes[part][i], limit)


def check_arguments(s: Setting, b: Batch) -> None:
    """Check that a call and its gradient change no array they are given, finite or not.

    For NumPy only: JAX has no arrays that can change.  Gates, weights, ridge and state are float64
    here whatever the streams are, as the solvers work on them.
    """
    finite = {n: a.astype(s.dtype if n in STREAMS else np.float64) for n, a in b.arrays.items()}
    cut = b.arrays["keys"].shape[1] * 3 // 5
    lost = Moments(*(np.where(x == x.flat[0], np.nan, x) for x in b.state))
    for where, arrays, state in (
        ("finite", finite, b.state),
        ("lost samples", corrupt(finite, cut), b.state),
        ("lost state", finite, lost),
    ):
        state = Moments(*(x.astype(np.float64) for x in state))
        cotangent = b.cotangent.astype(np.float64)
        passed = {**join_state(arrays, state), "cotangent": cotangent}
        before = {n: a.copy() for n, a in passed.items()}
        s.backend.differentiate(arrays, state, cotangent)
        for name, array in passed.items():
            if not np.array_equal(array, before[name], equal_nan=True):
                s.findings.fail(UNCHANGED, s.label, f"{name} was changed ({where})")


def check_batches(s: Setting, b: Batch, got: BatchResults) -> None:
    """Check that a batch gives the outputs of its streams, compiled or not."""
    if not isinstance(s.backend, JaxBackend):
        for i, name in enumerate(b.names):
            alone = {n: a[i : i + 1] for n, a in b.arrays.items()}
            value = s.backend.solve(alone, Moments(*(x[i : i + 1] for x in b.state)))[0]
            s.judge(LOOP, name, value[0], got.value[i], 2 * b.allowed[i])
        return
    if not s.findings.is_open(LOOP) and not s.findings.is_open(JIT):
        return
    fresh = {n: a[: len(b.names) // 2] for n, a in b.arrays.items()}  # without a state
    trial, eager = Findings("", "", PROPERTIES), s.backend.eager(fresh)
    probe = s._replace(findings=trial)
    for i, name in enumerate(b.names[: len(eager)]):
        probe.judge(LOOP, name, eager[i], got.value[i], 2 * b.allowed[i])
    if trial.failures:  # got is compiled and under vmap: which of the two is it?
        plain = s.backend.solve(fresh)[0]
        same = np.allclose(plain, eager, equal_nan=True, rtol=1e-3)
        guilty = LOOP if same else JIT
        s.findings.fail(guilty, *trial.failures[LOOP].split(": ", 1))


def check_mixed(s: Setting, b: Batch) -> None:
    """Check that keys, values and queries of three dtypes are solved in the widest."""
    kinds = {"keys": np.float16, "values": np.float32, "queries": np.float64}
    arrays = {n: a.astype(kinds.get(n, np.float64)) for n, a in b.arrays.items()}
    run: Callable[..., Any] = getattr(s.backend, "eager", None) or s.backend.solve
    value = run(arrays)
    value = value[0] if isinstance(value, tuple) else value
    if value.dtype != np.float64:
        s.findings.fail(DTYPES, s.label, f"outputs of {value.dtype}, expected float64")
    for i, name in enumerate(b.names):
        alone = select_stream(arrays, i)
        truth = solve_densely(alone, s.ridge_mode, empty_state(alone, s.ridge_mode), s.stated)
        limit = allowed(truth, float(np.finfo(np.float64).eps), s.tolerance)
        s.judge(DTYPES, name, value[i], truth.value, limit)
