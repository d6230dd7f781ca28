"""The decorators that compile every Numba kernel of the package."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
from numba import config, njit, types
from numba.core import event
from numba.core.ccallback import CFunc

from olsq import first_call, kernel_references
from olsq.kernel_cache import KernelCache, attach
from olsq.whole_kernels import Kernel

# Without "nnan" and "ninf", with which a compiler may remove tests for finiteness.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def kernel(
    signatures: Sequence[Any] = (),
    *,
    strict: bool = False,
    called: bool = False,
    makes_arrays: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba and keep the code on disk.

    A kernel holds the code of all kernels that it calls (:mod:`olsq.whole_kernels`). With
    ``signatures`` that code is for those types only, and compiled at once. ``forceinline=True`` is
    for what every row calls: no call is left of it. ``called=True`` is for larger functions that a
    kernel needs in several places: its code has them once. ``strict=True`` keeps the order of
    operations as written, also where it is inlined: for scaling against overflow, which a compiler
    free to reorder would undo.
    ``makes_arrays=True`` is for functions that return arrays, or call kernels that do:
    :mod:`olsq.kernel_references` finds those that make arrays by themselves.
    """
    options["no_cfunc_wrapper"] = True
    # Division follows NumPy (no exception half-way through an update).
    compiled = njit(
        nogil=True,
        error_model="numpy",
        fastmath=False if strict else FASTMATH,
        **options,
    )

    def decorate(function: Callable[..., Any]) -> Any:
        plain = compiled(function)
        if not hasattr(plain, "targetoptions"):  # NUMBA_DISABLE_JIT
            return plain
        counts = makes_arrays or kernel_references.makes_arrays(function)
        more = {"_nrt": counts} | ({"called": True} if called else {})
        dispatcher = Kernel(function, {}, plain.targetoptions | more)
        attach(dispatcher, function)
        attach(dispatcher.inside, function, "inside")
        for signature in signatures:
            dispatcher.inside.compile(signature)
        if signatures:
            dispatcher.inside.disable_compile()
        return dispatcher

    return decorate


def external_kernel(symbol: str, signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function callable by ``symbol`` from compiled code.

    Numba optimises a kernel that is left standing again in every library that calls it, which for
    dense algebra takes half a minute in each of a user's functions.  A call by symbol is opaque:
    the code is compiled once, kept on disk, and found when the caller is loaded.  So the module
    that defines it must have been imported before any caller runs, which importing it to call it
    does.  ``signature`` is a Numba signature of numbers and pointers.  The function must not raise.

    What is on disk is loaded at once; nothing is compiled before :func:`compile_external_kernels`,
    which whoever compiles or runs a caller calls first.  A caller that was loaded from a cache of
    its own meanwhile goes through Python, which compiles the kernel at the first call.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if getattr(config, "DISABLE_JIT", False):
            return function
        options = {"nopython": True, "error_model": "numpy", "fastmath": FASTMATH}
        callback = CFunc(function, (signature.args, signature.return_type), {}, options)
        kernel = ExternalKernel(symbol, signature, callback)
        _external_kernels[symbol] = kernel  # its code must outlive every caller
        if kernel.is_on_disk():
            kernel.compile()
        else:
            llvmlite.binding.add_symbol(symbol, kernel.address_in_python())
            waiting_kernels.add(kernel)
        return types.ExternalFunction(symbol, signature)

    return decorate


class _Compilations(event.Listener):
    """Tell those who wait while Numba compiles kernels of this package."""

    def on_start(self, event: Any) -> None:
        if (name := _kernel_of(event)) is not None:
            first_call.begin(name)

    def on_end(self, event: Any) -> None:
        if _kernel_of(event) is not None:
            first_call.end()


def _kernel_of(happening: Any) -> str | None:
    """Return the name of the kernel of this package that an event is about, or None."""
    function: Any = getattr((happening.data or {}).get("dispatcher"), "py_func", None)
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return None
    return f"{module.rpartition('.')[2]}.{function.__name__}"


event.register("numba:compile", _Compilations())


class ExternalKernel:
    """A function that compiled code calls by symbol."""

    def __init__(self, symbol: str, signature: Any, callback: Any) -> None:
        self.symbol, self.is_compiled = symbol, False
        self._signature, self._callback, self._lock = signature, callback, threading.Lock()
        attach(callback, callback._pyfunc)
        plain = [_C_TYPES.get(kind, ctypes.c_void_p) for kind in signature.args]
        self._c_type = ctypes.CFUNCTYPE(_C_TYPES[signature.return_type], *plain)
        self._in_python = self._c_type(self._run)

    def is_on_disk(self) -> bool:
        """Test whether the compiled code is in the cache."""
        cache = self._callback._cache
        return isinstance(cache, KernelCache) and cache.holds(self._signature)

    def compile(self) -> int:
        """Compile or load the code, if that is still to do; return its address."""
        with self._lock:
            if not self.is_compiled:
                with first_call.waiting(self.symbol):
                    self._callback.compile()
                llvmlite.binding.add_symbol(self.symbol, self._callback.address)
                self.is_compiled = True
        return self._callback.address

    def address_in_python(self) -> int:
        """Return the address of a function that compiles this one, and calls it."""
        address = ctypes.cast(self._in_python, ctypes.c_void_p).value
        assert address is not None
        return address

    def _run(self, *arguments: Any) -> Any:
        return self._c_type(self.compile())(*arguments)


_C_TYPES = {types.float64: ctypes.c_double, types.intp: ctypes.c_ssize_t}
_external_kernels: dict[str, ExternalKernel] = {}
waiting_kernels: set[ExternalKernel] = set()  # those to compile before a caller


def compile_external_kernels() -> None:
    """Compile the kernels that are called by symbol, or load them, if that is still to do."""
    for kernel in list(waiting_kernels):
        kernel.compile()
        waiting_kernels.discard(kernel)
