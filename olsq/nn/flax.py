"""Layers and models for users of Flax NNX: ``import olsq.nn.flax``."""

from __future__ import annotations

from typing import Any

import jax

from olsq.nn.kinds import path_names

try:
    from flax import nnx

    if not hasattr(nnx.Variable, "get_value"):
        raise ImportError("Flax is older than 0.12.1")
except ImportError as error:
    raise ImportError("olsq.nn.flax needs Flax 0.12.1 or newer: pip install -U flax") from error


class Weights(nnx.Module):
    """Weights of a part of a layer, under its names; those of a sequence under their numbers."""

    def __getitem__(self, index: int) -> Any:
        return getattr(self, str(index))


class Adapted(Weights):
    """A layer or model of :mod:`olsq.nn` whose weights are ``nnx.Param``; see :func:`to_nnx`."""

    def __init__(self, module: Any) -> None:
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(module)
        self._names = tuple(tuple(path_names(path)) for path, _ in leaves)
        for (*parts, last), (_, leaf) in zip(self._names, leaves, strict=True):
            if not isinstance(leaf, jax.Array):
                raise TypeError(f"weights must be JAX arrays, got {type(leaf).__name__} as {last}")
            owner: Any = self
            for part in parts:
                if not hasattr(owner, part):
                    setattr(owner, part, Weights())
                owner = getattr(owner, part)
            setattr(owner, last, nnx.Param(leaf))

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the adapted module with the present weights."""
        return to_equinox(self)(*args, **options)


def to_nnx(module: Any) -> Adapted:
    """Convert a module of :mod:`olsq.nn` to one of Flax NNX.

    Parameters
    ----------
    module : LanguageModel, Mesa, ...
        Any module of :mod:`olsq.nn`.

    Returns
    -------
    Adapted
        An ``nnx.Module`` that is called as ``module`` is and computes the same.  Every weight is an
        ``nnx.Param`` under the name that it has in ``module``:
        ``model.backbone.blocks[0].mixer.query_proj.weight``.  For ``prefill``, ``step`` and
        ``generate`` call those of :func:`to_equinox`.

    Raises
    ------
    ImportError
        When this file is imported, if Flax is not installed.
    TypeError
        If a leaf of the module is not a JAX array.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax, olsq.nn.flax
    >>> from flax import nnx
    >>> layer = olsq.nn.flax.to_nnx(olsq.nn.GLA(8, heads=1, key=jax.random.key(0)))
    >>> layer.query_proj.weight.shape
    (8, 8)
    >>> optimizer = nnx.Optimizer(layer, optax.adamw(1e-3), wrt=nnx.Param)
    >>> def loss(layer, x):
    ...     return jnp.mean(layer(x) ** 2)
    >>> @nnx.jit
    ... def train(layer, optimizer, x):
    ...     value, grads = nnx.value_and_grad(loss)(layer, x)
    ...     optimizer.update(layer, grads)
    ...     return value
    >>> x = jnp.ones((1, 5, 8))
    >>> bool(train(layer, optimizer, x) > train(layer, optimizer, x))
    True
    """
    return Adapted(module)


def to_equinox(module: Adapted) -> Any:
    """Convert back to the module of :mod:`olsq.nn` that :func:`to_nnx` received, with the present
    weights.

    Parameters
    ----------
    module : Adapted
        As :func:`to_nnx` returns, or ``nnx.merge`` of what ``nnx.split`` made of that.

    Returns
    -------
    module of olsq.nn
        Arrays are shared.

    Raises
    ------
    TypeError
        If it is another module of Flax.

    Examples
    --------
    >>> import jax, olsq.nn.flax
    >>> layer = olsq.nn.GLA(8, heads=1, key=jax.random.key(0))
    >>> again = olsq.nn.flax.to_equinox(olsq.nn.flax.to_nnx(layer))
    >>> bool((again.query_proj.weight == layer.query_proj.weight).all())
    True
    """
    if not isinstance(module, Adapted):
        raise TypeError(
            f"module must be what olsq.nn.flax.to_nnx returned, got a {type(module).__name__}"
        )
    leaves = []
    for path in module._names:
        node: Any = module
        for part in path:
            node = getattr(node, part)
        leaves.append(node.get_value())
    return jax.tree.unflatten(module._structure, leaves)
