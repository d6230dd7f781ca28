"""Wrap functions of JAX arrays for tensors: one table, from which every wrapper is made."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import torch
from jax import Array
from torch import Tensor

import olsq
from olsq import attention
from olsq.arrays.checks import check_forget, check_ridge, check_weight, refuse
from olsq.torch.function import JaxFunction, Scalars
from olsq.torch.tensors import check_one_device, check_tensor

NO_TRACE = (
    "olsq.torch computes with JAX, which TorchDynamo cannot trace: the graph breaks around the "
    "call, and what is before and after it is compiled"
)
NO_TRANSFORMS = (
    "olsq.torch computes with JAX, where torch.func's transforms do not reach: use batch axes "
    "instead of vmap, torch.autograd.grad (of any order) instead of grad, and jax.vmap or jax.jvp "
    "on olsq's functions of JAX arrays"
)

# of olsq.attention: whatever takes arrays and is no class, a rule or one token of it
RULES = tuple(name for name in attention.__all__ if not isinstance(getattr(attention, name), type))
SOLVERS = {"online_lstsq": olsq.online_lstsq, "local_lstsq": olsq.local_lstsq}
TABLE: dict[str, Callable[..., Any]] = {
    **SOLVERS,
    **{name: getattr(attention, name) for name in RULES},
}

LIMITS = """Tensors in, tensors out: dtypes and devices are kept, memory is shared by DLPack where
its layout allows it, and states are tensors in the same named tuples.  Gradients of any order
go through ``torch.autograd``, states included.  Other options and errors are those of the
function for JAX arrays, documented below; arrays there are tensors here.  The function is
compiled once for every combination of options, shapes and dtypes."""


def wrap(name: str) -> Callable[..., Any]:
    """Return the function of the table for tensors, with its signature and documentation."""
    function = TABLE[name]
    home = "olsq" if name in SOLVERS else "olsq.attention"
    wrapped = Wrapped(name, function)

    @functools.wraps(function)
    def on_tensors(*args: Any, **kwargs: Any) -> Any:
        return evaluate(wrapped, args, kwargs)

    said = (inspect.getdoc(function) or "").partition("\nExamples\n-----")[0].rstrip()
    first = f"Compute :func:`{home}.{name}` on PyTorch tensors."
    on_tensors.__doc__ = f"{first}\n\n{LIMITS}\n\n{said}\n"
    on_tensors.__module__ = "olsq.torch"
    on_tensors.__signature__ = wrapped.signature  # type: ignore[attr-defined]
    return on_tensors


class Wrapped:
    """A function of JAX arrays, and its compiled forms by options."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.signature = inspect.signature(function)
        parameters = self.signature.parameters
        # numbers given for these are traced, and another number compiles nothing
        self.numeric = {n for n, p in parameters.items() if "ArrayLike" in str(p.annotation)}
        self.defaults = {
            n: p.default for n, p in parameters.items() if p.default is not inspect.Parameter.empty
        }
        self.positive_ridge = name not in SOLVERS
        self.weight_of = "sample" if name in SOLVERS else "token"
        if name.startswith("gated_delta_product"):
            self.weight_of = "step"
        self.compiled: dict[Any, JaxFunction] = {}


