"""The decorator that compiles every Numba kernel of the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
from numba import config, njit, types
from numba.core.ccallback import CFunc

from olsq.kernels.kernel_cache import attach, attach_callback

# Without "nnan" and "ninf", with which a compiler may remove tests for finiteness.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def kernel(
    signatures: Sequence[Any] = (), *, strict: bool = False, borrows: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba and keep the code on disk (``kernel_cache``).

    With ``signatures`` it is compiled at once, and for those only. ``forceinline=True`` compiles it
    into every caller. Without it, a call uses another copy of the function, with sums in another
    order, in the process that compiled it than in one that loaded it from disk: whatever a resumed
    run must repeat to the last bit is inlined. (The large kernels of whole sequences would take
    twice as long to compile.) ``strict=True`` keeps the order of operations as written, also where
    it is inlined: for scaling against overflow, which a compiler free to reorder would undo.
    ``borrows=True`` is for functions that make no arrays but views: these are not counted as
    references.  A count is an atomic operation, 4 ns each (measured at 4 to 20 coefficients, where
    the views of one row took a third of its time).
    """
    if borrows:
        options["_nrt"] = False
    # Division follows NumPy (no exception half-way through an update).
    compiled = njit(
        nogil=True, error_model="numpy", fastmath=False if strict else FASTMATH, **options
    )

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = compiled(function)
        attach(dispatcher)
        if signatures and hasattr(dispatcher, "compile"):
            for signature in signatures:
                dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def external_kernel(symbol: str, signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at once and makes it callable by ``symbol``.

    Numba optimises a kernel that is left standing again in every library that calls it, which for
    dense algebra takes half a minute in each of a user's functions.  A call by symbol is opaque:
    the code is compiled once, kept on disk, and found when the caller is loaded.  So the module
    that defines it must have been imported before any caller runs, which importing it to call it
    does.  ``signature`` is a Numba signature of numbers and pointers.  The function must not raise.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if getattr(config, "DISABLE_JIT", False):
            return function
        options = {"nopython": True, "error_model": "numpy", "fastmath": FASTMATH}
        callback = CFunc(function, (signature.args, signature.return_type), {}, options)
        attach_callback(callback, function)
        callback.compile()
        llvmlite.binding.add_symbol(symbol, callback.address)
        _live_callbacks[symbol] = callback  # its code must outlive every caller
        return types.ExternalFunction(symbol, signature)

    return decorate


_live_callbacks: dict[str, CFunc] = {}
