"""BLAKE2 as `hashlib` has it. `hashlib` itself loads OpenSSL, which takes longer than all that a session has to hash."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

__all__ = ["blake2b"]
