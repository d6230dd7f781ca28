"""Shared test settings: hypothesis is derandomised, so that a red run is red again."""

from hypothesis import HealthCheck, settings

from olsq import first_call

settings.register_profile(
    "olsq",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("olsq")
first_call.say_nothing()  # what is compiled in a test is no part of what it prints
