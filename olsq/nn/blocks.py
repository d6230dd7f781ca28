"""Backbone: pre-norm blocks of a mixer and a gated MLP, on continuous streams."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_number, check_sizes
from olsq.nn.base import ABSENT, Mixer, MixerState
from olsq.nn.depth import Remat, run_blocks
from olsq.nn.mixers import DEFAULT, MIXERS, Kinds, mixer, mixer_names
from olsq.nn.parts import (
    NORM_EPS,
    Linear,
    RMSNorm,
    check_dropout,
    check_stream,
    dropout,
    split_keys,
)
from olsq.sequence.jax.meshes import on_automatic_axes


class SwiGLU(eqx.Module):
    """``(silu(x A) * x B) C``, a gated MLP without biases: streams (..., dim) to streams.

    Parameters
    ----------
    dim : int
    width : int, optional
        Of both branches; ``ratio dim``, rounded, if None.
    ratio : float
    output_gain : float
        Of C, as for :class:`HeadMixer`.
    key : jax.random.key

    Examples
    --------
    >>> import jax, olsq.nn
    >>> mlp = olsq.nn.SwiGLU(8, key=jax.random.key(0))
    >>> mlp(jax.numpy.ones((1, 6, 8))).shape, mlp.up.weight.shape
    ((1, 6, 8), (8, 24))
    """

    gate: Linear
    up: Linear
    down: Linear

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,
        ratio: float = 3.0,
        output_gain: float = 1.0,
        key: Array,
    ) -> None:
        check_sizes(dim=dim)
        if width is None:
            ratio = min(check_number("ratio", ratio, above=0), 2**31)  # refused as a width
            width = round(ratio * dim)
        check_sizes(width=width)
        keys = split_keys(key, ("gate", "up", "down"))
        self.gate = Linear(dim, width, key=keys["gate"])
        self.up = Linear(dim, width, key=keys["up"])
        self.down = Linear(width, dim, key=keys["down"], gain=output_gain)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Block(eqx.Module):
    """Residual block: ``x + mixer(norm(x))``, then ``x + mlp(norm(x))`` unless ``mlp`` is None.

    Parameters
    ----------
    dim : int
    mixer : Mixer
    mlp : SwiGLU or None
    norm_eps : float
        Of both norms.
    dropout : float
        Rate at which what is added to the stream is dropped, in calls with a key.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> key = jax.random.key(0)
    >>> block = olsq.nn.Block(8, olsq.nn.GLA(8, heads=2, key=key), None)
    >>> y, state = jax.eval_shape(lambda x: block(x, None, None, None), jax.numpy.ones((1, 6, 8)))
    >>> y.shape, state.rule.matrix.shape
    ((1, 6, 8), (1, 2, 4, 4))
    """

    mixer_norm: RMSNorm
    mixer: Mixer
    mlp_norm: RMSNorm | None
    mlp: SwiGLU | None
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        mixer: Mixer,
        mlp: SwiGLU | None,
        norm_eps: float = NORM_EPS,
        dropout: float = 0.0,
    ) -> None:
        self.mixer_norm, self.mixer = RMSNorm(dim, eps=norm_eps), mixer
        self.mlp_norm = None if mlp is None else RMSNorm(dim, eps=norm_eps)
        self.mlp, self.dropout = mlp, dropout

    def __call__(
        self,
        x: Array,
        state: MixerState | None,
        segment_ids: ArrayLike | None,
        capacity: int | None,
        key: Array | None = None,
    ) -> tuple[Array, MixerState]:
        """Run the block: the stream (B, T, dim) after it, and always the state of its mixer.

        Arguments are those of :meth:`Mixer.__call__`, all given; None where there are none. Nothing
        is dropped without a key.
        """
        first, second = (None, None) if key is None else jax.random.split(key)
        y, after = self.mixer(
            self.mixer_norm(x), state=state, segment_ids=segment_ids, capacity=capacity
        )
        x = x + dropout(y, self.dropout, first)
        if self.mlp is not None and self.mlp_norm is not None:
            x = x + dropout(self.mlp(self.mlp_norm(x)), self.dropout, second)
        return x, after


States = tuple[MixerState, ...]  # one per block


class Backbone(eqx.Module):
    """Blocks one after the other, and a last norm: streams (B, T, dim) to streams.

    Parameters
    ----------
    dim, blocks, heads, key_size : int
    mixer : str, class, or sequence of them
        Keys of ``olsq.nn.MIXERS``; a sequence is repeated over the blocks.
    mixer_options : mapping of mappings, optional
        Options of each mixer by its name: ``{"mesa": {"solver": olsq.ConjugateGradient()}}``.
    mlp_ratio : float
        Width of the MLP over ``dim``; 0 leaves MLPs out.
    norm_eps : float
        Of the norms of the stream; a mixer's own is one of its options.
    dropout : float
        Rate, in [0, 1), at which what mixers and MLPs add to the stream is dropped; in calls that
        are given a key only.
    remat : {"none", "dots", "full"}
        What the backward pass computes again: nothing, everything except the matrix products, or
        each block from its input.
    key : jax.random.key

    Notes
    -----
    Weights start normal in "fan in" mode; those that write to the stream have variance
    ``2 / blocks`` of that (MesaNet, appendix D.1).

    Under ``jax.jit`` blocks that repeat, alone or as a pattern, are compiled once and run as a
    loop over their stacked arrays, so that the time to compile does not grow with depth: from six
    blocks on that solve a regression, or twelve of any kind.
    """

    blocks: tuple[Block, ...]
    norm: RMSNorm
    dim: int = eqx.field(static=True)
    remat: Remat = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        blocks: int,
        heads: int,
        key_size: int | None = None,
        mixer: Kinds = DEFAULT,
        mixer_options: Mapping[str, Mapping[str, Any]] | None = None,
        mlp_ratio: float = 3.0,
        norm_eps: float = NORM_EPS,
        dropout: float = 0.0,
        remat: Remat = "none",
        key: Array,
    ) -> None:
        check_sizes(dim=dim, blocks=blocks, heads=heads)
        if remat not in get_args(Remat):
            raise ValueError(f"remat must be one of {get_args(Remat)}, got {remat!r}")
        check_dropout(dropout)
        check_number("mlp_ratio", mlp_ratio, least=0)
        check_number("norm_eps", norm_eps, least=0)
        names = pattern(mixer, blocks)
        options = dict(mixer_options or {})
        if stray := sorted(set(options) - set(names)):
            raise ValueError(
                f"mixer_options must have options for the mixers {sorted(set(names))} only, got "
                f"some for {stray}"
            )
        gain = math.sqrt(2 / blocks)
        self.blocks = tuple(
            _block(
                dim,
                heads,
                key_size,
                name,
                options.get(name, {}),
                mlp_ratio,
                norm_eps,
                dropout,
                gain,
                k,
            )
            for name, k in zip(names, jax.random.split(key, blocks), strict=True)
        )
        self.norm, self.dim, self.remat = RMSNorm(dim, eps=norm_eps), dim, remat
        self.dropout = dropout

    @overload
    def __call__(
        self,
        x: ArrayLike,
        *,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        *,
        state: States | None,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> tuple[Array, States]: ...
    @on_automatic_axes
    def __call__(
        self,
        x: ArrayLike,
        *,
        state: States | None = ABSENT,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array | tuple[Array, States]:
        """Apply the blocks: ``y = backbone(x)`` or ``y, state = backbone(x, state=...)``.

        Parameters
        ----------
        x : array (B, T, dim)
        state : tuple of MixerState or None, optional
            One per block; None for no past.  If given, the new states are returned too.
        segment_ids, capacity : optional
            As for :meth:`Mixer.__call__`.
        key : jax.random.key, optional
            For dropout; without one nothing is dropped.

        Returns
        -------
        y : array (B, T, dim)
            After the last norm.
        state : tuple of MixerState
            If ``state`` was given, be it None.
        """
        stream = check_stream("x", x, self.dim)
        past = self.check_state(None if state is ABSENT else state, stream.shape[0])
        keys = (None,) * len(past) if key is None else tuple(jax.random.split(key, len(past)))
        stream, after = run_blocks(
            self.blocks, stream, past, keys, segment_ids, capacity, self.remat, state is not ABSENT
        )
        y = self.norm(stream)
        return y if state is ABSENT else (y, after)

    def start_decoding(self, state: States) -> States:
        """Convert states, one per block, to the form that is cheapest to decode with.

        See :meth:`Mixer.start_decoding`.
        """
        return tuple(
            block.mixer.start_decoding(each) for block, each in zip(self.blocks, state, strict=True)
        )

    def stop_decoding(self, state: States) -> States:
        """Convert states back to the form that sequences return, undoing :meth:`start_decoding`."""
        return tuple(
            block.mixer.stop_decoding(each) for block, each in zip(self.blocks, state, strict=True)
        )

    def reserve(self, state: States, tokens: int, capacity: int | None = None) -> States:
        """Make room in states that grow for ``tokens`` more, or ``capacity`` in all.

        See :meth:`Mixer.reserve`.
        """
        return tuple(
            block.mixer.reserve(each, tokens, capacity)
            for block, each in zip(self.blocks, state, strict=True)
        )

    def capacity_for(self, state: States | None, tokens: int) -> int | None:
        """Return a capacity for ``tokens`` more: the present one, or at least twice as much.

        Where the number of tokens held is traced, the cache counts as full.
        """
        if not self.grows:
            return None
        if state is None:
            return tokens
        rooms = [
            block.mixer.room(each)
            for block, each in zip(self.blocks, state, strict=True)
            if block.mixer.grows
        ]
        room, taken = max(room for room, _ in rooms), max(taken for _, taken in rooms)
        return room if taken + tokens <= room else max(taken + tokens, 2 * room)

    @property
    def grows(self) -> bool:
        """True if a state grows with the stream, as that of softmax attention does."""
        return any(block.mixer.grows for block in self.blocks)

    def check_state(self, state: States | None, batch: int) -> Sequence[MixerState | None]:
        """Return one state, or None, per block.

        Raises ValueError if they are of other blocks or batches.
        """
        if state is None:
            return [None] * len(self.blocks)
        each = state if isinstance(state, tuple) else ()
        if len(each) != len(self.blocks) or not all(isinstance(s, MixerState) for s in each):
            raise ValueError(
                f"state must be a tuple of {len(self.blocks)} MixerState, one per block, as it was "
                f"returned; got a {type(state).__name__} of {[type(s).__name__ for s in each]}"
            )
        shapes = (jnp.shape(leaf) for leaf in jax.tree.leaves(state))
        if batches := {shape[0] for shape in shapes if shape and shape[0] != batch}:
            raise ValueError(
                f"state has a batch of {min(batches)} rows, but the input has {batch}: choose "
                "its rows with olsq.nn.take_rows"
            )
        return state


def pattern(mixer: Kinds, blocks: int) -> tuple[str, ...]:
    """Return the name of each block's mixer."""
    names = mixer_names(mixer)
    if not names:
        raise ValueError("mixer must name at least one mixer, got an empty sequence")
    return tuple(names[i % len(names)] for i in range(blocks))


def _block(
    dim: int,
    heads: int,
    key_size: int | None,
    name: str,
    options: Mapping[str, Any],
    mlp_ratio: float,
    norm_eps: float,
    dropout: float,
    gain: float,
    key: Array,
) -> Block:
    first, second = jax.random.split(key)
    sized = key_size is not None and MIXERS[name].takes_key_size
    sizes = {"key_size": key_size} if sized else {}
    arguments = {**sizes, "output_gain": gain, **options}
    mlp = SwiGLU(dim, ratio=mlp_ratio, output_gain=gain, key=second) if mlp_ratio else None
    return Block(dim, mixer(name, dim, heads=heads, key=first, **arguments), mlp, norm_eps, dropout)
