"""One function for every file that olsq writes."""

from __future__ import annotations

import os
from typing import Any


def load(path: str | os.PathLike[str]) -> Any:
    """Load what olsq saved: an estimator, a feature builder, or a model of :mod:`olsq.nn`.

    Parameters
    ----------
    path : path
        A state file (``est.save``, ``builder.save``) or a model's safetensors file
        (``olsq.nn.save``); told apart by their first bytes.

    Returns
    -------
    estimator, FeatureBuilder or olsq.nn.LanguageModel
        An estimator or a builder continues bit for bit as the saved one would have; its
        ``metadata_`` is the dictionary given to ``save``.  A model has the same outputs, bit for
        bit.

    Raises
    ------
    StateFileError
        If the file is truncated, damaged, neither of the two, of a newer format, or holds anything
        but what such a file holds; nothing has been built then.  It is a ValueError.
    OSError
        If it cannot be read.
    ImportError
        If it is a model's and the extra ``nn`` is not installed.

    Examples
    --------
    >>> import os, tempfile, numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares().fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> name = os.path.join(tempfile.mkdtemp(), "run.olsq")
    >>> est.save(name, metadata={"rows": 3})
    >>> olsq.load(name).metadata_
    {'rows': 3}
    """
    with open(path, "rb") as file:
        start = file.read(9)
    # safetensors: the length of a JSON object in 8 bytes, and the object
    if len(start) == 9 and start[8:] == b"{" and start[6:8] == b"\0\0":
        from olsq.nn.files import load as load_model

        return load_model(path)  # pyright: ignore[reportArgumentType]
    from olsq.online import files

    header, arrays = files.read(path)
    if "features" in header:
        from olsq.features.files import restore as restore_builder

        return restore_builder(path, header, arrays)
    from olsq.online.loading import restore

    return restore(path, header, arrays)
