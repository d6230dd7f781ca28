"""Exchange arrays between PyTorch and JAX without a copy where memory allows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from numpy.typing import NDArray
from torch import Tensor

KINDS = ("cpu", "cuda")  # devices whose memory both libraries read
LARGEST_INT32 = 2**31 - 1
BFLOAT16 = np.dtype(jnp.bfloat16)


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


def to_jax(x: Tensor) -> Array | NDArray[Any]:
    """Return what a compiled JAX function takes for the tensor, of the same memory.

    A copy if the tensor has gaps or is badly aligned.  On a CPU it is a NumPy array, which JAX
    reads in place too: ``jnp.from_dlpack`` takes 100 microseconds (JAX 0.10), and a backward pass
    has 20 residuals.  On a GPU it is a JAX array.  Call it within :func:`jax_for`.
    """
    # neither knows the lazy conjugation and negation of tensors, nor gaps between rows
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    if x.dtype == torch.int64 and not has_64_bits():
        x = _narrowed(x)
    if x.device.type == "cpu":
        if x.dtype == torch.bfloat16:  # which NumPy lacks
            return x.view(torch.int16).numpy().view(BFLOAT16)
        return x.numpy()
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
    # a capsule, which has no stream to wait for, is a third faster than the array
    out = torch.from_dlpack(x.__dlpack__() if device.type == "cpu" else x)
    if x.unsafe_buffer_pointer() in kept:
        out = out.clone()
    return out.to(device)


@contextlib.contextmanager
def jax_for(device: torch.device, tensors: Iterable[Tensor]) -> Iterator[None]:
    """Have JAX compute on the device, and with 64 bits if any tensor is float64."""
    with contextlib.ExitStack() as stack:
        if any(x.dtype == torch.float64 for x in tensors) and not has_64_bits():
            stack.enter_context(_enable_x64(True))
        if device.type == "cpu" and jax.default_backend() != "cpu":
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
        yield


def has_64_bits() -> bool:
    """Test whether JAX keeps 64 bits here and now."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def addresses(arrays: Iterable[Tensor | Array]) -> set[int]:
    """Return where the arrays' memory begins."""
    return {
        x.unsafe_buffer_pointer() if isinstance(x, Array) else x.data_ptr()
        for x in arrays
        if 0 not in x.shape
    }


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
