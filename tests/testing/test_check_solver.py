"""``check_solver`` passes for every solver that ships, and fails for each way to be broken."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import pytest

import olsq
from olsq.sequence.jax.dense import JaxDense
from olsq.sequence.numpy import inputs
from olsq.sequence.numpy.dense import NumpyDense
from olsq.solvers import Solver
from olsq.testing import check_solver
from olsq.testing.kinds import seeded


def chebyshev(steps):
    """The error that its docstring states, times the condition of the iterate."""

    def error(systems, ridge):
        high = np.trace(systems, axis1=-2, axis2=-1).max() + ridge.max()
        root = np.sqrt(high / ridge.min())
        return 2 * root * ((root - 1) / (root + 1)) ** (steps + 1)

    return error


def neumann(terms):
    def error(systems, ridge):
        high = np.trace(systems, axis1=-2, axis2=-1).max() + ridge.max()
        low = np.linalg.eigvalsh(systems).min()
        return high / low * (1 - low / high) ** terms

    return error


MILD = ("ordinary", "repeats", "runs", "zeros", "resets", "tiny", "collinear")
TIGHT = {"error": 1e-11, "dtypes": [np.float64]}
SOLVERS = {
    "chunk-exact": (olsq.ChunkExact(), {}),
    "dense": (olsq.Dense(), {}),
    "recursive": (olsq.Recursive(), {"tolerance": 300}),
    "recursive, reverse walk": (olsq.Recursive(reverse=True), {"tolerance": 300}),
    "cg": (olsq.ConjugateGradient(80, 1e-14), TIGHT),
    "cg, chunk": (olsq.ConjugateGradient(80, 1e-14, preconditioner="chunk"), TIGHT),
    "chebyshev": (olsq.Chebyshev(200), {"error": chebyshev(200), "kinds": MILD}),
    "neumann": (olsq.Neumann(200), {"error": neumann(200), "kinds": MILD, "max_examples": 5}),
    "few cg": (olsq.ConjugateGradient(2, 0.0), {}),
    "few chebyshev": (olsq.Chebyshev(3), {}),
    "few terms": (olsq.Neumann(3), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
def test_shipped_solvers_have_every_property_on_numpy_arrays(name):
    solver, claims = SOLVERS[name]
    check_solver(solver, backends=["numpy"], **claims)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "mode"),
    [("few terms", "discounted")],  # others: tests/sequence
)
def test_shipped_solvers_have_every_property_in_jax(name, mode):
    solver, claims = SOLVERS[name]
    before = jax.config.jax_enable_x64
    check_solver(
        solver, backends=["jax"], ridge_modes=[mode], max_examples=5,
        **{**claims, "dtypes": [np.float64]},
    )  # fmt: skip
    assert jax.config.jax_enable_x64 == before


@pytest.mark.full
def test_a_derivative_in_float32_stays_finite_where_nothing_is_left_to_solve():
    check_solver(
        olsq.ConjugateGradient(2, 0.0), backends=["jax"], ridge_modes=["fixed"],
        dtypes=[np.float32], kinds=["zeros"],
    )  # fmt: skip


# -- solvers that are broken, each in one way ------------------------------------------------------


@dataclass(frozen=True)
class Broken(Solver):
    """Dense solves, and something wrong with them."""

    chunk: int = 32
    truncates = False  # pyright: ignore

    def numpy(self):
        return FORMS[type(self)](self)


class SeesTheFuture(Broken):
    """A token's system holds the samples after it."""


class HasUnits(Broken):
    """A number that is added whatever the size of keys."""


class Forgets(Broken):
    """Moments before the chunk are dropped."""


class WrongGradient(Broken):
    """The transposed solve, which only a gradient needs, is another."""


class Mixes(Broken):
    """The first stream of a batch reaches the others."""


class NumpySeesTheFuture(NumpyDense):
    def prepare(self, chunk):
        both = np.maximum(chunk.decay, np.swapaxes(chunk.decay, -1, -2))
        return super().prepare(chunk._replace(decay=both))


class NumpyHasUnits(NumpyDense):
    def prepare(self, chunk):
        tiny = 1e-9 * np.eye(chunk.gram.shape[-1], dtype=chunk.gram.dtype)
        return super().prepare(chunk._replace(gram=chunk.gram + tiny))


class NumpyForgets(NumpyDense):
    def prepare(self, chunk):
        return super().prepare(chunk._replace(gram=0 * chunk.gram))


class NumpyWrongGradient(NumpyDense):
    def solve_transposed(self, chunk, prepared, b):
        x, steps = super().solve(chunk, prepared, b)
        return x * 1.001, steps


class NumpyMixes(NumpyDense):
    def solve(self, chunk, prepared, b):
        x, steps = super().solve(chunk, prepared, b)
        return x + 1e-3 * (x[:1] - x[:1] * (len(x) == 1)), steps


