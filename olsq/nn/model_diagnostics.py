"""Diagnose every layer of a model that solves a regression, by block."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_sizes
from olsq.nn.diagnostics import Diagnostics
from olsq.nn.model import LanguageModel


def diagnose(model: LanguageModel, tokens: ArrayLike, *, every: int = 16) -> dict[int, Diagnostics]:
    """Run a model and report what each of its Mesa layers does, by block number.

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
    check_sizes(every=every)
    reports = _diagnose(model, jnp.asarray(tokens), every)
    if not reports:
        raise ValueError(
            "the model has no Mesa layer to report on (with gates in (0, 1) and a fixed ridge)"
        )
    return reports


@eqx.filter_jit
def _diagnose(model: LanguageModel, tokens: Array, every: int) -> dict[int, Diagnostics]:
    x, reports = model.embed(tokens), {}
    for number, block in enumerate(model.backbone.blocks):
        reports[number] = block.mixer.diagnose(block.mixer_norm(x), every)
        x, _ = block(x, None, None, None)
    return {number: report for number, report in reports.items() if report is not None}
