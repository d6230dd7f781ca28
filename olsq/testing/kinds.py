"""The kinds of streams that break learners, and sensors that are interrupted; one of each kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The first is what the others shrink to.
KINDS = (
    "ordinary",
    "repeats",
    "runs",
    "zeros",
    "resets",
    "tiny",
    "huge",
    "collinear",
    "non-finite",
    "dtype mixes",
)
FINITE = KINDS[:8]  # kinds of finite numbers of one dtype: what a batch can hold
NAMES = ("keys", "values", "queries", "forget", "weight", "ridge")
MIXED = ("float16", "float32", "float64", "int32")  # dtypes that are mixed
POWER = 6  # tiny and huge tokens of the seeded streams: their norm is 2 ** -6 or 2 ** 6


class Stream(NamedTuple):
    """One stream of T tokens, with the arrays of :func:`olsq.online_lstsq`.

    Attributes
    ----------
    kind : str
        One of ``olsq.testing.KINDS``.
    keys, values, queries : array (T, d), (T, m), (T, d)
    forget, weight : array (T,)
        Gates in [0, 1] and weights >= 0.
    ridge : array (d,)

    Examples
    --------
    >>> from olsq.testing import Stream
    >>> Stream._fields[:3]
    ('kind', 'keys', 'values')
    """

    kind: str
    keys: NDArray
    values: NDArray
    queries: NDArray
    forget: NDArray
    weight: NDArray
    ridge: NDArray


class Breakage(NamedTuple):
    """The free choices of a kind: which tokens break, and how."""

    tokens: NDArray[np.bool_]  # (T,): where it breaks; at least one
    power: int = POWER  # of two: how tiny, how huge
    factor: float = 2.0  # of the column that depends on another
    bad: float = np.nan
    array: str = "keys"  # the one that is not finite
    dtypes: tuple[str, ...] = ("float16", "float32", "float64")  # keys, values, queries


def break_stream(stream: Stream, kind: str, how: Breakage) -> Stream:
    """Turn an ordinary stream into one of the given kind."""
    tokens, arrays = how.tokens, {n: np.array(getattr(stream, n)) for n in NAMES}
    keys, places = arrays["keys"], np.flatnonzero(tokens)
    if kind == "repeats":
        keys[tokens] = keys[places[0]]
    elif kind == "runs":
        keys[places[0] : places[-1] + 1] = keys[places[0]]
    elif kind == "zeros":
        keys[tokens] = 0
    elif kind == "resets":
        arrays["forget"][tokens] = 0
    elif kind in ("tiny", "huge"):
        keys[tokens] *= keys.dtype.type(2.0 ** (how.power if kind == "huge" else -how.power))
    elif kind == "collinear":
        keys[:, -1] = how.factor * keys[:, 0] if keys.shape[1] > 1 else keys[0, 0]
    elif kind == "non-finite":
        arrays[how.array][tokens] = how.bad
    elif kind == "dtype mixes":
        for name, dtype in zip(NAMES, how.dtypes, strict=False):
            is_integer = np.issubdtype(np.dtype(dtype), np.integer)
            arrays[name] = (np.rint(arrays[name]) if is_integer else arrays[name]).astype(dtype)
    return Stream(kind, *arrays.values())


def seeded(length: int, features: int, targets: int, kinds: Any = FINITE) -> dict[str, Stream]:
    """Make one stream of each kind, the same ones every time."""
    result = {}
    for kind in kinds:
        rng = np.random.default_rng([KINDS.index(kind), length, features, targets])
        keys, queries = (rng.standard_normal((length, features)) for _ in range(2))
        stream = Stream(
            "ordinary",
            keys / np.linalg.norm(keys, axis=1, keepdims=True),
            rng.standard_normal((length, targets)),
            queries / np.linalg.norm(queries, axis=1, keepdims=True),
            rng.uniform(0.9, 1.0, length),
            rng.uniform(0.2, 1.0, length),
            rng.uniform(0.2, 0.5, features),
        )
        tokens = rng.uniform(size=length) < 0.3
        tokens[length // 3] = True
        result[kind] = break_stream(stream, kind, Breakage(tokens))
    return result


def stack_streams(streams: Any, dtype: Any) -> dict[str, NDArray]:
    """Stack streams into the arrays of a batch by name: (B, T, d) and so on."""
    return {n: np.stack([getattr(s, n) for s in streams]).astype(dtype) for n in NAMES}


INTERRUPTIONS = (
    "silent start",
    "constant start",
    "noise-free start",
    "gap",
    "bursts",
    "noise rises",
    "noise falls",
    "amplitude rises",
    "amplitude falls",
    "column scales",
)
SIZES = {
    "silent start": (1, 29, 60, 500, 10_000),
    "constant start": (1, 60, 1000),
    "noise-free start": (10, 500),
    "gap": (10, 100, 251, 960, 3000, 100_000),
    "bursts": (10, 250, 960, 100_000),
    "noise rises": (100,),
    "noise falls": (100,),
    "amplitude rises": (20, 200),
    "amplitude falls": (20, 200),
    "column scales": (3, 6, 9, 12),
}
BURSTS = 4  # stretches of rows with gaps between


class Interruption(NamedTuple):
    """A stream of rows with their times and the coefficients that made it.

    Attributes
    ----------
    kind : str
        One of ``olsq.testing.INTERRUPTIONS``.
    size : int
        Rows of the start, half-lives of a gap, the ratio of the noises, or decades.
    X, y : array (n, d), (n,)
    times : array (n,)
        In half-lives; rows are ``1 / 16`` of one apart, except gaps.
    forget : array (n,)
        The factor of each row that these times and a half-life of 1 make; never 0.
    coef, intercept : array (d,), float
        Of which the rows are made from row ``alive`` on.
    alive : int
        The first row of the last stretch of ordinary rows.

    Examples
    --------
    >>> from olsq.testing import Interruption
    >>> Interruption._fields[:2]
    ('kind', 'size')
    """

    kind: str
    size: int
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    times: NDArray[np.float64]
    forget: NDArray[np.float64]
    coef: NDArray[np.float64]
    intercept: float
    alive: int


def interruption(
    kind: str,
    size: int,
    *,
    rows: int = 40,
    features: int = 2,
    noise: float = 0.1,
    intercept: float = 3.0,
    spacing: float = 1 / 16,
    seed: int = 0,
) -> Interruption:
    """Make a seeded stream that starts quiet, pauses, or changes its scale.

    Parameters
    ----------
    kind : str
        "silent start" (``size`` rows of zeros, targets too), "constant start" (``size`` equal rows,
        targets 0), "noise-free start" (``size`` rows without noise), "gap" (of ``size``
        half-lives, after as many rows as before it), "bursts" (four of ``rows`` rows, with such
        gaps between), "noise rises" and "noise falls" (``size`` times, half-way), "amplitude rises"
        and "amplitude falls" (by ``size`` decades, regressors and targets, over 4 ``rows`` rows; no
        intercept),
        "column scales" (neighbouring columns differ by 10 to the power of ``size``).
    size : int
        At least 1.
    rows : int
        Ordinary rows before an event and after it.
    features : int
    noise : float
        Standard deviation of the targets' noise, in units of the regressors' amplitude.
    intercept : float
        Of the ordinary rows, in the same units.
    spacing : float
        Half-lives between neighbouring rows.
    seed : int

    Returns
    -------
    Interruption

    Raises
    ------
    ValueError
        If the kind is unknown, or a number out of range.

    Examples
    --------
    >>> import olsq
    >>> from olsq.testing import interruption
    >>> night = interruption("gap", 300)
    >>> est = olsq.RecursiveLeastSquares(half_life=1.0)
    >>> coef = est.partial_fit(night.X, night.y, times=night.times).coef_
    >>> bool(abs(coef - night.coef).max() < 0.3)
    True
    """
    if kind not in INTERRUPTIONS:
        raise ValueError(f"kind must be one of {', '.join(INTERRUPTIONS)}, got {kind!r}")
    if not (size >= 1 and rows >= 1 and features >= 1):
        raise ValueError(
            f"size, rows and features must be at least 1, got {size}, {rows} and {features}"
        )
    rng = np.random.default_rng([INTERRUPTIONS.index(kind), size, rows, features, seed])
    before, after = _lengths(kind, size, rows)
    n = before + after
    X, coef = rng.standard_normal((n, features)), rng.uniform(0.5, 2.0, features)
    noises, scale, steps = np.full(n, noise), np.ones(n), np.full(n, spacing)
    if kind == "noise-free start":
        noises[:before] = 0.0
    elif kind in ("noise rises", "noise falls"):
        noises[slice(before, None) if kind == "noise rises" else slice(0, before)] *= size
    elif kind in ("amplitude rises", "amplitude falls"):
        decades = np.linspace(-0.5, 0.5, n) * size
        scale = 10.0 ** (decades if kind == "amplitude rises" else -decades)
        intercept = 0.0  # which an amplitude that changes would move
    elif kind == "gap":
        steps[before] = size
    elif kind == "bursts":
        steps[rows::rows] = size
    error = noises * rng.standard_normal(n)
    y = scale * (X @ coef + intercept + error)
    X = scale[:, None] * X
    if kind == "silent start":
        X[:before], y[:before] = 0.0, 0.0
    elif kind == "constant start":
        X[:before], y[:before] = 1.5, 0.0
    elif kind == "column scales":
        powers = 10.0 ** (size * (np.arange(features) - (features - 1) / 2))
        X, coef = X * powers, coef / powers
    forget = np.maximum(np.exp2(-steps), np.finfo(np.float64).tiny)
    forget[0] = 1.0  # nothing lies before the first row
    return Interruption(
        kind, size, X, y, np.cumsum(steps) - steps[0], forget, coef, intercept, before
    )


def _lengths(kind: str, size: int, rows: int) -> tuple[int, int]:
    """Return the number of rows before the last ordinary stretch, and in it."""
    if kind.endswith("start"):
        return size, rows
    if kind == "bursts":
        return (BURSTS - 1) * rows, rows
    if kind.startswith("amplitude"):
        return 0, 4 * rows
    return (0 if kind == "column scales" else rows), rows
