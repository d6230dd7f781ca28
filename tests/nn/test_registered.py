"""A mixer from outside the package: what models do with mixers reaches it by its methods."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import nn
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

TOKENS = jnp.array([[3, 1, 4, 1, 5, 2]])
CHEAP = olsq.ConjugateGradient(max_steps=3)


class Fitted(nn.HeadMixer):
    """A mixer with a solver, that says nothing else."""

    solver: olsq.solvers.Solver | None = eqx.field(static=True, default=None)  # and no __init__
    rule = staticmethod(olsq.attention.mesa)

    def arguments(self, x):
        return {"ridge": 1.0, "solver": self.solver}


class Doubled(nn.Mixer):
    """A mixer around another one, which does the solving."""

    inner: nn.Mesa
    dim: int = eqx.field(static=True)

    def __init__(self, dim, **options):
        self.inner, self.dim = nn.Mesa(dim, **options), dim

    def mix(self, x, state, segment_ids, capacity):
        y, state = self.inner.mix(x, state, segment_ids, capacity)
        return 2 * y, state

    @property
    def solver(self):
        return self.inner.solver

    @classmethod
    def solves(cls):
        return True

    def with_solver(self, solver):
        return eqx.tree_at(lambda m: m.inner, self, self.inner.with_solver(solver))

    def diagnose(self, x, every):
        return self.inner.diagnose(x, every)

    def shard_time(self, shards):
        return eqx.tree_at(lambda m: m.inner, self, self.inner.shard_time(shards))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, kind in (("fitted", Fitted), ("doubled", Doubled)):
        monkeypatch.setitem(nn.MIXERS, name, kind)  # taken out again after the test
        nn.register_mixer(name, kind)


def model_of(*mixers):
    return nn.LanguageModel(
        8, dim=8, blocks=len(mixers), heads=2, mixer=mixers, mlp_ratio=0, key=jax.random.key(0)
    )


def solvers_of(model):
    return [mixer.solver for mixer in nn.mixers_of(model) if mixer.solves()]


@pytest.mark.full
def test_solvers_change_and_come_back_from_files(tmp_path):
    model = model_of("fitted", "gla", "doubled")
    assert solvers_of(model) == [None, None]
    cheap = model.with_solver(CHEAP)
    assert solvers_of(cheap) == [CHEAP, CHEAP]
    assert all(a is b for a, b in zip(jax.tree.leaves(cheap), jax.tree.leaves(model), strict=True))
    assert quick(lambda: jnp.abs(cheap(TOKENS) - model(TOKENS)).max())() > 0
    nn.save(tmp_path / "model.safetensors", cheap)
    assert solvers_of(nn.load(tmp_path / "model.safetensors")) == [CHEAP, CHEAP]


def test_reports_are_asked_for():
    found = nn.diagnose(model_of("fitted", "doubled").with_solver(CHEAP), TOKENS, every=3)
    assert list(found) == [1]
    assert found[1].condition.shape == (1, 2, 2)
    with pytest.raises(ValueError, match="no Mesa layer to report on"):
        nn.diagnose(model_of("fitted").with_solver(CHEAP), TOKENS)


def test_shards_are_told():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("time",))
    placed = nn.shard(model_of("fitted", "doubled"), mesh, sequence="time")
    assert solvers_of(placed) == [None, olsq.ChunkExact(shards=1)]


def test_a_mixer_without_a_solver_has_none():
    layer = nn.GLA(8, heads=2, key=jax.random.key(0))
    assert not layer.solves()
    assert layer.solver is None
    assert layer.with_solver(CHEAP) is layer
    assert layer.shard_time(1) is layer
    assert layer.shard_time(8).shards == 8
    assert layer.shards == 1
    assert layer.diagnose(jnp.ones((1, 4, 8)), 1) is None
