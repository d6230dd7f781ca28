"""Public names of packages, each listed once: among their imports, or in their stub."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

NO_STUB = (
    "{0} cannot be imported without its file __init__.pyi, which lists its public names: install "
    "the package again, and in a frozen program include its data files (with PyInstaller: "
    "--collect-all {0})"
)


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """Return the ``__all__`` of a package: what it has imported, except modules and ``_names``."""
    public = (n for n, x in namespace.items() if n[0] != "_" and not isinstance(x, ModuleType))
    return sorted(public)


def load_on_first_use(
    namespace: dict[str, Any],
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str], frozenset[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, and its public submodules.

    Names and the modules that define them are the imports of its stub, ``__init__.pyi``, which type
    checkers read as well: the convention of the package lazy_loader.
    """
    package = namespace["__name__"]
    homes = _imports_of_stub(package)
    submodules = frozenset(name for name, module in homes.items() if module == package)
    names = sorted(homes.keys() - submodules)

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = getattr(importlib.import_module(homes[name]), name)
        return namespace[name]

    return get, lambda: sorted({*homes, "__version__"}), names, submodules


def _imports_of_stub(package: str) -> dict[str, str]:
    """Return the module from which the stub of a package imports each name."""
    try:
        text = pkgutil.get_data(package, "__init__.pyi")
    except OSError as error:
        raise ImportError(NO_STUB.format(package), name=package) from error
    imports = (node for node in ast.parse(text or b"").body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}
