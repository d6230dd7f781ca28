"""Test-time training mixers, whose memory is a small network that learns."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_number, check_sizes
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import split_keys


class TTTLinear(HeadMixer):
    """TTT-Linear: the memory is a linear map with a norm, trained by mini-batches of tokens.

    ``f(x) = x + LN(W x + b)``, ``o = f(q)``: each token steps down the gradient of
    ``|f(k) - v|^2 / 2``, taken where its mini-batch began.  W, b and the norm start as learned.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.  Keys and values must have one width, V.
    base_rate : float
        The learning rate of a token is ``base_rate sigmoid(W e + b) / V``, per head.
    mini_batch : int
        Tokens whose gradients share their starting point.
    query_factor : bool
        Multiply the rates by ``max(0, 1 / p + offset_p)`` too, p = 1, 2, ... the place of the query
        in its mini-batch, with learned offsets from 0, as the released models do.

    Notes
    -----
    O(V (V + mini_batch)) per token and head; the state is 2 V (V + 1) + 1 numbers per head.
    Differentiable to any order in both modes.

    References
    ----------
    Sun et al., "Learning to (Learn at Test Time)" (2024), sections 2.3 to 2.7, appendix A.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.TTTLinear(8, heads=2, mini_batch=4, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> y.shape, state.rule.weight.shape, state.rule.bias.shape
    ((1, 6, 8), (1, 2, 4, 4), (1, 2, 4))
    """

    rate: Gate
    initial: tuple[Array, ...]
    norm_scale: Array  # (H, V)
    norm_bias: Array
    offset: Array | None  # (mini_batch,), with a factor of the query
    base_rate: float = eqx.field(static=True)
    mini_batch: int = eqx.field(static=True)

    rule = staticmethod(attention.ttt_linear)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        base_rate: float = 1.0,
        mini_batch: int = 16,
        query_factor: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        check_sizes(mini_batch=mini_batch)
        check_number("base_rate", base_rate, least=0)
        super().__init__(dim, heads=heads, key=key, **options)
        if self.mapped_size != self.value_size:
            raise ValueError(
                f"the memory adds its input to its output: keys ({self.mapped_size}) and values "
                f"({self.value_size}) must have one size"
            )
        keys = split_keys(jax.random.fold_in(key, 1), ("rate", "initial"))
        self.rate = Gate(dim, heads, key=keys["rate"])
        self.initial = self.start(keys["initial"])
        self.norm_scale = jnp.ones((heads, self.value_size))
        self.norm_bias = jnp.zeros((heads, self.value_size))
        self.offset = jnp.zeros(mini_batch) if query_factor else None
        self.base_rate, self.mini_batch = base_rate, mini_batch

    def start(self, key: Array) -> tuple[Array, ...]:
        """Draw weights and biases where learning starts, normal with standard deviation 0.02."""
        h, v = self.heads, self.value_size
        return 0.02 * jax.random.normal(key, (h, v, v)), jnp.zeros((h, v))

    def arguments(self, x: Array) -> dict[str, Any]:
        return {
            "learning_rate": self.base_rate * jax.nn.sigmoid(self.rate(x)) / self.mapped_size,
            "initial": self.initial,
            "mini_batch": self.mini_batch,
            "norm_scale": self.norm_scale,
            "norm_bias": self.norm_bias,
            "query_factor": self.query_factor(),
        }

    def query_factor(self) -> Array | None:
        """Return factors (mini_batch,) by the query's place; None without."""
        if self.offset is None:
            return None
        places = jnp.arange(1, self.mini_batch + 1, dtype=self.offset.dtype)
        return jnp.maximum(1 / places + self.offset, 0)


class TTTMLP(TTTLinear):
    """TTT-MLP: the memory is a network of one hidden layer, four times as wide.

    :class:`TTTLinear` with ``f(x) = x + LN(W2 gelu(W1 x + b1) + b2)``.

    Parameters
    ----------
    dim, heads, mini_batch, query_factor, ... :
        As for :class:`TTTLinear`.
    base_rate : float
        0.1 unless given, a tenth of that of the linear memory.

    Notes
    -----
    O(V F) per token and head, F = 4 V; the state is 16 V^2 + 10 V + 1 numbers per head.

    References
    ----------
    Sun et al., "Learning to (Learn at Test Time)" (2024), section 2.7 and appendix A.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.TTTMLP(8, heads=2, key=jax.random.key(0))
    >>> [w.shape for w in layer.initial]
    [(2, 16, 4), (2, 16), (2, 4, 16), (2, 4)]
    """

    rule = staticmethod(attention.ttt_mlp)

    def __init__(
        self, dim: int, *, heads: int, base_rate: float = 0.1, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, base_rate=base_rate, key=key, **options)

    def start(self, key: Array) -> tuple[Array, ...]:
        h, v = self.heads, self.value_size
        first, second = jax.random.split(key)
        return (
            0.02 * jax.random.normal(first, (h, 4 * v, v)),
            jnp.zeros((h, 4 * v)),
            0.02 * jax.random.normal(second, (h, v, 4 * v)),
            jnp.zeros((h, v)),
        )
