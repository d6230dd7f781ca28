"""Run by test_optimised.py: the solvers as users compile them, with XLA's optimisations on.

Prints a line for each solver: its name and the largest errors of values and gradients, in units of
the largest entry of each stream's.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import olsq

TOKENS, KEYS, VALUES = 150, 6, 3  # over two chunks, and not a multiple of one
SOLVERS = {
    "default": None,
    "conjugate gradient": olsq.ConjugateGradient(max_steps=40, tol=1e-7),
    "preconditioned": olsq.ConjugateGradient(max_steps=40, tol=1e-7, preconditioner="chunk"),
}


def streams():
    """Keys, values, queries and gates (6, T, ...): long memory, resets, runs, zeros, repeats."""
    rng = np.random.default_rng(0)
    keys, queries = rng.standard_normal((2, 6, TOKENS, KEYS)) / np.sqrt(KEYS)
    values, gates = rng.standard_normal((6, TOKENS, VALUES)), np.full((6, TOKENS), 0.97)
    gates[0] = 1.0
    gates[1, ::37] = 0.0
    gates[1, 5::50] = 1e-6
    keys[2] = np.repeat(keys[2, ::30], 30, axis=0)[:TOKENS]
    keys[3, 40:90] = 0.0
    keys[4] = keys[4, rng.integers(0, 3, TOKENS)]
    gates[5] = rng.uniform(0.2, 1.0, TOKENS)
    return keys, values, queries, gates


def main() -> None:
    assert not jax.config.read("jax_disable_most_optimizations")
    double = streams()
    rng = np.random.default_rng(1)
    cotangent = rng.standard_normal((6, TOKENS, VALUES))
    keys, values, queries, gates = double
    truth = olsq.online_lstsq(keys, values, queries, forget=gates, ridge=0.5, solver=olsq.Dense())
    pull = olsq.online_lstsq_vjp(
        keys, values, queries, cotangent, forget=gates, ridge=0.5, solver=olsq.Dense()
    )
    wanted = pull.keys, pull.values, pull.queries, pull.forget
    single = [jnp.asarray(a, jnp.float32) for a in double]
    for name, solver in SOLVERS.items():
        value, gradients = run(solver, single, jnp.asarray(cotangent, jnp.float32))
        errors = [relative(value, truth.value)]
        errors.append(max(relative(a, b) for a, b in zip(gradients, wanted, strict=True)))
        print(name, *(f"{error:.3g}" for error in errors), sep="; ")


@partial(jax.jit, static_argnums=0)
def run(solver, arguments, cotangent):
    """Value and gradients of its product with the cotangent."""

    def value(k, v, q, g):
        return olsq.online_lstsq(k, v, q, forget=g, ridge=0.5, solver=solver).value

    found, transpose = jax.vjp(value, *arguments)
    return found, transpose(cotangent)


def relative(found, truth):
    axes = tuple(range(1, truth.ndim))
    return float((np.abs(found - truth).max(axes) / np.abs(truth).max(axes)).max())


if __name__ == "__main__":
    main()
