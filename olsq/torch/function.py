"""Make any JAX function of arrays an operation of ``torch.autograd``, of any order.

Tensors are exchanged by DLPack, without a copy where memory allows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import torch
from jax import Array
from torch import Tensor

KINDS = ("cpu", "cuda")  # devices whose memory both libraries read
LARGEST_INT32 = 2**31 - 1


def check_tensor(name: str, x: Tensor) -> None:
    """Raise unless JAX can read the memory of ``x``."""
    if x.device.type == "meta":
        raise ValueError(f"{name} is on the meta device, which holds no numbers: give real data")
    if x.device.type not in KINDS:
        raise ValueError(
            f"{name} is on {x.device}, whose memory JAX cannot read: move it with .to('cpu')"
        )
    if x.layout is not torch.strided or x.is_quantized:
        raise TypeError(f"{name} must be a dense tensor, got {x.layout}: use .to_dense()")
    if x.is_complex():
        raise TypeError(
            f"{name} must be real, got {x.dtype}; split complex data into real and imaginary parts"
        )


def check_one_device(named: Iterable[tuple[str, Tensor]]) -> torch.device:
    """Return the device of all tensors; ValueError if there are two."""
    first_name, device = "", None
    for name, x in named:
        if device is None:
            first_name, device = name, x.device
        elif x.device != device:
            raise ValueError(
                f"{name} is on {x.device} and {first_name} on {device}: move them to one device"
            )
    return torch.device("cpu") if device is None else device


def to_jax(x: Tensor) -> Array:
    """Return a JAX array of the tensor's memory; a copy if it has gaps or is badly aligned.

    Call it within :func:`wide`: without 64 bits JAX would truncate float64 without a word.
    """
    # DLPack knows neither the lazy conjugation and negation of tensors nor gaps between rows
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    if x.dtype == torch.int64 and not has_64_bits():
        x = _narrowed(x)
    if not x.numel():
        # nothing to share, and pointers to nothing are not accepted by every version
        return jnp.zeros(tuple(x.shape), str(x.dtype).removeprefix("torch."))
    try:
        return jnp.from_dlpack(x)
    except (RuntimeError, BufferError, TypeError) as error:
        raise RuntimeError(
            f"JAX cannot read a tensor on {x.device} ({error}); for GPUs install a JAX with CUDA"
        ) from error


def to_torch(x: Array, device: torch.device, kept: set[int]) -> Tensor:
    """Return a tensor of the array's memory, or a copy where ``kept`` has its address.

    Tensors can be changed in place and JAX arrays cannot: an output must not share memory with an
    input or with what the backward pass reads.
    """
    if not x.size:
        return torch.empty(x.shape, dtype=getattr(torch, x.dtype.name), device=device)
    out = torch.from_dlpack(x)
    if x.unsafe_buffer_pointer() in kept:
        out = out.clone()
    return out.to(device)


def wide(tensors: Iterable[Tensor]) -> Any:
    """Return a context in which JAX has 64 bits if any tensor is float64."""
    if has_64_bits() or all(x.dtype != torch.float64 for x in tensors):
        return contextlib.nullcontext()
    return _enable_x64(True)


def has_64_bits() -> bool:
    """Test whether JAX keeps 64 bits here and now."""
    return jnp.result_type(float) == jnp.float64


def addresses(arrays: Iterable[Array]) -> set[int]:
    """Return where the arrays' memory begins."""
    return {x.unsafe_buffer_pointer() for x in arrays if x.size}


def _narrowed(x: Tensor) -> Tensor:
    if x.numel() and int(x.abs().max()) > LARGEST_INT32:
        raise ValueError(
            f"integers must be at most {LARGEST_INT32} in size, got {int(x.abs().max())}: number "
            "segments from 0"
        )
    return x.to(torch.int32)


if hasattr(jax, "enable_x64"):
    _enable_x64: Any = jax.enable_x64
else:  # before JAX 0.8
    _enable_x64 = jax.experimental.enable_x64  # type: ignore[attr-defined]


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
        self.run = jax.jit(body)
        self._linearised: dict[Mask, Any] = {}
        self._pulled: dict[Any, Any] = {}
        self._gradients: dict[tuple[Mask, Mask], JaxFunction] = {}

    def linearise(self, wrt: Mask) -> Any:
        """Return the compiled function to ``(outputs, vjp)``, differentiated where ``wrt``."""
        if wrt not in self._linearised:

            def linearised(scalars: Scalars, arrays: Any) -> Any:
                tree: list[Any] = []
                mask: list[bool] = []
                _, pull, (floats, others) = self._vjp(scalars, arrays, wrt, tree, mask)
                outputs = _interleave(mask, floats, others)
                return jax.tree.unflatten(tree[0], outputs), pull

            self._linearised[wrt] = jax.jit(linearised)
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

            self._pulled[key] = jax.jit(pulled)
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
            rest = iter(moving)
            full = [next(rest) if w else x for w, x in zip(wrt, arrays, strict=True)]
            outputs, structure = jax.tree.flatten(self.body(scalars, full))
            tree.append(structure)
            mask[:] = [jnp.issubdtype(x.dtype, jnp.inexact) for x in outputs]
            floats = tuple(x for x, m in zip(outputs, mask, strict=True) if m)
            others = tuple(x for x, m in zip(outputs, mask, strict=True) if not m)
            return floats, others

        moving = [x for w, x in zip(wrt, arrays, strict=True) if w]
        floats, pull, others = jax.vjp(of, *moving, has_aux=True)
        return floats, pull, (floats, others)

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
        with wide(tensors):
            arrays = [to_jax(x) for x in tensors]
            if any(wrt):
                made, pull = function.linearise(wrt)(scalars, arrays)
                residuals, ctx.tree = jax.tree.flatten(pull)
            else:
                made, residuals = function.run(scalars, arrays), []
            leaves, tree = jax.tree.flatten(made)
            structure.append(tree)
            kept = addresses(arrays) | addresses(residuals)
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
        tensors, residuals = ctx.saved_tensors[: len(wrt)], ctx.saved_tensors[len(wrt) :]
        floating = [
            (kind, ct)
            for kind, ct in zip(ctx.kinds, cotangents, strict=True)
            if jnp.issubdtype(kind[1], jnp.inexact)
        ]
        present = tuple(ct is not None for _, ct in floating)
        given = [ct for _, ct in floating if ct is not None]
        if torch.is_grad_enabled():  # a derivative of this one is wanted: create_graph=True
            step = function.gradient(wrt, present)
            grads = step(ctx.scalars, [*tensors, *given], ctx.device)
        else:
            with wide(tensors):
                pull = jax.tree.unflatten(ctx.tree, [to_jax(x) for x in residuals])
                arrays = [to_jax(x) for x in given]
                kinds = tuple(kind for kind, _ in floating)
                made = function.pull(kinds, present)(pull, arrays)
                kept = addresses(arrays) | addresses(jax.tree.leaves(pull))
                grads = [to_torch(x, ctx.device, kept) for x in made]
        rest = iter(grads)
        return (None, None, None, None, *(next(rest) if w else None for w in wrt))


def _interleave(mask: list[bool], chosen: Any, others: Any) -> list[Any]:
    chosen, others = iter(chosen), iter(others)
    return [next(chosen) if m else next(others) for m in mask]


def _filled(kinds: Any, present: Mask, cotangents: Any) -> tuple[Array, ...]:
    rest = iter(cotangents)
    return tuple(
        next(rest) if there else jnp.zeros(*kind)
        for kind, there in zip(kinds, present, strict=True)
    )
