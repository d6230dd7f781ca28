"""Names of a module's arrays: their paths."""

from __future__ import annotations

from typing import Any

import jax


def path_names(path: tuple[Any, ...]) -> list[str]:
    """Return the names along a path through a pytree: fields, keys and numbers."""
    return [_name(part) for part in path]


def _name(part: Any) -> str:
    """Name one part of a path, as ``keystr(simple=True)``, which JAX 0.5.0 does not have."""
    for kind in ("name", "key", "idx"):
        if hasattr(part, kind):
            return str(getattr(part, kind))
    return str(part)


def named_arrays(tree: Any) -> dict[str, Any]:
    """Return the arrays of a module by their path, ``blocks.0.mixer.query_proj.weight``."""
    return {
        ".".join(path_names(path)): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
