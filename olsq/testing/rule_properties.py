"""The properties of an attention rule, one function each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.testing.backends import compiled
from olsq.testing.findings import Findings

ORACLE, STEP, PREFIX, RESUME = "oracle", "step = rule", "prefix invariance", "resumption"
SEGMENTS, SCALE, PERMUTE = "segments", "scale equivariance", "permutation of targets"
CAUSAL, CAUSAL_SLOPES = "causality", "causality of gradients"
LOOP, JIT = "vmap = loop", "jit = eager"
JVP, VJP = "VJP against JVP", "VJP against oracle"
PROPERTIES = (
    ORACLE,
    STEP,
    PREFIX,
    RESUME,
    SEGMENTS,
    SCALE,
    PERMUTE,
    CAUSAL,
    CAUSAL_SLOPES,
    LOOP,
    JIT,
    JVP,
    VJP,
)

SHAPE = (2, 2, 3, 2)  # B, H, K, V: no two widths equal
STREAMS = ("ordinary", "zeros, resets, absent tokens")
ARRAYS = ("q", "k", "v")
TOKENS = 12  # that are fed one at a time
STRIDE = 1e-5  # of central differences of the oracle; their error is its square and eps over it
DIFFERENCES = 1e-7
Arrays = dict[str, NDArray]


class Subject(NamedTuple):
    """An attention rule under test, with its oracle and the findings."""

    findings: Findings
    rule: Callable[..., Any]
    step: Callable[..., Any] | None
    oracle: Callable[..., Any]
    options: dict[str, Any]
    segmented: bool  # whether it takes segment_ids
    tolerance: float

    def judge(self, name: str, where: str, got: Any, want: Any, size: float = 1.0) -> None:
        """Compare entries up to a multiple of eps of the largest; ``size`` widens that."""
        got, want = np.asarray(got), np.asarray(want)
        eps = float(np.finfo(got.dtype).eps)
        finite = np.abs(want[np.isfinite(want)]).max(initial=0)
        limit = size * self.tolerance * eps * finite
        self.findings.judge(name, f"{got.dtype}: stream {where!r}", got, want, limit)


def select_options(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for which a function has a parameter."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return options
    return {n: x for n, x in options.items() if n in parameters}


def call(s: Subject, arrays: Any, state: Any = None, segment_ids: Any = None) -> Any:
    """Call the rule on a batch; return ``(outputs, state)``."""
    gates = {n: a for n, a in arrays.items() if n not in ARRAYS}
    if state is not None:
        gates["state"] = state
    if segment_ids is not None:
        gates["segment_ids"] = segment_ids
    return s.rule(*(arrays[n] for n in ARRAYS), **gates, **s.options)


def values_of(s: Subject) -> Callable[..., Any]:
    """Return a compiled function of the outputs of a batch, one compilation per shape and dtype."""
    return compiled(lambda arrays: call(s, arrays)[0])


def oracle_outputs(s: Subject, arrays: Arrays, b: int, h: int) -> NDArray:
    """Return the oracle's outputs for one stream of one head."""
    one = {n: np.asarray(a[b, :, h], np.float64) for n, a in arrays.items()}
    streams = [one.pop(n) for n in ARRAYS]
    with np.errstate(all="ignore"):
        got = s.oracle(*streams, **one, **select_options(s.oracle, s.options))
    return np.asarray(got[0] if isinstance(got, tuple) else got)


def window(arrays: Arrays, *cut: int | None) -> Arrays:
    """Slice the tokens of a batch."""
    return {n: a[:, slice(*cut)] for n, a in arrays.items()}


def check_oracle(s: Subject, where: str, arrays: Arrays, o: Any, streams: Any) -> None:
    """Check that outputs (B, T, H, V) are the oracle's in these streams, where that is finite."""
    for b, h in streams:
        want = oracle_outputs(s, arrays, b, h)
        if np.isfinite(want).all():
            s.judge(ORACLE, where, np.asarray(o)[b, :, h], want)


def check_dtype(s: Subject, arrays: Arrays) -> None:
    """Check all properties in float64, and in float32 those that need no other compilation."""
    run = values_of(s)
    o = np.asarray(run(arrays))
    for b, name in enumerate(STREAMS):
        check_oracle(s, name, arrays, o, [(b, h) for h in range(SHAPE[1])])
    compare(s, SCALE, o, np.asarray(run({**arrays, "v": arrays["v"] * 2**10})) / 2**10)
    flipped = np.asarray(run({**arrays, "v": arrays["v"][..., ::-1].copy()}))[..., ::-1]
    compare(s, PERMUTE, o, flipped)
    half = o.shape[1] // 2
    corrupted = {n: a.copy() for n, a in arrays.items()}
    for name, bad in zip(ARRAYS, (np.nan, np.inf, np.nan), strict=True):
        corrupted[name][:, half:] = bad
    compare(s, CAUSAL, o[:, :half], np.asarray(run(corrupted))[:, :half])
    if arrays["q"].dtype != np.float64:
        return
    check_states(s, arrays, o, half)
    check_compilation(s, arrays, o)
    check_derivatives(s, arrays, corrupted, half)
    if s.step is not None and s.findings.is_open(STEP):
        check_step(s, s.step, arrays, o)
    if s.segmented and s.findings.is_open(SEGMENTS):
        check_segments(s, arrays, o, half)


