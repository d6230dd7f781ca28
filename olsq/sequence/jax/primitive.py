"""The solve as a JAX primitive with a hand-written gradient.

Three primitives: the outputs, their tangents, and the cotangents of the arrays.  The tangents are
linear, and the transpose of that map is the third; the transpose of the third is the second again.
So reverse mode runs the loop of :func:`~olsq.sequence.jax.walk.backward`, and forward mode stays.
Tangents, and the derivatives of tangents and cotangents by the arrays themselves, are JAX's own of
:func:`~olsq.sequence.jax.walk.solve_by_jax`: right to any order.

Measured on a CPU: JAX's gradient takes up to 1.3 times as long as the one by hand, and four times
the memory at a million tokens; its tangents take 0.8 to 1.1 times as long as ones by hand did.

``jax.custom_vjp`` would take forward mode away, ``jax.custom_derivatives.linear_call`` the second
order, and JAX 0.10 drops custom rules in forward over reverse mode inside a ``scan``.

All operands and results have the batch of streams as their leading axis, so ``vmap`` makes a larger
batch of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from olsq.problem import Moments
from olsq.sequence.jax import walk
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.platform import Target, full_precision, given_target, tuned_for
from olsq.sequence.jax.solver import Chunks, JaxSolver
from olsq.sequence.jax.tiles import TokenSizes
from olsq.sequence.jax.walk import Kept

OUTPUTS = 3  # that have derivatives: values and the final moments
SIZES = len(TokenSizes._fields)  # the outputs after them; then what derivatives keep


class Setting(NamedTuple):
    """Static parameters of a primitive."""

    names: tuple[str, ...]  # names of the arrays that the stream has
    solver: JaxSolver
    target: Target | None  # that tiles are cut for; None: that of this process

    def stream(self, arrays: Any) -> Stream:
        """Build the stream from the operands ``arrays``."""
        by_name = dict(zip(self.names, arrays, strict=True))
        state = Moments(by_name.pop("gram"), by_name.pop("cross"))
        fields: Any = dict.fromkeys(Stream._fields) | by_name | {"state": state}
        return Stream(**fields)


def solve_by_primitive(
    stream: Stream, solver: JaxSolver
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a stream: outputs (B, T, m), final moments and sizes (B, T)."""
    arrays = stream._asdict() | stream.state._asdict()
    arrays = {n: x for n, x in arrays.items() if n not in ("state", "floor") and x is not None}
    setting = Setting(tuple(arrays), solver, given_target())
    value, gram, cross, *results = solve_p.bind(*arrays.values(), setting=setting)
    return value, Moments(gram, cross), TokenSizes(*results[:SIZES])


@contextlib.contextmanager
def _traced_for(setting: Setting) -> Iterator[None]:
    """Trace the code inside in full precision, for the setting's target."""
    with tuned_for(setting.target), full_precision():
        yield


@partial(jax.jit, static_argnames="setting")
def _solve(*arrays: Array, setting: Setting) -> list[Array]:
    """Compute outputs, sizes, and what derivatives need: dead code where none are taken."""
    with _traced_for(setting):
        return jax.tree.leaves(walk.forward(setting.stream(arrays), setting.solver))


@partial(jax.jit, static_argnames=("setting", "wrt"))
def _tangent(*operands: Array, setting: Setting, wrt: tuple[str, ...]) -> tuple[Array, ...]:
    """Compute the outputs' tangents from the arrays and the tangents of ``wrt``."""
    arrays, _, tangents = _split_operands(operands, setting, len(wrt))
    return _apply_tangent(setting, wrt, arrays, *tangents)


@partial(jax.jit, static_argnames=("setting", "wrt"))
def _cotangent(*operands: Array, setting: Setting, wrt: tuple[str, ...]) -> tuple[Array, ...]:
    """Compute the cotangents of ``wrt`` from the arrays, the kept values and the outputs'
    cotangents.
    """
    arrays, kept, (d_value, *d_moments) = _split_operands(operands, setting, OUTPUTS)
    stream, kept = setting.stream(arrays), _rebuild_kept(kept)
    with _traced_for(setting):
        cotangents = walk.backward(stream, setting.solver, kept, d_value, Moments(*d_moments))
    return tuple(getattr(cotangents, n) for n in wrt)


def _rebuild_kept(leaves: Any) -> Kept:
    """Rebuild :class:`Kept` from its leaves."""
    if len(leaves) == 3:  # of a long sequence
        return Kept(None, (), *leaves)
    x, *factors, gram, cross, lost = leaves
    return Kept(x, tuple(factors), gram, cross, lost)


