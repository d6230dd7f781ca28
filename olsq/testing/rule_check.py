"""The check of an attention rule: ``check_rule``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.testing import rule_properties as properties
from olsq.testing.backends import double_precision
from olsq.testing.findings import Findings
from olsq.testing.kinds import FINITE, Stream
from olsq.testing.rule_properties import SHAPE, Arrays, Subject
from olsq.testing.strategies import streams

Draw = Callable[[np.random.Generator, tuple[int, int, int]], NDArray]
KINDS = ("ordinary", "repeats", "runs", "zeros", "resets", "collinear")
REQUIRED = inspect.Parameter.empty


class Drawn(NamedTuple):
    """Strategies for the arguments with a time axis that a rule takes besides q, k and v."""

    forget: Draw
    weight: Draw


def _gates(rng: np.random.Generator, shape: tuple[int, int, int]) -> NDArray:
    """Draw gates (B, T, H) in (0.6, 1), and of 0, 0.9 and 1 in the last stream."""
    gates = rng.uniform(0.6, 1, shape)
    gates[-1] = rng.choice([0, 1, 1, 0.9], shape[1:])  # the last stream forgets everything
    return gates


def _weights(rng: np.random.Generator, shape: tuple[int, int, int]) -> NDArray:
    """Draw weights (B, T, H) in (0.2, 1), with every third 0 in the last stream."""
    weights = rng.uniform(0.2, 1, shape)
    weights[-1, 1::3] = 0  # and lacks tokens
    return weights


DRAWN = Drawn(_gates, _weights)


def check_rule(
    rule: Callable[..., Any],
    step: Callable[..., Any] | None,
    oracle: Callable[..., Any],
    *,
    options: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Draw] | None = None,
    dtypes: Sequence[Any] = (np.float64, np.float32),
    kinds: Sequence[str] = KINDS,
    length: int = 70,
    tolerance: float = 1000.0,
    skip: Collection[str] = (),
    max_examples: int = 10,
) -> None:
    """Check an attention rule against its recurrence, its one-token form and itself.

    Parameters
    ----------
    rule : callable
        ``rule(q, k, v, **arguments, state=None) -> (output, state)`` in JAX, with q and k
        (B, T, H, K), v and the output (B, T, H, V), and any tree of arrays as state.
    step : callable or None
        One token of it, on arrays without the time axis.  None: not checked.
    oracle : callable
        ``oracle(q, k, v, **arguments) -> (output, state)`` or the output alone, of one stream of
        one head, (T, K), (T, K) and (T, V), in NumPy: a plain loop over the recurrence.
    options : mapping, optional
        Further arguments of all three, as they are; one that the oracle or ``step`` has no
        parameter for is not given to it.
    arguments : mapping, optional
        Arguments (B, T, H) with a time axis: ``name -> draw(rng, (B, T, H))``.  By default gates
        and weights, some of them 0, for the parameters ``forget`` and ``weight`` that it has.
    dtypes : sequence of dtype
        float64, float32 or both.
    kinds : sequence of str
        Kinds of streams that hypothesis draws, keys scaled to length 1.
    length : int
        T: more than a chunk of the rule.
    tolerance : float
        An output may be wrong by this many times eps times the largest output.
    skip : collection of str
        Properties that are not claimed, by name.
    max_examples : int
        Streams that hypothesis draws; 0 for none.

    Raises
    ------
    AssertionError
        Names every property that failed, the stream, the error and what was allowed.
    ValueError
        If an argument is not one of its choices.

    Notes
    -----
    The properties are "oracle", "step = rule", "prefix invariance", "resumption", "segments" (if
    it takes ``segment_ids``), "scale equivariance" and "permutation of targets" (of the values'
    channels), "causality", "causality of gradients", "vmap = loop", "jit = eager", "VJP against
    JVP" and "VJP against oracle" (against central differences of the oracle).  Skip those that are
    not the rule's: a rule that normalises values is not equivariant to their scale, and a plain
    ``lax.scan`` multiplies a gradient of 0 by a future that is not finite.  A check is about ten
    compilations.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> from olsq.testing import check_rule
    >>> def mean(q, k, v, *, state=None):
    ...     total, count = (0.0, 0) if state is None else state
    ...     totals = total + jnp.cumsum(v, 1)
    ...     counts = count + 1 + jnp.arange(v.shape[1])[:, None, None]
    ...     return totals / counts, (totals[:, -1:], counts[-1])
    >>> def oracle(q, k, v):
    ...     return np.array([v[: t + 1].mean(0) for t in range(len(v))])
    >>> check_rule(mean, None, oracle, max_examples=0)
    """
    findings = Findings("check_rule", _Named(rule), properties.PROPERTIES, skip)
    if not set(kinds) <= set(FINITE):
        raise ValueError(f"kinds must be some of {', '.join(FINITE)}, got {kinds!r}")
    parameters = inspect.signature(rule).parameters
    draws = (
        dict(arguments)
        if arguments is not None
        else {
            n: d for n, d in DRAWN._asdict().items() if n in parameters and n not in (options or {})
        }
    )
    settings = dict(options or {})
    missing = [
        n
        for n, p in parameters.items()
        if p.kind is p.KEYWORD_ONLY and p.default is REQUIRED and n not in (*settings, *draws)
    ]
    if missing:
        raise ValueError(f"options must hold what the rule needs: {', '.join(missing)}")
    subject = Subject(
        findings, rule, step, oracle, settings, "segment_ids" in parameters, tolerance
    )
    arrays = _make_arrays(draws, length)
    with double_precision():
        for dtype in dtypes:
            properties.check_dtype(subject, {n: a.astype(dtype) for n, a in arrays.items()})
        _search(subject, arrays, kinds, "forget" in draws, max_examples)
    findings.conclude()


class _Named:
    """A function whose repr is its name."""

    def __init__(self, function: Any) -> None:
        self.name = getattr(function, "__name__", repr(function))

    def __repr__(self) -> str:
        return self.name


def _make_arrays(draws: dict[str, Draw], length: int) -> Arrays:
    """Make an ordinary stream, and one with zero keys, resets and absent tokens; two heads each."""
    rng = np.random.default_rng(0)
    b, h, width, out = SHAPE
    k = rng.standard_normal((b, length, h, width))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    k[-1, ::4] = 0
    q, v = (rng.standard_normal((b, length, h, n)) for n in (width, out))
    return {"q": q, "k": k, "v": v, **{n: d(rng, (b, length, h)) for n, d in draws.items()}}


def _search(s: Subject, arrays: Arrays, kinds: Sequence[str], forgets: bool, count: int) -> None:
    """Search with drawn streams in place of the first one: one shape, one compilation."""
    kinds = [k for k in kinds if forgets or k != "resets"]
    length = arrays["q"].shape[1]
    run = properties.values_of(s)

    def check_drawn(trial: Findings, drawn: Stream) -> None:
        changed = {n: a.copy() for n, a in arrays.items()}
        norm = np.linalg.norm(drawn.keys, axis=1, keepdims=True)
        new = {
            "q": drawn.queries,
            "k": drawn.keys / np.where(norm > 0, norm, 1),
            "v": drawn.values,
            "forget": drawn.forget,
        }
        for name, x in new.items():
            if name in changed:
                changed[name][0, :, 0] = x
        mine = s._replace(findings=trial)
        properties.check_oracle(mine, drawn.kind, changed, run(changed), ((0, 0),))

    _, _, width, out = SHAPE
    strategy = streams(kinds, length=length, features=width, targets=out)
    s.findings.search(properties.ORACLE, strategy, check_drawn, count)
