import pytest

from olsq.local.jax import layout
from olsq.local.numpy import solve
from tests.versions import x64


@pytest.fixture(autouse=True)
def double_precision():
    """float64 where asked for; float32 inputs are still solved in float32."""
    with x64(True):
        yield


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 tokens, so that short streams have several."""
    monkeypatch.setattr(layout, "ROWS", 8)
    monkeypatch.setattr(solve, "ROWS", 8)
