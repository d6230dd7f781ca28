"""Solvers for accelerators, read off their programs: exported for CUDA, ROCm and TPU on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import IDS, PAIRS

import olsq
from olsq.sequence import jax as in_jax
from olsq.sequence.jax import triangular
from olsq.sequence.jax.chunk_exact import JaxChunkExact
from olsq.sequence.jax.gates import states_before
from olsq.sequence.jax.inputs import check
from olsq.sequence.jax.platform import Target, target, tuned_for
from olsq.sequence.jax.tiles import Grid
from olsq.sequence.jax.triangular import inverse_cholesky
from tests.portable import check_portable, export_text

T, D = 72, 4
X = jax.ShapeDtypeStruct((2, T, D), jnp.float32)
LEADING = {"chunk-exact-fixed", "cg-fixed", "recursive-discounted"}
EACH = [
    pytest.param(row, mode, id=name, marks=() if name in LEADING else pytest.mark.slow)
    for (row, mode), name in zip(PAIRS, IDS, strict=True)
]


@pytest.mark.full
@pytest.mark.parametrize(("row", "mode"), EACH)
@pytest.mark.parametrize("adjoint", ["implicit", pytest.param("unrolled", marks=pytest.mark.slow)])
def test_a_solver_is_portable(row, mode, adjoint):
    if adjoint == "unrolled" and not row.unrolls:
        adjoint = "implicit"
    solver = row.solver(jnp.float32)

    def solve(keys):
        return in_jax.online_lstsq(
            keys, keys, keys, forget=0.9, ridge=1.0, ridge_mode=mode, solver=solver,
            adjoint=adjoint,
        )  # fmt: skip

    check_portable(solve, X, exact=True)


@pytest.mark.full
def test_decoding_is_portable():
    moments = jax.ShapeDtypeStruct((2, D, D), jnp.float32)
    token = jax.ShapeDtypeStruct((2, D), jnp.float32)

    def decode(gram, cross, x):
        state = in_jax.start_decoding(olsq.Moments(gram, cross), ridge=1.0)
        state = in_jax.update(state, x, x, forget=0.9)
        return in_jax.query(state, x), in_jax.query(state.moments, x, ridge=1.0), state

    check_portable(decode, moments, moments, token, exact=True)


@pytest.mark.full
def test_a_program_is_traced_where_it_is_lowered(monkeypatch):
    """A gradient's trace has the shapes of both platforms' results, and solves nothing."""
    targets, solve = [], JaxChunkExact.solve

    def count(*arguments):
        targets.append(target().cpu)
        return solve(*arguments)

    monkeypatch.setattr(JaxChunkExact, "solve", count)

    def loss(keys):
        return in_jax.online_lstsq(keys, keys, keys, forget=0.9, ridge=0.75).value.sum()

    traced = jax.jit(jax.grad(loss)).trace(jax.ShapeDtypeStruct((2, 130, 5), jnp.float32))
    assert not targets
    traced.lower(lowering_platforms=("cuda",))
    assert targets  # of the forward solve and of its gradient
    assert not any(targets)


def test_factors_loop_over_rows_on_a_cpu_only():
    """An accelerator would start five kernels a row; there the rows are unrolled."""
    matrices = jax.ShapeDtypeStruct((3, 24, 24), jnp.float32)
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        text = export_text(lambda a: inverse_cholesky(a), matrices, platforms=[platform])
        assert ("stablehlo.while" in text) == (platform == "cpu"), platform


@pytest.mark.full
def test_factors_of_an_accelerators_program_are_the_same():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(5, 24, 30))
    a = jnp.asarray(half @ half.swapaxes(-1, -2))
    with tuned_for(Target(cpu=False)):
        theirs = jax.jit(lambda a: inverse_cholesky(a))(a)
    ours = inverse_cholesky(a)
    assert abs(theirs - ours).max() < 1e-6 * abs(ours).max()
    assert abs(theirs @ a @ theirs.swapaxes(-1, -2) - jnp.eye(24)).max() < 1e-4


def grid_of(t, target, b=32, d=128):
    """Return the grid of ``b`` streams of ``t`` tokens, without making them."""
    found = []

    def read(x):
        stream = check(x, x, x, None, None, None, 1.0, "fixed", None)[0]
        with tuned_for(target):
            found.append(Grid.of(stream, 64))
        return x

    jax.eval_shape(read, jax.ShapeDtypeStruct((b, t, d), jnp.float32))
    return found[0]


def test_an_accelerators_tiles_are_as_few_as_their_memory_allows():
    """Moments before each chunk, (32, n, 128, 128) of 8 bytes, are the largest array of a tile."""
    each = 32 * 128**2 * 8
    for t in (1024, 8192, 65536):
        for size in (2**20, 2**28, 2**40):
            grid = grid_of(t, Target(cpu=False, tile_bytes=size))
            assert grid.groups == 1
            assert grid.n == 1 or grid.n * each <= size
            assert grid.tiles == 1 or (grid.n + 1) * each > size or grid.tiles * grid.n >= t // 64
            assert grid.tiles == -(-(t // 64) // max(1, size // each))
        assert grid_of(t, Target(cpu=True)).tiles == t // 64 // grid_of(t, Target(cpu=True)).n


def test_states_before_many_pieces_are_joined_run_by_run():
    rng = np.random.default_rng(0)
    factor = rng.uniform(0.5, 1, (2, 40))
    factor[:, 21] = 0
    add, state = rng.normal(size=(2, 40, 3, 2)), rng.normal(size=(2, 3, 2))
    found, last = jax.jit(states_before)(factor, add, state)
    for i in range(40):
        assert abs(found[:, i] - state).max() < 1e-13
        state = factor[:, i, None, None] * state + add[:, i]
    assert abs(last - state).max() < 1e-13


@pytest.mark.full
def test_a_target_set_later_changes_the_program(monkeypatch):
    """A program traced before for the same shapes and solver, but another target, is not taken."""
    k, v, q = np.random.default_rng(1).normal(size=(3, 1, 24, 8)).astype(np.float32)
    by_platform, traced = triangular.by_platform, []

    def spied(choose, run):
        traced.append(target())
        return by_platform(choose, run)

    monkeypatch.setattr(triangular, "by_platform", spied)
    other = Target(cpu=True, tile_bytes=12345)
    for is_set in (False, True):
        with tuned_for(other if is_set else None):
            olsq.online_lstsq(jnp.asarray(k), v, q, ridge=0.1).value.block_until_ready()
        assert (other in traced) == is_set


def test_the_target_is_part_of_what_compiled_programs_are_remembered_by():
    assert target().cpu == (jax.default_backend() == "cpu")
    x = jax.ShapeDtypeStruct((1, T, 2, D), jnp.float32)

    def run(x):
        return olsq.attention.linear(x, x, x)[0]

    ours = export_text(run, x, platforms=["cpu"])
    with tuned_for(Target(cpu=False)):
        theirs = export_text(lambda x: run(x), x, platforms=["cpu"])
    assert "64x64xf32" in theirs
    assert "64x64xf32" not in ours