def compare(s: Subject, name: str, want: NDArray, got: NDArray) -> None:
    """Check that outputs (B, T, H, V) equal ``want``, which the rule computed differently."""
    for b, where in enumerate(STREAMS):
        s.judge(name, where, got[b], want[b], 2.0)


def check_states(s: Subject, arrays: Arrays, o: NDArray, half: int) -> None:
    """Check that a prefix alone, and the rest from its state, give the outputs of the whole."""
    if not (s.findings.is_open(PREFIX) or s.findings.is_open(RESUME)):
        return
    head, state = compiled(lambda arrays: call(s, arrays))(window(arrays, None, half))
    compare(s, PREFIX, o[:, :half], np.asarray(head))
    if s.findings.is_open(RESUME):
        tail = compiled(lambda arrays, state: call(s, arrays, state)[0])
        tail_outputs = tail(window(arrays, half, None), state)
        compare(s, RESUME, o[:, half:], np.asarray(tail_outputs))


def check_compilation(s: Subject, arrays: Arrays, o: NDArray) -> None:
    """Check that the uncompiled rule, and each stream alone under vmap, give the same outputs."""
    import jax

    if s.findings.is_open(JIT):
        compare(s, JIT, o, np.asarray(call(s, arrays)[0]))
    if s.findings.is_open(LOOP):
        alone = {n: a[:, None] for n, a in arrays.items()}
        mapped = compiled(jax.vmap(lambda arrays: call(s, arrays)[0]))(alone)
        compare(s, LOOP, o, np.asarray(mapped)[:, 0])


def check_derivatives(s: Subject, arrays: Arrays, corrupted: Arrays, half: int) -> None:
    """Check reverse mode against forward mode, differences of the oracle, and past lost tokens."""
    import jax

    if not any(map(s.findings.is_open, (JVP, VJP, CAUSAL_SLOPES))):
        return
    rng = np.random.default_rng(1)
    shape = arrays["v"].shape
    cotangent = rng.standard_normal(shape)
    direction = {n: rng.standard_normal(a.shape) for n, a in arrays.items()}
    for name, a in arrays.items():  # gates and weights of 0 and 1 stay: beyond is out of range
        if name not in ARRAYS:
            direction[name] *= (a > 0) & (a < 1)

    @compiled
    def derivatives(arrays: Any, cotangent: Any, direction: Any) -> Any:
        def outputs(arrays: Any) -> Any:
            return call(s, arrays)[0]

        _, pull = jax.vjp(outputs, arrays)
        return pull(cotangent)[0], jax.jvp(outputs, (arrays,), (direction,))[1]

    slopes, change = derivatives(arrays, cotangent, direction)
    early = cotangent.copy()
    early[:, half:] = 0
    clean, dirty = (derivatives(a, early, direction)[0] for a in (arrays, corrupted))
    for b, where in enumerate(STREAMS):
        terms = sum((np.asarray(slopes[n][b]) * direction[n][b]).sum() for n in slopes)
        forward = cotangent[b] * np.asarray(change[b])
        size = 1e3 * np.abs(forward).sum() / max(abs(forward.sum()), 1e-300)
        s.judge(JVP, where, terms, forward.sum(), size)
        ends = [
            np.stack(
                [
                    oracle_outputs(s, _move(arrays, direction, sign * STRIDE), b, h)
                    for h in range(SHAPE[1])
                ],
                1,
            )
            for sign in (1, -1)
        ]
        want = (cotangent[b] * (ends[0] - ends[1])).sum() / (2 * STRIDE)
        limit = DIFFERENCES * np.abs(forward).sum()
        s.findings.judge(VJP, f"stream {where!r}", terms, want, limit)
        for n in slopes:
            s.judge(CAUSAL_SLOPES, f"{where} (gradient of {n})", dirty[n][b], clean[n][b], 1e3)


def _move(arrays: Arrays, direction: Arrays, by: float) -> Arrays:
    """Move arrays along a direction."""
    return {n: a + by * direction[n] for n, a in arrays.items()}


def check_step(s: Subject, step: Callable[..., Any], arrays: Arrays, o: NDArray) -> None:
    """Check the one-token form, each token from the state that the last one left."""
    options = select_options(step, s.options)

    @compiled
    def one(arrays: Any, state: Any) -> Any:
        gates = {n: a for n, a in arrays.items() if n not in ARRAYS}
        return step(*(arrays[n] for n in ARRAYS), **gates, **options, state=state)

    # The first token is the rule's: only then does every later one have a state, of one form.
    outputs, state = call(s, window(arrays, None, 1))
    outputs = [np.asarray(outputs[:, 0])]
    for t in range(1, TOKENS):
        out, state = one({n: a[:, t] for n, a in arrays.items()}, state)
        outputs.append(np.asarray(out))
    compare(s, STEP, o[:, :TOKENS], np.stack(outputs, 1))


def check_segments(s: Subject, arrays: Arrays, o: NDArray, half: int) -> None:
    """Check that of two sequences in one row the second does not depend on the first."""
    ids = np.zeros(o.shape[:2], np.int32)
    ids[:, half:] = 1
    got = np.asarray(compiled(lambda arrays: call(s, arrays, segment_ids=ids)[0])(arrays))
    tail = window(arrays, half, None)
    compare(s, SEGMENTS, o[:, :half], got[:, :half])
    for b, where in enumerate(STREAMS):
        for h in range(SHAPE[1]):
            s.judge(SEGMENTS, where, got[b, half:, h], oracle_outputs(s, tail, b, h))
