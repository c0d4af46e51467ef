"""Files as read-only memory: large ones are mapped, small ones read. The ONNX and ORT readers open models and weights here."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import weakref

READ_BELOW = 16 << 20
"""Smaller files are read whole: a map dies with the process if somebody truncates the file under it, as re-exporting a model to
the same path does, and each map holds a file descriptor."""


_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def give_back_pages() -> None:
    """Let the system have the memory of mapped files again: what is read later comes back from the file.

    A session calls this when it has packed its weights: the originals need not stay in memory beside them.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        for mapped in list(_maps):
            with contextlib.suppress(ValueError, OSError):  # closed meanwhile
                mapped.madvise(mmap.MADV_DONTNEED)


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


def contents(path: str | os.PathLike[str], follow: bool = True) -> memoryview:
    """All bytes of a file; with `follow=False` the last part of the path must not be a symbolic link."""
    descriptor = open_regular(path, follow)
    try:
        size = os.fstat(descriptor).st_size
        if size >= READ_BELOW:
            try:
                mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
                _maps.add(mapped)
                return memoryview(mapped)
            except OSError:  # no more maps or descriptors, or a file system that cannot: reading always works
                pass
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return memoryview(file.read())
    finally:
        os.close(descriptor)
