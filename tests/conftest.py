"""Shared test settings: hypothesis is derandomised, so that a red run is red again."""

import pytest
from hypothesis import HealthCheck, settings

from olsq import first_call
from tests.tiers import examples


@pytest.hookimpl(trylast=True)  # the conftest above says which run this is
def pytest_configure():
    settings.register_profile(
        "olsq",
        derandomize=True,
        deadline=None,
        max_examples=examples(60),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("olsq")
    first_call.say_nothing()  # what is compiled in a test is no part of what it prints


@pytest.fixture
def one_target():
    """Trace programs for this device alone.

    For any device, as without it, two programs are traced where they differ and one is compiled.
    Tests of numbers need the one, as have examples in docstrings; tests of programs have both.
    """
    from olsq.sequence.jax.platform import target, tuned_for

    with tuned_for(target()):
        yield
