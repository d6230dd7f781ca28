"""Decoding: read prompts of equal or different lengths from any state, then token by token."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import concrete
from olsq.arrays.unshared import unshared
from olsq.nn.blocks import Backbone, States
from olsq.nn.generation import generate
from olsq.nn.prompts import choose_rows, padded_on_the_left, read_prompts

Method = TypeVar("Method", bound=Callable[..., Any])


class _Plain:
    """A method that is returned as a plain function on each access, hashed by identity.

    Equinox binds methods as modules, equal if their weights are, and ``jax.jit`` accepts no
    function that it cannot hash; it also looks through the methods that Python binds.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self.function
        bound = functools.partial(self.function, owner)
        vars(bound).update(__doc__=self.__doc__, __name__=self.function.__name__)
        return bound


def hashable_method(method: Method) -> Method:
    """Make a method of a module hashable, so that ``jax.jit`` accepts it."""
    return _Plain(method)  # pyright: ignore[reportReturnType]


class Decoder(eqx.Module):
    """Methods of a language model with states: ``prefill``, ``step`` and ``generate``.

    A subclass has to have ``vocab_size``, ``dtype``, ``backbone``, ``hidden`` and ``logits``, those
    of :class:`LanguageModel`.
    """

    backbone: eqx.AbstractVar[Backbone]

    @abc.abstractmethod
    def hidden(self, tokens: ArrayLike, **options: Any) -> Any:
        """Compute the stream after the last norm; see :meth:`LanguageModel.hidden`."""

    @abc.abstractmethod
    def logits(self, y: Array) -> Array:
        """Compute the logits of a stream; see :meth:`LanguageModel.logits`."""

    @hashable_method
    def prefill(
        self,
        tokens: Any,
        *,
        state: States | None = None,
        lengths: ArrayLike | None = None,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
    ) -> tuple[Array, States]:
        """Read prompts, from the start or from a state.

        Returns the next token's logits and the state.

        A conversation goes on from turn to turn, a long prompt is read in pieces, and the result is
        that of reading everything at once.

        Parameters
        ----------
        tokens : int array (B, T), or list of B lists
            In [0, vocab_size), T >= 1.  Lists may have different lengths.
        state : tuple of MixerState, optional
            Of the tokens before: of this method, of :meth:`step` or of a call.  It is not changed.
        lengths : int array (B,), optional
            Tokens of each prompt, in [1, T]; the rest of its row is padding, of any token.  With a
            state also 0: that row stays as it was.
        segment_ids : int array (B, T), optional
            Documents packed into one row, non-decreasing; the state is that of the last one.
            Padding on the left is a document of its own: 0 there, 1 in the prompt.
        capacity : int, optional
            Tokens, those before and padding included, that caches of softmax attention have room
            for; every other state has a constant size.  If None the prompt's length; a cache that
            goes on then grows as needed.  Under ``jax.jit`` it cannot grow by itself.

        Returns
        -------
        logits : array (B, vocab_size)
            Of the token after each prompt; NaN in rows that had no token.
        state : tuple of MixerState
            In the form that is cheapest to decode with.

        Raises
        ------
        ValueError
            If tokens, lengths, segment ids, capacity or state do not fit; under ``jax.jit`` if a
            cache would have to grow and no capacity is given.

        Notes
        -----
        Prompts of several lengths cost as many tokens as the longest, B times.  After a state they
        are read in pieces of halving size, at most twice as many tokens and ``log2 T`` calls, so
        that padding reaches no state.

        Examples
        --------
        >>> import jax, numpy as np, olsq.nn
        >>> sizes = dict(dim=8, blocks=1, heads=2, mixer="gla")
        >>> model = olsq.nn.LanguageModel(8, **sizes, key=jax.random.key(0))
        >>> _, state = model.prefill([[1, 2], [3, 4]])
        >>> more, _ = model.prefill([[5, 6, 7], [5]], state=state)
        >>> whole, _ = model.prefill([[1, 2, 5, 6, 7], [3, 4, 5]])
        >>> bool(np.allclose(more, whole, atol=1e-5))
        True
        """
        logits, after = _prefill(self, tokens, state, lengths, segment_ids, capacity)
        return logits, self.backbone.start_decoding(after)

    @hashable_method
    def step(self, token: ArrayLike, state: States) -> tuple[Array, States]:
        """Read one token; return the next token's logits and the state.

        Parameters
        ----------
        token : int array (B,)
        state : tuple of MixerState
            Of :meth:`prefill` or of the step before.

        Returns
        -------
        logits : array (B, vocab_size)
            Of the token after it.
        state : tuple of MixerState

        Notes
        -----
        ``jax.jit(model.step)`` compiles it, with the weights as constants.  Caches of softmax
        attention grow outside ``jax.jit`` only; where one is full under it the logits are NaN: give
        ``capacity`` to :meth:`prefill`.
        """
        ids = jnp.asarray(unshared(token))
        if ids.ndim != 1 or not jnp.issubdtype(ids.dtype, jnp.integer):
            raise ValueError(
                f"token must be integers of shape (batch,), got {ids.dtype} {ids.shape}"
            )
        y, after = self.hidden(ids[:, None], state=state)
        return self.logits(y)[:, 0], after

    def generate(self, prompts: Any, steps: int, **options: Any) -> Any:
        """Sample a continuation: int32 (B, steps) after prompts (B, T).

        Options are those of :func:`olsq.nn.generate`: key, lengths, state, temperature, top_k,
        top_p, min_p, repetition_penalty, num_samples, stop, stream, return_state.
        """
        return generate(self, prompts, steps, **options)


