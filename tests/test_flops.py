"""The flops that tables divide by time: counted in traced programs, held against formulas."""

import jax
import jax.numpy as jnp
import pytest

import olsq
from benchmarks.support.flops import matrix_flops

H, T, D, C = 2, 128, 16, 32  # C: tokens of a chunk on a CPU


def shapes():
    of_tokens = [jax.ShapeDtypeStruct((1, T, H, D), jnp.float32)] * 3
    return *of_tokens, jax.ShapeDtypeStruct((1, T, H), jnp.float32)


def test_gated_linear_attention_has_four_products_a_chunk():
    def gla(q, k, v, gates):
        return olsq.attention.gla(q, k, v, forget=gates)[0]

    assert matrix_flops(gla, *shapes()) == H * T * 2 * (2 * C * D + 2 * D * D)


def test_softmax_leaves_out_scores_above_the_diagonal():
    rows, blocks = 64, 2  # of 64 tokens each: a pair, with three blocks of scores
    scores = H * (blocks + 1) * rows * rows * 2 * (D + D + 1)
    sums = H * 2 * 2 * (blocks + 1) * rows * (D + 1)
    found = matrix_flops(lambda q, k, v, _: olsq.attention.softmax(q, k, v)[0], *shapes())
    assert found == scores + sums


@pytest.mark.full
def test_conjugate_gradient_takes_two_products_a_step():
    def run(q, k, v, gates):
        k, v, q = (jnp.moveaxis(x[0], 1, 0) for x in (k, v, q))
        solver = olsq.ConjugateGradient(tol=0.0, max_steps=steps)
        return olsq.online_lstsq(k, v, q, forget=gates[0].T, ridge=1.0, solver=solver).value

    steps = 30
    assert matrix_flops(run, *shapes()) is None  # its loop ends where a tolerance is met
    one, two = (matrix_flops(run, *shapes(), steps=n) for n in (steps, steps + 1))
    assert two - one == pytest.approx(H * T * 2 * (2 * C * D + D * D))


def test_loops_branches_and_factorisations():
    a = jnp.ones((3, 8, 8))

    def twice(a):
        step = jax.checkpoint(lambda x, _: (x @ a, None))
        return jax.lax.scan(step, a, None, length=2)[0]

    assert matrix_flops(twice, a) == 2 * 3 * 2 * 8**3
    branch = lambda a: jax.lax.cond(a.sum() > 0, lambda a: a @ a @ a, lambda a: a, a)  # noqa: E731
    assert matrix_flops(branch, a) == 2 * 3 * 2 * 8**3
    assert matrix_flops(jnp.linalg.cholesky, a) == 3 * 8**3 / 3
