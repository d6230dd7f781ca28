"""The decorator that compiles every Numba kernel of the package, and its cache on disk.

The cache is keyed by a digest of all source files of kernels.  Numba's own looks at the file of the
function called; a kernel it calls, or a constant from another module, may have changed since: then
old and new code would mix.  Here each folder holds the code compiled from one set of sources; an
edit, an update or another Numba version uses another folder.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
import numba
from numba import config, njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target

from olsq import first_call

# Without "nnan" and "ninf", with which a compiler may remove tests for finiteness.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
MARKS = (b"\n@kernel(", b"\n@external_kernel(")  # of files that define kernels
KEPT = 4  # folders of earlier sources that may stay


def kernel(
    signatures: Sequence[Any] = (), *, strict: bool = False, borrows: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba and keep the code on disk.

    With ``signatures`` it is compiled at once, and for those only. ``forceinline=True`` compiles it
    into every caller. Without it, a call uses another copy of the function, with sums in another
    order, in the process that compiled it than in one that loaded it from disk: whatever a resumed
    run must repeat to the last bit is inlined. (The large kernels of whole sequences would take
    twice as long to compile.) ``strict=True`` keeps the order of operations as written, also where
    it is inlined: for scaling against overflow, which a compiler free to reorder would undo.
    ``borrows=True`` is for functions that make no arrays but views: these are not counted as
    references.  A count is an atomic operation, 4 ns each (measured at 4 to 20 coefficients, where
    the views of one row took a third of its time).
    """
    if borrows:
        options["_nrt"] = False
    # Division follows NumPy (no exception half-way through an update).
    compiled = njit(
        nogil=True, error_model="numpy", fastmath=False if strict else FASTMATH, **options
    )

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = compiled(function)
        attach(dispatcher)
        if signatures and hasattr(dispatcher, "compile"):
            for signature in signatures:
                dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def external_kernel(symbol: str, signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function callable by ``symbol`` from compiled code.

    Numba optimises a kernel that is left standing again in every library that calls it, which for
    dense algebra takes half a minute in each of a user's functions.  A call by symbol is opaque:
    the code is compiled once, kept on disk, and found when the caller is loaded.  So the module
    that defines it must have been imported before any caller runs, which importing it to call it
    does.  ``signature`` is a Numba signature of numbers and pointers.  The function must not raise.

    What is on disk is loaded at once; nothing is compiled before :func:`compile_external_kernels`,
    which whoever compiles or runs a caller calls first.  A caller that was loaded from a cache of
    its own meanwhile goes through Python, which compiles the kernel at the first call.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if getattr(config, "DISABLE_JIT", False):
            return function
        options = {"nopython": True, "error_model": "numpy", "fastmath": FASTMATH}
        callback = CFunc(function, (signature.args, signature.return_type), {}, options)
        kernel = ExternalKernel(symbol, signature, callback)
        _external_kernels[symbol] = kernel  # its code must outlive every caller
        if kernel.is_on_disk():
            kernel.compile()
        else:
            llvmlite.binding.add_symbol(symbol, kernel.address_in_python())
            waiting_kernels.add(kernel)
        return types.ExternalFunction(symbol, signature)

    return decorate


class ExternalKernel:
    """A function that compiled code calls by symbol."""

    def __init__(self, symbol: str, signature: Any, callback: Any) -> None:
        self.symbol, self.is_compiled = symbol, False
        self._signature, self._callback, self._lock = signature, callback, threading.Lock()
        attach_callback(callback, callback._pyfunc)
        plain = [_C_TYPES.get(kind, ctypes.c_void_p) for kind in signature.args]
        self._c_type = ctypes.CFUNCTYPE(_C_TYPES[signature.return_type], *plain)
        self._in_python = self._c_type(self._run)

    def is_on_disk(self) -> bool:
        """Test whether the compiled code is in the cache."""
        cache = self._callback._cache
        return isinstance(cache, KernelCache) and cache.holds(self._signature)

    def compile(self) -> int:
        """Compile or load the code, if that is still to do; return its address."""
        with self._lock:
            if not self.is_compiled:
                with first_call.waiting(self.symbol):
                    self._callback.compile()
                llvmlite.binding.add_symbol(self.symbol, self._callback.address)
                self.is_compiled = True
        return self._callback.address

    def address_in_python(self) -> int:
        """Return the address of a function that compiles this one, and calls it."""
        address = ctypes.cast(self._in_python, ctypes.c_void_p).value
        assert address is not None
        return address

    def _run(self, *arguments: Any) -> Any:
        return self._c_type(self.compile())(*arguments)


_C_TYPES = {types.float64: ctypes.c_double, types.intp: ctypes.c_ssize_t}
_external_kernels: dict[str, ExternalKernel] = {}
waiting_kernels: set[ExternalKernel] = set()  # those to compile before a caller


def compile_external_kernels() -> None:
    """Compile the kernels that are called by symbol, or load them, if that is still to do."""
    for kernel in list(waiting_kernels):
        kernel.compile()
        waiting_kernels.discard(kernel)


_log = logging.getLogger("olsq")


def attach(dispatcher: Any) -> None:
    """Give a compiled function its cache on disk, if there is one."""
    function = getattr(dispatcher, "py_func", None)
    if function is None:  # NUMBA_DISABLE_JIT
        return
    folders = cache_folders(function.__module__.partition(".")[0])
    if folders.usable:
        dispatcher._cache = KernelCache(function, folders)


def attach_callback(callback: Any, function: Any) -> None:
    """Give a C callback its cache on disk, before it is compiled."""
    folders = cache_folders(function.__module__.partition(".")[0])
    if folders.usable:
        callback._cache = KernelCache(function, folders)


class CacheFolders(NamedTuple):
    """Folders with the kernels of a package's present sources."""

    filled: tuple[Path, ...]  # these can only be read: an image's, or another user's
    written: Path | None

    @property
    def usable(self) -> bool:
        return self.written is not None or bool(self.filled)


class KernelCache(FunctionCache):
    """Numba's function cache in folders of olsq's own: kernels are read from all of them, and saved
    in the one that can be written.  An unreadable file only costs a compilation.
    """

    def __init__(self, function: Any, folders: CacheFolders) -> None:
        self._name, self._py_func = repr(function), function
        self._written = folders.written
        places = [*folders.filled, *filter(None, [folders.written])]
        self._impl = _Implementation(function, places[-1] / function.__module__)
        self._cache_path = self._impl.locator.get_cache_path()
        self._files = [
            CodeFile(str(place / function.__module__), self._impl.filename_base, "")
            for place in places
        ]
        self._cache_file = self._files[-1]
        self.enable()

    def holds(self, signature: Any) -> bool:
        """Test whether code for a C callback's signature is there, without loading it."""
        target: Any = cpu_target.target_context
        key = self._index_key(signature, target.codegen())
        try:
            return any(key in file._load_index() for file in self._files)
        except Exception:  # a damaged file may raise anything
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        for file in self._files:
            self._cache_file = file
            try:
                kernel = super().load_overload(sig, target_context)
            except Exception:  # a damaged file may raise anything
                if file is self._files[-1] and self._written is not None:
                    _remove(Path(self._cache_path))
                continue
            if kernel is not None:
                return kernel
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._written is None:
            _warn_once(f"{Path(self._cache_path).parent} lacks some and cannot be written")
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a quota
            self.disable()
            _warn_once(f"{self._cache_path}: {error.strerror}")


class CodeFile(IndexDataCacheFile):
    """Numba's index of a kernel's code, with files named after the types that they are for.

    Numba numbers them, so that two processes that compile for two types at once may both write
    number 1, and a reader then runs the code for the other types.
    """

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        super().__init__(cache_path=folder, filename_base=name, source_stamp=stamp)
        self._name = name

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        name = f"{self._name}.{digest}.nbc"
        self._save_data(name, data)  # before the index says that it is there
        known = self._load_index()
        if known.get(key) != name:
            self._save_index(known | {key: name})


class _Implementation(CompileResultCacheImpl):
    def __init__(self, function: Any, folder: Path) -> None:
        code = function.__code__
        self._lineno, self._locator = code.co_firstlineno, _Locator(folder, code.co_filename)
        python = "".join(map(str, sys.version_info[:2]))
        self._filename_base = f"{function.__qualname__}-{self._lineno}.py{python}"


class _Locator:
    def __init__(self, folder: Path, source: str) -> None:
        self._cache_folder, self._py_file = folder, source

    def get_cache_path(self) -> str:
        return str(self._cache_folder)

    def ensure_cache_path(self) -> None:
        self._cache_folder.mkdir(parents=True, exist_ok=True)


@functools.cache
def cache_folders(package: str) -> CacheFolders:
    """Return the folders for the kernels of a package's present sources."""
    origin = getattr(sys.modules.get(package), "__file__", None)
    digest = source_digest(Path(origin).parent) if origin else None
    if origin is None or digest is None:
        return CacheFolders((), None)
    filled: list[Path] = []
    for place in _candidate_roots(Path(origin).parent):
        folder = place / f"{package}-kernels-{digest}"
        is_new = not folder.exists()
        if _can_write(folder):
            if is_new:
                _remove_old_folders(place, package, folder)
            return CacheFolders(tuple(filled), folder)
        if folder.is_dir():
            filled.append(folder)
    if not filled:
        _warn_once("no folder can be written")
    return CacheFolders(tuple(filled), None)


def _can_write(folder: Path) -> bool:
    """Make the folder and test whether files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)  # the time of last use, by which _remove_old_folders chooses
    except OSError:
        return False
    return True


@functools.cache
def _warn_once(reason: str) -> None:
    first_call.say_nothing()  # that compiled kernels are kept would not be true
    _log.warning(
        "olsq recompiles kernels in every process, which takes seconds, because it cannot cache "
        "them (%s). Set NUMBA_CACHE_DIR to a folder of yours that can be written.",
        reason,
    )


def _candidate_roots(root: Path) -> Iterator[Path]:
    """Yield the folders where compiled code may be kept, never one that others can write to."""
    chosen = getattr(config, "CACHE_DIR", "")  # NUMBA_CACHE_DIR
    if chosen:
        yield Path(chosen)
    yield root / "__pycache__"
    try:
        home = Path.home()
    except RuntimeError:  # no home at all
        home = None
    system = platform.system()
    if system == "Windows":
        user = os.environ.get("LOCALAPPDATA")
    elif system == "Darwin":
        user = home and home / "Library" / "Caches"
    else:
        user = os.environ.get("XDG_CACHE_HOME") or (home and home / ".cache")
    if user:
        yield Path(user) / "olsq"


def _remove_old_folders(place: Path, package: str, present: Path) -> None:
    """Remove the folders of earlier sources except those used most recently."""
    others = []
    for folder in place.glob(f"{package}-kernels-*"):
        try:
            others.append((folder.stat().st_mtime, folder))
        except OSError:  # another process was faster
            continue
    others.sort(key=lambda pair: pair[0], reverse=True)
    for _, folder in [pair for pair in others if pair[1] != present][KEPT - 1 :]:
        _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def source_digest(root: Path) -> str | None:
    """Compute a digest of everything that decides what the kernels of a package compile to.

    That is the files of the package at ``root`` that define kernels, those they import, directly or
    not, and the versions of olsq, Numba and Python. None if there are no sources.
    """
    sources = kernel_sources(root)
    if not sources:
        return None
    digest = hashlib.sha256()
    for text in (_version(), numba.__version__, sys.version):
        digest.update(f"{text}\n".encode())
    for path in sorted(sources):
        content = sources[path]
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _version() -> str:
    olsq = sys.modules.get("olsq")
    return str(getattr(olsq, "__version__", ""))


def kernel_sources(root: Path) -> dict[Path, bytes]:
    """Read the files of a package that kernels are made from; contents by path."""
    found: dict[Path, bytes] = {}
    contents = {path: path.read_bytes() for path in root.rglob("*.py")}
    waiting = [path for path, content in contents.items() if any(mark in content for mark in MARKS)]
    while waiting:
        path = waiting.pop()
        if path in contents and path not in found:
            found[path] = contents[path]
            waiting += _iterate_imports(root, path, contents[path])
    return found


def _iterate_imports(root: Path, path: Path, content: bytes) -> Iterator[Path]:
    """Yield the files that imports in a file of the package may refer to, and some they do not."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(root.parent).with_suffix("").parts[: -node.level or None]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            at = root.parent.joinpath(*name.split("."))
            if at.is_relative_to(root):
                yield at.with_suffix(".py")
                if at != root:  # the package's own __init__ only re-exports
                    yield at / "__init__.py"
