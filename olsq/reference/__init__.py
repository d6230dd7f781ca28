"""Dense float64 oracles: slow, obvious, and sharing no code with what they check.

Only tests import this package.
"""

from collections.abc import Callable
from typing import Any


def oracle_of(rule: str) -> Callable[..., Any]:
    """Return the recurrence of a rule of :mod:`olsq.attention`, of one head: of the same name."""
    from olsq.reference import attention, attention_solved

    return getattr(attention, rule, None) or getattr(attention_solved, rule)
