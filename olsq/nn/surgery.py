"""Change a trained model's solvers and other static options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from olsq.nn.base import Mixer
from olsq.solvers import Solver

Tree = TypeVar("Tree")


def mixers_of(tree: Any) -> list[Mixer]:
    """List all mixers of a model, in order.

    Parameters
    ----------
    tree : LanguageModel, Backbone, Mesa, ...
        Any pytree.

    Returns
    -------
    list of Mixer

    Examples
    --------
    >>> import jax, olsq.nn
    >>> model = olsq.nn.MesaNet(16, dim=8, blocks=2, heads=2, key=jax.random.key(0))
    >>> [mixer.value_size for mixer in olsq.nn.mixers_of(model)]
    [4, 4]
    """
    leaves = jax.tree.leaves(tree, is_leaf=_is_mixer)
    return [leaf for leaf in leaves if _is_mixer(leaf)]


def map_mixers(function: Callable[[Mixer], Mixer], tree: Tree) -> Tree:
    """Replace every mixer of a model by ``function`` of it.

    Parameters
    ----------
    function : callable
        From a mixer to a mixer.
    tree : LanguageModel, Backbone, Mesa, ...

    Returns
    -------
    A new model of the same type; arrays are shared where ``function`` keeps them.

    Examples
    --------
    >>> import equinox as eqx, jax, olsq.nn
    >>> model = olsq.nn.MesaNet(16, dim=8, blocks=2, heads=2, key=jax.random.key(0))
    >>> bare = olsq.nn.map_mixers(lambda m: eqx.tree_at(lambda m: m.convolution, m, None), model)
    >>> [mixer.convolution for mixer in olsq.nn.mixers_of(bare)]
    [None, None]
    """
    return jax.tree.map(lambda x: function(x) if _is_mixer(x) else x, tree, is_leaf=_is_mixer)


def with_solver(tree: Tree, solver: Solver | None) -> Tree:
    """Replace the solver of every mixer that solves a regression, keeping the weights.

    Parameters
    ----------
    tree : LanguageModel, Backbone, Mesa, ...
    solver : solver of :mod:`olsq` or None
        ``olsq.ConjugateGradient(max_steps=5)`` spends less than a model was trained with; None is
        each mixer's default.

    Returns
    -------
    A new model of the same type; arrays are shared.

    Raises
    ------
    ValueError
        If no mixer solves anything.

    Examples
    --------
    >>> import jax, olsq, olsq.nn
    >>> layer = olsq.nn.Mesa(8, heads=1, key=jax.random.key(0))
    >>> olsq.nn.with_solver(layer, olsq.ConjugateGradient(max_steps=5)).solver.max_steps
    5
    """
    if not any(mixer.solves() for mixer in mixers_of(tree)):
        raise ValueError("tree must hold a mixer with a solver to change, got one without")
    return map_mixers(lambda mixer: mixer.with_solver(solver), tree)


def _is_mixer(x: Any) -> bool:
    return isinstance(x, Mixer)


def count_parameters(tree: Any) -> int:
    """Count the numbers in all weights of a model or layer.

    Parameters
    ----------
    tree : LanguageModel, Backbone, Mesa, ...
        Any pytree of arrays, or what ``eqx.filter_eval_shape`` says there would be.

    Returns
    -------
    int

    Examples
    --------
    >>> import equinox as eqx, jax, olsq.nn
    >>> shapes = eqx.filter_eval_shape(olsq.nn.preset, "940m", key=jax.random.key(0))
    >>> olsq.nn.count_parameters(shapes)  # without making any of them
    937528992
    """
    weights = (x for x in jax.tree.leaves(tree) if hasattr(x, "dtype"))
    return sum(x.size for x in weights if jnp.issubdtype(x.dtype, jnp.inexact))
