"""Memory that shows files: mapped, or filled by reading them. `files` makes it, and decides which of the two.

Memory knows the file that it shows: `place_of` tells where in which file an array's elements lie, so weights can be told apart, and
known again in another session, without being read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import weakref
from typing import NamedTuple

import numpy as np

from sardonyx.startup.locks import Lock

READ_BELOW = 4 << 20
"""Smaller files are read whole and closed; larger ones are read in parts, and hold a file descriptor."""


class FileIdentity(NamedTuple):
    """A file as it was when it was opened; one that has been written since has another identity."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class _Map(mmap.mmap):
    """A mapped file, shared by all who open it while it stays the same."""

    identity: FileIdentity
    address: int
    """Where it begins."""
    kept: set[tuple[int, int]]
    """Parts, from page to page, that are in use: they are not given back."""


class Contents(np.ndarray):
    """Part of a file that was read: an array of bytes, because NumPy gives it large pages and fills nothing with zeros."""

    identity: FileIdentity
    address: int
    """Where the file would begin."""


_maps: weakref.WeakValueDictionary[FileIdentity, _Map] = weakref.WeakValueDictionary()
_lock = Lock()


def open_regular(path: str | os.PathLike[str], follow: bool = True) -> int:
    """A file descriptor of a regular file; IsADirectoryError or OSError for anything else, and never a wait on a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def identity_of(descriptor: int) -> FileIdentity:
    """The file behind a descriptor as it is now."""
    status = os.fstat(descriptor)
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def mapped(descriptor: int, identity: FileIdentity) -> memoryview:
    """A file as memory that all share who open it while it stays the same."""
    with _lock:
        mapped = _maps.get(identity)
        if mapped is None:
            mapped = _Map(descriptor, identity.size, access=mmap.ACCESS_READ)
            mapped.identity, mapped.address, mapped.kept = identity, np.frombuffer(mapped, np.uint8).ctypes.data, set()
            _maps[identity] = mapped
        return memoryview(mapped)


# --- where arrays lie


def _owner(array: np.ndarray) -> _Map | Contents | None:
    """The file under an array, None if it lies elsewhere."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, Contents):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, (_Map, Contents)) else None


def _start(array: np.ndarray, owner: _Map | Contents) -> int:
    """Where in its file an array begins."""
    return array.ctypes.data - owner.address


def place_of(array: np.ndarray) -> tuple[FileIdentity, int] | None:
    """The file that an array shows, and where in it the array begins; None for other memory."""
    owner = _owner(array)
    return None if owner is None or not array.size else (owner.identity, _start(array, owner))


def keep(array: np.ndarray) -> None:
    """Let an array that shows a mapped file stay in memory when pages are given back."""
    owner = _owner(array)
    if isinstance(owner, _Map) and array.size:
        start = _start(array, owner)
        part = (start // mmap.PAGESIZE * mmap.PAGESIZE, -(-(start + array.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE)
        with _lock:
            owner.kept.add(part)


def give_back(array: np.ndarray) -> None:
    """Let the system have the memory of an array that shows a mapped file: what is read later comes back from the file."""
    owner = _owner(array)
    if isinstance(owner, _Map) and array.flags.c_contiguous and array.size:
        start = _start(array, owner)
        _give_back(owner, -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE)


def give_back_pages() -> None:
    """The same for all of every mapped file, save what is kept.

    A session calls this when it is ready: what it has read to get there need not stay in memory.
    """
    for mapped in list(_maps.values()):
        with _lock:
            kept = sorted(mapped.kept)
        at = 0
        for start, end in [*kept, (mapped.identity.size, mapped.identity.size)]:
            _give_back(mapped, at, start)
            at = max(at, end)


def _give_back(mapped: _Map, start: int, end: int) -> None:
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            mapped.madvise(mmap.MADV_DONTNEED, start, end - start)
