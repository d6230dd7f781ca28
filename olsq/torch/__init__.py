"""olsq for PyTorch: solvers and attention rules on tensors, with gradients of any order.

``olsq.torch.online_lstsq``, ``olsq.torch.local_lstsq`` and every rule of :mod:`olsq.attention`
under its own name, ``olsq.torch.mesa`` for one, take and return ``torch.Tensor``.  They call the
functions of JAX arrays, which share the tensors' memory.  ``Mesa`` and ``GatedDelta`` are layers
that read weights of flash-linear-attention.  PyTorch comes with the extra ``torch``.
"""

from typing import TYPE_CHECKING, Any

try:
    import torch.autograd as _autograd  # noqa: F401 # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(
        'olsq.torch needs torch: pip install ".[torch]" in a checkout of olsq', name="torch"
    ) from error

from olsq.torch.calls import TABLE, wrap
from olsq.torch.layers import GatedDelta, LayerState, Mesa

for _name in TABLE:
    globals()[_name] = wrap(_name)
del _name

if TYPE_CHECKING:  # the functions of the table

    def __getattr__(name: str) -> Any: ...


__all__ = ["GatedDelta", "LayerState", "Mesa", *TABLE]  # type: ignore[reportUnsupportedDunderAll]
