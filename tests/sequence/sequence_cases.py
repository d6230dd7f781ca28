"""The one table: streams that break solvers, and what each solver claims on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import olsq
from olsq.reference import sequence as oracle
from olsq.testing import Stream

T, D, M = 38, 5, 3  # neither T nor T / 2 is a multiple of a chunk, and d != m
EPS = {np.float64: 1.1e-16, np.float32: 6e-8}


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def streams(seed=0):
    """name -> (keys, values, queries, forget, weight, ridge (d,)); all finite, all T long."""
    rng = np.random.default_rng(seed)

    def base(gate=1.0, ridge=0.25, keys=None, weight=None):
        k = unit(rng.normal(size=(T, D))) if keys is None else keys
        return {
            "keys": k,
            "values": rng.normal(size=(T, M)),
            "queries": unit(rng.normal(size=(T, D))),
            "forget": np.broadcast_to(gate, (T,)).astype(float),
            "weight": rng.uniform(0.2, 1, T) if weight is None else weight,
            "ridge": ridge * rng.uniform(1, 2, D),
        }

    vocabulary = unit(rng.normal(size=(20, D)))
    zipf = vocabulary[np.minimum(rng.zipf(1.3, T), 20) - 1] + 0.03 * rng.normal(size=(T, D))
    runs = vocabulary[np.arange(T) // 12]
    walk = np.zeros((T, D))
    for t in range(1, T):
        walk[t] = 0.95 * walk[t - 1] + 0.3 * rng.normal(size=D)
    zeros = unit(rng.normal(size=(T, D))) * (np.arange(T) % 4 != 0)[:, None]
    at = np.arange(T)
    mild = {
        "plain": base(),
        "zipf .999": base(0.999, keys=zipf),
        "one token": base(0.9999, keys=np.tile(vocabulary[0], (T, 1))),
        "runs": base(0.9999, keys=runs),
        "walk .99": base(0.99, keys=walk),
        "zero keys": base(0.995, keys=zeros),
        "small ridge": base(0.999, ridge=1e-4),
        "weights 0": base(0.99, weight=(at % 3 == 0) * 1.0),
    }
    harsh = {
        "half .9": base(0.9),
        "strong .7": base(0.7, keys=zipf),
        "resets": base(np.where(np.isin(at, [0, 9, 20]), 0.0, 0.999)),
        "resets in one chunk": base(np.where(np.isin(at, [17, 19, 22, 29]), 0.0, 1.0)),
        "near reset": base(np.where(at == 13, 1e-12, 0.9999), keys=runs),
        "any gate": base(rng.uniform(0, 1, T)),
        "mixed gates": base(np.where(rng.uniform(size=T) < 0.2, rng.uniform(0, 1, T), 1.0)),
        "small ridge .9": base(0.9, ridge=1e-4, keys=runs),
    }
    return mild, harsh


@dataclass(frozen=True)
class Row:
    """One solver's claims: a new solver is one more row."""

    name: str
    solver: Any  # dtype -> solver
    modes: tuple[str, ...] = ("fixed", "discounted")
    rate: Any = None  # (systems, ridge) -> stated relative error of a fixed number of steps
    unrolls: bool = True  # its iterations can be differentiated
    unrolled_error: Any = None  # dtype -> what stopping them leaves of their derivative
    skip: frozenset[str] = frozenset()  # streams it does not claim
    no_gradients: frozenset[str] = frozenset()  # streams whose implicit derivatives it does not
    walks_back: bool = False  # its implicit derivative, from the last state: lost with that


def tight(dtype):
    return 1e-14 if dtype == np.float64 else 3e-7


def chebyshev_rate(steps):
    def rate(systems, ridge):
        high, low = np.trace(systems, axis1=-2, axis2=-1).max() + ridge.max(), ridge.min()
        root = np.sqrt(high / low)
        return 2 * root * ((root - 1) / (root + 1)) ** (steps + 1)

    return rate