FORMS = {
    SeesTheFuture: NumpySeesTheFuture,
    HasUnits: NumpyHasUnits,
    Forgets: NumpyForgets,
    WrongGradient: NumpyWrongGradient,
    Mixes: NumpyMixes,
}


def lacking(solver, **options):
    with pytest.raises(AssertionError) as caught:
        check_solver(solver, dtypes=[np.float64], max_examples=3, **options)
    return str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize(
    ("solver", "names"),
    [
        (SeesTheFuture(), ("causality", "prefix invariance", "oracle")),
        (HasUnits(), ("scale equivariance", "oracle")),
        (Forgets(), ("resumption", "chunk invariance", "oracle")),
        (WrongGradient(), ("VJP against oracle",)),
        (Mixes(), ("vmap = loop", "oracle")),
    ],
    ids=lambda x: type(x).__name__,
)
def test_each_break_is_named(solver, names):
    message = lacking(solver, ridge_modes=["fixed"])
    assert message.startswith(f"check_solver: {type(solver).__name__}")
    for name in names:
        line = next(x for x in message.splitlines() if x.startswith(f"  {name}: "))
        assert "numpy, fixed, float64: stream '" in line
        assert "error " in line
        assert "allowed " in line
    assert "permutation of targets" not in message


@pytest.mark.full
def test_a_wrong_gradient_is_the_only_thing_that_is_wrong():
    assert "lacks 1 of 15 properties" in lacking(WrongGradient())
    check_solver(WrongGradient(), skip=["VJP against oracle"], max_examples=2)


@pytest.mark.full
def test_a_call_that_works_on_the_arrays_of_its_caller(monkeypatch):
    def without_copies(name, x, shape, dtype, meaning):
        x = np.asarray(x, dtype)
        return x if x.shape == shape else np.broadcast_to(x, shape).copy()

    monkeypatch.setattr(inputs, "spread", without_copies)
    message = lacking(olsq.ChunkExact(), backends=["numpy"], ridge_modes=["fixed"])
    assert "  arguments unchanged: numpy, fixed, float64: gram was changed (finite)" in message


@dataclass(frozen=True)
class WrongTranspose(Solver):
    """In JAX: the implicit gradient's own solve is another."""

    chunk: int = 32
    truncates = False  # pyright: ignore

    def jax(self):
        return JaxWrongTranspose(self)  # pyright: ignore


class JaxWrongTranspose(JaxDense):
    def solve_transposed(self, chunks, prepared, b):
        x, steps = super().solve(chunks, prepared, b)
        return x * 1.001, steps


@pytest.mark.slow
def test_a_reverse_derivative_that_is_not_the_transpose_of_the_forward_one():
    message = lacking(WrongTranspose(), ridge_modes=["fixed"], kinds=["ordinary"])
    assert "  VJP against JVP: jax, fixed, float64: stream 'ordinary'" in message
    assert "  VJP against oracle: " in message
    assert "  oracle: " not in message


def test_a_failure_that_hypothesis_finds_is_small():
    message = lacking(SeesTheFuture(), backends=["numpy"], kinds=["zeros"])
    assert "stream 'zeros'" in message


@pytest.mark.full
def test_streams_of_ones_own():
    mine = seeded(13, 2, 1, ["ordinary", "runs"])
    check_solver(olsq.Dense(), backends=["numpy"], streams=mine)
    message = lacking(
        SeesTheFuture(), backends=["numpy"], ridge_modes=["fixed"], streams={"mine": mine["runs"]}
    )
    assert "stream 'mine'" in message
    with pytest.raises(ValueError, match="streams must all have the same shapes"):
        check_solver(olsq.Dense(), streams={**mine, "longer": seeded(14, 2, 1)["runs"]})


class IgnoresItsStart(Broken):
    """Right from nothing only."""


class NumpyIgnoresItsStart(NumpyDense):
    def prepare(self, chunk):
        return super().prepare(chunk._replace(gram=0 * chunk.gram))


def test_a_start_from_earlier_moments():
    FORMS[IgnoresItsStart] = NumpyIgnoresItsStart
    mine = seeded(8, 2, 1, ["ordinary"])  # one chunk
    message = lacking(IgnoresItsStart(), ridge_modes=["fixed"], streams=mine, skip=["resumption"])
    assert "  oracle: numpy, fixed, float64: stream 'ordinary, from moments'" in message


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="skip must be a collection of some of 'oracle'"):
        check_solver(olsq.Dense(), skip=["speed"])
    with pytest.raises(ValueError, match="kinds must be some of"):
        check_solver(olsq.Dense(), kinds=["non-finite"])
    with pytest.raises(ValueError, match="dtypes must be"):
        check_solver(olsq.Dense(), dtypes=[np.float16])
    with pytest.raises(ValueError, match="backends must be some of"):
        check_solver(olsq.Dense(), backends=["torch"])
    with pytest.raises(NotImplementedError, match="no JAX form"):
        check_solver(WrongGradient(), backends=["jax"])
