"""The kernels as native functions that compiled code calls by symbol, with addresses.

A caller's own code then holds shape checks and a call.  Inlining the kernels instead costs half a
minute of compilation in each of the user's functions, for the dense algebra that they rarely need,
and the reference counts of a state's arrays cost more than the arithmetic of a small row.  It also
leaves one copy of the arithmetic: Python and every compiled caller get the same bits.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import carray

from olsq.compiled import kernels
from olsq.compiled.state import N_COUNTS, N_TOTALS
from olsq.kernels import external_kernel

# Their first argument is Numba's own, which a type checker would miss in every call.
_intrinsic: Any = intrinsic
_REALS, _COUNTS, _REAL = types.CPointer(types.float64), types.CPointer(types.int64), types.float64


@external_kernel(
    "olsq_compiled_update",
    _REAL(_REALS, _REALS, _REALS, _REALS, _COUNTS, _REALS, _REALS, types.intp, _REAL, _REAL, _REAL),
)
def update_at(factor, pivots, columns, totals, counts, scratch, x, d, y, forget, weight):
    """Absorb a row of d regressors and return its residual."""
    state = (
        carray(factor, (d, d + 1)),
        carray(pivots, (d,)),
        carray(columns, (2, d)),
        carray(totals, (N_TOTALS,)),
        carray(counts, (N_COUNTS,)),
    )
    return kernels.learn_row(
        state,
        carray(scratch, (d + 2,)),
        carray(x, (d,)),
        y,
        forget,
        weight,
    )


@external_kernel("olsq_compiled_predict", _REAL(_REALS, _REALS, _REALS, _REALS, types.intp))
def predict_at(factor, pivots, totals, x, d):
    """Predict a row of d regressors."""
    return kernels.predict_row(
        carray(factor, (d, d + 1)),
        carray(pivots, (d,)),
        carray(totals, (N_TOTALS,)),
        carray(x, (d,)),
    )


@external_kernel("olsq_compiled_coef", types.intp(_REALS, _REALS, _REALS, _REALS, types.intp))
def coef_at(factor, pivots, totals, theta, d):
    """Write the d coefficients into theta; return 0."""
    kernels.read_coefficients(
        carray(factor, (d, d + 1)),
        carray(pivots, (d,)),
        carray(totals, (N_TOTALS,)),
        carray(theta, (d,)),
    )
    return 0


def _unpack_arrays(context: Any, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """Unpack the arrays of a tuple as Numba's structures, each with its shape."""
    found = []
    for own, part in zip(kind, cgutils.unpack_tuple(builder, value), strict=True):
        array = context.make_array(own)(context, builder, part)
        found.append((array, cgutils.unpack_tuple(builder, array.shape)))
    return found


@_intrinsic
def addresses(typing: Any, state: Any, x: Any) -> Any:
    """Return ``(size, addresses of a state's arrays, address of x)`` without counting references.

    ``size`` is d; -1 unless every array, and x, has the shape that goes with d.
    """
    pointers = [types.CPointer(array.dtype) for array in state.types]
    found = types.Tuple((types.intp, *pointers, types.CPointer(x.dtype)))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _unpack_arrays(context, builder, signature.args[0], arguments[0])
        row = context.make_array(signature.args[1])(context, builder, arguments[1])
        d = arrays[0][1][0]

        def integer(value: int) -> Any:
            return context.get_constant(types.intp, value)

        wanted = (
            (d, builder.add(d, integer(1))),
            (d,),
            (integer(2), d),
            (d,),
            (integer(N_TOTALS),),
            (integer(N_COUNTS),),
            (builder.add(d, integer(2)),),
        )
        pairs = [
            pair
            for (_, shape), sizes in zip(arrays, wanted, strict=True)
            for pair in zip(shape, sizes, strict=True)
        ]
        pairs += [(cgutils.unpack_tuple(builder, row.shape)[0], d)]
        fits = context.get_constant(types.boolean, True)
        for one, other in pairs:
            fits = builder.and_(fits, builder.icmp_signed("==", one, other))
        size = builder.select(fits, d, integer(-1))
        values = [size, *(array.data for array, _ in arrays), row.data]
        return context.make_tuple(builder, signature.return_type, values)

    return found(state, x), generate


@_intrinsic
def view(typing: Any, states: Any, i: Any) -> Any:
    """Return filter i of n, or one without coefficients if there is none.

    It is one stretch of code without branches, so that Numba need not count references.
    """
    kinds = [array.copy(ndim=array.ndim - 1) for array in states.types]
    one = types.NamedTuple(kinds, states.instance_class)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = _unpack_arrays(context, builder, signature.args[0], arguments[0])
        n, zero = arrays[0][1][0], context.get_constant(types.intp, 0)
        at = context.cast(builder, arguments[1], signature.args[1], types.intp)
        negative = builder.icmp_signed("<", at, zero)
        at = builder.select(negative, builder.add(at, n), at)
        inside = builder.and_(builder.icmp_signed(">=", at, zero), builder.icmp_signed("<", at, n))
        for _, shape in arrays:  # all filters' memory must be there
            inside = builder.and_(inside, builder.icmp_signed("==", shape[0], n))
        at = builder.select(inside, at, zero)
        parts = []
        for kind, (array, shape) in zip(kinds, arrays, strict=True):
            strides = cgutils.unpack_tuple(builder, array.strides)
            part = context.make_array(kind)(context, builder)
            sizes = [builder.select(inside, size, zero) for size in shape[1:]]
            populate_array(
                part,
                cgutils.pointer_add(builder, array.data, builder.mul(at, strides[0])),
                sizes,
                strides[1:],
                array.itemsize,
                array.meminfo,
                array.parent,
            )
            parts.append(part._getvalue())
        result = context.make_tuple(builder, signature.return_type, parts)
        context.nrt.incref(builder, signature.return_type, result)
        return result

    return one(states, i), generate
