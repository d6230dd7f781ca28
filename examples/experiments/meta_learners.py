"""Six ways of learning sines from a few points, as meta-gradients of one task.

Shared by examples/meta_learning.py, which says what they are, and its report.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg

import olsq
import olsq.sequence.jax

WIDTH, SHOTS, STEPS, CG_STEPS = 40, 10, 5, 5
TEST_SHOTS = (1, 2, 3, 5, 7, 10, 15, 20)


class Task(NamedTuple):
    """Points to learn from, how many of them count, and points to be judged on."""

    x: Any  # (n, 1)
    y: Any  # (n, 1)
    seen: Any  # (n,), 1 for the first points, then 0
    query: Any  # (m, 1)
    target: Any  # (m, 1)


def sine(key: Any, n: int, m: int, frequency: float = 0.0) -> tuple[Any, Any]:
    """x and y (n + m, 1) of one task; its frequency is U(1 - frequency, 1 + frequency)."""
    a, b, c, d = jax.random.split(key, 4)
    x = jax.random.uniform(c, (n + m, 1), minval=-5.0, maxval=5.0)
    speed = jax.random.uniform(d, minval=1 - frequency, maxval=1 + frequency)
    phase = jax.random.uniform(b, maxval=np.pi)
    return x, jax.random.uniform(a, minval=0.1, maxval=5.0) * jnp.sin(speed * x + phase)


def draw(key: Any) -> Task:
    """A task to train on, with 1 to 10 points to learn from."""
    key, count = jax.random.split(key)
    x, y = sine(key, SHOTS, SHOTS)
    seen = jnp.arange(SHOTS) < jax.random.randint(count, (), 1, SHOTS + 1)
    return Task(x[:SHOTS], y[:SHOTS], seen.astype(x.dtype), x[SHOTS:], y[SHOTS:])


def exam(seed: int, number: int, frequency: float = 0.0, queries: int = 20) -> tuple[Any, Any]:
    """x and y (number, 20 + queries, 1): the first 20 to learn from."""
    keys = jax.random.split(jax.random.key(seed), number)
    return jax.vmap(lambda k: sine(k, max(TEST_SHOTS), queries, frequency))(keys)


def network(key: Any, width: int = WIDTH) -> dict[str, Any]:
    """A start: He's for the weights; biases spread the first layer's kinks over the inputs."""
    keys = jax.random.split(key, 4)
    return {
        "in": jax.random.normal(keys[0], (1, width)),
        "in bias": jax.random.uniform(keys[3], (width,), minval=-2.0, maxval=2.0),
        "hidden": jax.random.normal(keys[1], (width, width)) * np.sqrt(2 / width),
        "hidden bias": jnp.zeros(width),
        "out": jax.random.normal(keys[2], (width, 1)) / np.sqrt(width),
        "out bias": jnp.zeros(1),
    }


def features(p: dict[str, Any], x: Any) -> Any:
    """The last hidden layer, (..., width)."""
    x = jax.nn.relu(x @ p["in"] + p["in bias"])
    return jax.nn.relu(x @ p["hidden"] + p["hidden bias"])


def predict(p: dict[str, Any], x: Any) -> Any:
    return features(p, x) @ p["out"] + p["out bias"]


def inner_loss(p: dict[str, Any], task: Task) -> Any:
    """Mean square error on the points that are seen."""
    error = jnp.square(predict(p, task.x) - task.y)[:, 0]
    return jnp.vdot(error, task.seen) / task.seen.sum()


def outer_loss(p: dict[str, Any], task: Task) -> Any:
    return jnp.square(predict(p, task.query) - task.target).mean()


def descend(
    p: dict[str, Any], task: Task, rate: Any, *, mask: Any = None, first_order: bool = False,
    pull: Any = 0.0, steps: int = STEPS,
) -> dict[str, Any]:  # fmt: skip
    """``steps`` of gradient descent, each times ``mask``, pulled back to the start by ``pull``."""

    def step(now: Any, _: Any) -> Any:
        slope = jax.grad(inner_loss)(now, task)
        slope = jax.lax.stop_gradient(slope) if first_order else slope
        slope = jax.tree.map(lambda g, a, b: g + pull * (a - b), slope, now, p)
        if mask is not None:
            slope = jax.tree.map(jnp.multiply, slope, mask)
        return jax.tree.map(lambda a, g: a - rate * g, now, slope), None

    return jax.lax.scan(step, p, None, length=steps)[0]


def hard(m: Any) -> Any:
    """1 where m >= 0, else 0, with the derivative of m: the straight-through estimator."""
    return jax.tree.map(lambda m: m + jax.lax.stop_gradient((m >= 0) - m), m)


def head_mask(p: dict[str, Any]) -> dict[str, Any]:
    return {name: jnp.full_like(x, name.startswith("out")) for name, x in p.items()}


def implicit_gradient(
    p: dict[str, Any], task: Task, o: dict[str, Any], steps: int = CG_STEPS, inner: int = STEPS
) -> Any:
    """(I + H / lambda)^-1 of the outer gradient, both where the inner descent stopped."""
    end = descend(p, task, o["rate"], pull=o["pull"], steps=inner)
    slope = jax.grad(lambda p: inner_loss(p, task))

    def system(v: Any) -> Any:
        bent = jax.jvp(slope, (end,), (v,))[1]
        return jax.tree.map(lambda v, h: v + h / o["pull"], v, bent)

    value, g = jax.value_and_grad(outer_loss)(end, task)
    return value, cg(system, g, x0=g, tol=0.0, maxiter=steps)[0]


def head_inputs(p: dict[str, Any], x: Any) -> Any:
    """Features and a constant, of the size that a ridge of 1 is moderate for."""
    phi = features(p, x)
    return jnp.concatenate([phi, jnp.ones_like(phi[..., :1])], -1) / np.sqrt(phi.shape[-1])


def solved_head(p: dict[str, Any], x: Any, y: Any, query: Any, weight: Any = None) -> Any:
    """The prediction at query t of the head that is fitted to the first t points (ridge to p's)."""
    forget = jax.nn.sigmoid(p["forget"])
    if weight is not None:
        forget = jnp.where(weight > 0, forget, 1.0)  # queries are no time
    fit = olsq.sequence.jax.online_lstsq(
        head_inputs(p, x), y - predict(p, x), head_inputs(p, query),
        forget=forget, weight=weight, ridge=jnp.exp(p["ridge"]), solver=olsq.ChunkExact(len(x)),
    )  # fmt: skip
    return predict(p, query) + fit.value


def head_loss(p: dict[str, Any], task: Task) -> Any:
    """Every prefix of 1 to 10 points is judged, each on one query: no number of shots is drawn."""
    return jnp.square(solved_head(p, task.x, task.y, task.query) - task.target).mean()


def autodiff(loss: Any) -> Any:
    return lambda p, task, o: jax.value_and_grad(loss)(p, task, o)


def sparse_loss(p: dict[str, Any], task: Task, o: dict[str, Any]) -> Any:
    end = descend(p["start"], task, o["rate"], mask=hard(p["mask"]), first_order=True)
    return outer_loss(end, task)


class Method(NamedTuple):
    """What a method trains, its meta-gradient of one task, how it adapts, what it is tuned over."""

    begin: Any  # key -> meta-parameters
    gradient: Any  # (meta-parameters, task, options) -> outer loss, meta-gradient
    adapt: Any  # (meta-parameters, task, options) -> weights; None where the head is solved
    grid: dict[str, tuple[float, ...]]
    gradients: int  # of the network's loss for one task
    products: int  # Hessian-vector products for one task


def masked(key: Any) -> dict[str, Any]:
    """A start, and a mask drawn around 0: about half of the parameters are frozen at first."""
    p = network(key)
    leaves, tree = jax.tree.flatten(p)
    keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
    m = [0.1 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return {"start": p, "mask": jax.tree.unflatten(tree, m)}


def with_head(key: Any) -> dict[str, Any]:
    return {**network(key), "ridge": jnp.zeros(WIDTH + 1), "forget": jnp.array(2.0)}


def stepped(p: dict[str, Any], task: Task, o: dict[str, Any], **more: Any) -> Any:
    return outer_loss(descend(p, task, o["rate"], **more), task)


RATES, LRS = (0.003, 0.01, 0.03, 0.1), (1e-3, 3e-3)
COMMON = {"rate": RATES, "lr": LRS}
METHODS = {
    "MAML": Method(
        network, autodiff(stepped), lambda p, task, o: descend(p, task, o["rate"]), COMMON,
        STEPS + 1, STEPS,
    ),
    "first-order MAML": Method(
        network, autodiff(partial(stepped, first_order=True)),
        lambda p, task, o: descend(p, task, o["rate"]), COMMON, STEPS + 1, 0,
    ),
    "head only": Method(
        network,
        autodiff(lambda p, task, o: stepped(p, task, o, mask=head_mask(p), first_order=True)),
        lambda p, task, o: descend(p, task, o["rate"], mask=head_mask(p)), COMMON, STEPS + 1, 0,
    ),
    "sparse-MAML": Method(
        masked, autodiff(sparse_loss),
        lambda p, task, o: descend(p["start"], task, o["rate"], mask=hard(p["mask"])),
        {**COMMON, "mask lr": (0.01, 0.1)}, STEPS + 1, 0,
    ),
    "implicit MAML": Method(
        network, implicit_gradient,
        lambda p, task, o: descend(p, task, o["rate"], pull=o["pull"]),
        {**COMMON, "pull": (0.5, 2.0)}, STEPS + 1, CG_STEPS,
    ),
    "exact head": Method(
        with_head, autodiff(lambda p, task, o: head_loss(p, task)), None, {"lr": LRS}, 1, 0
    ),
}  # fmt: skip
