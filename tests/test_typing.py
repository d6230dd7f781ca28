"""The script that a type checker reads also runs."""

import jax
import numpy as np
import pytest

from tests import typing_user


@pytest.mark.slow  # calls what other tests call; the type checker reads the script in every run
def test_what_a_user_writes_runs():
    assert np.isfinite(typing_user.regressions())
    assert np.isfinite(typing_user.sequences())
    assert typing_user.sequences_in_jax().shape == (2,)
    o, total = typing_user.attention()
    assert o.shape == (1, 2, 4)
    assert total == 5
    assert jax.jit(typing_user.layers)().shape == (1, 4, 8)
