"""Save figures to files."""

from __future__ import annotations

import io
import os
from typing import Any

from olsq.files import write_atomically


def save_figure(figure: Any, path: str | os.PathLike[str], *, dpi: int) -> None:
    """Save a figure, in the format of its name; the file appears complete or not at all."""
    buffer = io.BytesIO()
    ending = os.path.splitext(os.fspath(path))[1]
    figure.savefig(buffer, dpi=dpi, format=ending.lower().removeprefix("."))
    write_atomically(path, buffer.getbuffer())
