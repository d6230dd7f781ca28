"""Mixers by name, as the rows of :mod:`olsq.attention.registry` say."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from jax import Array

from olsq.attention.registry import RULES
from olsq.nn.base import Mixer

MIXERS: dict[str, Any] = {  # classes of Mixer
    layer.mixer: resolve_name(f"olsq.nn.{layer.place}") for rule in RULES for layer in rule.layers
}
DEFAULT = "mesa"

Kinds = str | type[Mixer] | Sequence[str | type[Mixer]]


def register_mixer(name: str, kind: type[Mixer]) -> None:
    """Register a layer of your own under ``mixer=name``, for models, files and the command line.

    Parameters
    ----------
    name : str
        New: what a name means in a file must not change.
    kind : class
        A subclass of :class:`olsq.nn.Mixer` made as ``kind(dim, heads=..., key=..., **options)``.

    Raises
    ------
    ValueError
        If the name means another class already.
    TypeError
        If ``kind`` is not such a class.

    Notes
    -----
    A file knows its mixers by name: register them in the process that loads it too.

    Examples
    --------
    >>> import jax, olsq, olsq.nn
    >>> class Slow(olsq.nn.GLA):
    ...     pass
    >>> olsq.nn.register_mixer("slow", Slow)
    >>> model = olsq.nn.LanguageModel(
    ...     8, dim=8, blocks=1, heads=2, mixer="slow", key=jax.random.key(0)
    ... )
    >>> type(olsq.nn.mixers_of(model)[0]).__name__
    'Slow'
    """
    if not (isinstance(kind, type) and issubclass(kind, Mixer)):
        raise TypeError(f"kind must be a subclass of olsq.nn.Mixer, got {kind!r}")
    if MIXERS.get(name, kind) is not kind:
        raise ValueError(f"mixer {name!r} is {MIXERS[name].__name__} already; choose another name")
    MIXERS[name] = kind


def mixer_name(mixer: str | type[Mixer]) -> str:
    """Return the name of a mixer given by name or class; a new class is registered under its own.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    if not isinstance(mixer, str):
        names = [name for name, kind in MIXERS.items() if kind is mixer]
        if names:
            return names[0]
        name = getattr(mixer, "__name__", "")
        register_mixer(name, mixer)
        return name
    if mixer not in MIXERS:
        raise ValueError(f"unknown mixer {mixer!r}; known are {', '.join(sorted(MIXERS))}")
    return mixer


def mixer_names(mixer: Kinds) -> tuple[str, ...]:
    """Return the names of one mixer or several, given by name or class."""
    one = isinstance(mixer, (str, type))
    return tuple(mixer_name(m) for m in ((mixer,) if one else mixer))  # pyright: ignore[reportGeneralTypeIssues]


def mixer(name: str | type[Mixer], dim: int, *, heads: int, key: Array, **options: Any) -> Mixer:
    """Make a mixer by name.

    Parameters
    ----------
    name : str or class
        A key of ``olsq.nn.MIXERS``, or a subclass of :class:`olsq.nn.Mixer`.
    dim, heads : int
    key : jax.random.key
    **options
        Of its class.

    Raises
    ------
    ValueError
        If the name is unknown, or the class has no such option.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> olsq.nn.mixer("gla", 32, heads=2, key=jax.random.key(0)).key_size
    16
    """
    name = mixer_name(name)
    kind = MIXERS[name]
    try:
        return kind(dim, heads=heads, key=key, **options)
    except TypeError as error:
        if "keyword argument '" not in str(error):  # unexpected, or fixed by the mixer itself
            raise
        option = str(error).rsplit("'", 2)[1]
        raise ValueError(f"mixer {name!r} has no option {option!r}: see {kind.__name__}") from None
