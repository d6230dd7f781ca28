"""Attention that fits a line where softmax attention fits a constant: LocalLinear and Parallax."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_sizes
from olsq.nn.gated import Ridge
from olsq.nn.parts import Linear
from olsq.nn.softmax import Softmax


class LocalAttention(Softmax):
    """Softmax attention's projections, positions and caches, for rules with a window or without."""

    window: int | None = eqx.field(static=True)
    scale: float | None = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        window: int | None = None,
        scale: float | None = None,
        key: Array,
        **options: Any,
    ) -> None:
        if window is not None:
            check_sizes(window=window)
        super().__init__(dim, heads=heads, key=key, **options)
        self.window, self.scale = window, scale

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"window": self.window, "scale": self.scale}

    @property
    def grows(self) -> bool:
        return self.window is None


class LocalLinear(LocalAttention):
    """Local linear attention: every query solves a regression weighted as softmax attention is.

    ``o = vbar + C x`` with ``(S + ridge I) x = q - kbar``: weighted means of keys and values, and
    weighted covariances S of keys and C of values with keys.

    Parameters
    ----------
    dim, heads, key_size, value_size, rope_base, ... :
        As for :class:`Softmax`, whose states and capacity it has.
    window : int, optional
        Tokens that a query sees, its own included; all if None.
    scale : float, optional
        Of the scores; ``key_size**-0.5`` if None.  With ``normalise=True``, give a larger one.
    ridge_floor, ridge_start : float
        ``ridge = ridge_floor + softplus(raw)`` per head, started at ``ridge_start``.  At the start
        keys have a variance of about 1, so these numbers are shares of it.

    Notes
    -----
    As :class:`Softmax` for the scores and for each step of the solve: about 8 at first, more as a
    ridge is learned that is smaller.  Solves go on to rounding, in float32 or better.

    References
    ----------
    Zuo et al., "Local Linear Attention" (2025), arXiv 2510.01450.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.LocalLinear(8, heads=2, key=jax.random.key(0))
    >>> prompt = jax.numpy.ones((1, 6, 8))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None, capacity=10), prompt)
    >>> state.rule.keys.shape
    (1, 2, 10, 4)
    """

    ridge: Ridge
    rule = staticmethod(attention.local_linear)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        ridge_floor: float = 0.01,
        ridge_start: float = 1.0,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.ridge = Ridge(heads, 1, floor=ridge_floor, start=ridge_start)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {**super().arguments(x), "ridge": self.ridge()[:, 0]}


class Parallax(LocalAttention):
    """Parallax: softmax attention corrected along a learned direction, in place of a solve.

    ``o = vbar (1 + E[r . k]) - E[v (r . k)]`` with softmax's weights and ``r = W_r e`` per head,
    turned by the rotary positions as keys are.

    Parameters
    ----------
    dim, heads, key_size, value_size, rope_base, ... :
        As for :class:`Softmax`, whose states and capacity it has.
    window : int, optional
        Tokens that a query sees, its own included; all if None.
    scale : float, optional
        Of the scores; ``key_size**-0.5`` if None.
    direction_gain : float
        Standard deviation of W_r at the start, in units of ``1 / sqrt(dim)``.  With 0 the layer
        starts as softmax attention.

    Notes
    -----
    Twice the cost of :class:`Softmax`.  ``rope_base=None`` gives the layer of
    flash-linear-attention, which has no positions.

    References
    ----------
    "Parallax" (2026), arXiv 2605.29157.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Parallax(8, heads=2, window=4, key=jax.random.key(0))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.keys.shape
    (1, 2, 3, 4)
    """

    direction_proj: Linear
    rule = staticmethod(attention.parallax)
    turned = ("direction",)

    def __init__(
        self, dim: int, *, heads: int, direction_gain: float = 0.0, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        if self.mapped_size != self.key_size:
            raise ValueError(
                "feature_map must keep the width of keys, since directions are as wide, got "
                f"{self.feature_map!r}, which makes {self.mapped_size} of {self.key_size}: choose "
                "another"
            )
        direction_key = jax.random.fold_in(key, 1)
        self.direction_proj = Linear(
            dim, heads * self.key_size, key=direction_key, gain=direction_gain
        )

    def arguments(self, x: Array) -> dict[str, Any]:
        r = self.split_heads(self.direction_proj(x))
        return {**super().arguments(x), "direction": r}
