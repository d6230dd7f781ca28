"""Writing files so that they are complete under their name or absent."""

from olsq.files.appended import AppendedFile
from olsq.files.draft import Draft, write_atomically
from olsq.files.locks import InUseError, lock_path, locked
from olsq.files.names import same_file, temporary_name

__all__ = [
    "AppendedFile",
    "Draft",
    "InUseError",
    "lock_path",
    "locked",
    "same_file",
    "temporary_name",
    "write_atomically",
]
