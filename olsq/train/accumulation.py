"""Loss and gradient of a batch computed in parts, weighted by the targets of each part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxpr_as_fun, jaxprs_in_params

from olsq.train.losses import COUNT, check_extra

__all__ = ["accumulate_gradient"]


def accumulate_gradient(
    value_and_grad: Callable[..., Any], model: Any, batch: Any, key: Any, parts: int
) -> tuple[Any, Any, Any]:
    """Compute the mean loss, its gradient and the extra metrics, one part after the other.

    Parameters
    ----------
    value_and_grad : callable
        ``value_and_grad(model, rows, options)`` returns ``(mean, BatchLoss), gradient``.
    model, batch : pytree
    key : jax.random.key, optional
        Each part gets one of its own.
    parts : int

    Notes
    -----
    Sums are in float32 or better; the gradient is returned in the dtypes of ``value_and_grad``.
    """
    keys = None if key is None else jax.random.split(key, parts)
    stacked = jax.tree.map(lambda x: _split_batch(x, parts), batch), keys

    def one_part(model: Any, part: Any) -> tuple[Any, Any]:
        rows, key = part
        (mean, loss), gradient = value_and_grad(model, rows, {} if key is None else {"key": key})
        check_extra(loss, f"accumulate={parts}")
        return (mean, gradient, loss.extra), loss.weight

    first = jax.tree.map(lambda x: x[0], stacked)
    closed, (shapes, weight), _ = eqx.filter_make_jaxpr(one_part)(model, first)
    if weight is None:
        outvars = [*closed.jaxpr.outvars, *_find_count(closed.jaxpr)]
        closed = closed.replace(jaxpr=closed.jaxpr.replace(outvars=outvars))
    leaves, structure = jax.tree.flatten(shapes)

    def add(sums: Any, part: Any) -> tuple[Any, None]:
        arguments = jax.tree.leaves(eqx.filter((model, part), eqx.is_array))
        results = jaxpr_as_fun(closed)(*arguments)
        weight = results[-1] if len(results) > len(leaves) else jnp.ones(())
        # A part with no targets adds exactly 0, not 0 times a possible NaN.
        scaled = [jnp.where(weight > 0, weight * x, 0) for x in results[: len(leaves)]]
        return [a + b.astype(a.dtype) for a, b in zip(sums, (*scaled, weight), strict=True)], None

    zeros = [jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)) for x in leaves]
    (*sums, weight), _ = jax.lax.scan(add, [*zeros, jnp.zeros(())], stacked)
    means = [x / jnp.where(weight > 0, weight, 1) for x in sums]
    mean, gradient, extra = jax.tree.unflatten(structure, means)
    return mean, jax.tree.map(lambda x, like: x.astype(like.dtype), gradient, shapes[1]), extra


def _find_count(jaxpr: Jaxpr) -> list[Any]:
    """Find the number of targets that a loss marked; none where parts weigh alike.

    Raises
    ------
    ValueError
        If several numbers of targets are marked, or one that has no value outside an inner loop.
    """
    marked = list(_marked(jaxpr))
    counts: list[Any] = [eqn.outvars[0] for eqn in jaxpr.eqns if _is_mark(eqn)]
    if len(marked) > 1 or len(counts) < len(marked) or any(x.aval.shape for x in counts):
        raise ValueError(
            "with accumulate, a part of a batch weighs as many targets as its loss is the mean "
            "over: this loss combines several means of token_loss(..., ignore=, mask=), or takes "
            "one inside a jit, vmap or loop; return olsq.train.BatchLoss(mean, number_of_targets)"
        )
    return counts


def _marked(jaxpr: Jaxpr) -> Iterator[Any]:
    """Iterate over the marks of a trace and of the functions that it calls."""
    for eqn in jaxpr.eqns:
        if _is_mark(eqn):
            yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from _marked(inner)


def _is_mark(eqn: Any) -> bool:
    return eqn.primitive.name == "name" and eqn.params["name"] == COUNT


def _split_batch(x: Any, parts: int) -> Any:
    """Reshape a batch (B, ...) to (parts, B / parts, ...)."""
    if x.shape[0] % parts:
        raise ValueError(
            f"accumulate must divide the batch of {x.shape[0]} rows into equal parts, got {parts}"
        )
    return x.reshape(parts, -1, *x.shape[1:])
