"""Files that models are read from. What was read stays as it was, whatever happens to the file afterwards.

Bytes are read into memory of the process when they are asked for, those of a large file tensor by tensor. A file is mapped only where
it cannot change (a sealed memfd) or where the user says that it will not. A session holds one `Files`: what it reads later, because it
needs a weight once more, comes from the very file that it saw first, or is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Iterator
from typing import overload

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats import mapping
from sardonyx.formats.mapping import Contents, FileIdentity
from sardonyx.ir import Tensor, packing
from sardonyx.startup.locks import Lock

ALIGNMENT = 64
WORTH_SHARING = 1 << 12
"""From how many bytes on what one session has read is looked for by others."""
BLOCK_BYTES = 1 << 14
MOST_AT_ONCE = 1 << 30
"""Systems read at most 2 GB in one call."""
GET_SEALS, SEAL_SHRINK, SEAL_WRITE = 1034, 2, 8
"""F_GET_SEALS and two of its bits, as Linux numbers them."""

_contents: weakref.WeakValueDictionary[tuple[FileIdentity, int, int], Contents] = weakref.WeakValueDictionary()
"""What was read and is in use: file, start and length."""
_files: weakref.WeakValueDictionary[tuple[FileIdentity, str, bool], File] = weakref.WeakValueDictionary()
"""Open files; sessions of one file share its descriptor."""


class Files:
    """The files of one model, by path. `mapped` says that they do not change for as long as somebody uses the model."""

    def __init__(self, mapped: bool = False):
        self.mapped = mapped
        self._opened: dict[tuple[str, bool], File] = {}
        self._lock = Lock()

    @property
    def identities(self) -> dict[str, mapping.FileIdentity]:
        """What the files were when they were opened, by path."""
        return {path: file.identity for (path, _), file in self._opened.items()}

    def open(self, path: str | os.PathLike[str], follow: bool = True, mapped: bool = False) -> File:
        """The file at a path as it was when it was first opened. With `follow=False` it must not be a symbolic link.

        OSError if it cannot be read, Fail if it is known and is another one now.
        """
        key = os.path.abspath(path), follow
        with self._lock:
            file = self._opened.get(key)
            if file is None:
                file = File(path, follow, self.mapped or mapped)
                file = self._opened[key] = _files.setdefault((file.identity, file.path, file.is_mapped), file)
                return file
        file.check()
        return file


class File:
    """One file. It stays open while there are descriptors to spare, so that it may be replaced or deleted."""

    def __init__(self, path: str | os.PathLike[str], follow: bool = True, mapped: bool = False):
        self.path = os.path.abspath(path)
        self._follow = follow
        self._descriptor: int | None = None
        self._map: memoryview | None = None
        descriptor = mapping.open_regular(path, follow)
        try:
            self.identity = mapping.identity_of(descriptor)
            self.size = self.identity.size
            if self.size and (mapped or _is_sealed(descriptor)):
                # no more maps or descriptors, or a file system that cannot: reading always works
                with contextlib.suppress(OSError):
                    self._map = mapping.mapped(descriptor, self.identity)
            if self._map is None and _may_stay_open(descriptor, self.size):
                self._descriptor = descriptor
                weakref.finalize(self, os.close, descriptor).atexit = False
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    @property
    def is_read_in_parts(self) -> bool:
        return self._map is None and self.size >= mapping.READ_BELOW

    def whole(self) -> memoryview:
        """All bytes."""
        return self.read(0, self.size)

    def read(self, start: int, length: int) -> memoryview:
        """Some bytes, as they were when the file was opened; Fail if that cannot be said any more."""
        if self._map is not None:
            return self._map[start : start + length]
        key = self.identity, start, length
        contents = _contents.get(key)
        if contents is None:
            contents = self._contents(start, length)
            if length >= WORTH_SHARING:
                _contents[key] = contents
        return contents.data.toreadonly()

    def _contents(self, start: int, length: int) -> Contents:
        memory = np.empty(length + ALIGNMENT, np.uint8)
        shift = -memory.ctypes.data % ALIGNMENT
        contents = memory[shift : shift + length].view(Contents)
        contents.identity, contents.address = self.identity, contents.ctypes.data - start
        with self._opened() as descriptor:
            if _read_into(descriptor, contents.data, start) != length:
                raise self._changed()
            self._compare(descriptor)
        return contents

    def check(self) -> None:
        """Fail if the file has been written since it was opened, or if it was closed and is not there any more."""
        if self._map is None:
            with self._opened() as descriptor:
                self._compare(descriptor)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        if self._descriptor is not None:
            yield self._descriptor
            return
        try:
            descriptor = mapping.open_regular(self.path, self._follow)
        except OSError as error:
            raise self._changed() from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _compare(self, descriptor: int) -> None:
        # the time of the last change of its entry does not count: renaming or unlinking a file leaves its content alone
        if mapping.identity_of(descriptor)._replace(changed=0) != self.identity._replace(changed=0):
            raise self._changed()

    def _changed(self) -> Fail:
        return Fail(
            f"{self.path} has changed since it was opened, and more of it is needed. Replace a model's files by renaming new ones "
            "instead of writing to them while they are in use."
        )


class Part:
    """Bytes of a file that are read when they are asked for, each time anew unless somebody still has them."""

    __slots__ = ("_file", "_start", "_length")

    def __init__(self, file: File, start: int, length: int):
        self._file = file
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self) -> memoryview:
        return self._file.read(self._start, self._length)


def stored_tensor(raw: memoryview | Part, dtype: ElementType, shape: tuple[int, ...]) -> Tensor:
    """A tensor of bytes that are here, or that are read from a file when they are needed."""
    if isinstance(raw, Part):
        return Tensor(dtype, shape, lambda: packing.decode(raw.read(), dtype, shape), is_stored=True)
    return Tensor(dtype, shape, functools.partial(packing.decode, raw, dtype, shape))


class Window:
    """A large file as a sequence of bytes of which few are looked at: these are read in blocks, slices by themselves."""

    def __init__(self, file: File):
        self._file = file
        self._block = memoryview(b"")
        self._start = 0

    def __len__(self) -> int:
        return self._file.size

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> memoryview: ...

    def __getitem__(self, key: int | slice) -> int | memoryview:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            return self._file.read(start, max(stop - start, 0))
        at = key - self._start
        if not 0 <= at < len(self._block):
            self._start, at = key, 0
            self._block = self._file.read(key, min(BLOCK_BYTES, len(self) - key))
        return self._block[at]

    def part(self, start: int, end: int) -> Part:
        """Bytes that are not read now."""
        return Part(self._file, start, end - start)


def _may_stay_open(descriptor: int, size: int) -> bool:
    """Whether a file may have a descriptor for as long as it is used: a large one, or any one while half of them are left."""
    if size >= mapping.READ_BELOW or sys.platform == "win32":  # where an open file cannot be deleted
        return size >= mapping.READ_BELOW
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit == resource.RLIM_INFINITY or descriptor < limit // 2


def _read_into(descriptor: int, target: memoryview, start: int) -> int:
    """Fill memory from a place in a file; returns how many bytes there were."""
    done = 0
    while done < len(target):
        count = _read_some(descriptor, target[done : done + MOST_AT_ONCE], start + done)
        if not count:
            break
        done += count
    return done


def _read_some(descriptor: int, target: memoryview, start: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], start)
    with _seeking, os.fdopen(descriptor, "rb", closefd=False, buffering=0) as file:
        file.seek(start)
        return file.readinto(target) or 0


_seeking = Lock()


def _is_sealed(descriptor: int) -> bool:
    """Whether nobody can write to a file or cut it: then it is as good as memory of our own."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        seals = fcntl.fcntl(descriptor, GET_SEALS)
    except OSError:  # no memfd
        return False
    return seals & SEAL_SHRINK != 0 and seals & SEAL_WRITE != 0
