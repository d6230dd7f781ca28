"""Flops of matrix products, factorisations and triangular solves in a traced JAX function.

What a table divides by time to say a share of a machine's peak: one place for all rules and
solvers.  Elementwise work is not counted; a loop that ends when a value says so has no count.
"""

from __future__ import annotations

import functools
import math

import jax
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr


def matrix_flops(function, *args, steps=None):
    """Flops of ``function(*args)``, arrays or their shapes; None where a loop has no known length.

    Multiplications and additions; n^3 / 3 a Cholesky factor of n rows, n^2 a right-hand side of a
    triangular solve.  Of branches, the dearest that has a count is counted (a solver's other branch
    is conjugate gradient, where gates are harsh); what checkpoints make again is counted as often
    as it is made.  ``steps`` is the length of loops that go on until something holds.
    """
    return _of_used(jax.make_jaxpr(function)(*args).jaxpr, steps)


def _of_used(jaxpr, steps, used=None):
    """Flops of what the ``used`` outputs need: XLA leaves the rest out as well."""
    return _of(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars) if used is None else used)[0], steps)


def _of(jaxpr, steps):
    read = {id(x) for e in jaxpr.eqns for x in e.invars} | {id(x) for x in jaxpr.outvars}
    counts = [_of_equation(e, steps, [id(x) in read for x in e.outvars]) for e in jaxpr.eqns]
    return None if None in counts else sum(counts)


def _of_equation(equation, steps, used):
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return (
            2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        )
    if name == "cholesky":
        *batch, n, _ = equation.outvars[0].aval.shape
        return math.prod(batch) * n**3 / 3
    if name == "triangular_solve":
        shape = equation.outvars[0].aval.shape
        n = equation.invars[0].aval.shape[-1]
        return math.prod(shape) * n
    if name == "while":
        each = _of(params["body_jaxpr"].jaxpr, steps)
        return 0 if each == 0 else None if None in (each, steps) else each * steps
    if name == "cond":
        if params.get("branches_platforms"):  # one of them is lowered
            return _of(params["branches"][_branch_here(params)].jaxpr, steps)
        counts = [_of(branch.jaxpr, steps) for branch in params["branches"]]
        return max((n for n in counts if n is not None), default=None)
    if getattr(equation.primitive.impl, "__module__", "").startswith("olsq."):
        run = functools.partial(equation.primitive.impl, **params)
        shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
        return _of_used(jax.make_jaxpr(run)(*shapes).jaxpr, steps, used)
    counts = [_of(inner, steps) for inner in _jaxprs(params)]
    if None in counts:
        return None
    return sum(counts) * (params["length"] if name == "scan" else 1)


def _branch_here(params):
    """Index of the branch that is lowered for the platform of this process."""
    here = {"gpu": ("cuda", "rocm")}.get(jax.default_backend(), (jax.default_backend(),))
    given = enumerate(params["branches_platforms"])
    return next(i for i, names in given if names is None or set(names) & set(here))


def _jaxprs(params):
    """Programs inside an equation: called, or run by a loop."""
    if "call_jaxpr" in params and "jvp_jaxpr_fun" in params:  # its derivative is not run
        params = {"call_jaxpr": params["call_jaxpr"]}
    for value in params.values():
        if isinstance(value, core.ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, core.Jaxpr):
            yield value
