"""What the arrays of a module are called: by where they are."""

from __future__ import annotations

from typing import Any

import jax


def path_names(path: tuple[Any, ...]) -> list[str]:
    """The names along a path through a pytree: fields, keys and numbers."""
    return [jax.tree_util.keystr((part,), simple=True) for part in path]


def named_arrays(tree: Any) -> dict[str, Any]:
    """Arrays of a module by their path, ``blocks.0.mixer.query.weight``."""
    return {
        ".".join(path_names(path)): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
