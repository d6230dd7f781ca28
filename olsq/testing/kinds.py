"""The kinds of streams that break learners, and one seeded stream of each kind."""

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
