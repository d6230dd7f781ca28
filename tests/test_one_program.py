"""``in_one_program`` calls what it is given, and compiles a program for each kind of arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.versions import InOneProgram, in_one_program


def test_each_kind_of_number_has_a_program_of_its_own():
    """Equal numbers of other types, and zeros of other signs, are other programs."""
    seen = []

    @in_one_program
    def told(x, *, number, name=None):
        seen.append((type(number), str(number), name))
        return {"sum": x.sum() + 0 * x[0], "given": x}

    x = np.arange(3.0)
    numbers = (1, 1.0, True, 0.0, -0.0, np.nan)
    for number in numbers:
        assert told(x, number=number, name="a")["sum"] == 3
    assert seen == [(type(n), str(n), "a") for n in numbers]
    told(2 * x, number=1, name="a")  # other entries: the same program
    assert len(seen) == len(numbers)
    told(x, number=1)
    assert seen[-1] == (int, "1", None)


def test_errors_derivatives_and_what_is_no_function():
    @in_one_program
    def squared(x, refuse=False):
        if refuse:
            raise ValueError("refused")
        return (x**2).sum()

    np.testing.assert_array_equal(jax.grad(squared)(jnp.arange(3.0)), [0, 2, 4])
    with pytest.raises(ValueError, match="refused"):
        squared(jnp.ones(2), refuse=True)
    assert InOneProgram(np.linalg).LinAlgError is np.linalg.LinAlgError
    assert InOneProgram(jnp).zeros.__name__ == "zeros"
