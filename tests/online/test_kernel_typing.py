"""What kernels leave out of Numba's compilation changes nothing of its outcome."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

from olsq.kernel_typing import knowing
from olsq.kernels import kernel

VECTOR, NUMBER, COUNT = types.float64[::1], types.float64, types.intp
CALLS = [
    (operator.add, NUMBER, NUMBER),
    (operator.add, COUNT, NUMBER),
    (operator.lt, COUNT, COUNT),
    (operator.getitem, VECTOR, COUNT),
    (operator.setitem, VECTOR, COUNT, NUMBER),
    (operator.getitem, types.UniTuple(VECTOR, 3), types.literal(1)),
    (math.sqrt, NUMBER),
    (np.empty, COUNT),
    (max, NUMBER, NUMBER),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0].__name__)
def test_known_functions_answer_as_numba_does(call):
    context, (function, *arguments) = cpu_target.typing_context, call
    context.refresh()
    expected = context.resolve_function_type(
        context.resolve_value_type(function), tuple(arguments), {}
    )
    known = knowing(context)
    for _ in range(2):
        kind = known.resolve_value_type(function)
        assert str(known.resolve_function_type(kind, tuple(arguments), {})) == str(expected)


def test_what_has_no_answer_has_none_the_second_time():
    known = knowing(cpu_target.typing_context)
    kind = known.resolve_value_type(operator.add)
    for _ in range(2):
        with pytest.raises(TypingError):
            kind.get_call_type(known, (VECTOR, types.unicode_type), {})


def test_an_expression_of_arrays_makes_one_array():
    def expression(a, b):
        return 2.0 * a + b * a - 1.0

    expression.__module__ = "of_no_package"  # compiled here, not found on disk
    expression = kernel(makes_arrays=True)(expression)
    a, b = np.arange(5.0), np.ones(5)
    np.testing.assert_array_equal(expression(a, b), 2 * a + b * a - 1)
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats().alloc
    expression(a, b)
    assert rtsys.get_allocation_stats().alloc == before + 3  # two are of the arguments
