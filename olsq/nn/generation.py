"""Sampling from a language model token by token, from prompts or from a state."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag, concrete
from olsq.nn.prompts import choose_rows, read_prompts, take_rows
from olsq.nn.sampling import Sampling, check_whole, draw, read_stops, row_keys


class Progress(NamedTuple):
    """State of a running generation: R rows with their caches, last tokens and stopping rules."""

    state: Any  # after the tokens before the last one drawn, where that is waiting
    token: Any  # (R,) the last one drawn
    waiting: Any  # (R,) bool: it was drawn, and the model has not read it
    done: Any  # (R,) bool: nothing more is drawn
    recent: Any  # (R, L) the last tokens drawn, -1 before; None: nothing stops
    occurred: Any  # (R, V) bool: tokens of the prompt and since; None: no penalty


def generate(
    model: Any,
    tokens: Any,
    steps: int,
    *,
    key: Any = None,
    lengths: ArrayLike | None = None,
    state: Any = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    num_samples: int | None = None,
    stop: Any = None,
    pad: int = -1,
    stream: bool = False,
    return_state: bool = False,
) -> Any:
    """Sample a continuation of each prompt.

    Parameters
    ----------
    model : LanguageModel
    tokens : int array (B, T), or list of B lists
        Prompts, T >= 1.  Lists may have different lengths.
    steps : int
        Tokens to sample, at most, if something stops.
    key : jax.random.key, int or keys (B,)
        A seed will do; needed unless the temperature is 0.  The draws of a row depend only on the
        key and the row's place in the batch; with keys (B,) only on its own key.
    lengths : int array (B,), optional
        Of prompts that are padded on the right, as for :meth:`LanguageModel.prefill`.
    state : tuple of MixerState, optional
        Of the tokens before the prompts; an empty past if None.
    temperature : float
        Of the softmax over logits; 0 takes the most likely token.
    top_k : int, optional
        Sample among the k most likely tokens only.
    top_p : float, optional
        Sample among the fewest tokens that have at least this probability together, in (0, 1].
    min_p : float, optional
        Sample among tokens at least this times as likely as the likeliest, in [0, 1].
    repetition_penalty : float, optional
        Divide the logits of tokens of the prompt and since by it where they are positive, multiply
        where negative; 1 is none.
    num_samples : int, optional
        Continuations of each prompt, which is read once.
    stop : int, or list of ints and lists of ints, optional
        Tokens, and sequences of tokens, after which a row ends; they are part of it.
    pad : int
        What follows the end of a row: -1 is no token.
    stream : bool
        Return an iterator of tokens instead, of arrays (B,) as they are drawn.
    return_state : bool
        Return the state after all tokens of each row too, to go on from.

    Returns
    -------
    int32 array (B, steps), or (B, num_samples, steps)
        Or, with ``return_state``, this and a tuple of MixerState of B, or B num_samples, rows.
        With ``stream`` a :class:`TokenStream` of NumPy arrays (B,), or (B, num_samples), with
        the state as an attribute.

    Raises
    ------
    ValueError
        If an option is out of range, or a key is missing.

    Notes
    -----
    Penalty, temperature, top_k, top_p and min_p in this order, each on what the one before left.
    Compiled once per shape; of the options, ``top_k`` and which others there are belong to it.  It
    ends when all rows have.  The memory is that of one token: the states of all mixers have a
    constant size (that of softmax attention, T + steps tokens).

    References
    ----------
    Keskar et al., "CTRL" (2019), section 4.1 (the penalty); Holtzman et al., "The Curious Case of
    Neural Text Degeneration" (2020) (top_p); Nguyen et al., "Turning Up the Heat: Min-p Sampling"
    (2024).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.LanguageModel(16, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> model.generate([[3, 1], [4]], 5, temperature=0).shape
    (2, 5)
    """
    stream, return_state = check_flag("stream", stream), check_flag("return_state", return_state)
    steps = check_whole("steps", steps, 1)
    sampling = Sampling.checked(
        temperature, top_k, top_p, min_p, repetition_penalty, model.vocab_size
    )
    if not sampling.greedy and key is None:
        raise ValueError("key is needed to sample (a seed will do), unless temperature=0")
    samples = 1 if num_samples is None else check_whole("num_samples", num_samples, 1)
    stops = read_stops(stop, model.vocab_size)
    pad = check_whole("pad", pad, -(2**31))
    # Checked here, where the values are still concrete.
    prompts, prompt_lengths = read_prompts(
        tokens, lengths, model.vocab_size, 0 if state is not None else 1
    )
    if (
        prompt_lengths is not None
        and (counts := concrete(prompt_lengths)) is not None
        and 0 in counts
    ):
        raise ValueError("lengths must be at least 1: what follows an empty prompt is not known")
    rows = prompts.shape[0]
    keys = row_keys(0 if key is None else key, rows, samples)
    if state is not None:
        model.backbone.check_state(state, rows)
    capacity = model.backbone.capacity_for(state, prompts.shape[1] + steps)
    logits, state = compiled_prefill(model, prompts, prompt_lengths, state, capacity)
    shape: tuple[int, ...] = (rows,)
    if num_samples is not None:
        shape = rows, samples
    each = np.repeat(np.arange(rows), samples)
    logits, state = take_rows((logits, state), each) if samples > 1 else (logits, state)
    occurred: Any = None
    if sampling.penalty is not None:
        occurred = _tokens_of(prompts, prompt_lengths, model.vocab_size)[each]
    nothing, recent = np.zeros(len(each), bool), None
    if stops is not None:
        recent = np.full((len(each), stops.shape[1]), -1, np.int32)
    start = Progress(state, np.zeros(len(each), np.int32), nothing, nothing, recent, occurred)
    if stream:
        return TokenStream(model, logits, start, (keys, sampling, stops), steps, pad, shape)
    continuations, state = _continue(
        model, logits, start, keys, sampling, stops, pad, steps, return_state
    )
    continuations = continuations.reshape(*shape, steps)
    return (continuations, state) if return_state else continuations


class TokenStream:
    """An iterator of tokens as they are drawn: int32 arrays (B,), or (B, num_samples).

    What :func:`generate` returns with ``stream=True``.  A row that has stopped gives ``pad``; when
    all have, or after the last step, the iterator ends.

    Attributes
    ----------
    state : tuple of MixerState
        After all tokens given so far, to go on from at any time.
    """

    def __init__(
        self,
        model: Any,
        logits: Array,
        progress: Progress,
        options: Any,
        steps: int,
        pad: int,
        shape: tuple[int, ...],
    ) -> None:
        self._model, self._options, self._steps = model, options, steps
        self._logits: Array | None = logits
        self._progress, self._place, self._pad, self._shape = progress, 0, pad, shape

    def __iter__(self) -> TokenStream:
        return self

    def __next__(self) -> NDArray[np.int32]:
        if self._place == self._steps or (self._place and np.asarray(self._progress.done).all()):
            raise StopIteration
        logits = self._read()
        # A NumPy integer: jax.jit would compile again for every value of a Python one.
        place = np.int32(self._place)
        self._progress = _choose(logits, self._progress, place, *self._options)
        self._logits, self._place = None, self._place + 1
        token, waiting = jax.device_get((self._progress.token, self._progress.waiting))
        return np.where(waiting, token, self._pad).astype(np.int32).reshape(self._shape)

    @property
    def state(self) -> Any:
        self._read()
        return self._progress.state

    def _read(self) -> Array:
        if self._logits is None:
            self._logits, self._progress = _advance(self._model, self._progress)
        return self._logits


@eqx.filter_jit
def compiled_prefill(
    model: Any, prompts: Array, lengths: Any, state: Any, capacity: int | None
) -> tuple[Array, Any]:
    """Run :meth:`Decoder.prefill`, compiled once for each shape."""
    return model.prefill(prompts, lengths=lengths, state=state, capacity=capacity)


@partial(jax.jit, static_argnums=2)
def _tokens_of(prompts: Array, lengths: Any, vocab_size: int) -> Array:
    """Mark the tokens that each prompt contains, (B, V)."""
    b, t = prompts.shape
    if lengths is not None:  # padding gets an index outside the vocabulary, which the scatter drops
        prompts = jnp.where(jnp.arange(t) < jnp.asarray(lengths)[:, None], prompts, vocab_size)
    occurred = jnp.zeros((b, vocab_size), bool)
    return occurred.at[jnp.arange(b)[:, None], prompts].set(True, mode="drop")


def next_tokens(
    logits: Array,
    progress: Progress,
    place: Any,
    keys: Array,
    sampling: Sampling,
    stops: Array | None,
) -> Progress:
    """Draw a token in every row that has not ended."""
    token = draw(logits, keys, place, sampling, progress.occurred)
    done, recent, occurred = progress.done, progress.recent, progress.occurred
    if stops is not None and recent is not None:
        recent = jnp.concatenate([recent[:, 1:], token[:, None]], 1)
        ends = ((recent[:, None] == stops) | (stops < 0)).all(-1).any(-1)
        done = done | ends
    if occurred is not None:
        occurred = occurred.at[jnp.arange(len(token)), token].set(True)
    return Progress(progress.state, token, ~progress.done, done, recent, occurred)


def advance(model: Any, progress: Progress) -> tuple[Array, Progress]:
    """Let the model read the tokens drawn but not yet read.

    Rows that have ended keep their state.
    """
    logits, state = model.step(progress.token, progress.state)
    if progress.recent is not None:
        state = choose_rows(progress.waiting, state, progress.state)
    waiting = jnp.zeros_like(progress.waiting)
    return logits, progress._replace(state=state, waiting=waiting)


_choose = eqx.filter_jit(next_tokens)
_advance = eqx.filter_jit(advance)


@eqx.filter_jit
def _continue(
    model: Any,
    logits: Array,
    start: Progress,
    keys: Array,
    sampling: Sampling,
    stops: Array | None,
    pad: Any,
    steps: int,
    return_state: bool,
) -> tuple[Array, Any]:
    def put(tokens: Array, progress: Progress, place: Any) -> Array:
        token = jnp.where(progress.waiting, progress.token, pad)
        return jax.lax.dynamic_update_slice_in_dim(tokens, token[:, None], place, 1)

    def goes_on(carry: tuple[Any, Progress, Array]) -> Array:
        place, progress, _ = carry
        return (place < steps) & ~progress.done.all()

    def body(carry: tuple[Any, Progress, Array]) -> tuple[Any, Progress, Array]:
        place, progress, tokens = carry
        logits, progress = advance(model, progress)
        progress = next_tokens(logits, progress, place, keys, sampling, stops)
        return place + 1, progress, put(tokens, progress, place)

    progress = next_tokens(logits, start, 0, keys, sampling, stops)
    tokens = put(jnp.full((len(keys), steps), pad, jnp.int32), progress, 0)
    if steps > 1:
        carry = jnp.int32(1), progress, tokens
        _, progress, tokens = jax.lax.while_loop(goes_on, body, carry)
    if not return_state:
        return tokens, None
    return tokens, advance(model, progress)[1].state
