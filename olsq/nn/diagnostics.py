"""What a trained model's Mesa layers do: steps, residuals, gates and condition numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.nn.model import LanguageModel
from olsq.nn.parts import at_least_float32
from olsq.nn.solved import Mesa, MesaDiscounted
from olsq.sequence.jax import online_lstsq


class Diagnostics(NamedTuple):
    """What a Mesa layer did at each token of (B, T).

    Attributes
    ----------
    steps : int32 array (B, T, H)
        Iterations or corrections of its solver; 0 for a direct solve.
    residual : array (B, T, H)
        ``|q - (H + Lambda) q*| / |q|``, as the solver left it.
    forget, weight : array (B, T, H)
        Gates gamma and beta.
    ridge : array (H, K)
    positions : int array (P,)
        Tokens whose condition numbers were computed, from 0.
    condition : array (B, P, H)
        ``kappa(H_t + Lambda)`` in the 2-norm.
    """

    steps: Array
    residual: Array
    forget: Array
    weight: Array
    ridge: Array
    positions: np.ndarray
    condition: Array


def diagnose(model: LanguageModel, tokens: Any, *, every: int = 16) -> dict[int, Diagnostics]:
    """Run a model and report what each of its Mesa layers did, by the number of the block.

    Parameters
    ----------
    model : LanguageModel
    tokens : int array (B, T)
    every : int
        Condition numbers are computed at each ``every``-th token: O(K^3) each.

    Returns
    -------
    dict of int to Diagnostics
        Blocks with other mixers are left out.

    Raises
    ------
    ValueError
        If the model has no Mesa layer with gates in (0, 1) and a fixed ridge, or ``every`` < 1.

    Notes
    -----
    Memory O(B T H (K^2 / every + K)).  Figures 7 and 13 of the MesaNet paper are drawn from this.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, olsq.nn
    >>> model = olsq.nn.MesaNet(16, dim=16, blocks=2, heads=2, key=jax.random.key(0))
    >>> found = olsq.nn.diagnose(model, jnp.array([[3, 1, 4, 1, 5, 9, 2, 6]]), every=4)
    >>> sorted(found), found[0].condition.shape
    ([0, 1], (1, 2, 2))
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}")
    mixers = {i: block.mixer for i, block in enumerate(model.backbone.blocks)}
    if not any(_is_plain_mesa(mixer) for mixer in mixers.values()):
        raise ValueError(
            "the model has no Mesa layer to report on (with gates in (0, 1) and a fixed ridge)"
        )
    return _diagnose(model, jnp.asarray(tokens), every)


@eqx.filter_jit
def _diagnose(model: LanguageModel, tokens: Array, every: int) -> dict[int, Diagnostics]:
    x, found = model.embed(tokens), {}
    for number, block in enumerate(model.backbone.blocks):
        if _is_plain_mesa(block.mixer):
            found[number] = _layer(block.mixer, block.mixer_norm(x), every)
        x, _ = block(x, None, None, None)
    return found


def _is_plain_mesa(mixer: Any) -> bool:
    plain = isinstance(mixer, Mesa) and not isinstance(mixer, MesaDiscounted)
    return plain and not mixer.signed


def _layer(mixer: Any, x: Array, every: int) -> Diagnostics:
    q, k, v, arguments, _ = mixer.read(x, None, None)
    gates = {name: jnp.moveaxis(arguments[name], 2, 1) for name in ("weight", "log_forget")}
    streams = (jnp.moveaxis(a, 2, 1) for a in (k, v, q))
    fit = online_lstsq(*streams, **gates, ridge=arguments["ridge"], solver=mixer.solver)
    positions = np.arange(every - 1, x.shape[1], every)
    keys = jnp.moveaxis(at_least_float32(k), 2, 1)
    values = jax.vmap(lambda t: _spectrum(keys, gates, arguments["ridge"], t), out_axes=1)(
        jnp.asarray(positions)
    )
    return Diagnostics(
        jnp.moveaxis(fit.stats.steps, 1, 2), jnp.moveaxis(fit.stats.residual, 1, 2),
        jnp.exp(arguments["log_forget"]), arguments["weight"], arguments["ridge"],
        positions, values,
    )  # fmt: skip


def _spectrum(keys: Array, gates: dict[str, Array], ridge: Array, t: Array) -> Array:
    """Condition numbers (B, H) of ``H_t + Lambda`` for keys (B, H, T, K)."""
    logs = jnp.cumsum(gates["log_forget"], -1)
    here = jnp.take(logs, t, -1)[..., None]
    seen = jnp.arange(keys.shape[2]) <= t
    share = jnp.where(seen, jnp.exp(jnp.where(seen, here - logs, 0)) * gates["weight"], 0)
    gram = jnp.einsum("bht,bhti,bhtj->bhij", share, keys, keys)
    eigenvalues = jnp.linalg.eigvalsh(gram + ridge[:, None, :] * jnp.eye(ridge.shape[-1]))
    return eigenvalues[..., -1] / eigenvalues[..., 0]