def _split_operands(operands: Any, setting: Setting, last: int) -> tuple[Any, Any, Any]:
    """Split operands into the arrays, the kept values and the ``last`` operands."""
    first, end = len(setting.names), len(operands) - last
    return tuple(operands[:first]), tuple(operands[first:end]), tuple(operands[end:])


class Unsolved(JaxSolver):
    """A solver that computes nothing: its results have the shapes of those of another."""

    def __init__(self, solver: JaxSolver) -> None:
        self.options, self.saved = solver.options, solver.saved
        self.prepare = solver.like_prepared

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Return the right-hand sides, and no steps."""
        return b, jnp.zeros(b.shape[:-1], jnp.int32)


@partial(jax.jit, static_argnames="setting")
def _like_solve(*arrays: Array, setting: Setting) -> list[Array]:
    """Return arrays of the shapes that :func:`_solve` returns."""
    with _traced_for(setting):
        return jax.tree.leaves(walk.forward(setting.stream(arrays), Unsolved(setting.solver)))


def _like_tangent(*operands: Array, setting: Setting, wrt: tuple[str, ...]) -> list[Array]:
    """Return arrays of the shapes that :func:`_tangent` returns: those of the outputs."""
    stream = setting.stream(operands[: len(setting.names)])
    return [stream.values, *stream.state]


def _like_cotangent(*operands: Array, setting: Setting, wrt: tuple[str, ...]) -> list[Array]:
    """Return arrays of the shapes that :func:`_cotangent` returns: those of ``wrt``."""
    return [operands[setting.names.index(n)] for n in wrt]


def _primitive(name: str, function: Callable[..., Any], like: Callable[..., Any]) -> Primitive:
    """Make a primitive with several results that the jitted ``function`` computes.

    ``like`` returns arrays of the same shapes and is quick to trace: ``function`` is traced where
    it is lowered, so that of the programs for a CPU and for accelerators one is never traced.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(function)

    def shapes(*avals: Any, **params: Any) -> list[Any]:
        arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        out = jax.eval_shape(partial(like, **params), *arguments)
        return [ShapedArray(x.shape, x.dtype) for x in out]

    def batched(operands: Any, axes: Any, **params: Any) -> tuple[list[Array], list[int]]:
        many = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)

        def folded(x: Array, axis: Any) -> Array:
            stacked = (many, *x.shape)
            x = jnp.broadcast_to(x, stacked) if axis is None else jnp.moveaxis(x, axis, 0)
            return x.reshape(many * x.shape[1], *x.shape[2:])

        out = primitive.bind(*map(folded, operands, axes), **params)
        return [x.reshape(many, -1, *x.shape[1:]) for x in out], [0] * len(out)

    primitive.def_abstract_eval(shapes)
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=True))
    return primitive


solve_p = _primitive("online_lstsq", _solve, _like_solve)
tangent_p = _primitive("online_lstsq_tangent", _tangent, _like_tangent)
cotangent_p = _primitive("online_lstsq_cotangent", _cotangent, _like_cotangent)


def _zero_tangent(x: Any) -> ad.Zero:
    """Return the zero tangent of a result without a derivative."""
    return ad.Zero(ShapedArray(x.shape, x.dtype).to_tangent_aval())


def _add_tangents(parts: Any) -> Any:
    """Add tuples of tangents, entry by entry."""
    return [sum(xs[1:], xs[0]) for xs in zip(*parts, strict=True)]


def _solve_jvp(primals: Any, tangents: Any, *, setting: Setting) -> Any:
    """Compute outputs and their tangents; sizes and kept values have none."""
    out = solve_p.bind(*primals, setting=setting)
    moving = [
        (n, t)
        for n, t in zip(setting.names, tangents, strict=True)
        if n != "logs" and type(t) is not ad.Zero
    ]
    if not moving:
        return out, [_zero_tangent(x) for x in out]
    wrt, moved = zip(*moving, strict=True)
    kept = out[OUTPUTS + SIZES :]
    d_out = tangent_p.bind(*primals, *kept, *moved, setting=setting, wrt=wrt)
    return out, [*d_out, *(_zero_tangent(x) for x in out[OUTPUTS:])]


