"""Writing a file atomically from given bytes."""

from __future__ import annotations

import os

from olsq.files.draft import Draft


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write ``pieces``, one after the other, to ``path``, which changes once all are on the disk.

    Until then nothing changes; of several writers at once the last to finish wins, whole.  Links
    and permissions are kept as by :class:`olsq.files.Draft`.

    Raises
    ------
    OSError
        If the file cannot be written, or the name is that of a device or a directory; what was
        there is untouched then.
    """
    with Draft(path) as draft:
        for piece in pieces:
            draft.write(piece)
        draft.commit()
