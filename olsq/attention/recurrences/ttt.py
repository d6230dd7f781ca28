"""Test-time training: a network learns keys to values by mini-batch gradient steps.

The network is layers ``z = W x + b`` with gelu between them and ``x + LN(z)`` at the end.
Gradients of a mini-batch are taken at the weights it started with, so that each is an outer product
known before any step is made, and weights in between need never exist (the dual form).  With g_i
the gradient at z, x_i the layer's input of key i, eta_i the rate, a query reads a layer after step
t as::

    W_t x + b_t = W x + b - sum_i eta_i (x_i . x + 1) g_i

for all t of a mini-batch at once: two matrix products per layer.  A factor c_p of queries at place
p of a mini-batch multiplies its whole sum: each reads ``start + c_p (now - start)``, where ``now``
has the steps so far as they are, and the next mini-batch starts where the last place read.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_integer, check_number, refuse
from olsq.attention.arguments import Layout, Tokens, check_weight, is_writable, per_head
from olsq.attention.recurrences.chunked import ChunkedRule, run_chunks
from olsq.attention.states import check_state, drop_unwritten, mark_lost, restore_layout
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import pieces_of, run_in_turns

GROUP = 16  # mini-batches (or 64 single tokens) whose weights the backward pass recomputes together

Layers = tuple[tuple[Array, Array], ...]  # weights (N, out, in) and biases (N, out)


class Norm(NamedTuple):
    """Layer normalisation of each stream."""

    scale: Array  # (N, 1, V)
    bias: Array  # (N, 1, V)
    eps: float


class Learner(NamedTuple):
    """A network and its position within a mini-batch."""

    now: Layers  # after all steps so far, without the queries' factor
    start: Layers  # as the mini-batch began
    position: Array  # (N,) tokens of the mini-batch so far, up to its length


def standardise(z: Array, eps: float) -> tuple[Array, Array]:
    """Scale z to mean 0 and variance 1; also return the standard deviation."""
    centred = z - z.mean(-1, keepdims=True)
    deviation = jnp.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return centred / deviation, deviation


def gelu(x: Array) -> Array:
    """Compute gelu, whose cube would overflow, beyond 10 as the ramp that it is to all digits."""
    far = jnp.abs(x) > 10
    return jnp.where(far, jnp.maximum(x, 0), jax.nn.gelu(jnp.where(far, 0, x)))


def drop_overflowing(x: Array, fits: Array) -> tuple[Array, Array]:
    """Set the rows of x (N, C, ...) to 0 whose squares overflow, and take them out of ``fits``.

    Derivatives at what overflows would be NaN, also for tokens whose cotangent is 0.
    """
    fits = fits & squarable(x)
    return jnp.where(fits[..., None], x, 0), fits


def gradients(
    layers: Layers, k: Array, v: Array, norm: Norm
) -> tuple[list[tuple[Array, Array]], Array]:
    """Compute the inputs x_i (N, C, in) and gradients g_i (N, C, out) of ``|f(k) - v|^2 / 2``, by
    layer, and a mask (N, C) of the tokens for which nothing overflows.
    """
    fits = jnp.ones(k.shape[:2], bool)
    inputs, outputs = [k], []
    for w, b in layers:
        z = jnp.einsum("noi,nti->nto", w, inputs[-1]) + b[:, None]
        z, fits = drop_overflowing(z, fits)
        outputs.append(z)
        inputs.append(gelu(z))
    unit, deviation = standardise(outputs[-1], norm.eps)
    # Backward through f(k) = k + scale * LN(z) + bias: the gradient of LN removes the mean and the
    # part along the normalised output, then divides by the deviation.
    pull = norm.scale * (k + norm.scale * unit + norm.bias - v)
    along = (pull * unit).mean(-1, keepdims=True)
    g = (pull - pull.mean(-1, keepdims=True) - unit * along) / deviation
    slopes = [(inputs[len(layers) - 1], g)]
    for i in reversed(range(len(layers) - 1)):
        g, fits = drop_overflowing(g, fits)
        back, fits = drop_overflowing(jnp.einsum("noi,nto->nti", layers[i + 1][0], g), fits)
        _, pull_back = jax.vjp(gelu, outputs[i])
        (g,) = pull_back(back)
        slopes.insert(0, (inputs[i], g))
    return slopes, fits


def predict(
    layers: Layers, steps: Any, first: Array, q: Array, norm: Norm, start: Layers, factor: Any
) -> tuple[Array, Array]:
    """Evaluate ``f(q_t)`` with the weights after steps i <= t, (N, C, V); also return a mask (N, C)
    of the queries for which nothing overflows.

    The steps are inputs and eta_i g_i, and ``first`` are the :func:`step_scores` of the first
    layer. With a factor (N, C), the weights are that fraction of the way from ``start`` to them.
    """
    x = z = q
    scores, fits = first, jnp.ones(q.shape[:2], bool)
    for i, ((w, b), (inputs, step)) in enumerate(zip(layers, steps, strict=True)):
        if i:
            scores = step_scores(x, inputs)
        # W_t x + b_t = W x + b - sum_{i<=t} eta_i (x_i . x + 1) g_i
        z = jnp.einsum("noi,nti->nto", w, x) + b[:, None] - jnp.einsum("nts,nso->nto", scores, step)
        if factor is not None:
            w0, b0 = start[i]
            begun = jnp.einsum("noi,nti->nto", w0, x) + b0[:, None]
            z = begun + factor[..., None] * (z - begun)
        z, fits = drop_overflowing(z, fits)
        x = gelu(z)
    return q + norm.scale * standardise(z, norm.eps)[0] + norm.bias, fits


def step_scores(x: Array, inputs: Array) -> Array:
    """Compute ``x_i . x + 1`` (N, C, C) of the steps i <= t of a mini-batch."""
    return jnp.tril(jnp.einsum("nti,nsi->nts", x, inputs) + 1)


def choose_layers(condition: Array, these: Layers, those: Layers) -> Layers:
    """Choose ``these`` for streams (N,) where the condition holds, else ``those``."""

    def one(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(one, these, those)


def next_start(learner: Learner, factor: Array | None) -> Layers:
    """Return the next mini-batch's start: the last query's factor (N,) of the way, or all of it."""
    if factor is None:
        return learner.now

    def one(start: Array, now: Array) -> Array:
        return start + factor.reshape(-1, *[1] * (now.ndim - 1)) * (now - start)

    return jax.tree.map(one, learner.start, learner.now)


@partial(compile_once, static_argnames=("mini_batch", "fresh", "groups"))
def train_stream(
    q: Array,
    k: Array,
    v: Array,
    rates: Array,
    learner: Learner,
    norm: Norm,
    mini_batch: int,
    *,
    segments: Array | None = None,
    initial: Layers,
    fresh: bool = False,
    factor: Array | None = None,
    groups: int = 1,
) -> tuple[Array, Learner]:
    """Train on a stream: outputs (N, T, V + 2) and the learner after the last token.

    The last two numbers of an output are 1, or 0 for a token that was left out because its steps
    overflow, and for a query whose output does.

    ``segments`` (N, T) marks tokens at which learning restarts from ``initial``; mini-batches then
    begin at data-dependent places, and tokens are taken one by one. ``fresh``: the stream begins a
    mini-batch, and need not be shifted to its boundaries. ``factor`` (N, mini_batch) is the
    queries' factor by their place. Where time is in pieces, they take turns with ``groups`` of
    streams.
    """
    pieces = pieces_of(q.shape[1])
    aligned = fresh and (pieces == 1 or q.shape[1] // pieces % mini_batch == 0)

    def run(learner: Learner, streams: Any, parameters: Any) -> tuple[Array, Learner]:
        (scale, bias), initial, factor = parameters
        return _learn(
            streams, learner, Norm(scale, bias, norm.eps), mini_batch, initial, aligned, factor
        )

    parameters = (norm[:2], initial, factor)
    return run_in_turns(run, learner, (q, k, v, rates, segments), parameters, groups)


def _learn(
    sequences: Any,
    learner: Learner,
    norm: Norm,
    mini_batch: int,
    initial: Layers,
    fresh: bool,
    factor: Array | None,
) -> tuple[Array, Learner]:
    """Run :func:`train_stream` on whole streams: queries, keys, values, rates and segments."""
    q, k, v, rates, segments = sequences
    length = q.shape[1]
    # 1 for every token, 0 in padding.  XLA would evaluate sums of a constant while it compiles.
    tokens = (0 * k[..., 0] == 0).astype(jnp.int32)
    streams: dict[str, Any] = {"q": q, "k": k, "v": v, "rates": rates, "tokens": tokens}
    single = segments is not None or (isinstance(length, int) and length <= 1)
    size = 1 if single else mini_batch
    aligned = single or fresh
    offset = learner.position % mini_batch
    if not aligned:
        streams = {name: shift(x, offset, mini_batch - 1) for name, x in streams.items()}
    streams["again"] = segments

    def prepare(x: Any, at_once: bool) -> tuple[Any, Any]:
        again = None if segments is None else x["again"][:, 0]
        tokens = x["tokens"].sum(1, dtype=jnp.int32)
        first = step_scores(x["q"], x["k"])
        return (x["k"], x["v"], x["rates"][..., None], tokens, again), (x["q"], first)

    def advance(learner: Learner, prepared: Any) -> tuple[Learner, Any]:
        """Make the steps of a mini-batch; pass on what its queries read."""
        k, v, rates, tokens, again = prepared
        now, start, position = learner
        if again is not None:
            now, start = choose_layers(again, initial, now), choose_layers(again, initial, start)
            position = jnp.where(again, 0, position)
        full = (position == mini_batch) & (tokens > 0)
        begin = next_start(Learner(now, start, position), None if factor is None else factor[:, -1])
        start, now = choose_layers(full, begin, start), choose_layers(full, begin, now)
        position = jnp.where(full, 0, position)
        slopes, fits = gradients(start, k, v, norm)
        steps = [(inputs, rates * g) for inputs, g in slopes]
        for step in steps:
            fits = fits & is_writable(*((part**2).sum(-1) for part in step))
        steps = [(inputs, jnp.where(fits[..., None], step, 0)) for inputs, step in steps]
        moved = tuple(
            (w - jnp.einsum("nto,nti->noi", step, inputs), b - step.sum(1))
            for (w, b), (inputs, step) in zip(now, steps, strict=True)
        )
        places = factor
        if factor is not None and single:
            places = jnp.take_along_axis(factor, position[:, None], 1, mode="clip")
        passed = now, None if factor is None else start, places, steps, fits
        return Learner(moved, start, position + tokens), passed

    def read(reads: Any, _: Learner, passed: Any) -> Array:
        (q, first), (now, start, places, steps, fits) = reads, passed
        scale, bias = (repeat_rows(x, q.shape[0]) for x in norm[:2])
        out, readable = predict(now, steps, first, q, Norm(scale, bias, norm.eps), start, places)
        return jnp.concatenate([out, jnp.stack([fits, readable], -1).astype(out.dtype)], -1)

    group = 64 if single else GROUP
    rule = ChunkedRule(prepare, advance, read, chunk=size, on_cpu=size, group=group)
    weights = sum(prod(x.shape[1:]) for x in jax.tree.leaves(initial))
    out, learner = run_chunks(rule, learner, streams, weights)
    if aligned:
        return out[:, :length], learner
    return jax.vmap(lambda x, p: jax.lax.dynamic_slice_in_dim(x, p, length))(out, offset), learner


def repeat_rows(x: Array, rows: int) -> Array:
    """Repeat what belongs to streams, (N, ...), for their chunks that are computed at once."""
    return jnp.tile(x, (rows // max(x.shape[0], 1), *[1] * (x.ndim - 1)))


def shift(x: Array, offset: Array, most: int) -> Array:
    """Shift streams (N, T, ...) by ``offset`` (N,) tokens, at most ``most``, padding with zeros."""

    def one(x: Array, offset: Array) -> Array:
        room = jnp.zeros((x.shape[0] + most, *x.shape[1:]), x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(room, x, offset, 0)

    return jax.vmap(one)(x, offset)


def initial_weights(initial: Any, shapes: dict[str, Any], layout: Layout) -> list[Array]:
    """Return the weights to start from, one of each for every stream; 0 where none are given."""
    if initial is None:
        initial = [0.0] * len(shapes)
    elif len(initial) != len(shapes):
        raise ValueError(f"initial must be ({', '.join(shapes)}), got {len(initial)} arrays")
    pairs = zip(initial, shapes.items(), strict=True)
    return [per_head(f"initial {part}", x, layout, *shape) for x, (part, shape) in pairs]


def train(
    tokens: Tokens,
    layout: Layout,
    kind: Any,
    start: list[Array],
    learning_rate: Any,
    norm: tuple[Any, Any, float],
    mini_batch: int,
    query_factor: Any,
    state: Any,
) -> tuple[Array, Any]:
    """Train the network of a TTT rule whose state is the named tuple ``kind``.

    Returns outputs and state.
    """
    values, keys = tokens.v.shape[-1], tokens.k.shape[-1]
    if values != keys:
        raise ValueError(
            f"v must have the width of k, got {values} and {keys}: the network learns v - k"
        )
    check_integer("mini_batch", mini_batch, 1, bits=31)
    check_number("eps", norm[2], least=0)
    if type(state) is kind:
        refuse(
            "state.position",
            state.position,
            lambda p: p > mini_batch,
            f"be at most mini_batch = {mini_batch}, as the state's was",
        )
    tokens, rates = drop_unwritten(tokens, check_weight("learning_rate", learning_rate, layout))
    rates = jnp.ones(tokens.sample_lost.shape, layout.working) if rates is None else rates
    scale, bias = (
        per_head(n, x, layout, values)[:, None]
        for n, x in (("norm_scale", norm[0]), ("norm_bias", norm[1]))
    )
    factor = None
    if query_factor is not None:
        factor = per_head("query_factor", query_factor, layout, mini_batch)
    b, h = layout.batch, layout.heads
    by_head = [x.reshape(b, h, *x.shape[1:]) for x in start]
    zero = kind(*by_head, *by_head, jnp.zeros((b, h), jnp.int32))
    opened, state_lost = check_state(state, zero, layout)
    initial = as_layers(start)
    parts = len(start)
    learner = Learner(as_layers(opened[:parts]), as_layers(opened[parts:-1]), opened.position)
    out, learner = train_stream(
        tokens.q,
        tokens.k,
        tokens.v,
        rates,
        learner,
        Norm(scale, bias, norm[2]),
        mini_batch,
        segments=tokens.start,
        initial=initial,
        fresh=state is None,
        factor=factor,
        groups=h,
    )
    end = kind(*sum((*learner.now, *learner.start), ()), learner.position)
    tokens = mark_lost(tokens, out[..., -2] == 0)
    tokens = tokens._replace(query_finite=tokens.query_finite & (out[..., -1] != 0))
    return restore_layout(out[..., :-2], end, tokens, state_lost, layout)


def as_layers(parts: Any) -> Layers:
    """Group alternating weights and biases into layers."""
    return tuple(zip(parts[0::2], parts[1::2], strict=True))
