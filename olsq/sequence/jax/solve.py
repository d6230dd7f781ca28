"""JAX side of :func:`olsq.online_lstsq`, also with time in pieces, one per device.

Pieces exchange only moments of whole pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice
from olsq.arrays.questions import ask
from olsq.problem import Moments, Sizes, Solution, Stats, certificate, error_bounds
from olsq.sequence.jax.control import in_shard_map
from olsq.sequence.jax.gates import lost_tokens
from olsq.sequence.jax.inputs import Stream, check
from olsq.sequence.jax.pieces import (
    count_as_number,
    cumulate,
    cut_into_pieces,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)
from olsq.sequence.jax.platform import (
    Target,
    by_platform,
    chunk_length,
    full_precision,
    given_target,
    in_full_precision,
    tuned_for,
)
from olsq.sequence.jax.primitive import solve_by_primitive
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Grid,
    TokenSizes,
    clean,
    final_moments,
    initial_carry,
    pad_tokens,
)
from olsq.sequence.jax.walk import moments_after, solve_by_jax
from olsq.solvers import ChunkExact, Solver


def online_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution[Array]:
    """Run :func:`olsq.online_lstsq`, which documents it, in JAX, for NumPy arrays too.

    Every array is converted: float64 needs ``jax_enable_x64``, and ``Solution`` holds JAX arrays.
    """
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    stream, batch, dtype = check(
        keys, values, queries, forget, log_forget, weight, ridge, ridge_mode, state
    )
    algorithm = ChunkExact() if solver is None else solver
    algorithm.check_ridge_mode(ridge_mode, forgets=stream.gates is not None)
    count, length, d = stream.keys.shape
    unrolls = adjoint == "unrolled" and algorithm.truncates
    if unrolls:
        algorithm.check_unrolled()
    if 0 in (count, length):
        empty = jnp.zeros((count, length))
        stats = Stats(empty.astype(jnp.int32), empty, empty, empty)
        return restore_batch(stream.values, stream.state, stats, batch, dtype)
    review_gates(algorithm.sized(chunk_length(d)), forget, log_forget, (*batch, length))
    shards = max(algorithm.shards, pieces_of(length))
    value, final, sizes = solve_stream(stream, algorithm, unrolls, shards, given_target())
    return restore_batch(value, final, certify(stream, value, sizes, dtype), batch, dtype)


def review_gates(solver: Solver, forget: Any, log_forget: Any, shape: tuple[int, ...]) -> None:
    """Warn if gates of ``shape`` (..., T), where they are known, are outside the range that a
    solver is accurate for.
    """
    given = forget if log_forget is None else log_forget
    if given is None:
        return

    # Along a symbol of jax.export known gates are all the same: one stream, or chunk, shows them.
    length: Any = shape[-1] if isinstance(shape[-1], int) else solver.chunk
    sizes = *(n if isinstance(n, int) else 1 for n in shape[:-1]), length

    def review(gates: NDArray[Any]) -> None:
        gates = np.broadcast_to(gates, sizes).astype(np.float64).reshape(-1, length)
        if log_forget is None:
            solver.review(np.log(np.where(gates == 0, 1, gates)), gates)
        else:
            solver.review(gates, np.exp(gates))

    ask(given, review)


def restore_batch(
    value: Array, final: Moments[Array], stats: Stats[Array], batch: tuple[int, ...], dtype: Any
) -> Solution[Array]:
    """Return the solution of a flat batch with the batch axes and the dtype of the caller."""
    return Solution(
        value.reshape(*batch, *value.shape[1:]).astype(dtype),
        Moments(*(x.reshape(*batch, *x.shape[1:]) for x in final)),
        Stats(*(x.reshape(*batch, *x.shape[1:]) for x in stats)),
    )


@partial(jax.jit, static_argnames=("solver", "unrolls", "shards", "on"))
def solve_stream(
    stream: Stream, solver: Solver, unrolls: bool, shards: int = 1, on: Target | None = None
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a flat batch: outputs (B, T, m), final moments, sizes (B, T).

    A solver without a chunk length gets that of the platform that the program is lowered for, or of
    the target ``on``.
    """
    stream = mask_unsolvable(stream)  # of whole streams: pieces do not know of resets before them

    def choose(target: Target) -> tuple[JaxSolver, Grid]:
        form = solver.sized(chunk_length(stream.keys.shape[2], target)).jax()
        with tuned_for(target):
            return form, Grid.of(stream, form.options.chunk)

    def run(choice: tuple[JaxSolver, Grid]) -> Any:
        # Unrolled steps have no gradient by hand, and shard_map does not know our primitives' axes.
        by_jax = unrolls or in_shard_map()
        way = partial(solve_by_jax, unrolls=unrolls) if by_jax else solve_by_primitive
        solve = partial(way, solver=choice[0])
        if shards == 1:
            return solve(stream)
        return solve_in_pieces(stream, shards, choice[0].options.chunk, solve)

    with tuned_for(on), full_precision():
        return by_platform(choose, run)


