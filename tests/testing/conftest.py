import jax
import pytest


@pytest.fixture(autouse=True)
def quick_compilation():
    """Compiling is most of these tests' time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
