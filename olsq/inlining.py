"""Kernels that are compiled into their callers, without machine code of their own.

Numba optimises a function with ``forceinline`` and makes machine code of it before it compiles it
into its callers, where both are done again: twice the work for a function that Python never calls.
A :class:`Kernel` is two dispatchers of one function. Python calls the first. Other kernels are
given the second, whose code stays as Numba's front end leaves it until the caller is optimised.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder, compile_result
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NoPythonSupportedFeatureValidation

INLINED = "inlined"  # the kind of code, where it is saved


class Kernel(CPUDispatcher):
    """A compiled function; other kernels take its code in, where that is asked for."""

    def __init__(
        self, py_func: Any, locals: Any, targetoptions: Any, is_inlined: bool = False
    ) -> None:
        super().__init__(py_func, locals, targetoptions)
        self.inlined = None
        if is_inlined:
            into_callers = {"forceinline": True, "no_cpython_wrapper": True}
            options = targetoptions | into_callers
            self.inlined = CPUDispatcher(py_func, locals, options, InlinedCompiler)

    @property
    def _numba_type_(self) -> Any:
        """What other kernels compile a call of this one to."""
        return types.Dispatcher(self.inlined or self)

    def add_overload(self, cres: Any) -> None:
        """Keep what was compiled; functions within may raise errors with values in their texts."""
        super().add_overload(cres)
        for environment in cres._find_referenced_environments():
            cres.library.codegen.set_env(environment.env_name, environment)


class InlinedLibrary(JITCodeLibrary):
    """Code that is linked into other libraries, and optimised there."""

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return self  # has no machine code that an environment could be written to

    def set_env(self, env_name: str, env: Any) -> None: ...

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        return self.name, INLINED, self._final_module.as_bitcode()


@register_pass(mutates_CFG=False, analysis_only=True)
class IntoCallers(FunctionPass):
    """Have the code that is lowered next put into an :class:`InlinedLibrary`."""

    _name = "into_callers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        codegen = state.targetctx.codegen()
        state.library = InlinedLibrary(codegen, state.func_id.func_qualname)
        return False


class InlinedCompiler(CompilerBase):
    """Numba's steps, with the library of the last one chosen here."""

    def define_pipelines(self) -> list[Any]:
        steps = DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps.add_pass_after(IntoCallers, NoPythonSupportedFeatureValidation)
        steps.finalize()
        return [steps]


def rebuild(target_context: Any, payload: Any) -> Any:
    """Make a compiled function of what was saved, of either kind."""
    code, fndesc, environment, signature, objectmode, lifted, *_ = payload
    name, kind, bitcode = code
    if kind != INLINED:
        return CompileResult._rebuild(target_context, *payload)
    library = InlinedLibrary(target_context.codegen(), name)
    library._final_module = llvmlite.binding.parse_bitcode(bitcode)
    library.finalize()
    return compile_result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=target_context.get_executable(library, fndesc, environment),
        fndesc=fndesc,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
    )
