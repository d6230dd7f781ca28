"""Import modules by the names that they had in version 0.2.0, which its pickles contain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "olsq.online"
# Only modules whose classes are part of a pickled estimator or path.
NEW_NAMES = {
    "estimator": "estimators.recursive",
    "form_switch": "forms.form_switch",
    "frames": "rows.frames",
    "frozen": "files.frozen",
    "learning": "calls.learning",
    "path": "paths.path",
    "rolling": "estimators.rolling",
    "targets": "forms.targets",
    "times": "rows.times",
    "window": "windows.window",
}


class FormerNames(MetaPathFinder, Loader):
    """Finder and loader of former module names, with the content of today's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        known = package == PACKAGE and name in NEW_NAMES
        return ModuleSpec(fullname, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.rpartition(".")[2]
        now = import_module(f"{PACKAGE}.{NEW_NAMES[name]}")
        own = {key: value for key, value in vars(now).items() if not key.startswith("__")}
        vars(module).update(own)


def install() -> None:
    """Make former names importable; a second call changes nothing."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
