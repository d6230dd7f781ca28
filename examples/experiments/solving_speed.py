"""What a training step costs: processor time, taken in turn with others, and counted flops."""

from __future__ import annotations

import math
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from solving_tasks import Task
from task_training import optimiser

from olsq.train import make_step

ROUNDS, REPEATS = 9, 3
# One flop an entry of the output; what is not here moves or makes numbers and costs none.
ELEMENTWISE = {
    "abs", "add", "add_any", "and", "cos", "cumsum", "div", "exp", "exp2", "expm1", "integer_pow",
    "log", "log1p", "logistic", "max", "min", "mul", "neg", "pow", "rsqrt", "select_n", "sign",
    "sin", "sqrt", "square", "sub", "tanh",
}  # fmt: skip
REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "cumlogsumexp"}


def flops(function: Any, *arguments: Any) -> tuple[float, bool]:
    """Flops of a call, and whether a loop of unknown length was counted once only.

    From its jaxpr: multiplications and additions of matrix products, Cholesky factors and
    triangular solves, and one for each entry that is computed otherwise.
    """
    closed = eqx.filter_make_jaxpr(function)(*arguments)[0]
    return _of(closed.jaxpr)


def _of(jaxpr: Any) -> tuple[float, bool]:
    """As :func:`flops`, of a jaxpr."""
    total, unknown = 0.0, False
    for line in jaxpr.eqns:
        name, outs = line.primitive.name, line.outvars
        size = math.prod(getattr(outs[0].aval, "shape", ())) if outs else 0
        shape = getattr(line.invars[0].aval, "shape", ()) if line.invars else ()
        if name == "dot_general":
            (contracted, _), _ = line.params["dimension_numbers"]
            total += 2 * size * math.prod(shape[i] for i in contracted)
        elif name == "cholesky":
            total += size * shape[-1] / 3
        elif name == "triangular_solve":
            total += size * shape[-1]
        elif name == "conv_general_dilated":
            total += 2 * size * math.prod(line.invars[1].aval.shape[1:])
        elif name in ELEMENTWISE:
            total += size
        elif name in REDUCTIONS:
            total += math.prod(shape)
        inner = [_of(getattr(j, "jaxpr", j)) for j in _inside(line.params)]
        if name == "cond":
            inner = [min(inner)]
        if name == "while":
            unknown = True
        times = line.params["length"] if name == "scan" else 1
        total += times * sum(count for count, _ in inner)
        unknown = unknown or any(flag for _, flag in inner)
    return total, unknown


def _inside(params: dict[str, Any]) -> list[Any]:
    """Jaxprs in the parameters of a line, rules of derivatives left out."""
    found = []
    for name, value in params.items():
        if name in ("fwd_jaxpr_thunk", "bwd", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "to_apply"):
            continue
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(each, "eqns") or hasattr(each, "jaxpr"):
                found.append(each)
    return found


def measure(task: Task, mixers: list[str], rounds: int = ROUNDS) -> dict[str, Any]:
    """Tokens a second of a training step, and flops a token, by mixer.

    The mixers take turns in one process; a time is the least processor time of a step over the
    rounds, so that what else the machine does adds little, and the same to all.
    """
    batch = tuple(task.draw(np.random.default_rng(0), task.batch))
    count = task.batch * batch[0].shape[1]
    optimizer = optimiser(1e-3, task.steps, warm_up=50, weight_decay=0.01)
    step = make_step(task.loss, optimizer)
    kept: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name in mixers:
        model = task.build(name, jax.random.key(0), task.size)
        state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
        gradient = eqx.filter_value_and_grad(task.loss)
        counted, open_ended = flops(gradient, model, *batch)
        jax.block_until_ready(step(model, state, *batch)[2].loss)
        kept[name] = model, state
        found[name] = {"flops": counted / count, "open_ended": open_ended, "least": math.inf}
    for _ in range(rounds):
        for name, (model, state) in kept.items():
            clock = time.process_time()
            for _ in range(REPEATS):
                jax.block_until_ready(step(model, state, *batch)[2].loss)
            spent = (time.process_time() - clock) / REPEATS
            found[name]["least"] = min(found[name]["least"], spent)
    return {
        "date": time.strftime("%Y-%m-%d"), "tokens": count, "rounds": rounds,
        "mixers": {name: {"tokens_per_second": count / r["least"], "flops": r["flops"],
                          "open_ended": r["open_ended"]} for name, r in found.items()},
    }  # fmt: skip
