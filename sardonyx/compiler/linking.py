"""Object code of kernels as one image that runs wherever it lies in memory, so that loading it takes no LLVM. `jit` and `aot` link with it.

Kernels call nothing and have no variables: what their objects hold is code, constants, and distances between the two. Only objects of
64-bit x86 in the ELF format are linked here; other machines keep the objects, and LLVM links them when they are loaded.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Mapping

from sardonyx.startup.records import dataclass

MACHINES = {"x86_64": 62}
"""By Python's name of the machine, its number in ELF files."""

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
SYMBOLS, RELOCATIONS = 2, 4
ALLOCATED = 2
DISTANCES = (2, 4)
"""Relocations that are the distance from the place itself, in 32 bits: R_X86_64_PC32 and R_X86_64_PLT32."""
LEAST_ALIGNMENT = 16
NO_MEMORY = ctypes.c_void_p(-1).value


class CannotLink(Exception):
    """An object holds something that an image cannot have."""


@dataclass(frozen=True)
class Image:
    """Code and where its functions begin."""

    data: bytes
    offsets: Mapping[str, int]


def can_map() -> bool:
    """Whether images can be brought into this process."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def link(objects: Mapping[str, bytes]) -> Image:
    """One image of objects, each with the function of its name."""
    data, offsets = bytearray(), {}
    for name, object_code in objects.items():
        offsets[name] = _Object(object_code).append_to(data, name)
    return Image(bytes(data), offsets)


class _Object:
    """An ELF file as the compiler writes it, before linking."""

    def __init__(self, data: bytes):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, MACHINES.get(platform.machine(), -1)):
            raise CannotLink("the object is not of a kind that can be linked here")
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = [_SECTION.unpack_from(data, table + size * number) for number in range(count)]

    def append_to(self, image: bytearray, name: str) -> int:
        """Lay the sections behind what is there; returns where the function begins."""
        places: dict[int, int] = {}
        for number, (_, kind, flags, _, start, size, _, _, alignment, _) in enumerate(self.sections):
            if flags & ALLOCATED and size:
                if kind != 1 or flags & 1:
                    raise CannotLink(f"{name} has variables")
                image.extend(b"\0" * (-len(image) % max(alignment, LEAST_ALIGNMENT)))
                places[number] = len(image)
                image += self.data[start : start + size]
        symbols = self._symbols(places)
        for _, kind, _, _, start, size, _, target, _, _ in self.sections:
            if kind == RELOCATIONS and target in places:
                for at in range(start, start + size, _RELOCATION.size):
                    self._relocate(image, places[target], symbols, at, name)
        for _, symbol, address in symbols:
            if symbol == name and address is not None:
                return address
        raise CannotLink(f"there is no function {name}")

    def _symbols(self, places: Mapping[int, int]) -> list[tuple[int, str, int | None]]:
        """Section, name and place in the image of each symbol; no place for what is elsewhere."""
        symbols = []
        for _, kind, _, _, start, size, names, _, _, _ in self.sections:
            if kind == SYMBOLS:
                for at in range(start, start + size, _SYMBOL.size):
                    name, _, _, section, value, _ = _SYMBOL.unpack_from(self.data, at)
                    place = places[section] + value if section in places else None
                    symbols.append((section, self._text(self.sections[names][4] + name), place))
        return symbols

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(0, at)].decode()

    def _relocate(self, image: bytearray, base: int, symbols: list[tuple[int, str, int | None]], at: int, name: str) -> None:
        offset, info, addend = _RELOCATION.unpack_from(self.data, at)
        _, symbol, target = symbols[info >> 32]
        if target is None or info & 0xFFFFFFFF not in DISTANCES:
            raise CannotLink(f"{name} refers to {symbol or 'something'} in a way that only a linker can settle")
        place = base + offset
        struct.pack_into("<i", image, place, target + addend - place)


class Code:
    """Functions in memory by name. Whoever may call one of them holds this: when nobody does any more, the memory is given back."""

    def __init__(self, functions: Mapping[str, int], nbytes: int = 0):
        self.functions = functions
        """Their addresses."""
        self.nbytes = nbytes


def load(image: Image) -> Code:
    """Bring an image into memory, to be run.

    At the end of the process it stays there, for a thread that Python does not wait for may be inside.
    """
    size = max(len(image.data), 1)
    system = _system()
    address = system.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == NO_MEMORY:
        raise CannotLink(f"there is no memory for code ({ctypes.get_errno()})")
    ctypes.memmove(address, image.data, len(image.data))
    if system.mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
        error = ctypes.get_errno()
        system.munmap(address, size)
        raise CannotLink(f"the system does not let code be run ({error})")
    code = Code({name: address + offset for name, offset in image.offsets.items()}, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    weakref.finalize(code, system.munmap, address, size).atexit = False
    return code


@functools.cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    word, number = ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes, system.mmap.restype = (ctypes.c_void_p, word, number, number, number, ctypes.c_long), ctypes.c_void_p
    system.mprotect.argtypes = (ctypes.c_void_p, word, number)
    system.munmap.argtypes = (ctypes.c_void_p, word)
    return system