def neumann_rate(terms):
    def rate(systems, ridge):
        high, low = np.trace(systems, axis1=-2, axis2=-1).max(), np.linalg.eigvalsh(systems).min()
        return high / low * (1 - low / (high + ridge.max())) ** terms

    return rate


ROWS = [
    Row("chunk-exact", lambda dtype: olsq.ChunkExact(chunk=16)),  # the default solver
    Row("dense", lambda dtype: olsq.Dense(chunk=16)),
    Row(
        "recursive",
        lambda dtype: olsq.Recursive(chunk=16),
        ("discounted",),
        skip=frozenset({"small ridge"}),
    ),
    Row(
        "recursive, reverse walk",
        lambda dtype: olsq.Recursive(reverse=True, chunk=16),
        ("discounted",),
        skip=frozenset({"small ridge"}),
        no_gradients=frozenset({"one token", "runs"}),  # where one sample says all: its docstring
        walks_back=True,
    ),
    Row(
        "cg",
        lambda dtype: olsq.ConjugateGradient(80, tight(dtype), chunk=16),
        unrolled_error=lambda dtype: 4 * tight(dtype) ** 0.5,  # see its docstring
    ),
    Row(
        "cg, chunk",
        lambda dtype: olsq.ConjugateGradient(80, tight(dtype), chunk=16, preconditioner="chunk"),
        unrolls=False,
    ),
    Row(
        "chebyshev",
        lambda dtype: olsq.Chebyshev(200, chunk=16),
        ("fixed",),
        rate=chebyshev_rate(200),
    ),
    Row("neumann", lambda dtype: olsq.Neumann(4000, chunk=16), rate=neumann_rate(4000)),
]
PAIRS = [(row, mode) for row in ROWS for mode in row.modes]
IDS = [f"{row.name}-{mode}" for row, mode in PAIRS]
# What else a test of all rows takes; others are slow.
LEADING = ("chunk-exact-fixed", "chunk-exact-discounted", "cg-fixed", "recursive-discounted")
# The rows of tests that compile several programs each: the default, and a discounted problem.
LED = [
    pytest.param(*pair, id=name, marks=() if name in LEADING[::3] else pytest.mark.slow)
    for pair, name in zip(PAIRS, IDS, strict=True)
]


def claims(row, mode):
    """The stream groups this row claims in this mode; a group keeps its size.

    The discounted problem forgets its ridge: after a reset it has no unique solution until d
    samples later, so the harsh gates are a fixed-ridge matter.
    """
    groups = streams()[: 2 if mode == "fixed" else 1]
    return [{n: s for n, s in group.items() if n not in row.skip} for group in groups]


def for_checks(group, without=()):
    """A group as :func:`olsq.testing.check_solver` takes it."""
    return {n: Stream(n, **s) for n, s in group.items() if n not in without}


def stack(group, dtype=np.float64):
    names = ("keys", "values", "queries", "forget", "weight", "ridge")
    return {n: np.stack([s[n] for s in group.values()]).astype(dtype) for n in names}


def start(group, dtype=np.float64, ridge_mode="fixed"):
    """A proper initial state for every stream: moments of a few earlier samples."""
    rng = np.random.default_rng(9)
    gram, cross = [], []
    for s in group.values():
        k, v = unit(rng.normal(size=(4, D))), rng.normal(size=(4, M))
        gram.append(k.T @ k + (np.diag(s["ridge"]) if ridge_mode == "discounted" else 0))
        cross.append(v.T @ k)
    return np.stack(gram).astype(dtype), np.stack(cross).astype(dtype)


def exact(stream, mode, state=None):
    s = dict(stream)
    ridge = s.pop("ridge")
    if mode == "discounted" and state is not None:
        ridge = None
    return oracle.solve(
        s.pop("keys"),
        s.pop("values"),
        s.pop("queries"),
        **s,
        ridge=ridge,
        ridge_mode=mode,
        state=state,
    )


def error(got, want, floor=0.0):
    """Largest error relative to the largest entry."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    return np.abs(got - want).max() / max(np.abs(want).max(), floor, 1e-300)
