"""The check of an estimator that learns row by row: ``check_estimator_stream``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from olsq.testing import estimator_properties as properties
from olsq.testing.estimator_subject import Problem, Subject, least_squares
from olsq.testing.findings import Findings
from olsq.testing.kinds import KINDS, seeded
from olsq.testing.strategies import Regression, regressions

LENGTH, FEATURES, TARGETS = 24, 3, 2
FINITE_ROWS = tuple(k for k in KINDS if k not in ("non-finite", "dtype mixes"))


def check_estimator_stream(
    estimator: Any,
    *,
    objective: Callable[[Any], Problem | None] = least_squares,
    merge: Callable[[Any, Any], Any] | None = None,
    rescale: Callable[[Any, float, float, float], Any] | None = None,
    kinds: Sequence[str] = FINITE_ROWS,
    streams: Mapping[str, Regression] | None = None,
    tolerance: float = 1e4,
    skip: Collection[str] = (),
    max_examples: int = 20,
) -> None:
    """Check an estimator that learns row by row against dense least squares and against itself.

    Parameters
    ----------
    estimator : object
        Not fitted; it is copied, never fed.  It has ``partial_fit(X, y)`` for y (n, m), and then
        ``coef_`` (m, d) and, if it has one, ``intercept_`` (m,).  ``sample_weight`` and ``forget``
        are given to ``partial_fit`` if it has parameters of these names.
    objective : callable, optional
        ``objective(estimator) -> Problem`` says what the estimator minimises, or None if nothing
        is known: then "oracle" is left out.  By default the parameters ``ridge``, ``ridge_mode``,
        ``forget``, ``window`` and ``fit_intercept``, as those of
        :class:`olsq.RecursiveLeastSquares`; None without a parameter ``ridge``.
    merge : callable, optional
        ``merge(first, second) -> estimator``; :func:`olsq.merge` for the estimators of olsq, and
        without one "merging" is left out.
    rescale : callable, optional
        ``rescale(estimator, x, y, weight) -> estimator`` adapts the parameters of a fresh copy to X
        multiplied by x, y by y and weights by weight.  By default ``ridge`` is multiplied by
        ``x^2 weight``; where ``objective`` is not known, X is not multiplied.
    kinds : sequence of str
        Kinds of finite streams; see :func:`olsq.testing.regressions`.  "resets" are left out where
        the factor of a row cannot be chosen.
    streams : mapping of str to Regression, optional
        Streams of finite rows of your own, float64 or float32, in place of one of each kind;
        hypothesis still draws ``kinds``.  Their ``ridge`` is not used: the estimator has one.
    tolerance : float
        The objective may exceed its minimum by this many times eps times its terms, and
        coefficients may differ by as much times the square of the condition number.
    skip : collection of str
        Properties that are not claimed, by name.
    max_examples : int
        Streams that hypothesis draws for "oracle", "chunk invariance" and "merging"; 0 for none.

    Raises
    ------
    AssertionError
        Names every property that failed, the stream, the error and what was allowed.
    ValueError
        If an argument is not one of its choices.

    Notes
    -----
    The properties are "oracle", "prefix invariance" (rows to come change no estimate), "chunk
    invariance" (rows come one by one, in blocks or at once), "resumption" (from a pickled copy, and
    for the estimators of olsq from a file, bit for bit), "merging", "scale equivariance"
    (multiplying X and y scales the coefficients), "units of weights" (multiplying all weights and
    the ridge by a constant, 4e-9 to 3e8, changes no coefficient; of estimators with a ``ridge``
    that take weights), "permutation of targets", "causality" (a row that is not finite is refused
    or skipped, and changes nothing), "absent rows" (a row of weight 0 teaches nothing), "counting"
    (``n_samples_seen_``) and "interruptions" (silent starts, gaps, bursts, and amplitudes over six
    decades, of :func:`olsq.testing.interruption`; gaps where a row may bring its factor).

    Examples
    --------
    >>> import olsq
    >>> from olsq.testing import check_estimator_stream
    >>> check_estimator_stream(olsq.RecursiveLeastSquares(method="sqrt"), max_examples=3)
    """
    findings = Findings("check_estimator_stream", estimator, properties.PROPERTIES, skip)
    if not set(kinds) <= set(FINITE_ROWS):
        raise ValueError(f"kinds must be some of {', '.join(FINITE_ROWS)}, got {kinds!r}")
    subject = Subject(
        findings,
        estimator,
        objective(estimator),
        tolerance,
        _choose_merge(estimator, merge),
        rescale,
    )
    kinds = [k for k in kinds if subject.forgets or k != "resets"]
    if streams is None:
        streams = {
            kind: Regression(kind, *stream[1:3], stream.weight, stream.forget, 0.0)
            for kind, stream in seeded(LENGTH, FEATURES, TARGETS, kinds).items()
        }
    for name, data in streams.items():
        properties.check_stream(subject, data._replace(kind=name))
    properties.check_interruptions(subject)

    def check_drawn(trial: Findings, drawn: Regression) -> None:
        mine = subject._replace(findings=trial)
        properties.check_oracle(mine, drawn)
        properties.check_chunks(mine, drawn)
        properties.check_merging(mine, drawn)

    strategy = regressions(kinds, length=(1, 10), features=(1, FEATURES), targets=TARGETS)
    for name in (properties.ORACLE, properties.CHUNK, properties.MERGE):
        findings.search(name, strategy, check_drawn, max_examples)
    findings.conclude()


def _choose_merge(
    estimator: Any, merge: Callable[[Any, Any], Any] | None
) -> Callable[..., Any] | None:
    """Return the function given, or :func:`olsq.merge` for an estimator of olsq."""
    from olsq.online.estimators.base import StreamingRegressor
    from olsq.online.pieces.merging import merge as own

    if merge is None and isinstance(estimator, StreamingRegressor):
        return own
    return merge
