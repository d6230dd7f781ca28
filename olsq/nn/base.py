"""Base class of mixers: the call, state and solver that models rely on."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from typing import Any, ClassVar, NamedTuple, Self, overload

import equinox as eqx
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flag
from olsq.nn.diagnostics import Diagnostics
from olsq.nn.parts import check_segment_ids, check_stream
from olsq.sequence.jax.meshes import on_automatic_axes
from olsq.sequence.jax.pieces import time_in_pieces
from olsq.solvers import Solver

ABSENT: Any = object()  # "no state was given", where None is the state of an empty past


class MixerState(NamedTuple):
    """State of a mixer after the tokens so far.

    Attributes
    ----------
    convolution : array (B, width - 1, channels) or None
        Last inputs of the short convolution.  Where a mixer rotates its keys a pair: the next
        positions (B,), and these.
    rule : pytree
        State of the rule in :mod:`olsq.attention`.

    Notes
    -----
    The first axis of every array is the batch, so that rows can be taken and chosen
    (:func:`olsq.nn.take_rows`); only a number without axes is shared by them.
    """

    convolution: Any
    rule: Any

    __repr__ = brief_repr


@functools.cache
def _flags(kind: type) -> set[str]:
    """Return the options of a mixer that are True or False, by their annotations."""
    makers = (inspect.signature(base.__init__) for base in kind.__mro__ if base is not object)
    every = (p for maker in makers for p in maker.parameters.values())
    return {p.name for p in every if p.annotation in (bool, "bool")}


class Mixer(eqx.Module):
    """A layer that mixes tokens along time: ``y = layer(x)`` or ``y, state = layer(x, state=...)``.

    Subclasses define :meth:`mix`; :class:`HeadMixer` does most of it for rules with heads.  Those
    that solve a regression have a static field ``solver``, and may override :meth:`diagnose` and
    :meth:`shard_time`; models know mixers by these methods only.

    Attributes
    ----------
    dim : int
        Width of the stream.
    causal : bool
        Whether a token reads nothing after it; a language model needs that.
    takes_key_size : bool
        Whether it has heads whose width is an option.
    solver : solver of :mod:`olsq` or None
        Of its regression, where it has such a field; None there is the mixer's default.
    shards : int
        How many devices time is split over: see :meth:`shard_time`.
    """

    dim: eqx.AbstractVar[int]
    causal: ClassVar[bool] = True
    takes_key_size: ClassVar[bool] = True
    solver: ClassVar[Solver | None] = None
    shards: int = eqx.field(static=True, default=1, kw_only=True)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Set in every instance, whatever its __init__ does: Equinox treats a layer without one of
        # its fields as another type of object.
        self = super().__new__(cls)
        for name in _flags(cls) & kwargs.keys():
            check_flag(name, kwargs[name])
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING:
                object.__setattr__(self, field.name, field.default)
        return self

    @overload
    def __call__(
        self, x: ArrayLike, *, segment_ids: ArrayLike | None = None, capacity: int | None = None
    ) -> Array: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        *,
        state: MixerState | None,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
    ) -> tuple[Array, MixerState]: ...
    @on_automatic_axes
    def __call__(
        self,
        x: ArrayLike,
        *,
        state: MixerState | None = ABSENT,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
    ) -> Array | tuple[Array, MixerState]:
        """Mix tokens.

        Parameters
        ----------
        x : array (B, T, dim)
            float32, bfloat16 or float64; the layer computes in its dtype, solves and sums in
            float32 or better.
        state : MixerState or None, optional
            Of the tokens before; None for none.  If given, the new state is returned too.
        segment_ids : int array (B, T), optional
            Sequences packed into one row: non-decreasing; nothing passes from one to the next.
        capacity : int, optional
            Tokens that the returned cache has room for, where a rule's cache grows.  Without it
            the cache of a stream that goes on grows as needed, outside ``jax.jit``.

        Returns
        -------
        y : array (B, T, dim)
        state : MixerState
            If ``state`` was given, be it None.
        """
        x = check_stream("x", x, self.dim)
        ids = None if segment_ids is None else check_segment_ids(segment_ids, x.shape[:2])
        past = None if state is ABSENT else state
        with time_in_pieces(self.shards):
            y, after = self.mix(x, past, ids, capacity)
        return y if state is ABSENT else (y, after)

    @abc.abstractmethod
    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        """Compute outputs (B, T, dim) and the state after the last token."""

    @property
    def grows(self) -> bool:
        """True if its state grows with the stream, so that it needs a capacity."""
        return False

    def reserve(self, state: MixerState, tokens: int, capacity: int | None) -> MixerState:
        """Make room in the state for ``tokens`` more, or for ``capacity`` in all.

        Returns it unchanged unless the state grows.
        """
        return state

    def room(self, state: MixerState) -> tuple[int, int]:
        """Return the capacity of a state that grows, and the tokens it holds, where they are
        concrete.

        Under ``jax.jit`` the second equals the first.
        """
        return 0, 0

    def start_decoding(self, state: MixerState) -> MixerState:
        """Convert the state to the form that is cheapest for decoding token by token.

        Returns it unchanged unless a mixer has another form; the layer accepts either.
        """
        return state

    def stop_decoding(self, state: MixerState) -> MixerState:
        """Convert the state back to the form sequences return, undoing :meth:`start_decoding`."""
        return state

    @classmethod
    def solves(cls) -> bool:
        """Test whether the mixer has a solver that can be changed: a field of that name."""
        return any(field.name == "solver" for field in dataclasses.fields(cls))

    def with_solver(self, solver: Solver | None) -> Self:
        """Return the same weights with another solver, None for the default.

        A mixer without a solver is returned unchanged.
        """
        return self._with(solver=solver) if self.solves() else self

    def _with(self, **changed: Any) -> Self:
        """Copy the mixer with some fields changed."""
        copy = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = changed.get(field.name, getattr(self, field.name))
            object.__setattr__(copy, field.name, value)
        return copy

    def diagnose(self, x: Array, every: int) -> Diagnostics | None:
        """Report what the mixer does at each token of x (B, T, dim).

        Returns None if it has nothing to report.

        See :func:`olsq.nn.diagnose`.
        """
        return None

    def shard_time(self, shards: int) -> Self:
        """Return the same weights, set for a time axis split over ``shards`` devices.

        Rules then work on each device's piece of time and exchange memories, windows or, around a
        ring, pieces; for other operations along time the compiler gathers all of it.
        """
        return self if shards == self.shards else self._with(shards=shards)
