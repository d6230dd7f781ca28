"""olsq: online least squares.

Solve a regularised least-squares problem again after every sample of a stream.
Everything public is importable from here and loaded on first use, so that ``import olsq``
costs nothing and a user of the NumPy side never pays for JAX (or the other way round).
``__init__.pyi`` lists the names.
"""

from __future__ import annotations

from olsq.public_names import load_on_first_use

__version__ = "0.3.0"

__getattr__, __dir__, __all__, _SUBMODULES = load_on_first_use(globals())
