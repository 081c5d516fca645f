"""The disk cache of compiled programs.

An entry is a bundle in a file named after its key, in a folder that belongs to the user alone. The
key covers all that the compiled code depends on, so that an entry is never out of date: at worst it
is never asked for again, and the oldest ones go when the folder outgrows its limit. Entries are put
in place whole, so any number of processes may share the folder without locks, and one may be killed
at any time. A file that is damaged, or that somebody else put there, is a miss. So is every failure
of the disk; a cache that cannot work says so once, with ``CacheWarning``, and compiling goes on.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from monograph import __version__
from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.runtime.atomic import is_temporary, replacing
from monograph.runtime.bundle import Bundle
from monograph.runtime.container import (
    FORMAT,
    ArtifactError,
    open_regular,
    read_container,
    read_manifest,
    write_container,
)

DEFAULT_LIMIT = 2 << 30
"""Bytes that the entries may take together."""

STALE_SECONDS = 3600.0
"""Age at which an unfinished file must come from a process that has died."""

_SUFFIX = ".mono"
_KEY = re.compile(r"[0-9a-f]{64}")


class CacheWarning(UserWarning):
    """The cache cannot be used, or not at the moment; programs are compiled afresh."""


def cache_key(parts: Mapping[str, str]) -> str:
    """The key of a program that is compiled from these parts: a SHA-256 in hexadecimal.

    The parts must name everything that the compiled code depends on: see ``toolchain`` for the
    part that this installation plays. Their order does not matter.
    """
    state = hashlib.sha256(b"monograph cache, format %d" % FORMAT)
    for name in sorted(parts):
        for text in (name, parts[name]):
            raw = text.encode("utf-8", "surrogatepass")
            state.update(len(raw).to_bytes(8, "little"))
            state.update(raw)
    return state.hexdigest()


@cache
def toolchain() -> Mapping[str, str]:
    """What compiles: the versions of Monograph (with a digest of its source), llvmlite and LLVM.

    The digest keeps somebody who changes the compiler from being served what it compiled before.
    """
    import llvmlite
    import llvmlite.binding

    return {
        "monograph": f"{__version__} {_source_digest()}",
        "llvmlite": llvmlite.__version__,
        "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)),
    }


def default_folder(
    environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    """Where this platform keeps what can be made again, for this user."""
    if platform == "win32" and environment.get("LOCALAPPDATA"):
        return Path(environment["LOCALAPPDATA"]) / "monograph"
    if platform == "darwin":
        return Path("~/Library/Caches/monograph").expanduser()
    chosen = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(chosen) if os.path.isabs(chosen) else Path("~/.cache").expanduser()
    return base / "monograph"


def open_cache(config: Config) -> Cache | None:
    """The cache that the settings ask for; None where they ask for none."""
    if not config.cache:
        return None
    try:
        return Cache(Path(config.cache_dir) if config.cache_dir else default_folder())
    except RuntimeError:  # of a user who has no home
        _warn("~", "there is no home folder")
        return None


@dataclass(frozen=True)
class StoredEntry:
    """An entry as it lies on disk; ``kind`` is None if the file is damaged."""

    key: str
    nbytes: int
    used: float
    """When it was last read or written, in seconds since 1970."""
    kind: str | None
    """``program``, ``index`` (which of a program's weights decide its code), ``tuning``,
    ``roofline``, or ``runtime`` (code that every program needs)."""
    model: str
    nodes: int | None
    target: str


class Cache:
    """Bundles by key, in one folder on disk. Safe to share between threads and processes."""

    def __init__(self, directory: str | os.PathLike[str], limit_bytes: int = DEFAULT_LIMIT) -> None:
        if limit_bytes < 0:
            raise InputError("a cache's limit is a number of bytes", found=str(limit_bytes))
        self._folder = Path(directory)
        self._limit = limit_bytes

    @property
    def folder(self) -> Path:
        """Where the entries lie."""
        return self._folder

    def get(self, key: str) -> Bundle | None:
        """The bundle that was put under this key, or None; its arrays are mapped from the file."""
        path = self._path(key)
        bundle = None
        with self._failing_softly("an entry cannot be read"):
            if self._usable(create=False):
                bundle = self._read(path, key)
        return bundle

    def put(self, key: str, bundle: Bundle) -> bool:
        """Store a bundle under a key; False where it could not be or is larger than the limit."""
        path = self._path(key)
        bundle.check()
        stored = False
        with self._failing_softly("an entry cannot be written"):
            if bundle.nbytes <= self._limit and self._usable(create=True):
                with replacing(path, 0o600) as file:
                    write_container(file, bundle, key)
                stored = True
                self._tidy(path.name)
        return stored

    def clear(self) -> None:
        """Remove every entry, and what killed processes left; other files in the folder stay."""
        with self._failing_softly("it cannot be cleared"):
            if self._usable(create=False):
                for name, _ in self._files():
                    _remove(self._folder / name)

    def unusable(self) -> str | None:
        """Why the folder cannot be used; None if it can, or is not there yet."""
        try:
            return _distrust(os.lstat(self._folder))
        except FileNotFoundError:
            return None
        except OSError as problem:
            return problem.strerror

    def entries(self) -> list[StoredEntry]:
        """Every entry, the one that was used last first."""
        if not self._usable(create=False):
            return []
        found = [self._entry(name, status) for name, status in self._files() if _is_entry(name)]
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    def remove(self, key: str) -> None:
        """Remove an entry."""
        if self._usable(create=False):
            _remove(self._path(key))

    def _entry(self, name: str, status: os.stat_result) -> StoredEntry:
        key = name.removesuffix(_SUFFIX)
        try:
            with _open_own(self._folder / name) as file:
                kept_under, manifest = read_manifest(file, name)
        except (ArtifactError, OSError):
            kept_under, manifest = None, {}
        about = manifest.get("about")
        told = about if isinstance(about, dict) and kept_under == key else {}
        kind = str(told.get("kind", "other")) if kept_under == key else None
        nodes = told.get("nodes")
        return StoredEntry(
            key,
            status.st_size,
            status.st_mtime,
            kind,
            str(told.get("model", "")),
            nodes if isinstance(nodes, int) else None,
            str(told.get("target", "")),
        )

    def size(self) -> int:
        """Bytes that all entries take together."""
        total = 0
        with self._failing_softly("it cannot be listed"):
            if self._usable(create=False):
                total = sum(status.st_size for name, status in self._files() if _is_entry(name))
        return total

    @contextmanager
    def _failing_softly(self, what: str) -> Iterator[None]:
        """Turn a failure of the disk into a warning."""
        try:
            yield
        except OSError as problem:
            _warn(str(self._folder), f"{what}: {problem.strerror}")

    def _read(self, path: Path, key: str) -> Bundle | None:
        """Read an entry and make it the youngest; one that is no good is removed."""
        try:
            with _open_own(path) as file:
                bundle = read_container(file, str(path), key=key)
        except FileNotFoundError:
            return None
        except ArtifactError:
            _remove(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return bundle

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise InputError(
                "that is not a cache key", expected="what cache_key gives", found=repr(key)
            )
        return self._folder / f"{key}{_SUFFIX}"

    def _usable(self, *, create: bool) -> bool:
        """Whether the folder is there and is the user's own; a warning tells if it is not."""
        try:
            status = os.lstat(self._folder)
        except FileNotFoundError:
            if not create:
                return False
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.lstat(self._folder)
        reason = _distrust(status)
        if reason is not None:
            _warn(str(self._folder), reason)
        return reason is None

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The cache's own files: its entries, and those that nobody is still writing."""
        with os.scandir(self._folder) as folder:
            for found in folder:
                if not _is_entry(found.name) and not is_temporary(found.name):
                    continue
                with suppress(FileNotFoundError):
                    status = found.stat(follow_symlinks=False)
                    if _is_entry(found.name) or time.time() - status.st_mtime > STALE_SECONDS:
                        yield found.name, status

    def _tidy(self, newest: str) -> None:
        """Remove what killed processes left, then the oldest entries above the limit."""
        entries = []
        for name, status in self._files():
            if _is_entry(name):
                entries.append((status.st_mtime_ns, status.st_size, name))
            else:
                _remove(self._folder / name)
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, name in sorted(entries):
            if excess <= 0:
                return
            if name != newest:
                _remove(self._folder / name)
                excess -= size


_warned: set[str] = set()
"""Folders of which this process has said that they cannot be used."""


def _warn(folder: str, reason: str) -> None:
    """Say once in a process what is wrong with a folder."""
    if folder in _warned:
        return
    _warned.add(folder)
    warnings.warn(
        f"the compilation cache in {folder} cannot be used: {reason}. Programs are compiled "
        "afresh; set MONOGRAPH_CACHE_DIR to a private folder with room, or MONOGRAPH_CACHE=0",
        CacheWarning,
        stacklevel=2,
    )


def _distrust(status: os.stat_result) -> str | None:
    """Why a folder must not be used as a cache, or None: what it holds will be executed."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if sys.platform == "win32":
        return None
    if status.st_uid != os.geteuid():
        return f"it belongs to somebody else (user {status.st_uid}; this is {os.geteuid()})"
    if status.st_mode & 0o022:
        return "others may write to it (chmod 700 makes it private)"
    return None


def _open_own(path: Path) -> BinaryIO:
    """Open an entry, following no link and trusting no file that others could have written."""
    file = open_regular(path, follow_links=False)
    status = os.fstat(file.fileno())
    if sys.platform != "win32" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        file.close()
        raise ArtifactError(f"{path} is not this user's own")
    return file


def _is_entry(name: str) -> bool:
    return name.endswith(_SUFFIX) and _KEY.fullmatch(name.removesuffix(_SUFFIX)) is not None


def _remove(path: Path) -> None:
    """Remove a file if it can be: who cannot remove it does not use it either."""
    with suppress(OSError):
        path.unlink()


@cache
def _source_digest() -> str:
    """A digest of the package's own source files, as they lie on disk."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    state = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb", buffering=0) as file:
            contents = file.read()
        name = path[len(root) :].replace(os.sep, "/")
        state.update(f"{name} {len(contents)}\n".encode())
        state.update(contents)
    return state.hexdigest()[:16]
