"""Whole sequences in JAX: the functions of :mod:`olsq.sequence` for arrays of any kind.

Every array is converted: float64 needs ``jax_enable_x64``.
"""

from olsq.sequence.jax.decode import (
    merge_moments,
    query,
    solve_query,
    start_decoding,
    update,
)
from olsq.sequence.jax.meshes import on_automatic_axes
from olsq.sequence.jax.programs import one_program
from olsq.sequence.jax.solve import online_lstsq as _online_lstsq

online_lstsq = on_automatic_axes(one_program(_online_lstsq))

__all__ = [
    "merge_moments",
    "online_lstsq",
    "query",
    "solve_query",
    "start_decoding",
    "update",
]
