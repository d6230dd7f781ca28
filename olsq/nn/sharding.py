"""Models and batches on many devices: arrays placed on a mesh, and the compiler does the rest."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from olsq.arrays.unshared import unshared
from olsq.nn.surgery import map_mixers

Tree = TypeVar("Tree")


def shard(
    model: Tree, mesh: Mesh, *, weights: str | None = None, sequence: str | None = None
) -> Tree:
    """Place a model's weights on every device of a mesh.

    Call it, differentiate it and update it inside ``jax.jit`` (``eqx.filter_jit``) as ever, on what
    :func:`shard_batch` returns: values and gradients are those of one device to rounding.

    Parameters
    ----------
    model : LanguageModel, Backbone, Mesa, ...
        Or any pytree of weights, such as an optimiser's state.
    mesh : jax.sharding.Mesh
    weights : str, optional
        Axis of the mesh over which each weight is split, along the longest of its axes that the
        number of devices divides (fully sharded data parallelism); all weights are on all devices
        if None.
    sequence : str, optional
        Axis of the mesh that time will be split over: mixers are told
        (:meth:`Mixer.shard_time`), and have every device work on its own time.

    Raises
    ------
    ValueError
        If the mesh has no such axis.

    Notes
    -----
    With time on many devices, no device ever has the whole of it.  Where a memory has a fixed size,
    each works on its piece from an empty one; what pieces make of a memory (a decay, or for delta
    rules a K x K matrix, and what is added) is joined by an associative scan over the devices; then
    each works on its piece again from the memory before it.  A window comes from the neighbour.
    Softmax attention passes pieces of keys and queries around a ring (T / 2 of each are received,
    piece by piece), and TTT layers take their turns, one head after the other.  Gradients go the
    same ways.

    Examples
    --------
    >>> import jax, numpy as np, olsq.nn
    >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    >>> sizes = {"dim": 16, "blocks": 1, "heads": 1, "mixer": "gla"}
    >>> model = olsq.nn.LanguageModel(16, **sizes, key=jax.random.key(0))
    >>> model = olsq.nn.shard(model, mesh)
    >>> tokens = olsq.nn.shard_batch(np.zeros((4, 8), np.int32), mesh)
    >>> model(tokens).shape
    (4, 8, 16)
    """
    mesh = _automatic(mesh, weights, sequence)
    if sequence is not None:
        pieces = mesh.shape[sequence]
        model = map_mixers(lambda mixer: mixer.shard_time(pieces), model)

    def place(x: Any) -> Any:
        if not eqx.is_array(x):
            return x
        return jax.device_put(unshared(x), NamedSharding(mesh, _spec(x.shape, mesh, weights)))

    return jax.tree.map(place, model)


def shard_batch(
    batch_of: Tree, mesh: Mesh, batch: str | None = "data", sequence: str | None = None
) -> Tree:
    """Place tokens, targets or streams with their rows, their time or both split over a mesh.

    Parameters
    ----------
    batch_of : array (B, T, ...), or pytree of such
    mesh : jax.sharding.Mesh
    batch, sequence : str or None
        Axes of the mesh for rows and for time; None leaves that axis whole on every device.  For
        time, give :func:`shard` the same ``sequence``.

    Raises
    ------
    ValueError
        If the mesh has no such axis, or its devices do not divide rows or time.

    Notes
    -----
    Split inputs and targets before placing them: a slice of a split axis moves data.

    Examples
    --------
    >>> import jax, numpy as np, olsq.nn
    >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "time"))
    >>> tokens = np.zeros((4, 9), np.int32)
    >>> inputs, targets = olsq.nn.shard_batch(
    ...     (tokens[:, :-1], tokens[:, 1:]), mesh, sequence="time"
    ... )
    >>> tuple(inputs.sharding.spec)
    ('data', 'time')
    """
    mesh = _automatic(mesh, batch, sequence)
    sharding = NamedSharding(mesh, PartitionSpec(batch, sequence))

    def place(x: Any) -> jax.Array:
        _check_even(np.shape(x), mesh, batch, sequence)
        return jax.device_put(unshared(x), sharding)

    return jax.tree.map(place, batch_of)


def _automatic(mesh: Mesh, *axes: str | None) -> Mesh:
    """Return the mesh with all axes left to the compiler, after checking the axes asked for."""
    for axis in axes:
        if axis is not None and axis not in mesh.axis_names:
            raise ValueError(f"axes must be some of the mesh's, {mesh.axis_names}, got {axis!r}")
    return Mesh(mesh.devices, mesh.axis_names)


def _check_even(shape: tuple[int, ...], mesh: Any, *axes: str | None) -> None:
    if len(shape) < 2:
        raise ValueError(f"arrays must have axes (batch, time, ...), got {shape}")
    for what, size, axis in zip(("rows", "tokens"), shape, axes, strict=False):
        if axis is not None and size % mesh.shape[axis]:
            raise ValueError(
                f"{size} {what} cannot be split evenly over the {mesh.shape[axis]} devices of "
                f"{axis!r}"
            )


def _spec(shape: tuple[int, ...], mesh: Mesh, axis: str | None) -> PartitionSpec:
    """Split the longest axis that the devices divide over ``axis``."""
    if axis is None:
        return PartitionSpec()
    fitting = [(size, -i) for i, size in enumerate(shape) if size and size % mesh.shape[axis] == 0]
    if not fitting:
        return PartitionSpec()
    at = -max(fitting)[1]
    return PartitionSpec(*(axis if i == at else None for i in range(len(shape))))
