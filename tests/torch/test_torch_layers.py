"""Layers that read flash-linear-attention's weights, against its formulas written out in NumPy."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "torch.autograd", reason='needs PyTorch: pip install ".[torch]" in a checkout of olsq'
)
torch = pytest.importorskip("torch")
import olsq.nn  # noqa: E402
import olsq.torch  # noqa: E402
from tests.versions import quick, x64  # noqa: E402

sys.path.append(str(Path(__file__).parent.parent / "nn"))
reference = importlib.import_module("fla_reference")
mesanet = importlib.import_module("test_fla")


def tensors(weights):
    return {name: torch.tensor(x) for name, x in weights.items()}


MESA_EXTRA = {"gate": True, "bias": True, "width": 3}
CONFIG = {"norm_eps": 0.1, "lambda_lower_bound": 2.0}


@pytest.mark.parametrize(("shape", "config"), [({}, {}), (MESA_EXTRA, CONFIG)])
def test_mesa_gives_the_outputs_of_their_weights(shape, config):
    rng = np.random.default_rng(0)
    weights = mesanet.layer_weights(rng, **shape)
    x = rng.normal(size=(2, 11, mesanet.DIM))
    options = {"eps": config.get("norm_eps", 1e-5), "bound": config.get("lambda_lower_bound", 0.25)}
    want = np.stack([mesanet.layer(row, weights, **options) for row in x])
    layer = olsq.torch.Mesa.from_fla(tensors(weights), config)
    got = layer(torch.tensor(x))
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-9)
    with x64(True):
        ours = quick(lambda x: olsq.nn.from_fla(weights, config=config)(x))(x)
    np.testing.assert_allclose(got.detach().numpy(), ours, rtol=1e-9, atol=1e-9)
    resumed(layer, torch.tensor(x), got)


def test_gated_delta_gives_the_outputs_of_their_weights():
    rng = np.random.default_rng(1)
    weights = reference.weights("gated_deltanet", rng)
    x = rng.normal(size=(2, 9, reference.DIM))
    want = np.stack([reference.output("gated_deltanet", row, weights) for row in x])
    config = {"norm_eps": reference.EPS, **reference.SIGMOID}
    layer = olsq.torch.GatedDelta.from_fla(tensors(weights), config)
    got = layer(torch.tensor(x))
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-9)
    resumed(layer, torch.tensor(x), got)


def resumed(layer, x, want):
    """A prefix and then single tokens give the outputs of the whole."""
    y, state = layer(x[:, :6], state=None)
    pieces = [y]
    for t in range(6, x.shape[1]):
        y, state = layer(x[:, t : t + 1], state=state)
        pieces.append(y)
    np.testing.assert_allclose(torch.cat(pieces, 1).detach(), want.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["Mesa", "GatedDelta"])
def test_training_and_state_dicts(kind):
    torch.manual_seed(0)
    make = getattr(olsq.torch, kind)
    layer = make(8, heads=2, output_gate=True)
    x = torch.randn(2, 7, 8)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (layer(x) - x).square().mean()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    again = make(8, heads=2, output_gate=True)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x), layer(x))
    assert make.from_fla(layer.state_dict())(x).shape == x.shape
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_errors_of_layers():
    layer = olsq.torch.Mesa(8, heads=2)
    with pytest.raises(ValueError, match=r"x must have shape \(batch, time, 8\), got \(2, 8\)"):
        layer(torch.ones(2, 8))
    with pytest.raises(TypeError, match="state must be a LayerState"):
        layer(torch.ones(1, 2, 8), state=(1, 2))
    with pytest.raises(ValueError, match="must be a multiple of heads"):
        olsq.torch.GatedDelta(8, heads=3)
    with pytest.raises(ValueError, match="output_gate must be True or False"):
        olsq.torch.Mesa(8, heads=2, output_gate="False")
    with pytest.raises(ValueError, match=r"lack q_proj\.weight"):
        olsq.torch.Mesa.from_fla({})
    weights = layer.state_dict()
    weights["extra"] = torch.ones(1)
    with pytest.raises(RuntimeError, match="extra"):
        olsq.torch.Mesa.from_fla(weights)


@pytest.mark.slow
def test_the_example_of_the_page_runs():
    page = Path(__file__).parents[2] / "docs" / "inside-your-program.md"
    example = page.read_text().split("```python torch\n")[1].split("```")[0]
    assert example.count("\n") <= 25
    exec(compile(example, str(page), "exec"), {})
