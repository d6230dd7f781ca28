"""Decorator with which every Numba kernel of the package is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import njit

from olsq.kernel_cache import attach


def kernel(
    signatures: Sequence[Any] = (), *, strict: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba and keep the code on disk (``kernel_cache``).

    With ``signatures`` it is compiled at once, and for those only. ``forceinline=True`` compiles it
    into every caller. Without it, a call uses another copy of the function, with sums in another
    order, in the process that compiled it than in one that loaded it from disk: whatever a resumed
    run must repeat to the last bit is inlined. (The large kernels of whole sequences would take
    twice as long to compile.) ``strict=True`` keeps the order of operations as written, also where
    it is inlined: for scaling against overflow, which a compiler free to reorder would undo.
    """
    # fastmath without "nnan"/"ninf", with which a compiler may remove tests for finiteness.
    # Division follows NumPy (no exception half-way through an update).
    compiled = njit(
        nogil=True,
        error_model="numpy",
        fastmath=False if strict else {"reassoc", "contract", "nsz", "arcp"},
        **options,
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
