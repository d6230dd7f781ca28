"""Choices that depend on the device, made for the platform that a program is lowered for.

How long a chunk is and how many chunks a tile has changes the program and its speed, never its
result beyond rounding. A program may be traced on one machine and lowered for another
(``jax.export``), so a choice that differs between platforms is staged as
:func:`jax.lax.platform_dependent`: both programs are traced, one is lowered.

:func:`in_full_precision` asks for float32 products.  By default a GPU multiplies float32 in TF32
and a TPU in bfloat16, with 11 and 8 significant bits, too few for factors and residuals.  A CPU
multiplies in float32 anyway.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax

from olsq.sequence.jax.pieces import count_of_pieces

Choice = TypeVar("Choice")
Result = TypeVar("Result")

# Bytes of the largest array of a tile where the accelerator's memory is not known. A tile has some
# ten arrays of that size: 2.5 GiB fit the smallest accelerator of today (16 GB).
TILE_BYTES = 2**28
# Measured on a CPU at d 32: a training step of Mesa with gates near 0.99 takes 1.2 times that of
# gla with chunks of 32, 2 times with chunks of 64.
WIDE = 64  # width of keys above which a factor per chunk costs more than shorter chunks save
SHARE = 64  # the largest array of a tile may take one part in so many of an accelerator's memory


class Target(NamedTuple):
    """Kind of device that a program is made for.

    A CPU's tiles stay in its cache, whatever ``tile_bytes`` says. An accelerator computes as many
    chunks at once as keep the largest array of a tile within ``tile_bytes``.
    """

    cpu: bool
    tile_bytes: int = TILE_BYTES


_given: ContextVar[Target | None] = ContextVar("target of olsq's programs", default=None)


@contextlib.contextmanager
def tuned_for(target: Target | None) -> Iterator[None]:
    """Trace the code inside for ``target``, wherever it will be lowered; None leaves it open.

    The programs inside then hold one choice instead of two.  It is part of what compiled functions
    of olsq are remembered by; a function that the caller compiles with ``jax.jit`` is not traced
    again when it changes.

    Examples
    --------
    >>> from olsq.sequence.jax.platform import Target, target, tuned_for
    >>> with tuned_for(Target(cpu=False, tile_bytes=2**30)):
    ...     target().tile_bytes
    1073741824
    """
    before = _given.set(target)
    try:
        yield
    finally:
        _given.reset(before)


def given_target() -> Target | None:
    """Return the target that :func:`tuned_for` has set, or None."""
    return _given.get()


def target() -> Target:
    """Return the target set by :func:`tuned_for`; outside of it, the device of this process."""
    current = _given.get()
    if current is not None:
        return current
    return Target(True) if jax.default_backend() == "cpu" else accelerator()


def chunk_length(d: int = 0, on: Target | None = None) -> int:
    """Return the default tokens per chunk; pass ``d`` where each chunk has a factor (d, d), else 0.

    Short chunks keep gates near the reference and need fewer products inside; in long ones more
    tokens share a factor, and an accelerator multiplies larger matrices.  ``on`` defaults to
    :func:`target`.
    """
    return 32 if (on or target()).cpu and d <= WIDE else 64


@functools.cache
def accelerator() -> Target:
    """Return the target for accelerators: tiles by the memory of this process's, if it has one."""
    if jax.default_backend() == "cpu":
        return Target(False)
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return Target(False, limit // SHARE if limit else TILE_BYTES)


def by_platform(choose: Callable[[Target], Choice], run: Callable[[Choice], Result]) -> Result:
    """Return ``run(choose(target))`` for the platform that the program is lowered for.

    One program is traced where both choices are equal, where :func:`tuned_for` fixes the target,
    and where time is in pieces, since these are on the devices of the tracing process.
    """
    ours = target()
    theirs = accelerator() if ours.cpu else Target(True)
    mine = choose(ours)
    if _given.get() is not None or count_of_pieces() > 1 or choose(theirs) == mine:
        return run(mine)

    def under(one: Target) -> Callable[[], Result]:
        return tuned_for(one)(functools.partial(run, choose(one)))

    cpu, other = (ours, theirs) if ours.cpu else (theirs, ours)
    return jax.lax.platform_dependent(cpu=under(cpu), default=under(other))


def full_precision() -> contextlib.AbstractContextManager[Any]:
    """Make matrix products that are traced inside, and their derivatives, exact float32.

    Derivatives inherit the precision of the products that they are derivatives of.
    """
    return jax.default_matmul_precision("highest")


Function = TypeVar("Function", bound=Callable[..., Any])


def in_full_precision(function: Function) -> Function:
    """Decorate ``function`` to be traced in :func:`full_precision`."""

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        with full_precision():
            return function(*args, **kwargs)

    return exact  # type: ignore[return-value]
