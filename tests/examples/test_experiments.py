"""Every experiment's --quick mode, which asserts its own criterion."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import olsq.nn
from olsq.train import decay_mask
from tests.tiers import nightly

EXPERIMENTS = Path(__file__).parents[2] / "examples" / "experiments"
SHARED = {
    "claim_effects", "dynamics_tasks", "icl_training", "meta_learners", "regression_tasks",
    "sander_claims", "task_training", "drifting_regression", "panels", "solving_found",
    "nonlinear_regression", "local_report", "solving_figures", "solving_report", "solving_speed",
    "solving_tasks",
    "gate_start_report", "heads_report", "language_models_3m_report", "tables",
}  # fmt: skip
# These run for longer than they compile; the others are compiled quickly, like all tests.
RUNNING = {"gdpp", "softmax_heads"}
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.py") if path.stem not in SHARED)


@pytest.mark.parametrize("name", nightly(NAMES))
def test_quick(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXPERIMENTS), *sys.path])
    matplotlib.use("agg")
    jax.config.update("jax_disable_most_optimizations", name not in RUNNING)
    try:
        importlib.import_module(name).main(["--quick"])
    finally:
        jax.config.update("jax_disable_most_optimizations", True)  # as everywhere


@pytest.mark.full
def test_only_projections_and_gates_decay(monkeypatch):
    """Without a gradient AdamW only decays: not ridges, norms, kernels or the tied embedding."""
    monkeypatch.setattr(sys, "path", [str(EXPERIMENTS), *sys.path])
    training = importlib.import_module("task_training")
    model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    weights = eqx.filter(model, eqx.is_inexact_array)
    tune = training.optimiser(1.0, 10, warm_up=0, weight_decay=0.5)

    @jax.jit
    def still(weights):
        nothing = jax.tree.map(jnp.zeros_like, weights)
        return tune.update(nothing, tune.init(weights), weights)[0]

    wanted = jax.tree.map(lambda x, flag: -0.5 * x * flag, weights, decay_mask(weights))
    for got, want in zip(jax.tree.leaves(still(weights)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.any(wanted.backbone.blocks[0].mixer.output_proj.weight)
    assert not np.any(wanted.backbone.blocks[0].mixer.ridge.raw)


def test_there_are_experiments():
    assert len(NAMES) >= 5
