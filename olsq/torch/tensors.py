"""Exchange arrays between PyTorch and JAX by DLPack, without a copy where memory allows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
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
        raise ValueError("integers must fit in 32 bits: number the segments from 0")
    return x.to(torch.int32)


if hasattr(jax, "enable_x64"):
    _enable_x64: Any = jax.enable_x64
else:  # before JAX 0.8
    _enable_x64 = jax.experimental.enable_x64  # type: ignore[attr-defined]
