import pytest

from tests.versions import x64


@pytest.fixture(autouse=True)
def double_precision():
    """float64 where asked for; float32 inputs are still solved in float32."""
    with x64(True):
        yield
