"""Kernels that are compiled inside their callers, without machine code of their own there.

Numba optimises a function and makes machine code of it before it compiles it into its callers,
where both are done again: twice the work for a function that Python never calls. A :class:`Kernel`
is two dispatchers of one function. Python calls the first. Other kernels are given the second,
whose code stays as Numba's front end leaves it until the caller is optimised.  With Numba's own
dispatcher a first ``fit`` takes 1.7 times as long, a first path 1.9 times (2026-11-29).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite.binding import Linkage
from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import (
    CompilerBase,
    CompileResult,
    DefaultPassBuilder,
    Flags,
    compile_result,
)
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import (
    AnnotateTypes,
    DumpParforDiagnostics,
    InlineOverloads,
    NopythonRewrites,
    NopythonTypeInference,
)
from numba.core.untyped_passes import (
    InlineClosureLikes,
    InlineInlinables,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    WithLifting,
)

from olsq.kernel_references import CheckReferences
from olsq.kernel_typing import knowing

INSIDE = "inside"  # how a file of the cache names this kind of code


class Kernel(CPUDispatcher):
    """A compiled function, and beside it its code for other kernels."""

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None) -> None:
        options = dict(targetoptions or {})
        options.pop("forceinline", None)  # Python's copy is called as it stands
        compiler = CalledCompiler if options.pop("called", False) else InsideCompiler
        inside = (targetoptions or {}) | {"no_cpython_wrapper": True}
        inside.pop("called", None)
        super().__init__(py_func, locals, options, WholeCompiler)
        self.inside = InsideDispatcher(py_func, locals, inside, compiler)

    @property
    def _numba_type_(self) -> Any:
        """Return the type that this kernel has in other kernels."""
        return types.Dispatcher(self.inside)

    def add_overload(self, cres: Any) -> None:
        """Keep what was compiled; functions within may raise errors with values in their texts."""
        super().add_overload(cres)
        for environment in cres._find_referenced_environments():
            cres.library.codegen.set_env(environment.env_name, environment)


class InsideDispatcher(CPUDispatcher):
    """Code for other kernels, which is the same whether they pass constants or variables."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(types.unliteral, args)), plain)


class InsideLibrary(JITCodeLibrary):
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
        return self.name, INSIDE, self._final_module.as_bitcode()


class CalledLibrary(InsideLibrary):
    """The same, of a function that stays one in its callers: each has its code once."""

    def add_ir_module(self, ir_module: Any) -> None:
        # In the text: what llvmlite 0.43 adds to a parsed function, it adds to what that returns.
        for function in ir_module.functions:
            if not function.is_declaration and not function.linkage:
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)


class WholeLibrary(JITCodeLibrary):
    """Code that runs, with all that it calls: other libraries' copies are never called for it.

    Else the process that compiled a function could compute other last bits than one that loaded it,
    and a function with few callers would not be known to have no others. Private, not internal:
    the names of internal functions, whose arguments LLVM may change, are found by other libraries.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.private
        super()._optimize_final_module()


class OverloadFlags(Flags):
    """Flags for NumPy's and Python's functions within kernels, compared by identity.

    Numba looks for the code of every operation by the flags of the function around it.  Their
    values were compared 50,000 times in a first ``fit``, a tenth of its compilation.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class KernelFlags(Flags):
    """Flags of a kernel; Numba copies them for the functions within it."""

    def copy(self) -> Flags:
        flags: Any = OverloadFlags(self)
        # One ``np.empty`` serves all kernels, whatever becomes of them in their callers.
        for name in ("forceinline", "no_cpython_wrapper", "no_cfunc_wrapper", "nrt"):
            flags.discard(name)
        flags.nrt = True
        return _overload_flags.setdefault(flags.summary(), flags)


_overload_flags: dict[str, Flags] = {}


@register_pass(mutates_CFG=True, analysis_only=False)
class RewriteArrays(NopythonRewrites):
    """Numba's rewriting of expressions of arrays, in kernels that may have some."""

    _name = "rewrite_arrays"

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                value, kind = assignment.value, state.typemap.get(assignment.target.name)
                if (
                    isinstance(kind, types.Array)
                    and isinstance(value, ir.Expr)
                    and value.op in ("unary", "binop", "call")
                ):
                    return super().run_pass(state)
        return False


# Numba's steps for closures, comprehensions, contexts, inlined Python and listings of types.
_UNUSED = {InlineClosureLikes, WithLifting, MakeFunctionToJitFunction, InlineInlinables}
_UNUSED |= {LiteralUnroll, AnnotateTypes, DumpParforDiagnostics, NopythonRewrites}


class WholeCompiler(CompilerBase):
    """Numba's steps, into a library chosen here."""

    library: Any = WholeLibrary

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        state = self.state
        state.flags, state.typingctx = KernelFlags(state.flags), knowing(state.typingctx)
        state.targetctx = state.targetctx.subtarget(typing_context=state.typingctx)

    def define_pipelines(self) -> list[Any]:
        codegen, name = self.state.targetctx.codegen(), self.state.func_id.func_qualname
        self.state.library = self.library(codegen, name)
        self.state.library.enable_object_caching()
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [step for step in passes.passes if step[0] not in _UNUSED]
        passes.add_pass_after(CheckReferences, NopythonTypeInference)
        passes.add_pass_after(RewriteArrays, InlineOverloads)
        passes.finalize()
        return [passes]


class InsideCompiler(WholeCompiler):
    """The same, for functions inside others."""

    library = InsideLibrary


class CalledCompiler(WholeCompiler):
    """The same, for functions that are called there."""

    library = CalledLibrary


def rebuild(target_context: Any, payload: Any) -> Any:
    """Make a compiled function of what was saved, of either kind."""
    code, fndesc, environment, signature, objectmode, lifted, *_ = payload
    name, kind, bitcode = code
    if kind != INSIDE:
        return CompileResult._rebuild(target_context, *payload)
    library = InsideLibrary(target_context.codegen(), name)
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
