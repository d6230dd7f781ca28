"""One update of the weights: loss, gradient, optimiser; skipped if a number is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from olsq.arrays.checks import check_flag, check_sizes
from olsq.sequence.jax.programs import quickly_compiled
from olsq.train.losses import COUNT, BatchLoss, check_extra

__all__ = ["Metrics", "accumulate_gradient", "make_scan", "make_step"]

Update = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], tuple[Any, Any, "Metrics"]]


class Metrics(NamedTuple):
    """Metrics of a step, as arrays on the device: reading one waits for the step.

    Attributes
    ----------
    loss : scalar
        Of the weights before the step.
    gradient_norm : scalar
        As the optimiser is given it, before any clipping.
    skipped : bool
        Whether the loss or the norm was not finite, so that nothing was changed.
    extra : dict of str to scalar
        What the loss returns in :attr:`BatchLoss.extra`, in addition to its mean.
    """

    loss: Array
    gradient_norm: Array
    skipped: Array
    extra: Mapping[str, Array] = {}


def make_step(
    loss: Callable[..., Any] | None,
    optimizer: optax.GradientTransformation,
    *,
    gradient: Callable[..., tuple[Any, Any]] | None = None,
    accumulate: int = 1,
    donate: bool = False,
) -> Callable[..., tuple[Any, Any, Metrics]]:
    """Compile the update ``model, state, metrics = step(model, state, *batch)``.

    Parameters
    ----------
    loss : callable
        ``loss(model, *batch)``: a scalar or a :class:`BatchLoss`; and ``key=``, where a step is
        given one.
    optimizer : optax.GradientTransformation
        Its state starts as ``optimizer.init(equinox.filter(model, equinox.is_inexact_array))``.
    gradient : callable, optional
        ``gradient(model, *batch)``, a loss and the gradient to use with it in place of the
        derivative of ``loss``, which is None then: a meta-gradient, an estimator.
    accumulate : int
        Parts in which a batch is computed one after the other, to save memory.  Their losses and
        gradients are averaged in float32: a part weighs as many targets as its :func:`token_loss`
        or :class:`BatchLoss` counts, and parts of any other loss weigh alike.
    donate : bool
        Let a step use the memory of the model and the state it is given, which must not be used
        again.

    Returns
    -------
    callable
        Of a model, a state, arrays whose first axis is the batch's, and keywords: ``key``, for the
        loss, a part of a batch gets one of its own; others for the optimiser's ``update``.

    Raises
    ------
    ValueError
        When the step is called with a batch that ``accumulate`` does not divide, or with a loss
        that does not say how many targets each part has.

    Notes
    -----
    The floating-point arrays of the model are its weights.  If the loss or the norm of the gradient
    is not finite, model and state come back unchanged and ``metrics.skipped`` is True.

    Examples
    --------
    >>> import equinox as eqx, jax, jax.numpy as jnp, olsq.nn, optax
    >>> from olsq.train import decay_mask, make_step, token_loss
    >>> model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    >>> optimizer = optax.adamw(1e-2, weight_decay=0.1, mask=decay_mask)
    >>> step = make_step(lambda model, x, y: token_loss(model(x), y), optimizer)
    >>> state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    >>> tokens = jnp.arange(18).reshape(2, 9) % 8
    >>> for _ in range(20):
    ...     model, state, metrics = step(model, state, tokens[:, :-1], tokens[:, 1:])
    >>> bool(metrics.loss < 1.5), bool(metrics.skipped)
    (True, False)
    """
    update = _make_update(loss, gradient, optimizer, accumulate)

    def run(arguments: Any, model: Any, state: Any) -> tuple[Any, Any, Metrics]:
        return update(model, state, *arguments)

    donated = "all-except-first" if check_flag("donate", donate) else "none"
    compiled = quickly_compiled(run, eqx.filter_jit, donate=donated)

    def step(model: Any, state: Any, *batch: Any, **options: Any) -> tuple[Any, Any, Metrics]:
        return compiled((batch, options), model, state)

    return step


def make_scan(
    loss: Callable[..., Any] | None,
    optimizer: optax.GradientTransformation,
    draw: Callable[[Array], Any],
    *,
    steps: int,
    gradient: Callable[..., tuple[Any, Any]] | None = None,
) -> Callable[[Any, Any, Array, Any], tuple[Any, Any, Metrics]]:
    """Compile many updates on data drawn inside the program, for small models and synthetic tasks.

    Parameters
    ----------
    loss : callable
        ``loss(model, *batch)``, as for :func:`make_step`.
    optimizer : optax.GradientTransformation
    draw : callable
        From a key to a batch: a tuple of arrays, or one array.
    steps : int
        In one call.
    gradient : callable, optional
        As for :func:`make_step`.

    Returns
    -------
    callable
        ``model, state, metrics = scan(model, state, key, start)``.  Step number i, from ``start``
        on, draws its batch with ``jax.random.fold_in(key, i)``; every field of the metrics is
        an array (steps,).

    Notes
    -----
    No step waits for Python, which for a model of a few thousand weights is most of the time.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax
    >>> from olsq.train import make_scan
    >>> slope = jnp.array([2.0, -1.0])
    >>> def draw(key):
    ...     x = jax.random.normal(key, (8, 2))
    ...     return x, x @ slope
    >>> def loss(weights, x, y):
    ...     return jnp.mean((x @ weights - y) ** 2)
    >>> optimizer = optax.sgd(0.1)
    >>> scan = make_scan(loss, optimizer, draw, steps=100)
    >>> weights = jnp.zeros(2)
    >>> weights, state, metrics = scan(weights, optimizer.init(weights), jax.random.key(0), 0)
    >>> [round(float(w), 3) for w in weights], metrics.loss.shape
    ([2.0, -1.0], (100,))
    """
    update = _make_update(loss, gradient, optimizer, 1)

    @eqx.filter_jit
    def run(model: Any, state: Any, key: Array, start: Any) -> tuple[Any, Any, Metrics]:
        dynamic, static = eqx.partition((model, state), eqx.is_array)

        def one(carry: Any, number: Array) -> tuple[Any, Metrics]:
            model, state = eqx.combine(carry, static)
            batch = as_batch(draw(jax.random.fold_in(key, number)))
            model, state, metrics = update(model, state, batch, {})
            return eqx.filter((model, state), eqx.is_array), metrics

        dynamic, metrics = jax.lax.scan(one, dynamic, start + jnp.arange(steps))
        return *eqx.combine(dynamic, static), metrics

    return run


def as_batch(batch: Any) -> tuple[Any, ...]:
    """Return the arguments of a loss after the model: a tuple's members, or the batch itself."""
    return tuple(batch) if isinstance(batch, tuple) else (batch,)


