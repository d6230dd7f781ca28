"""Named model sizes, and the models of the papers."""

from __future__ import annotations

from typing import Any, Literal

from jax import Array

from olsq.nn.mixers import DEFAULT, Kinds
from olsq.nn.model import LanguageModel

GPT2_VOCABULARY = 50257
Size = Literal["1m", "5m", "140m", "440m", "940m"]

# MesaNet, appendix F.4; the small ones are for machines without an accelerator.
PRESETS: dict[Size, dict[str, int]] = {
    "1m": {"dim": 128, "blocks": 4, "heads": 4, "key_size": 32},
    "5m": {"dim": 256, "blocks": 6, "heads": 4, "key_size": 64},
    "140m": {"dim": 768, "blocks": 14, "heads": 6, "key_size": 128},
    "440m": {"dim": 1024, "blocks": 28, "heads": 8, "key_size": 128},
    "940m": {"dim": 1536, "blocks": 28, "heads": 12, "key_size": 128},
}
HAWK_MESA = ("hawk", "mesa")


def preset(
    size: Size,
    *,
    vocab_size: int = GPT2_VOCABULARY,
    mixer: Kinds = DEFAULT,
    key: Array,
    **options: Any,
) -> LanguageModel:
    """Make a language model of a named size.

    Parameters
    ----------
    size : {"1m", "5m", "140m", "440m", "940m"}
        The last three are the MesaNet paper's, with its vocabulary of 50,257.  They are sizes: the
        weights start as in any :class:`LanguageModel`, as in the paper with
        ``initialisation="fan-in"``.
    vocab_size : int
    mixer : str, class, or sequence of them
    key : jax.random.key
    **options
        Others of :class:`LanguageModel`; they override the size's.

    Raises
    ------
    ValueError
        If the size is unknown.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.preset("1m", vocab_size=256, key=jax.random.key(0))
    >>> olsq.nn.count_parameters(model)
    895136
    """
    if size not in PRESETS:
        raise ValueError(f"unknown size {size!r}; known are {', '.join(PRESETS)}")
    return LanguageModel(vocab_size, mixer=mixer, key=key, **{**PRESETS[size], **options})


def with_paper_defaults(
    options: dict[str, Any], mixers: tuple[str, ...] = ("mesa",), **mesa: Any
) -> dict[str, Any]:
    """Fill in the MesaNet paper's initialisation and gates where ``options`` do not give them."""
    mixer_options = dict(options.get("mixer_options") or {})
    if "mesa" in mixers:
        mixer_options["mesa"] = {"forget_bias": 0.0, **mesa, **mixer_options.get("mesa", {})}
    return {"initialisation": "fan-in", **options, "mixer_options": mixer_options}


def MesaNet(vocab_size: int, *, key: Array, **options: Any) -> LanguageModel:
    """Make the MesaNet paper's model: a :class:`LanguageModel` with Mesa layers.

    Parameters
    ----------
    vocab_size : int
    key : jax.random.key
    **options
        Of :class:`LanguageModel`, except ``mixer``: ``dim``, ``blocks`` and ``heads`` are needed.
        ``initialisation`` is the paper's unless given, "fan-in", whose first losses and gradients
        grow with the width, and so are its gates, which start at one half and learn recall late:
        :class:`LanguageModel` is the better start for a model of your own.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), appendix D.1.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.MesaNet(16, dim=8, blocks=2, heads=2, key=jax.random.key(0))
    >>> [type(mixer).__name__ for mixer in olsq.nn.mixers_of(model)]
    ['Mesa', 'Mesa']
    """
    return LanguageModel(vocab_size, mixer="mesa", key=key, **with_paper_defaults(options))


def hawk_mesa(vocab_size: int, *, key: Array, **options: Any) -> LanguageModel:
    """Make a :class:`LanguageModel` of alternating Hawk and Mesa blocks, Hawk first.

    Parameters are those of :func:`MesaNet`.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), appendix D.1.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.hawk_mesa(16, dim=8, blocks=2, heads=2, key=jax.random.key(0))
    >>> [type(mixer).__name__ for mixer in olsq.nn.mixers_of(model)]
    ['Hawk', 'Mesa']
    """
    mixers = HAWK_MESA[: options.get("blocks")]  # one block is a Hawk, and takes no Mesa's options
    return LanguageModel(
        vocab_size, mixer=HAWK_MESA, key=key, **with_paper_defaults(options, mixers)
    )


def state_tracking(vocab_size: int, *, key: Array, **options: Any) -> LanguageModel:
    """Make a MesaNet with gates in (-1, 1) and a ridge of at least 49, starting at 50: it can learn
    parity.

    Parameters are those of :func:`MesaNet`, its initialisation too.

    Notes
    -----
    ``H + Lambda`` stays positive definite while a head's keys weigh less than its ridge; a token at
    which it is not reads NaN.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), appendix H.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.state_tracking(2, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    >>> layer = model.backbone.blocks[0].mixer
    >>> layer.signed, layer.ridge.floor
    (True, 49.0)
    """
    return LanguageModel(
        vocab_size, mixer="mesa", key=key, **with_paper_defaults(options, signed=True)
    )


def thesis_hybrid(
    vocab_size: int,
    *,
    blocks: int,
    nu: int = 0,
    mixer: Literal["mesa", "mesa_discounted", "linear"] = "mesa",
    key: Array,
    **options: Any,
) -> LanguageModel:
    """Make the thesis' hybrid: a softmax layer, then Mesa (or ``"linear"``) layers.

    Parameters
    ----------
    vocab_size, blocks : int
    nu : int
        Size of the deterministic parameter-free projection of keys and queries; 0 for none.  With
        one block there is no softmax layer: its work, copying the token before, is done by shifted
        keys.  Weights start as in any :class:`LanguageModel`: the thesis does not say how.
    mixer : {"mesa", "mesa_discounted", "linear"}
        "mesa_discounted" is the recursive least squares of the thesis.

    References
    ----------
    von Oswald, "Mesa-optimization" thesis, section 3.5.3, fig. 3.6 and 3.7.
    """
    features = {"feature_map": "dpfp", "nu": nu} if nu else {"feature_map": "identity"}
    mixer_options = {**features, "convolution": False, "key_shift": blocks == 1}
    names = (mixer,) if blocks == 1 else ("softmax", *[mixer] * (blocks - 1))
    return LanguageModel(
        vocab_size,
        blocks=blocks,
        mixer=names,
        mixer_options={mixer: mixer_options},
        key=key,
        **options,
    )