def mask_unsolvable(stream: Stream) -> Stream:
    """Replace queries without a unique answer by NaN.

    In the discounted problem a gate of 0 forgets the ridge too: until d samples have come, counting
    its own, the system is singular. (A given state may be singular as well; that is not checked
    here.)
    """
    if stream.ridge is not None or stream.gates is None:
        return stream
    counts = jnp.ones_like(stream.gates) if stream.weight is None else stream.weight > 0
    total = cumulate(jnp.add, counts.astype(jnp.int32), 1, jnp.cumsum)
    before = jnp.where(stream.gates == 0, total - counts.astype(jnp.int32), -1)
    start = cumulate(jnp.maximum, before, 1, jax.lax.cummax)
    # fewer than d samples since the last reset
    few = (start >= 0) & (total - start < stream.keys.shape[-1])
    return stream._replace(queries=jnp.where(few[..., None], jnp.nan, stream.queries))


def solve_in_pieces(
    stream: Stream,
    pieces: int,
    chunk: int,
    solve: Callable[[Stream], tuple[Array, Moments[Array], TokenSizes]],
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a flat batch in ``pieces`` of time by ``solve``, which gets each as a stream.

    Merging is associative, so a piece is summarised by its moments from an empty state and the
    product of its gates. Only those summaries, O(d^2) each, are exchanged between devices.
    """
    b, length, _ = stream.values.shape
    samples, ridge = pad_tokens(stream, -length % pieces)
    cut = jax.tree.map(lambda x: cut_into_pieces(x, pieces), samples)
    ridge = cut.ridge if ridge is None else jnp.tile(ridge[:, :, 0], (pieces, 1, 1))
    start = initial_carry(stream.state)
    empty = Moments(*(jnp.zeros((pieces * b, *s.shape[1:]), s.dtype) for s in start[:2]))
    parts = stream._replace(**cut._asdict() | {"ridge": ridge, "state": empty, "floor": None})
    totals = moments_after(parts, chunk)

    def by_stream(x: Array) -> Array:
        """Reshape (pieces B,) to (B, pieces)."""
        return x.reshape(pieces, b).T

    factor, reset = jnp.ones(pieces * b, stream.keys.dtype), None
    if cut.gates is not None:
        finite = clean(cut)[0]
        factor = multiply_gates(finite.gates, finite.logs)
        reset = by_stream((finite.gates == 0).any(1))
    lost = lost_tokens(by_stream(totals.state_lost), reset, start.state_lost)
    factor = factor[:, None, None]
    gram, last_gram = scan_pieces(factor, totals.gram, start.gram)
    cross, last_cross = scan_pieces(factor, totals.cross, start.cross)
    lost_before = jnp.concatenate([start.state_lost[:, None], lost[:, :-1]], 1)
    state = final_moments(Carry(gram, cross, lost_before.T.reshape(-1)))
    value, _, sizes = solve(parts._replace(state=state))
    value, sizes = jax.tree.map(lambda x: join_pieces(x, pieces)[:, :length], (value, sizes))
    return value, final_moments(Carry(last_gram, last_cross, lost[:, -1])), sizes


@partial(jax.jit, static_argnames="dtype")
@in_full_precision
def certify(stream: Stream, value: Array, sizes: TokenSizes, dtype: Any) -> Stats[Array]:
    """Compute residuals and error bounds (B, T) of a flat batch whose outputs have ``dtype``."""
    stream, value, sizes = jax.lax.stop_gradient((stream, value, sizes))
    query, left = sizes.query, sizes.left
    ridge = jnp.zeros((), query.dtype) if stream.ridge is None else stream.ridge.max(-1)
    size = jnp.linalg.norm(value, axis=-1)
    parts = Sizes(query, sizes.solution, left, sizes.trace, ridge, sizes.cross, size)
    floor = least_eigenvalue(stream)
    eps, out_eps = (float(jnp.finfo(x).eps) for x in (query.dtype, dtype))
    length = count_as_number(query.shape[1], query.dtype)
    bounds = error_bounds(parts, floor, length, eps, out_eps)
    is_bounded = jnp.isfinite(value).all(-1) & (floor > 0)
    return Stats(sizes.steps, *certificate(left, query, bounds, is_bounded, jnp))


def least_eigenvalue(stream: Stream) -> Array:
    """Bound the eigenvalues of every token's system from below, (B, T) or (B, 1), by its ridge."""
    if stream.ridge is not None:
        return stream.ridge.min(-1)
    assert stream.floor is not None
    if stream.gates is None or stream.logs is None:
        return stream.floor[:, None]
    logs, resets = jnp.nan_to_num(stream.logs), (stream.gates == 0).astype(jnp.int32)
    left = jnp.exp(cumulate(jnp.add, logs, 1, jnp.cumsum))
    reset = cumulate(jnp.add, resets, 1, jnp.cumsum) > 0
    return jnp.where(reset, 0, left) * stream.floor[:, None]
