"""Vectors of four and eight doubles as Numba types, and fused multiply-adds.

Numba tells LLVM nothing about aliasing and leaves its vectoriser of straight-line code off, so that
loops over two arrays stay scalar.  These types make vectors explicit.  LLVM splits them into what
the processor has: one register with AVX-512, two with AVX2, four with NEON.

Every operation is written out, without flags that let a compiler reorder or contract: the same row
then gives the same bits in every loop that this code is inlined into.  ``fma`` is LLVM's
``fmuladd``, which is one rounding where the processor has the instruction and two where it has not.

Only Numba's public extension interface is used: ``types.Type``, ``register_model``, ``intrinsic``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core.errors import TypingError
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model

intrinsic: Any = numba_intrinsic  # what it makes is called without its first argument
_INDEX = ir.IntType(32)


class Register(types.Type):
    """Numba type of a vector of doubles."""

    def __init__(self, lanes: int) -> None:
        self.lanes, self.vector = lanes, ir.VectorType(ir.DoubleType(), lanes)
        super().__init__(name=f"Register({lanes})")


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.vector)


def _check_layout(array):
    """Refuse, while code is compiled, arrays whose entries do not lie one after another."""
    if array.dtype != types.float64 or array.layout != "C":
        raise TypingError(f"registers are loaded from C-contiguous float64 arrays, not {array}")


def _fill(builder, number, kind):
    """Put a number in every lane."""
    undefined = ir.Constant(kind.vector, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(_INDEX, 0))
    lanes = ir.Constant(ir.VectorType(_INDEX, kind.lanes), [0] * kind.lanes)
    return builder.shuffle_vector(first, undefined, lanes)


def _address(context, builder, array_kind, array, entry, kind):
    data = context.make_array(array_kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [entry]), kind.vector.as_pointer())


def _fused(builder, x, y, z):
    """Compute ``x y + z``."""
    lanes = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
    kind = ir.FunctionType(x.type, [x.type] * 3)
    name = f"llvm.fmuladd.{lanes}f64"
    operation = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(operation, [x, y, z])


def _loads(lanes: int):
    kind = Register(lanes)

    @intrinsic
    def load(_, array, entry):
        """Load entries entry.. of a C-contiguous float64 array of any number of axes."""

        _check_layout(array)

        def code(context, builder, signature, arguments):
            array, entry = arguments
            place = _address(context, builder, signature.args[0], array, entry, kind)
            return builder.load(place, align=8)

        return kind(array, types.intp), code

    @intrinsic
    def zero(_):
        """Return a vector of zeros."""
        return kind(), lambda *_: ir.Constant(kind.vector, [0.0] * lanes)

    return load, zero


load8, zero8 = _loads(8)
load4, zero4 = _loads(4)


@intrinsic
def store(_, array, entry, v):
    """Store a vector to entries entry.. of a C-contiguous float64 array."""
    _check_layout(array)

    def code(context, builder, signature, arguments):
        array_kind, _, kind = signature.args
        place = _address(context, builder, array_kind, arguments[0], arguments[1], kind)
        builder.store(arguments[2], place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, v), code


@intrinsic
def add_scaled(_, v, x, w):
    """Compute ``v + x w`` of vectors v and w and a number x."""

    def code(_, builder, signature, arguments):
        v, x, w = arguments
        return _fused(builder, _fill(builder, x, signature.args[0]), w, v)

    return v(v, types.float64, v), code


@intrinsic
def add_product(_, v, x, w):
    """Compute ``v + x w`` lane by lane, of three vectors."""

    def code(_, builder, signature, arguments):
        v, x, w = arguments
        return _fused(builder, x, w, v)

    return v(v, v, v), code


@intrinsic
def fma(_, x, y, z):
    """Compute ``x y + z`` of three numbers."""

    def code(_, builder, signature, arguments):
        return _fused(builder, *arguments)

    return types.float64(types.float64, types.float64, types.float64), code


def _lanewise(operation: str):
    @intrinsic
    def apply(_, v, w):
        return v(v, w), lambda _, builder, __, pair: getattr(builder, operation)(*pair)

    return apply


plus, times, divide = _lanewise("fadd"), _lanewise("fmul"), _lanewise("fdiv")


@intrinsic
def where_above(_, a, b, v, w):
    """Choose lane by lane v where a is above b, else w, which is also where one of them is NaN."""

    def code(_, builder, signature, arguments):
        a, b, v, w = arguments
        return builder.select(builder.fcmp_ordered(">", a, b), v, w)

    return a(a, a, a, a), code


@intrinsic
def fill4(_, number):
    """Return a vector of four lanes with one number."""
    kind = Register(4)
    return kind(types.float64), lambda _, builder, __, one: _fill(builder, one[0], kind)


@intrinsic
def transposed(_, a, b, c, d):
    """Return the columns of the 4 x 4 matrix with rows a, b, c and d."""

    def code(context, builder, signature, rows):
        def pick(v, w, *lanes):
            return builder.shuffle_vector(v, w, ir.Constant(ir.VectorType(_INDEX, 4), lanes))

        a, b, c, d = rows
        even, odd = (0, 4, 2, 6), (1, 5, 3, 7)
        pairs = [(pick(a, b, *lanes), pick(c, d, *lanes)) for lanes in (even, odd)]
        columns = [pick(v, w, *half) for half in ((0, 1, 4, 5), (2, 3, 6, 7)) for v, w in pairs]
        return context.make_tuple(builder, signature.return_type, columns)

    return types.UniTuple(a, 4)(a, a, a, a), code


@intrinsic
def total(_, v):
    """Sum the lanes of a vector of four, pairwise."""

    def code(_, builder, signature, arguments):
        lanes = [builder.extract_element(arguments[0], ir.Constant(_INDEX, i)) for i in range(4)]
        return builder.fadd(builder.fadd(lanes[0], lanes[2]), builder.fadd(lanes[1], lanes[3]))

    return types.float64(v), code


if getattr(config, "DISABLE_JIT", False):
    from olsq.online.forms.factor.plain_registers import (  # noqa: F401
        add_product,
        add_scaled,
        divide,
        fill4,
        fma,
        load4,
        load8,
        plus,
        store,
        times,
        total,
        transposed,
        where_above,
        zero4,
        zero8,
    )