def _prefill(
    model: Any,
    tokens: ArrayLike,
    state: Any,
    lengths: ArrayLike | None,
    segment_ids: ArrayLike | None,
    capacity: int | None,
) -> tuple[Array, Any]:
    """Run :meth:`Decoder.prefill`, without converting its state for decoding."""
    backbone = model.backbone
    prompts, prompt_lengths = read_prompts(
        tokens, lengths, model.vocab_size, 0 if state is not None else 1
    )
    if prompt_lengths is not None and segment_ids is not None:
        raise ValueError(
            "give lengths or segment_ids, not both; padding on the left can be a segment of its own"
        )
    if capacity is not None and not isinstance(capacity, (int, np.integer)):
        raise ValueError(f"capacity must be a whole number (static under jit), got {capacity!r}")
    if state is not None:
        backbone.check_state(state, prompts.shape[0])
        if prompts.shape[1] > 1 or prompt_lengths is not None or segment_ids is not None:
            state = backbone.stop_decoding(state)  # one token is a step, which compiles sooner too
        if capacity is None and backbone.grows and _traced(state):
            raise ValueError(
                "capacity is needed under jax.jit, where a cache of softmax attention cannot grow "
                "by itself: give capacity=, all tokens it is to hold, those before included"
            )
    if prompt_lengths is None:
        y, after = model.hidden(prompts, state=state, segment_ids=segment_ids, capacity=capacity)
        return model.logits(y[:, -1:])[:, 0], after
    if state is None:
        prompts, ids = padded_on_the_left(prompts, prompt_lengths)
        y, after = model.hidden(prompts, state=None, segment_ids=ids, capacity=capacity)
        return model.logits(y[:, -1:])[:, 0], after
    y, after = _read_rows_in_pieces(model, prompts, state, prompt_lengths, capacity)
    return model.logits(y[:, None])[:, 0], after


def _traced(tree: Any) -> bool:
    return any(concrete(x) is None for x in jax.tree.leaves(tree))


def _read_rows_in_pieces(
    model: Any, tokens: Array, state: Any, lengths: Any, capacity: int | None
) -> tuple[Array, Any]:
    """Read each row's tokens from a state.

    Returns the stream (B, dim) after its last token, and the state.

    No token leaves every state unchanged, and padding must not reach one. So rows read pieces of
    their own: first the length that all have, then powers of two, each row those that make up its
    length. A piece is computed for all rows and kept by those that read it, but has a place in the
    caches of all. The stream is NaN in a row without tokens.
    """
    b, t = tokens.shape
    sizes = list(_piece_sizes(t, concrete(lengths)))
    more = max(0, sum(sizes) - t)
    state = model.backbone.reserve(state, sum(sizes), None if capacity is None else capacity + more)
    taken = jnp.zeros(b, jnp.int32)
    last = jnp.full((b, model.backbone.dim), jnp.nan, model.dtype)
    for size in sizes:
        at = jnp.minimum(taken[:, None] + jnp.arange(size, dtype=jnp.int32), t - 1)
        y, after = model.hidden(jnp.take_along_axis(tokens, at, 1), state=state)
        takes = taken + size <= jnp.asarray(lengths)
        state = choose_rows(takes, after, state)
        last = jnp.where(takes[:, None], y[:, -1], last)
        taken = taken + jnp.where(takes, size, 0)
    return last, state


def _piece_sizes(most: int, lengths: Any) -> Iterator[int]:
    """Yield sizes of pieces that make up every length up to ``most``, or the concrete lengths."""
    common = 0 if lengths is None else int(lengths.min())
    if common:
        yield common
    most_left = most - common if lengths is None else int(lengths.max()) - common
    for bit in reversed(range(most_left.bit_length())):
        if lengths is None or ((lengths - common) >> bit & 1).any():
            yield 1 << bit