def _transpose_solve(upstream: Any, *operands: Any, setting: Setting) -> list[Any]:
    """Transpose the outputs as a linear map of the values, of the cross moments, or of both.

    What derivatives by these need of the forward pass does not depend on them.
    """
    linear = [ad.is_undefined_primal(x) for x in operands]
    wrt = tuple(n for n, moves in zip(setting.names, linear, strict=True) if moves)
    if not set(wrt) <= {"values", "cross"}:
        raise NotImplementedError(f"the outputs are linear in values and state.cross, not in {wrt}")
    arrays = [
        jnp.zeros(x.aval.shape, x.aval.dtype) if moves else x
        for x, moves in zip(operands, linear, strict=True)
    ]
    kept = solve_p.bind(*arrays, setting=setting)[OUTPUTS + SIZES :]
    moved = map(ad.instantiate_zeros, upstream[:OUTPUTS])
    cotangents = iter(cotangent_p.bind(*arrays, *kept, *moved, setting=setting, wrt=wrt))
    return [next(cotangents) if moves else None for moves in linear]


def _linear_jvp(
    itself: Primitive,
    last: Callable[[tuple[str, ...]], int],
    apply: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    setting: Setting,
    wrt: tuple[str, ...],
) -> Any:
    """Differentiate a primitive that is linear in its last operands: by these, and by the arrays.

    ``apply(setting, wrt, arrays, *last)`` is the same map, written so that JAX differentiates it.
    The kept values depend on the arrays alone, and ``apply`` does not use them, so they need no
    tangents.
    """
    arrays, kept, linear = _split_operands(primals, setting, last(wrt))
    d_arrays, _, d_linear = _split_operands(tangents, setting, last(wrt))
    out = itself.bind(*primals, setting=setting, wrt=wrt)
    parts = []
    if any(type(t) is not ad.Zero for t in d_linear):
        moved = map(ad.instantiate_zeros, d_linear)
        parts.append(itself.bind(*arrays, *kept, *moved, setting=setting, wrt=wrt))
    moving = [i for i, t in enumerate(d_arrays) if type(t) is not ad.Zero]
    moving = [i for i in moving if setting.names[i] != "logs"]
    if moving:

        def by_arrays(*values: Array) -> Any:
            operands = dict(enumerate(arrays)) | dict(zip(moving, values, strict=True))
            return apply(setting, wrt, tuple(operands.values()), *linear)

        at, along = [arrays[i] for i in moving], [d_arrays[i] for i in moving]
        parts.append(jax.jvp(by_arrays, at, along)[1])
    return out, _add_tangents(parts) if parts else [_zero_tangent(x) for x in out]


def _as_function_of(
    setting: Setting, arrays: Any, wrt: tuple[str, ...]
) -> tuple[Any, tuple[Array, ...]]:
    """Return the outputs as a function of the arrays ``wrt`` that JAX differentiates, and the
    values of these arrays.
    """
    by_name = dict(zip(setting.names, arrays, strict=True))

    def function(*values: Array) -> tuple[Array, ...]:
        stream = setting.stream((by_name | dict(zip(wrt, values, strict=True))).values())
        value, moments, _ = walk.solve_by_jax(stream, setting.solver, False)
        return value, *moments

    return function, tuple(by_name[n] for n in wrt)


def _apply_tangent(setting: Setting, wrt: Any, arrays: Any, *tangents: Array) -> Any:
    function, values = _as_function_of(setting, arrays, wrt)
    with _traced_for(setting):
        return jax.jvp(function, values, tangents)[1]


def _apply_cotangent(setting: Setting, wrt: Any, arrays: Any, *cotangents: Array) -> Any:
    function, values = _as_function_of(setting, arrays, wrt)
    with _traced_for(setting):
        return jax.vjp(function, *values)[1](cotangents)


def _linear_transpose(
    transposed: Primitive,
    last: Callable[[tuple[str, ...]], int],
    upstream: Any,
    *operands: Any,
    setting: Setting,
    wrt: tuple[str, ...],
) -> Any:
    """Transpose a primitive by its last operands: the primitive ``transposed``."""
    arrays, kept, linear = _split_operands(operands, setting, last(wrt))
    moved = map(ad.instantiate_zeros, upstream)
    out = transposed.bind(*arrays, *kept, *moved, setting=setting, wrt=wrt)
    by_last = (x if ad.is_undefined_primal(o) else None for o, x in zip(linear, out, strict=True))
    return [*[None] * (len(arrays) + len(kept)), *by_last]


def _count_outputs(_: tuple[str, ...]) -> int:
    """Count the operands by which the cotangent primitive is linear."""
    return OUTPUTS


ad.primitive_jvps[solve_p] = _solve_jvp
ad.primitive_transposes[solve_p] = _transpose_solve
for linear_p, transposed_p, count, apply in (
    (tangent_p, cotangent_p, len, _apply_tangent),
    (cotangent_p, tangent_p, _count_outputs, _apply_cotangent),
):
    ad.primitive_jvps[linear_p] = partial(_linear_jvp, linear_p, count, apply)
    ad.primitive_transposes[linear_p] = partial(_linear_transpose, transposed_p, count)
