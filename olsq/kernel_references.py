"""Counting of references to arrays in kernels, with a check that none is lost or dropped twice.

Numba counts a reference for every array that a function is given and every view that it takes: a
third of what is compiled, and an atomic operation of 4 ns each when it runs (measured at 4 to 20
coefficients, where the views of one row took a third of its time).  A caller holds the arrays
meanwhile, so that only functions that make arrays, or return them, need to count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import ir, types
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import TypingError

# Names by which a kernel's code makes arrays.
MAKERS = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like"}
MAKERS |= {"arange", "array", "copy", "ravel", "concatenate", "sort", "argsort"}
MAKERS |= {"dot", "eigh", "qr", "svd", "solve"}
# Operations whose result may be a new array.
_MAKING = ("call", "binop", "inplace_binop", "unary")


def makes_arrays(function: Callable[..., Any]) -> bool:
    """Test whether the code of a kernel names a function that makes arrays."""
    return not MAKERS.isdisjoint(function.__code__.co_names)


@register_pass(mutates_CFG=False, analysis_only=True)
class CheckReferences(AnalysisPass):
    """Refuse kernels that would lose references to arrays, or drop some that are not theirs."""

    _name = "check_references"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        counts, name = state.flags.nrt, state.func_id.func_qualname
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value = assignment.value
                if (
                    isinstance(value, ir.Expr)
                    and value.op in _MAKING
                    and _is_counted(state, state.typemap[assignment.target.name])
                    and not _is_view(state, value)
                    and _comes_counted(state, value) != counts
                ):
                    raise TypingError(
                        f"line {value.loc.line} of {name} receives an array that only one side "
                        "counts as a reference: mark "
                        f"{'what it calls' if counts else name} by @kernel(makes_arrays=True)"
                    )
        to_python = not state.flags.no_cpython_wrapper
        if to_python and not counts and _is_counted(state, state.return_type):
            raise TypingError(f"{name} returns arrays: mark it by @kernel(makes_arrays=True)")
        return False


def _is_counted(state: Any, kind: Any) -> bool:
    """Test whether values of a type hold memory whose references are counted."""
    return state.targetctx.data_model_manager[kind].contains_nrt_meminfo()


def _is_view(state: Any, value: Any) -> bool:
    """Test whether an operation only puts together what its caller holds."""
    if value.op != "call":
        return False
    function = state.typemap[value.func.name]
    if isinstance(function, types.NamedTupleClass):
        return True
    return isinstance(function, types.BoundFunction) and function.typing_key == "array.reshape"


def _comes_counted(state: Any, value: Any) -> bool:
    """Test whether the maker of a value counted a reference for its receiver."""
    function = state.typemap[value.func.name] if value.op == "call" else None
    if isinstance(function, types.Dispatcher):
        return function.dispatcher.targetoptions.get("_nrt", True)
    return True
