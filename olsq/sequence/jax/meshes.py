"""Meshes with explicit axes: functions that leave them to the compiler while they run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from olsq.arrays.masked import fill_arguments
from olsq.sequence.jax.programs import one_program

P = ParamSpec("P")
Result = TypeVar("Result")


def on_automatic_axes(
    function: Callable[P, Result], *, masked: bool = False
) -> Callable[P, Result]:
    """Decorate a function so that explicit axes of a mesh are automatic while it runs.

    Explicit axes, the default of ``jax.make_mesh``, are part of an array's type, and most
    operations refuse arrays whose types differ.  Results are split over them again: as the first
    argument that is split, along the leading axes whose lengths they share.  With ``masked``
    entries under a mask are missing values, NaN.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        if masked:
            args, kwargs = fill_arguments(args, kwargs)  # pyright: ignore[reportAssignmentType]
        mesh = _explicit_mesh((args, kwargs))
        if mesh is None:
            return function(*args, **kwargs)
        return _run_on_automatic_axes(mesh, function, args, kwargs)

    return run


def takes_arrays(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a rule: it compiles as one program (:func:`one_program`), masked entries of its
    arguments are missing values, NaN, and explicit axes of a mesh are automatic while it runs, as
    with :func:`on_automatic_axes`.
    """
    return on_automatic_axes(one_program(function), masked=True)


_WHOLE = PartitionSpec()


def _run_on_automatic_axes(
    mesh: Any, function: Callable[..., Result], args: Any, kwargs: Any
) -> Result:
    """Run a function with the explicit axes of ``mesh`` automatic, and split its results again."""
    like: Any = next(filter(_split, (*args, *kwargs.values())), None)
    explicit = dict.fromkeys(mesh.explicit_axes, jax.sharding.AxisType.Auto)
    automatic = mesh.update_axis_types(explicit)
    # Where axes are automatic, an empty specification leaves the array where it is.
    with jax.sharding.use_abstract_mesh(automatic):
        args, kwargs = _reshard((args, kwargs), lambda x: NamedSharding(automatic, _WHOLE))
        results = function(*args, **kwargs)
    with jax.sharding.use_abstract_mesh(mesh):
        return _reshard(results, lambda x: NamedSharding(mesh, _spec_like(like, x)))


def _explicit_mesh(arguments: Any) -> Any:
    """Return the abstract mesh with explicit axes that an array or the context has, or None."""
    if not hasattr(jax.sharding, "use_abstract_mesh"):  # before jax 0.7
        return None
    context = jax.sharding.get_abstract_mesh()
    if context.explicit_axes:
        return context
    arrays = (x for x in jax.tree.leaves(arguments) if isinstance(x, Array))
    meshes = (jax.typeof(x).sharding.mesh for x in arrays)
    return next((mesh for mesh in meshes if mesh.explicit_axes), None)


def _split(x: Any) -> bool:
    """Test whether ``x`` is an array that is split over an explicit axis."""
    return isinstance(x, Array) and any(axis is not None for axis in jax.typeof(x).sharding.spec)


def _reshard(tree: Any, sharding: Callable[[Array], NamedSharding]) -> Any:
    def move(x: Any) -> Any:
        return jax.sharding.reshard(x, sharding(x)) if isinstance(x, Array) else x

    return jax.tree.map(move, tree)


def _spec_like(like: Array | None, x: Array) -> PartitionSpec:
    """Split ``x`` as ``like``, along the leading axes whose lengths they share."""
    if like is None:
        return _WHOLE
    axes: Sequence[Any] = jax.typeof(like).sharding.spec
    shared = 0
    for size, other in zip(x.shape, like.shape, strict=False):
        if size != other:
            break
        shared += 1
    return PartitionSpec(*axes[:shared])
