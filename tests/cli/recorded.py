"""Run a command and record every path that it opens for writing, renames or makes.

``python recorded.py LOG ARGUMENT...`` is ``olsq ARGUMENT...``; LOG gets a line for each path.
"""

import functools
import os
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename": (0, 1), "os.link": (0, 1), "os.symlink": (1,), "os.mkdir": (0,)}


def record(log, event, arguments):
    """Write to ``log`` the paths of an audit event that changes the file system."""
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
        os.write(log, f"{event}\t{os.path.normpath(name)}\n".encode())


if __name__ == "__main__":
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.addaudithook(functools.partial(record, log))
    sys.argv = ["olsq", *sys.argv[2:]]

    from olsq.cli import main

    main()
