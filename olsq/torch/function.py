"""Make any JAX function of arrays an operation of ``torch.autograd``, of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array
from torch import Tensor

from olsq.sequence.jax.programs import quickly_compiled
from olsq.torch.tensors import addresses, jax_for, to_jax, to_torch

Scalars = tuple[float, ...]
Mask = tuple[bool, ...]


class JaxFunction:
    """A JAX function, with its linearisation and its gradient, each compiled once per shape.

    Parameters
    ----------
    body : callable
        ``body(scalars, arrays)`` returns a pytree of arrays.  Scalars are traced, so that another
        value compiles nothing, and have no derivative.
    """

    def __init__(self, body: Callable[[Scalars, Any], Any]) -> None:
        self.body = body
        self.run = quickly_compiled(body)
        self._linearised: dict[Mask, Any] = {}
        self._pulled: dict[Any, Any] = {}
        self._gradients: dict[tuple[Mask, Mask], JaxFunction] = {}

    def linearise(self, wrt: Mask) -> Any:
        """Return the compiled function to ``(outputs, vjp)``, differentiated where ``wrt``."""
        if wrt not in self._linearised:

            def linearised(scalars: Scalars, arrays: Any) -> Any:
                tree: list[Any] = []
                mask: list[bool] = []
                _, pull, (floats, integers) = self._vjp(scalars, arrays, wrt, tree, mask)
                outputs = _interleave(mask, floats, integers)
                return jax.tree.unflatten(tree[0], outputs), pull

            self._linearised[wrt] = quickly_compiled(linearised)
        return self._linearised[wrt]

    def pull(self, kinds: tuple[tuple[tuple[int, ...], Any], ...], present: Mask) -> Any:
        """Return the compiled ``(vjp, cotangents)`` to gradients.

        ``kinds`` has the shape and dtype of each floating output; only cotangents that are
        ``present`` are given, the others are 0.
        """
        key = kinds, present
        if key not in self._pulled:

            def pulled(pull: Any, cotangents: Any) -> Any:
                return pull(_filled(kinds, present, cotangents))

            self._pulled[key] = quickly_compiled(pulled)
        return self._pulled[key]

    def gradient(self, wrt: Mask, present: Mask) -> JaxFunction:
        """Return the function of inputs and cotangents that has the gradients as outputs.

        It computes the values again, which is what a derivative of it needs.
        """
        key = wrt, present
        if key not in self._gradients:

            def gradient(scalars: Scalars, arrays: Any) -> Any:
                inputs, cotangents = arrays[: len(wrt)], arrays[len(wrt) :]
                floats, pull, _ = self._vjp(scalars, inputs, wrt, [], [])
                kinds = tuple((x.shape, x.dtype) for x in floats)
                return pull(_filled(kinds, present, cotangents))

            self._gradients[key] = JaxFunction(gradient)
        return self._gradients[key]

    def _vjp(
        self, scalars: Scalars, arrays: Any, wrt: Mask, tree: list[Any], mask: list[bool]
    ) -> Any:
        """Differentiate the floating outputs; append the structure and kinds of all outputs."""

        def of(*moving: Array) -> Any:
            replacements = iter(moving)
            full = [next(replacements) if w else x for w, x in zip(wrt, arrays, strict=True)]
            outputs, structure = jax.tree.flatten(self.body(scalars, full))
            tree.append(structure)
            mask[:] = [jnp.issubdtype(x.dtype, jnp.inexact) for x in outputs]
            floats = tuple(x for x, m in zip(outputs, mask, strict=True) if m)
            integers = tuple(x for x, m in zip(outputs, mask, strict=True) if not m)
            return floats, integers

        moving = [x for w, x in zip(wrt, arrays, strict=True) if w]
        floats, pull, integers = jax.vjp(of, *moving, has_aux=True)
        return floats, pull, (floats, integers)

    def __call__(self, scalars: Scalars, tensors: list[Tensor], device: torch.device) -> Any:
        """Evaluate on tensors: returns the pytree of tensors, recorded by autograd."""
        structure: list[Any] = []
        outputs = Apply.apply(self, scalars, device, structure, *tensors)
        return jax.tree.unflatten(structure[0], outputs)


class Apply(torch.autograd.Function):
    """Evaluate a :class:`JaxFunction`; the backward pass is one too, and so on."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        function: JaxFunction,
        scalars: Scalars,
        device: torch.device,
        structure: list[Any],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        wrt = tuple(ctx.needs_input_grad[4:])
        with jax_for(device, tensors):
            arrays = [to_jax(x) for x in tensors]
            if any(wrt):
                results, pull = function.linearise(wrt)(scalars, arrays)
                residuals, ctx.tree = jax.tree.flatten(pull)
            else:
                results, residuals = function.run(scalars, arrays), []
            leaves, tree = jax.tree.flatten(results)
            structure.append(tree)
            kept = addresses(tensors) | addresses(residuals)
            outputs = tuple(to_torch(x, device, kept) for x in leaves)
            saved = [to_torch(x, device, set()) for x in residuals]
        ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        if any(wrt):
            ctx.set_materialize_grads(False)
            ctx.function, ctx.scalars, ctx.device, ctx.wrt = function, scalars, device, wrt
            ctx.kinds = tuple((x.shape, x.dtype) for x in leaves)
            # Saved with the graph, so that torch frees them with it, and sees inputs that were
            # changed in place: a residual may share the memory of an input.
            ctx.save_for_backward(*tensors, *saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:  # type: ignore[override]
        function, wrt = ctx.function, ctx.wrt
        saved = ctx.saved_tensors  # read once: a checkpoint unpacks a tensor only once
        tensors, residuals = saved[: len(wrt)], saved[len(wrt) :]
        floating = [
            (kind, ct)
            for kind, ct in zip(ctx.kinds, cotangents, strict=True)
            if jnp.issubdtype(kind[1], jnp.inexact)
        ]
        present = tuple(ct is not None for _, ct in floating)
        present_cotangents = [ct for _, ct in floating if ct is not None]
        if torch.is_grad_enabled():  # a derivative of this one is wanted: create_graph=True
            step = function.gradient(wrt, present)
            grads = step(ctx.scalars, [*tensors, *present_cotangents], ctx.device)
        else:
            with jax_for(ctx.device, tensors):
                pull = jax.tree.unflatten(ctx.tree, [to_jax(x) for x in residuals])
                arrays = [to_jax(x) for x in present_cotangents]
                kinds = tuple(kind for kind, _ in floating)
                pulled = function.pull(kinds, present)(pull, arrays)
                kept = addresses(present_cotangents) | addresses(residuals)
                grads = [to_torch(x, ctx.device, kept) for x in pulled]
        remaining = iter(grads)
        return (None, None, None, None, *(next(remaining) if w else None for w in wrt))


def _interleave(mask: list[bool], first: Any, second: Any) -> list[Any]:
    first, second = iter(first), iter(second)
    return [next(first) if m else next(second) for m in mask]


def _filled(kinds: Any, present: Mask, cotangents: Any) -> tuple[Array, ...]:
    remaining = iter(cotangents)
    return tuple(
        next(remaining) if there else jnp.zeros(*kind)
        for kind, there in zip(kinds, present, strict=True)
    )