def _make_update(
    loss: Callable[..., Any] | None,
    gradient: Callable[..., Any] | None,
    optimizer: optax.GradientTransformation,
    accumulate: int,
) -> Update:
    """Make the uncompiled update ``update(model, state, batch, options)``."""
    if (loss is None) == (gradient is None):
        raise ValueError("give one of loss and gradient, and None for the other")
    check_sizes(accumulate=accumulate)
    optimizer = optax.with_extra_args_support(optimizer)

    def measured(model: Any, batch: Any, options: dict[str, Any]) -> tuple[Array, BatchLoss]:
        assert loss is not None
        parts = _as_loss(loss(model, *batch, **options))
        return parts.mean, parts

    def given_gradient(model: Any, batch: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        assert gradient is not None
        value, slope = gradient(model, *batch, **options)
        parts = _as_loss(value)
        return (parts.mean, parts), slope

    derived = eqx.filter_value_and_grad(measured, has_aux=True)
    value_and_grad = derived if gradient is None else given_gradient

    def loss_and_gradient(model: Any, batch: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Compute the mean loss, its gradient and the extra metrics."""
        if accumulate == 1:
            (value, parts), slope = value_and_grad(model, batch, options)
            return value, slope, parts.extra
        return accumulate_gradient(value_and_grad, model, batch, options.get("key"), accumulate)

    def update(
        model: Any, state: Any, batch: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Any, Any, Metrics]:
        loss_options = {"key": options["key"]} if options.get("key") is not None else {}
        value, gradients, extra = loss_and_gradient(model, batch, loss_options)
        norm = _norm(gradients)
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        weights, static = eqx.partition(model, eqx.is_inexact_array)
        update_options = {name: x for name, x in options.items() if name != "key"}
        updates, new_state = optimizer.update(gradients, state, weights, **update_options)
        new_weights = optax.apply_updates(weights, updates)

        def keep(new: Any, old: Any) -> Any:
            return jnp.where(finite, new, old) if eqx.is_array(new) else new

        model = eqx.combine(jax.tree.map(keep, new_weights, weights), static)
        return model, jax.tree.map(keep, new_state, state), Metrics(value, norm, ~finite, extra)

    return update


def _norm(gradients: Any) -> Array:
    """Compute the norm of all gradients in float32 or better: squares overflow in float16."""
    wide = (g.astype(jnp.promote_types(g.dtype, jnp.float32)) for g in jax.tree.leaves(gradients))
    return jnp.sqrt(sum(jnp.sum(jnp.abs(g) ** 2) for g in wide))


def _as_loss(returned: Any) -> BatchLoss:
    """Convert what a loss returned to a BatchLoss of arrays; None stays for the weight."""
    parts = returned if isinstance(returned, BatchLoss) else BatchLoss(returned)
    if not jax.tree_util.all_leaves([parts.mean]):
        raise TypeError(
            f"loss must return a number or an olsq.train.BatchLoss, got a "
            f"{type(parts.mean).__name__}: return what else it computes as "
            "BatchLoss(mean, extra={name: value})"
        )
    mean, weight = jnp.asarray(parts.mean), parts.weight
    if weight is not None:  # a count, which half precision rounds from 257 on
        weight = jnp.asarray(weight, jnp.promote_types(mean.dtype, jnp.float32))
    return BatchLoss(mean, weight, dict(parts.extra))


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
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
                if isinstance(inner, Jaxpr):
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
