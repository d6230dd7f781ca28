"""Delta rules with several steps per token, and with feedback: DeltaProduct and Comba."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_number, check_sizes
from olsq.nn.gated import Gated
from olsq.nn.heads import WIDTH, Gate
from olsq.nn.parts import Linear, ShortConvolution, as_bool, split_keys


class GatedDeltaProduct(Gated):
    """Gated DeltaProduct: forget, then several gradient steps per token, each with its own pair.

    ``S = gamma S``, then ``S = S (I - beta_j k_j k_j^T) + beta_j v_j k_j^T`` for each step j,
    ``o = S q``, with ``gamma = sigmoid(W e + b)`` per head and ``beta_j = 2 sigmoid(W e + b)`` per
    head and step.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    steps : int
        Keys and values per token, the paper's ``n_h``.
    negative_eigenvalues : bool
        Let beta be up to 2, so that a step may reflect: state tracking needs it.  False leaves out
        the factor 2.
    strength_bias : bool
        False leaves out beta's b.
    forget_bound, forget_floor, forget_bias, forget_speed : optional
        Of gamma: see :class:`GatedDelta`.  Not ``signed``, and always with step sizes.

    Notes
    -----
    Costs ``steps`` times what :class:`GatedDelta` does; the state is V K numbers per head.
    Differentiable to any order in both modes.

    References
    ----------
    Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products"
    (2025), section 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.GatedDeltaProduct(8, heads=2, steps=3, key=jax.random.key(0))
    >>> layer.key_proj.weight.shape, layer.query_proj.weight.shape
    ((8, 24), (8, 8))
    """

    rates: Gate
    steps: int = eqx.field(static=True)
    negative_eigenvalues: bool = eqx.field(static=True, converter=as_bool)

    rule = staticmethod(attention.gated_delta_product)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        steps: int = 2,
        negative_eigenvalues: bool = True,
        strength_bias: bool = True,
        convolution_width: int = WIDTH,
        convolution_bias: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        check_sizes(steps=steps)
        super().__init__(
            dim,
            heads=heads,
            weighted=False,
            convolution_width=convolution_width,
            convolution_bias=convolution_bias,
            key=key,
            **options,
        )
        keys = split_keys(jax.random.fold_in(key, 2), ("key", "value", "rates", "convolution"))
        widths = self.stream_widths
        widths |= {name: steps * widths[name] for name in ("key", "value")}
        self.key_proj = Linear(dim, widths["key"], key=keys["key"])
        self.value_proj = Linear(dim, widths["value"], key=keys["value"])
        if isinstance(self.convolution, ShortConvolution):
            channels = sum(widths[name] for name in self.convolved)
            self.convolution = ShortConvolution(
                convolution_width, channels, bias=convolution_bias, key=keys["convolution"]
            )
        started = 0.0 if strength_bias else None
        self.rates = Gate(dim, heads * steps, key=keys["rates"], bias=started)
        self.steps, self.negative_eigenvalues = steps, negative_eigenvalues

    def arguments(self, x: Array) -> dict[str, Any]:
        beta = jax.nn.sigmoid(self.split_heads(self.rates(x)))
        return {**super().arguments(x), "weight": beta * (2 if self.negative_eigenvalues else 1)}

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        streams, recent = self.project(x, recent, segment_ids)
        q, k, v = self.split_streams(streams)
        k, v = (
            y.reshape(*y.shape[:3], self.steps, size)
            for y, size in ((k, self.key_size), (v, self.value_size))
        )
        return self.features(q), self.features(k), v, self.arguments(x), recent


class Comba(Gated):
    """Comba: a delta rule with feedback of its own share, in the error and in what is read.

    ``S = S (gamma I - b beta k k^T) + beta v k^T``, ``o = S (q - d k)``, with the gates gamma and
    beta of :class:`GatedDelta`, and a learned b in (0, 1) and d per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    correction : float
        Where d starts.  The paper's small models (340M) start at 0.02, larger ones at 1.
    forget_bound, forget_floor, forget_bias, weighted : optional
        Of the gates: see :class:`GatedDelta`.  Not ``signed``.

    Attributes
    ----------
    feedback : array (H,)
        ``b = sigmoid(feedback)``, at first sigmoid(1).
    correction : array (H,)
        d.

    Notes
    -----
    Costs what :class:`GatedDelta` does; the state is V K numbers per head.  Differentiable to any
    order in both modes.  The paper's gates are Mamba-2's.

    References
    ----------
    Hu et al., "Improving Bilinear RNNs with Closed-loop Control" (2025).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Comba(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    feedback: Array  # (H,)
    correction: Array  # (H,)

    rule = staticmethod(attention.comba)
    own_keys = True

    def __init__(
        self, dim: int, *, heads: int, correction: float = 1.0, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.feedback = jnp.ones(heads)
        check_number("correction", correction)
        self.correction = jnp.full(heads, correction, float)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {**super().arguments(x), "feedback": jax.nn.sigmoid(self.feedback)}

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        q, k, v, arguments, recent = super().read(x, recent, segment_ids)
        return q - self.correction[:, None].astype(k.dtype) * k, k, v, arguments, recent
