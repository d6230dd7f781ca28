"""Run a command and record every path that it opens for writing, renames or makes.

``python recorded.py LOG ARGUMENT...`` is ``olsq ARGUMENT...``; LOG gets a line for each path.
"""

import os
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
CHANGES = {"os.rename": (0, 1), "os.link": (0, 1), "os.symlink": (1,), "os.mkdir": (0,)}


def record(event, arguments):
    """Write the paths of an audit event that changes the file system."""
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int) or not (flags & WRITING or set(mode or "") & set("wax+")):
            return
        found = [path]
    elif event in CHANGES:
        found = [arguments[i] for i in CHANGES[event]]
    else:
        return
    for path in found:
        name = os.path.join(os.getcwd(), os.fsdecode(path))
        os.write(LOG, f"{event}\t{os.path.normpath(name)}\n".encode())


sys.addaudithook(record)
sys.argv = ["olsq", *sys.argv[2:]]

from olsq.cli import main  # noqa: E402

main()
