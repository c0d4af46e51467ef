"""Digests of the contents of files. A large file is read once; after that its identity stands for its content, so that 2 GB take no
longer than a few reads.

Identity is device, inode, size and both times, with samples of the content for file systems that do not keep their word about times. No
program can set the time of the last change, so that a file which was written again, or put in the place of another, has another identity.
Where there is doubt, the content is read: files that changed a moment ago, times that have not come yet, systems without such a time.
"""

from __future__ import annotations

import json
import os
import time

from sardonyx.compiler import cache
from sardonyx.formats import mapping
from sardonyx.formats.mapping import FileIdentity
from sardonyx.startup.hashing import blake2b

DIGEST_BYTES = 20
READ_ANYWAY = 1 << 20
"""What is no larger is read as soon as anything is known of it."""
SETTLED = 5_000_000_000
"""How many nanoseconds a file must not have changed for its times to tell it from what it was: some file systems count in seconds."""
CHUNK = 1 << 20
SAMPLES, SAMPLE_BYTES = 16, 4096


def digest(data: bytes | memoryview) -> str:
    """The digest of some bytes."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_of(path: str, largest: int) -> str | None:
    """The digest of a file, None if it is not known and the file has more bytes than `largest`; OSError if it cannot be read."""
    descriptor = mapping.open_regular(path)
    try:
        identity = mapping.identity_of(descriptor)
        tells = identity.size > READ_ANYWAY and is_settled(identity)
        about = f"{tuple(identity)} {_sampled(descriptor, identity.size)}" if tells else ""
        known = _known(about) if about else None
        if known is not None or identity.size > largest:
            return known
        found = _read(descriptor)
        if about and mapping.identity_of(descriptor) == identity:
            cache.shared().put(_key(about), json.dumps([about, found]).encode())
        return found
    finally:
        os.close(descriptor)


def is_settled(identity: FileIdentity) -> bool:
    """Whether a file's times tell it from what it may become."""
    return os.name == "posix" and max(identity.modified, identity.changed) + SETTLED <= time.time_ns()


def _key(about: str) -> str:
    return cache.key_of(f"file/{about}")


def _known(about: str) -> str | None:
    """The digest that was kept for an identity. The entry repeats it: under the name of another one it says nothing."""
    kept = cache.shared().get(_key(about))
    if kept is None:
        return None
    try:
        kept_about, found = json.loads(kept)
    except ValueError:
        return None
    return found if kept_about == about else None


def _sampled(descriptor: int, size: int) -> str:
    hashed = blake2b(digest_size=DIGEST_BYTES)
    for number in range(SAMPLES):
        hashed.update(_read_at(descriptor, max(0, size - SAMPLE_BYTES) * number // (SAMPLES - 1)))
    return hashed.hexdigest()


def _read_at(descriptor: int, place: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, SAMPLE_BYTES)


def _read(descriptor: int) -> str:
    hashed = blake2b(digest_size=DIGEST_BYTES)
    os.lseek(descriptor, 0, os.SEEK_SET)
    while chunk := os.read(descriptor, CHUNK):
        hashed.update(chunk)
    return hashed.hexdigest()