def evaluate_eagerly(wrapped: Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Bind, check and convert the arguments; evaluate the compiled function."""
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    if active is not None and active():
        raise NotImplementedError(NO_TRANSFORMS)
    arguments = dict(wrapped.signature.bind(*args, **kwargs).arguments)
    arguments = {name: x for name, x in arguments.items() if x is not None}
    paths = [(name, *part) for name, x in arguments.items() for part in _leaves(name, x)]
    for _, at, x in paths:
        if isinstance(x, Tensor):
            check_tensor(at, x)
    device = check_one_device((at, x) for _, at, x in paths if isinstance(x, Tensor))
    numbers = {
        n: _numbers(x) for n, x in arguments.items() if n not in ("q", "k", "v", "x", *STREAMS)
    }
    options = {**wrapped.defaults, **arguments}
    check_values(
        numbers, options, positive_ridge=wrapped.positive_ridge, weight_of=wrapped.weight_of
    )
    if "segment_ids" in numbers and "segments" in options and options["segments"] is None:
        # needed where the ids are traced; another count compiles again
        ids = np.atleast_2d(numbers["segment_ids"])
        arguments["segments"] = 1 + int((np.diff(ids) != 0).sum(-1).max(initial=0))
        paths.append(("segments", "segments", arguments["segments"]))
    tensors: list[Tensor] = []
    scalars: list[float] = []
    plan: list[tuple[str, Any]] = []
    for name, at, x in paths:
        if isinstance(x, np.generic):
            x = x.item()
        if isinstance(x, (Tensor, np.ndarray, Array)):
            plan.append(("tensor", None))
            tensors.append(x if isinstance(x, Tensor) else _to_tensor(at, x, device))
        elif name in wrapped.numeric and isinstance(x, (int, float)) and x != 1:
            # not 1, which many functions skip a multiplication for
            plan.append(("scalar", type(x)))
            scalars.append(x)
        else:
            plan.append(("option", x))
    # None of these are leaves: a tree of the same structure and options is the same program.
    tree = jax.tree.structure(tuple(arguments.values()))
    key = tuple(arguments), tree, tuple(plan)
    try:
        function = wrapped.compiled.get(key)
    except TypeError:
        unusable = [
            at
            for (_, at, x), (kind, _) in zip(paths, plan, strict=True)
            if kind == "option" and not _hashable(x)
        ]
        raise TypeError(
            f"{', '.join(unusable)} of {wrapped.name} must be a tensor, a number or an option, got "
            "what cannot be compared"
        ) from None
    if function is None:
        function = JaxFunction(functools.partial(_call, wrapped.function, *key))
        wrapped.compiled[key] = function
    return function(tuple(scalars), tensors, device)


STREAMS = ("keys", "values", "queries")
evaluate: Any = torch.compiler.disable(evaluate_eagerly, reason=NO_TRACE)


def _call(
    function: Callable[..., Any],
    names: tuple[str, ...],
    tree: Any,
    plan: Any,
    scalars: Scalars,
    arrays: Any,
) -> Any:
    """Rebuild the arguments of a call and make it, within a trace."""
    numbers, streams = iter(scalars), iter(arrays)
    pick = {"tensor": lambda x: next(streams), "scalar": lambda x: next(numbers)}
    leaves = [pick[kind](x) if kind in pick else x for kind, x in plan]
    return function(**dict(zip(names, jax.tree.unflatten(tree, leaves), strict=True)))


def _leaves(name: str, x: Any) -> list[tuple[str, Any]]:
    """Return the leaves of an argument, each with the name to call it in errors."""
    if isinstance(x, (Tensor, float, int, str)):
        return [(name, x)]
    fields = getattr(x, "_fields", ())
    leaves = jax.tree.leaves(x)
    if len(fields) == len(leaves):
        return [(f"{name}.{field}", leaf) for field, leaf in zip(fields, leaves, strict=True)]
    return [(name, leaf) for leaf in leaves]


def _numbers(x: Any) -> Any:
    """Return an argument with NumPy arrays for tensors, for checks of its values."""
    if isinstance(x, Tensor):
        x = x.detach()
        return (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).cpu().numpy()
    if hasattr(x, "position"):
        return _Position(_numbers(x.position))
    if isinstance(x, list):
        return [_numbers(part) for part in x]
    return x


class _Position:
    """The one part of a state whose values are checked."""

    def __init__(self, position: Any) -> None:
        self.position = position


def _to_tensor(name: str, x: Any, device: torch.device) -> Tensor:
    if isinstance(x, Array):
        return torch.from_dlpack(x).to(device)
    try:
        return torch.tensor(x).to(device)
    except TypeError:
        raise TypeError(f"{name} must hold real numbers, got {x.dtype}") from None


def _hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


Arguments = Mapping[str, Any]  # numbers, NumPy arrays, or lists of them, by name


def check_values(
    arguments: Arguments, options: Arguments, *, positive_ridge: bool, weight_of: str
) -> None:
    """Raise ValueError for gates, weights and ridges out of range.

    Parameters
    ----------
    given : mapping
        Arguments that were given.
    options : mapping
        Every option of the function with its value, also those left at their defaults.
    positive_ridge : bool
        Whether a ridge of 0 is refused.
    weight_of : str
        What a weight belongs to: a token, a sample or a step.
    """
    forget, logs = arguments.get("forget"), arguments.get("log_forget")
    check_forget(forget, logs, signed=options.get("signed"))
    if (rate := arguments.get("curvature_forget")) is not None:
        check_forget(rate, name="curvature_forget")
    check_weight(arguments.get("weight"), of=weight_of)
    for name, of in WEIGHTS.items():
        check_weight(arguments.get(name), name=name, of=of)
    for name, (wrong, rule) in RANGES.items():
        if arguments.get(name) is not None:
            refuse(name, arguments[name], wrong, rule)
    ridge = arguments.get("ridge")
    if ridge is not None and positive_ridge:
        refuse("ridge", ridge, lambda r: r <= 0, "be > 0")
    elif ridge is not None:
        check_ridge(ridge)
    if "step" in arguments and "mini_batch" not in options:
        refuse("step", arguments["step"], lambda s: s < 0, "be >= 0 (it is a time)")
    ids = arguments.get("segment_ids")
    if ids is not None and np.ndim(ids) and (np.diff(np.asarray(ids).astype(np.int64)) < 0).any():
        raise ValueError(
            "segment_ids must not decrease along time: packed sequences follow one another"
        )
    position, most = getattr(arguments.get("state"), "position", None), options.get("mini_batch")
    if position is not None and most is not None:
        rule = f"be at most mini_batch = {most}, as the state's was"
        refuse("state.position", position, lambda p: p > most, rule)


Wrong = Callable[[Any], Any]


def _outside_unit(x: Any) -> Any:
    return (x < 0) | (x > 1)


WEIGHTS = {
    "feedback": "token",
    "learning_rate": "token",
    "curvature_weight": "token",
    "erase": "channel",
}
RANGES: dict[str, tuple[Wrong, str]] = {
    "removal_rate": (_outside_unit, "lie in [0, 1]"),
    "trapezoid": (_outside_unit, "lie in [0, 1]"),
    "mix": (_outside_unit, "lie in [0, 1]"),
    "input_gate": (_outside_unit, "lie in [0, 1] (it is a sigmoid's)"),
    "recurrence_gate": (_outside_unit, "lie in [0, 1] (it is a sigmoid's)"),
    "momentum": (_outside_unit, "lie in [0, 1]"),
    "step_size": (lambda x: x < 0, "be >= 0"),
    "drift": (lambda x: x < 0, "be >= 0"),
    "initial_precision": (lambda x: x <= 0, "be > 0"),
    "information": (lambda x: x <= 0, "be > 0"),
    "center": (lambda x: ~np.isfinite(x), "be finite"),
    "ratio": (lambda r: ~(np.isfinite(r) & (r > 0)), "be finite and > 0"),
    "log_weight": (np.isposinf, "be less than infinity"),
    "scale": (np.isinf, "be finite"),
}
