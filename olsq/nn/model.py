"""Language models: tokens in, logits out, with any mixer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_flags, check_number, check_sizes
from olsq.nn.base import ABSENT
from olsq.nn.blocks import Backbone, Remat, States
from olsq.nn.configuration import encode
from olsq.nn.decoding import Decoder
from olsq.nn.kinds import kind
from olsq.nn.mixers import DEFAULT, MIXERS, Kinds, mixer_names
from olsq.nn.parts import (
    NORM_EPS,
    as_bool,
    check_dropout,
    check_matrix,
    check_tokens,
    dropout,
    split_keys,
)
from olsq.nn.surgery import with_solver
from olsq.sequence.jax.inputs import promoted
from olsq.sequence.jax.meshes import on_automatic_axes
from olsq.solvers import Solver

SOFT_CAP = 30.0
Dtype = Literal["float32", "bfloat16", "float64"]
Initialisation = Literal["calibrated", "fan-in"]


class LanguageModel(Decoder):
    """A decoder of residual blocks with tied, softly capped logits: the MesaNet paper's backbone.

    Parameters
    ----------
    vocab_size : int
    dim, blocks, heads, key_size : int
        Width of the stream, number of blocks, heads of a mixer and width of a head's keys and
        values (``dim // heads`` if None).
    mixer : str, class, or sequence of them
        Keys of ``olsq.nn.MIXERS``; a sequence is repeated over the blocks: ``("hawk", "mesa")``.
    solver : optional
        Of all mixers that solve a regression; each's default if None.
    mixer_options : mapping of mappings, optional
        Options of each mixer by its name.
    mlp_ratio : float
        Width of the gated MLP over ``dim``; 0 leaves MLPs out.
    soft_cap : float or None
        A number > 0: logits are ``soft_cap tanh(logits / soft_cap)``.  None leaves them.
    tied : bool
        Read logits with the embedding; with weights of their own, ``head``, if False.
    scale_embedding : bool
        Multiply embeddings by ``sqrt(dim)`` where they enter the stream.
    dropout : float
        Rate at which embeddings, and what each mixer and MLP adds to the stream, are dropped: in
        calls that are given a ``key``, in no other, so in neither evaluation nor decoding.
    norm_eps : float
        Of the norms of the stream; a mixer's own is one of its options.
    initialisation : {"calibrated", "fan-in"}
        How loud the logits start.  "calibrated": the scale of the last norm starts at
        ``dim**-0.5``, so that the first loss is that of a guess, ``log(vocab_size)``, and its
        gradient has the same size at every width.  "fan-in": the MesaNet paper's, where that scale
        starts at 1.  Then a tied embedding predicts each token after itself with a logit of about
        ``sqrt(dim)``: losses start at 6.5, 10.4, 13.9 and 18.3 nats at widths 64, 256, 512 and
        1024 (one block, 256 tokens, ``log(256) = 5.5``), gradients at norms that grow with the
        width.  Weights have the same shapes and files the same form, whichever they started from.
    dtype : {"float32", "bfloat16", "float64"}
        Of activations.  Weights are float32; gates, sums, solves and logits float32 or better.
    remat : {"none", "dots", "full"}
        See :class:`Backbone`.
    key : jax.random.key

    Examples
    --------
    >>> import jax, jax.numpy as jnp, olsq.nn
    >>> model = olsq.nn.LanguageModel(64, dim=32, blocks=2, heads=2, key=jax.random.key(0))
    >>> tokens = jnp.array([[5, 1, 4, 1]])
    >>> model(tokens).shape
    (1, 4, 64)
    >>> logits, state = model.prefill(tokens)
    >>> logits, state = model.step(jnp.array([5]), state)
    >>> logits.shape
    (1, 64)

    References
    ----------
    von Oswald et al., "MesaNet" (2025), appendices D.1 and F.2.
    """

    embedding: Array = eqx.field(metadata=kind("embedding"))  # (vocab_size, dim)
    head: Array | None = eqx.field(metadata=kind("matrix"))  # (vocab_size, dim), if not tied
    backbone: Backbone
    vocab_size: int = eqx.field(static=True)
    soft_cap: float | None = eqx.field(static=True)
    scale_embedding: bool = eqx.field(static=True, converter=as_bool)
    dtype: Dtype = eqx.field(static=True)
    # The constructor's arguments, for files, except those that only affect the initial weights.
    configuration: str = eqx.field(static=True)

    def __init__(
        self,
        vocab_size: int,
        *,
        dim: int,
        blocks: int,
        heads: int,
        key_size: int | None = None,
        mixer: Kinds = DEFAULT,
        solver: Solver | None = None,
        mixer_options: Mapping[str, Mapping[str, Any]] | None = None,
        mlp_ratio: float = 3.0,
        soft_cap: float | None = SOFT_CAP,
        tied: bool = True,
        scale_embedding: bool = True,
        dropout: float = 0.0,
        norm_eps: float = NORM_EPS,
        initialisation: Initialisation = "calibrated",
        dtype: Dtype = "float32",
        remat: Remat = "none",
        key: Array,
    ) -> None:
        check_matrix(vocab_size=vocab_size, dim=dim)
        check_sizes(blocks=blocks, heads=heads)
        check_dropout(dropout)
        check_flags(tied=tied, scale_embedding=scale_embedding)
        if dtype not in get_args(Dtype):
            raise ValueError(f"dtype must be one of {get_args(Dtype)}, got {dtype!r}")
        if initialisation not in get_args(Initialisation):
            raise ValueError(
                f"initialisation must be one of {get_args(Initialisation)}, got {initialisation!r}"
            )
        if soft_cap is not None:
            soft_cap = check_number("soft_cap", soft_cap, above=0)
        names = mixer_names(mixer)
        if blind := [n for n in names if not MIXERS[n].causal]:
            raise ValueError(
                f"mixer must be causal to predict the next token, got {blind[0]!r}, which is not: "
                "choose another, or use olsq.nn.Backbone on streams"
            )
        self.configuration = encode(
            {
                "vocab_size": vocab_size,
                "dim": dim,
                "blocks": blocks,
                "heads": heads,
                "key_size": key_size,
                "mixer": names,
                "mlp_ratio": mlp_ratio,
                "soft_cap": soft_cap,
                "mixer_options": {name: dict(o) for name, o in (mixer_options or {}).items()},
                "dtype": dtype,
                "remat": remat,
                "tied": tied,
                "scale_embedding": scale_embedding,
                "norm_eps": norm_eps,
                **({"dropout": dropout} if dropout else {}),  # earlier versions read files without
            }
        )
        keys = split_keys(key, ("embedding", "backbone", "head"))
        # Fan-in over the logits' side; scaled by sqrt(dim) where it enters the stream.
        shape = vocab_size, dim
        self.embedding = jax.random.normal(keys["embedding"], shape) / math.sqrt(dim)
        self.head = None if tied else jax.random.normal(keys["head"], shape) / math.sqrt(dim)
        self.backbone = Backbone(
            dim,
            blocks=blocks,
            heads=heads,
            key_size=key_size,
            mixer=names,
            mixer_options=mixer_options,
            mlp_ratio=mlp_ratio,
            norm_eps=norm_eps,
            dropout=dropout,
            remat=remat,
            key=keys["backbone"],
        )
        if initialisation == "calibrated":
            # After the norm a stream is sqrt(dim) long, and near a multiple of its own embedding.
            scale = self.backbone.norm.scale / math.sqrt(dim)
            self.backbone = eqx.tree_at(lambda b: b.norm.scale, self.backbone, scale)
        if solver is not None:
            self.backbone = with_solver(self.backbone, solver)
        self.vocab_size, self.soft_cap, self.dtype = vocab_size, soft_cap, dtype
        self.scale_embedding = scale_embedding

    @overload
    def __call__(
        self,
        tokens: ArrayLike,
        *,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array: ...
    @overload
    def __call__(
        self,
        tokens: ArrayLike,
        *,
        state: States | None,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> tuple[Array, States]: ...
    @on_automatic_axes
    def __call__(
        self,
        tokens: ArrayLike,
        *,
        state: States | None = ABSENT,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array | tuple[Array, States]:
        """Compute the logits of the token after each token.

        Parameters
        ----------
        tokens : int array (B, T)
            In [0, vocab_size).
        state : tuple of MixerState or None, optional
            Of the tokens before; if given, be it None, the new state is returned too.
        segment_ids : int array (B, T), optional
            Documents packed into one row: non-decreasing; none sees another.
        capacity : int, optional
            Tokens that caches of softmax attention have room for.
        key : jax.random.key, optional
            For dropout; without one nothing is dropped.

        Returns
        -------
        logits : float array (B, T, vocab_size)
            float32, or float64 for a float64 model.
        state : tuple of MixerState
            If ``state`` was given.

        Raises
        ------
        ValueError
            If the tokens are not integers of two axes, or outside the vocabulary.
        """
        if state is ABSENT:
            return self.logits(self.hidden(tokens, segment_ids=segment_ids, key=key))
        y, after = self.hidden(
            tokens, state=state, segment_ids=segment_ids, capacity=capacity, key=key
        )
        return self.logits(y), after

    @overload
    def hidden(
        self,
        tokens: ArrayLike,
        *,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array: ...
    @overload
    def hidden(
        self,
        tokens: ArrayLike,
        *,
        state: States | None,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> tuple[Array, States]: ...
    @on_automatic_axes
    def hidden(
        self,
        tokens: ArrayLike,
        *,
        state: States | None = ABSENT,
        segment_ids: ArrayLike | None = None,
        capacity: int | None = None,
        key: Array | None = None,
    ) -> Array | tuple[Array, States]:
        """Compute the stream after the last norm, from which logits are read.

        Parameters
        ----------
        tokens : int array (B, T)
        state, segment_ids, capacity, key : optional
            As for a call of the model.

        Returns
        -------
        y : array (B, T, dim)
            In the model's dtype; and the new state if ``state`` was given.
        """
        first, second = (None, None) if key is None else jax.random.split(key)
        x = dropout(self.embed(tokens), self.backbone.dropout, first)
        return self.backbone(x, state=state, segment_ids=segment_ids, capacity=capacity, key=second)

    @on_automatic_axes
    def embed(self, tokens: ArrayLike) -> Array:
        """Embed tokens (B, T) as the first block's input (B, T, dim), in the model's dtype."""
        x = self.embedding[check_tokens(tokens, self.vocab_size)]
        if self.scale_embedding:
            x = x * math.sqrt(self.embedding.shape[1])
        return x.astype(self.dtype)

    @on_automatic_axes
    def logits(self, y: Array) -> Array:
        """Compute logits (B, T, vocab_size) of a stream (B, T, dim) after the last norm, softly
        capped.

        Read with the embedding, or with ``head`` in a model that is not tied; float32 or better.
        """
        # Accumulated in float32: bfloat16 logits of a large vocabulary lose the small differences.
        wide = promoted(y, jnp.float32)
        weight = (self.embedding if self.head is None else self.head).astype(y.dtype)
        scores = jnp.einsum("btd,vd->btv", y, weight, preferred_element_type=wide)
        if self.soft_cap is not None:
            scores = self.soft_cap * jnp.tanh(scores / self.soft_cap)
        return scores

    def with_solver(self, solver: Solver | None) -> LanguageModel:
        """Return a model of the same weights with another solver.

        See :func:`olsq.nn.with_solver`.
        """
        return with_solver(self, solver)
