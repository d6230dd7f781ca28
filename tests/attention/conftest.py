import jax
import pytest

from tests.versions import x64


@pytest.fixture(autouse=True)
def double_precision():
    """float64 where asked for; float32 inputs are still solved in float32."""
    # Compiling is most of these tests' time: compile quickly rather than for speed.
    jax.config.update("jax_disable_most_optimizations", True)
    with x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", False)
