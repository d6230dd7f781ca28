"""The check of a solver of whole sequences: ``check_solver``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from olsq.arrays.checks import check_choice
from olsq.problem import RIDGE_MODES
from olsq.solvers import Solver
from olsq.testing import solver_properties as properties
from olsq.testing.backends import JaxBackend, double_precision
from olsq.testing.backends import backends as forms_of
from olsq.testing.findings import Findings
from olsq.testing.kinds import FINITE, Stream, seeded
from olsq.testing.solver_properties import Setting
from olsq.testing.strategies import streams as drawn_streams
from olsq.testing.truth import StatedError

LENGTH, FEATURES, TARGETS = 20, 3, 2
FULL = np.dtype(np.float64)


def check_solver(
    solver: Solver,
    *,
    ridge_modes: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
    dtypes: Sequence[Any] = (np.float64, np.float32),
    kinds: Sequence[str] = FINITE,
    streams: Mapping[str, Stream] | None = None,
    tolerance: float = 30.0,
    error: StatedError | None = None,
    skip: Collection[str] = (),
    max_examples: int = 20,
) -> None:
    """Check a solver of whole sequences against the dense oracle and against itself.

    Parameters
    ----------
    solver : Solver
        A description; its chunk is made short, so that the streams are several chunks.
    ridge_modes : sequence of str, optional
        Problems to check; those of its description if None.
    backends : sequence of {"numpy", "jax"}, optional
        Forms to check; those that it has if None.
    dtypes : sequence of dtype
        float64, float32 or both.
    kinds : sequence of str
        Kinds of finite streams; see :func:`olsq.testing.streams`.  "resets" are left out of the
        discounted problem, which has no unique solution after them.
    streams : mapping of str to Stream, optional
        Finite streams of your own, all of one shape, in place of one of each kind; hypothesis
        still draws ``kinds``, in their shape.
    tolerance : float
        An output may be wrong by this many times eps times the condition number of its token.
    error : float or callable, optional
        The relative error that a solver which stops early states, or
        ``error(systems, ridge) -> float`` with systems (T, d, d) and ridge (d,) of a stream.
    skip : collection of str
        Properties that are not claimed, by name.
    max_examples : int
        Streams that hypothesis draws for each form, problem and dtype; 0 for none.

    Raises
    ------
    AssertionError
        Names every property that failed, the stream, the error and what was allowed.
    ValueError
        If an argument is not one of its choices, or ``streams`` differ in shape.
    NotImplementedError
        If the solver has no form for a backend that was named.

    Notes
    -----
    The properties are "oracle", "prefix invariance", "chunk invariance", "resumption", "merging",
    "scale equivariance", "permutation of targets", "causality", "causality of gradients",
    "vmap = loop", "jit = eager", "VJP against JVP", "VJP against oracle", "dtype mixes" and
    "arguments unchanged"; the page "Testing your own" says what each means.  A solver that
    ``truncates`` and states no ``error`` is not held against the oracle, and its derivatives are
    those of its steps where ``check_unrolled`` allows that.  In JAX a check takes some seconds for
    each problem and dtype, nearly all of it compilation.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.testing import check_solver
    >>> check_solver(olsq.Dense(), backends=["numpy"], dtypes=[np.float64])
    """
    findings = Findings("check_solver", solver, properties.PROPERTIES, skip)
    modes = solver.ridge_modes if ridge_modes is None else ridge_modes
    for mode in modes:
        check_choice(mode, "ridge_modes", RIDGE_MODES)
    if not set(kinds) <= set(FINITE):
        raise ValueError(f"kinds must be some of {', '.join(FINITE)}, got {kinds!r}")
    if len({tuple(a.shape for a in x[1:]) for x in (streams or {}).values()}) > 1:
        raise ValueError("streams must all have the same shapes; check others in another call")
    if not {np.dtype(x) for x in dtypes} <= {FULL, np.dtype(np.float32)}:
        raise ValueError(f"dtypes must be float64, float32 or both, got {dtypes!r}")
    for mode in modes:
        mode_kinds = [k for k in kinds if not (k == "resets" and mode == "discounted")]
        mode_streams = streams or seeded(LENGTH, FEATURES, TARGETS, mode_kinds)
        for setting in _settings(findings, solver, mode, backends, dtypes, tolerance, error):
            if setting.backend.name == "jax":
                with double_precision():
                    _check(setting, solver, mode_streams, mode_kinds, max_examples)
            else:
                _check(setting, solver, mode_streams, mode_kinds, max_examples)
    findings.conclude()


def _settings(
    findings: Findings,
    solver: Solver,
    mode: str,
    names: Any,
    dtypes: Any,
    tolerance: float,
    error: Any,
) -> list[Setting]:
    """Return one setting per form and dtype of a solver, its chunk made short."""
    comparable, adjoint = error is not None or not solver.truncates, "implicit"
    if not comparable:  # stopping early has a derivative of its own
        try:
            solver.check_unrolled()
            adjoint = "unrolled"
        except ValueError:
            findings.skip |= {properties.JVP}
    short = properties.with_chunk(solver, properties.CHUNK_LENGTH) or solver
    return [
        Setting(findings, backend, mode, dtype, tolerance, error, comparable)
        for backend in forms_of(short, names, mode, adjoint)
        for dtype in dtypes
    ]


def _check(
    s: Setting,
    solver: Solver,
    streams: Mapping[str, Stream],
    kinds: Sequence[str],
    max_examples: int,
) -> None:
    """Check every property of one setting, using each compilation for as many as possible."""
    batch = properties.make_batch(s, streams)
    got = properties.differentiate(s, batch)
    properties.check_oracle(s, batch, got)
    properties.check_slopes(s, batch, got)
    properties.check_directions(s, batch, got)
    properties.check_scale(s, batch, got)
    properties.check_targets(s, batch, got)
    properties.check_causality(s, batch, got)
    if isinstance(s.backend, JaxBackend):
        if np.dtype(s.dtype) == FULL:  # each of these is a compilation
            short = s.backend.solver
            other = JaxBackend(solver, s.ridge_mode) if solver != short else s.backend
            properties.check_cut(s, batch, got, other)
            properties.check_batches(s, batch, got)
    else:
        properties.check_cut(s, batch, got, s.backend)
        properties.check_batches(s, batch, got)
        properties.check_chunks(s, batch, got, solver)
        properties.check_arguments(s, batch)
    if s.comparable and np.dtype(s.dtype) == FULL and s.findings.is_open(properties.DTYPES):
        properties.check_mixed(s, batch)
    _search(s, streams, kinds, max_examples)


def _search(
    s: Setting, streams: Mapping[str, Stream], kinds: Sequence[str], max_examples: int
) -> None:
    """Search with drawn streams, each the first in a batch of one shape."""
    if not s.comparable:
        return
    first, *beside_streams = streams.values()
    (length, features), targets = first.keys.shape, first.values.shape[1]
    beside = dict(zip(list(streams)[1:], beside_streams, strict=True))
    if not isinstance(s.backend, JaxBackend):
        beside = {}

    def check_drawn(trial: Findings, drawn: Stream) -> None:
        batch = properties.make_batch(s, {drawn.kind: drawn, **_rename_beside(beside)})
        got = properties.differentiate(s, batch)
        value, truth = got.value[0], batch.truths[0]
        s._replace(findings=trial).judge(
            properties.ORACLE, drawn.kind, value, truth.value, batch.allowed[0]
        )

    strategy = drawn_streams(list(kinds), length=length, features=features, targets=targets)
    s.findings.search(properties.ORACLE, strategy, check_drawn, max_examples)


def _rename_beside(beside: dict[str, Stream]) -> dict[str, Stream]:
    """Rename the streams beside a drawn one, so that no two have the same name."""
    return {f"{name} beside it": stream for name, stream in beside.items()}
