"""Compile quickly: these tests train for a second, and compiling takes longer than that."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
