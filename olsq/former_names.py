"""Import modules by the names that they had in version 0.2.0, as its pickles and solvers do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Only modules whose classes are part of a pickled estimator, path, result or state, or that
# "Adding a solver" told users to import.
NEW_NAMES = {
    f"olsq.{old}": f"olsq.{new}"
    for old, new in {
        "features.fir": "features.lags",
        "features.lagged": "features.lags",
        "features.narx": "features.arx",
        "linalg.planes": "linalg.orthogonal",
        "nn.conditioning": "nn.diagnostics",
        "nn.forgetting": "nn.softmax",
        "nn.kda": "nn.delta",
        "nn.mlstm": "nn.linear",
        "nn.residual": "nn.blocks",
        "online.estimator": "online.estimators.recursive",
        "online.form_switch": "online.forms.form_switch",
        "online.frames": "online.rows.frames",
        "online.frozen": "online.files.frozen",
        "online.learning": "online.calls.call",
        "online.path": "online.paths.path",
        "online.rolling": "online.estimators.rolling",
        "online.targets": "online.forms.targets",
        "online.times": "online.rows.times",
        "online.variants.kernel_functions": "online.variants.dictionary",
        "online.window": "online.windows.window",
        "sequence.jax.chunks": "sequence.jax.solver",
        "sequence.numpy.chunks": "sequence.numpy.solver",
        "train.averaging": "train.optimiser",
        "train.runs": "train.results",
        "train.tokenising": "train.token_files",
    }.items()
}


class FormerNames(MetaPathFinder, Loader):
    """Finder and loader of former module names, with the content of today's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in NEW_NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        now = import_module(NEW_NAMES[module.__name__])
        public = {key: value for key, value in vars(now).items() if not key.startswith("__")}
        vars(module).update(public)


def install() -> None:
    """Make former names importable; a second call changes nothing."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
