"""Hypothesis strategies: streams, ordinary ones and those that break learners, and their parts.

Numbers are multiples of a quarter, which every float dtype holds: a stream reads easily when a
test fails, and nothing is wrong with it but what its kind says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag
from olsq.testing.kinds import KINDS, MIXED, Breakage, Stream, break_stream

Size = int | tuple[int, int]  # a size, or its smallest and largest

QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)
FACTORS = (1.0, 0.99, 0.9, 0.5)
WEIGHTS = (1.0, 2.0, 0.25, 0.0)
RIDGES = (1.0, 0.25, 2.0**-6)
POWERS = (4, 6, 8)


class Regression(NamedTuple):
    """A stream of rows with the arrays that an estimator takes.

    Attributes
    ----------
    kind : str
        One of ``olsq.testing.KINDS``.
    X, y : array (n, d), (n, m)
    sample_weight, forget : array (n,)
    ridge : float

    Examples
    --------
    >>> from olsq.testing import Regression
    >>> Regression._fields[1:3]
    ('X', 'y')
    """

    kind: str
    X: NDArray
    y: NDArray
    sample_weight: NDArray
    forget: NDArray
    ridge: float


def _size(size: Size) -> st.SearchStrategy[int]:
    """Return a strategy for a size, fixed or between two."""
    least, most = (size, size) if isinstance(size, int) else size
    if not 1 <= least <= most:
        raise ValueError(f"a size must be at least 1, or (smallest, largest), got {size!r}")
    return st.integers(least, most)


def _filled(shape: Any, elements: st.SearchStrategy[Any], dtype: Any) -> st.SearchStrategy[NDArray]:
    """Return a strategy for arrays in which every entry is drawn."""
    # Without a fill every entry is drawn: else most entries of a long stream would be equal.
    return arrays(np.float64, shape, elements=elements, fill=st.nothing()).map(
        lambda a: a.astype(dtype)
    )


@st.composite
def gates(
    draw: Any, length: Size = (1, 12), *, resets: bool = False, dtype: Any = np.float64
) -> NDArray:
    """Draw forgetting factors (T,): one for all tokens, or one for each.

    Parameters
    ----------
    length : int or (int, int)
        T, or its smallest and largest.
    resets : bool
        Whether some are 0, which forgets everything before their token.
    dtype : dtype

    Returns
    -------
    strategy of array (T,)
        Shrinks towards ones.

    Raises
    ------
    ValueError
        If a size is out of range.

    Examples
    --------
    >>> from olsq.testing import gates
    >>> from hypothesis import find
    >>> find(gates(3), lambda g: True)
    array([1., 1., 1.])
    """
    t = draw(_size(length))
    factors = st.sampled_from((*FACTORS, 0.0) if check_flag("resets", resets) else FACTORS)
    if resets or draw(st.booleans()):
        return draw(_filled(t, factors, dtype))
    return np.full(t, draw(factors), dtype)


@st.composite
def ridges(
    draw: Any, features: Size = (1, 3), *, smallest: float = 2.0**-6, dtype: Any = np.float64
) -> NDArray:
    """Draw ridges (d,): the diagonal of Lambda, at least ``smallest``.

    Parameters
    ----------
    features : int or (int, int)
        d, or its smallest and largest.
    smallest : float
    dtype : dtype

    Returns
    -------
    strategy of array (d,)
        Shrinks towards ones.

    Raises
    ------
    ValueError
        If a size is out of range.

    Examples
    --------
    >>> from olsq.testing import ridges
    >>> from hypothesis import find
    >>> find(ridges(2), lambda r: r.sum() < 2)
    array([1.  , 0.25])
    """
    sizes = st.sampled_from([r for r in RIDGES if r >= smallest] or [smallest])
    return draw(_filled(draw(_size(features)), sizes, dtype))


@st.composite
def streams(
    draw: Any,
    kinds: Any = KINDS,
    *,
    length: Size = (1, 12),
    features: Size = (1, 3),
    targets: Size = (1, 2),
    dtype: Any = np.float64,
) -> Stream:
    """Draw streams that a solver or rule must handle: ordinary ones, and one kind for each break.

    Parameters
    ----------
    kinds : sequence of str
        Which of ``olsq.testing.KINDS``: "ordinary"; "repeats" (a key comes again), "runs" (a key
        stays), "zeros" (keys of 0), "resets" (gates of 0), "tiny" and "huge" (keys scaled by a
        power of two), "collinear" (a column is a multiple of another), "non-finite" (tokens of
        NaN or infinity), "dtype mixes" (keys, values and queries of different dtypes).
    length, features, targets : int or (int, int)
        T, d and m, or the smallest and largest of each.  Fix all three where a function is
        compiled for each shape.
    dtype : dtype
        Of all arrays, but of those that "dtype mixes" mixes.

    Returns
    -------
    strategy of Stream
        Shrinks towards an ordinary stream of few tokens and small numbers.

    Raises
    ------
    ValueError
        If a kind is unknown, or a size out of range.

    Examples
    --------
    >>> from olsq.testing import streams
    >>> from hypothesis import find
    >>> find(streams(["zeros"], length=1, features=1, targets=1), lambda s: True).keys
    array([[0.]])
    """
    unknown = set(kinds) - set(KINDS)
    if unknown or not kinds:
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, got {kinds!r}")
    kind = draw(st.sampled_from([k for k in KINDS if k in kinds]))
    t, d, m = (draw(_size(s)) for s in (length, features, targets))
    if kind == "collinear" and d == 1 and not isinstance(features, int):
        d = min(2, features[1])
    keys, values, queries = (draw(_filled((t, n), QUARTERS, dtype)) for n in (d, m, d))
    stream = Stream(
        kind,
        keys,
        values,
        queries,
        draw(gates(t, dtype=dtype)),
        draw(_filled(t, st.sampled_from(WEIGHTS[:3]), dtype)),
        draw(ridges(d, dtype=dtype)),
    )
    if kind == "ordinary":
        return stream
    return break_stream(stream, kind, draw(_breakages(kind, t)))


@st.composite
def _breakages(draw: Any, kind: str, t: int) -> Breakage:
    """Draw the free choices of a kind, for a stream of t tokens."""
    tokens = np.array(draw(st.lists(st.booleans(), min_size=t, max_size=t)))
    tokens[draw(st.integers(0, t - 1))] = True
    how = Breakage(tokens)
    if kind in ("tiny", "huge"):
        how = how._replace(power=draw(st.sampled_from(POWERS)))
    elif kind == "collinear":
        how = how._replace(factor=draw(st.sampled_from((1.0, -1.0, 2.0))))
    elif kind == "non-finite":
        bad, array = st.sampled_from((np.nan, np.inf, -np.inf)), ("keys", "values", "queries")
        how = how._replace(bad=draw(bad), array=draw(st.sampled_from(array)))
    elif kind == "dtype mixes":
        dtypes = draw(st.lists(st.sampled_from(MIXED), min_size=2, max_size=3, unique=True))
        how = how._replace(dtypes=(*dtypes, dtypes[0])[:3])
    return how


@st.composite
def regressions(
    draw: Any,
    kinds: Any = KINDS,
    *,
    length: Size = (1, 12),
    features: Size = (1, 3),
    targets: Size = (1, 2),
    dtype: Any = np.float64,
) -> Regression:
    """Draw regressors, targets, weights and gates for a streaming estimator, of the same kinds.

    Parameters
    ----------
    kinds, length, features, targets, dtype
        As for :func:`olsq.testing.streams`; "non-finite" rows are so in X or in y.

    Returns
    -------
    strategy of Regression
        Weights may be 0 (but are not all 0); shrinks as streams do.

    Raises
    ------
    ValueError
        If a kind is unknown, or a size out of range.

    Examples
    --------
    >>> from olsq.testing import regressions
    >>> from hypothesis import find
    >>> find(regressions(length=1, features=2, targets=1), lambda r: True).X
    array([[0., 0.]])
    """
    stream = draw(streams(kinds, length=length, features=features, targets=targets, dtype=dtype))
    keys, values = stream.keys, stream.values
    if stream.kind == "non-finite" and np.isfinite(keys).all() and np.isfinite(values).all():
        values = np.where(np.isfinite(stream.queries).all(1)[:, None], values, np.nan)
    weight = draw(_filled(len(keys), st.sampled_from(WEIGHTS), dtype))
    if not weight.any():
        weight[0] = 1
    ridge = draw(st.sampled_from((*RIDGES, 0.0)))
    return Regression(stream.kind, keys, values, weight, stream.forget, ridge)
