"""Public names of a package, from its imports: each is listed once."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """Return the ``__all__`` of a package: what it has imported, but for modules and ``_names``."""
    public = (n for n, x in namespace.items() if n[0] != "_" and not isinstance(x, ModuleType))
    return sorted(public)
