"""Constant weights in the order in which kernels read them: packed once, kept in a container, taken from files that have them.

Whoever compiles and wants weights in another order asks the session's `Prepacking` for them, with a function that packs. That runs only
if nobody has packed the same before: this session, another one with the same container, or the one that saved the model.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import Fail
from sardonyx.formats import mapping
from sardonyx.ir import PackedLocation, Tensor
from sardonyx.providers.native.program.weights import ALIGNMENT, aligned_empty
from sardonyx.startup.hashing import blake2b
from sardonyx.startup.locks import Lock
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass

PREFIX = "sardonyx"
KEY_VERSION = 1
"""Counts up when what stored keys and checksums mean changes."""
SAMPLED = 16
"""How many elements in a row a sample takes, at each of four places."""
WORTH_SHARING = 1 << 12
WORTH_A_THREAD = 8 << 20
"""From so many bytes of stored weights on, a thread of its own checks whether they are whole."""

logger = logging.getLogger("sardonyx.runtime")

Arrays = tuple[np.ndarray, ...]
Digest = Callable[[np.ndarray, bytes], str]
"""A short name for an array's content, given a key that others do not know, or none."""

_SECRET = os.urandom(16)
"""Digests in a container depend on it, so that nobody can make weights that are taken for others."""


@dataclass(frozen=True)
class PackedFormat:
    """How packed weights are arranged: its name, and a version."""

    name: str
    version: int = 1
    """Counts up whenever what lies where changes; stored weights of another version are not used."""
    storable: bool = True
    """Whether there are only numbers to compute with: then a file can spoil results, but not lead a kernel astray."""


@dataclass(frozen=True, eq=False)
class Request:
    """Weights that somebody wants: which, how arranged, and how many bytes each of the buffers must have."""

    sources: Sequence[Tensor]
    format: PackedFormat
    parameters: tuple[Hashable, ...]
    """What the arrangement depends on, with a `repr` that says it all."""
    features: str
    """The CPU's feature set for which it is good."""
    sizes: Sequence[int]

    @property
    def name(self) -> str:
        return f"{self.format.name}-{self.format.version}"

    @property
    def what(self) -> Hashable:
        """All but the weights themselves."""
        return self.name, self.parameters, self.features, tuple(self.sizes)

    @property
    def is_storable(self) -> bool:
        return self.format.storable and all(self.sizes)

    def stored_key(self, sample_of: Callable[[Tensor], bytes] | None = None) -> str:
        """Its name in a file: version of keys, format, CPU features, then the rest as one number; of weights a sample counts."""
        look = sample_of or (lambda tensor: sample(tensor.peek()))
        about: list[Hashable] = [self.parameters, tuple(self.sizes)]
        about += [(str(source.dtype), source.shape, look(source)) for source in self.sources]
        return ":".join([f"{PREFIX}-{KEY_VERSION}", self.name, self.features, _hashed(repr(about).encode())])


def sample(array: np.ndarray) -> bytes:
    """Some elements of an array, from four places: weights that differ nearly always differ there."""
    if array.size <= 4 * SAMPLED:
        return array.tobytes()
    starts = [array.size * quarter // 4 for quarter in range(3)] + [array.size - SAMPLED]
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    return b"".join(flat[start : start + SAMPLED].tobytes() for start in starts)


def _hashed(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


# --- containers


class PrepackedWeightsContainer:
    """Packed weights of several sessions: `InferenceSession(path, prepacked_weights_container=container)`.

    Sessions that are given the same container hold equal weights once, whether they come from one file or from several. Weights stay
    for as long as the container does. Any number of threads may make sessions with one at the same time.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Arrays] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """How many packed weights there are."""
        return len(self._distinct())

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return sum(array.nbytes for arrays in self._distinct() for array in arrays)

    def _distinct(self) -> list[Arrays]:
        with self._lock:
            return list({id(arrays): arrays for arrays in self._entries.values()}.values())

    def obtain(self, keys: Iterable[Hashable], make: Callable[[], Arrays]) -> Arrays:
        """What is there under one of `keys`; else what `make` makes, kept under all of them. Keys are asked for one by one."""
        with self._lock:
            tried = []
            arrays = None
            for key in keys:
                arrays = self._entries.get(key)
                if arrays is not None:
                    break
                tried.append(key)
            if arrays is None:
                arrays = make()
            self._entries.update(dict.fromkeys(tried, arrays))
            return arrays

    def clear(self) -> None:
        """Forget all weights; sessions keep those that they use."""
        with self._lock:
            self._entries.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets an empty one: memory is not shared with it."""
        return PrepackedWeightsContainer, ()


# --- sessions


@dataclass
class PackingCounts:
    """What a session did to have its weights in the order that its kernels want."""

    packed: int = 0
    """How many it had to pack."""
    shared: int = 0
    """How many were in its container already."""
    loaded: int = 0
    """How many the model's files had."""


class Prepacking:
    """The packed weights of one session: all requests of its providers come here."""

    def __init__(
        self, container: PrepackedWeightsContainer | None = None, *, enabled: bool = True, recording: bool = False
    ) -> None:
        self.enabled = enabled
        """Whether weights may be packed before runs."""
        self.counts = PackingCounts()
        self.is_shared = container is not None
        self._container = PrepackedWeightsContainer() if container is None else container
        self._recording = recording
        self._packed_of: dict[Tensor, dict[str, tuple[Arrays, Digest]]] = {}
        self._sources: dict[int, Tensor] = {}
        """All that was packed, by identity; having them here keeps their ids from being given to others."""
        self._alike: dict[Hashable, list[Tensor]] = {}
        self._digests: dict[Tensor, str] = {}
        self._samples: dict[Tensor, bytes] = {}
        self._checks: dict[PackedLocation, _Check] = {}
        self._reasons: dict[PackedLocation, str] = {}
        """Why stored weights are not used; none for those that are."""
        self._digest_function: Digest | None = None

    def another(self) -> Prepacking:
        """The packed weights for another plan of the session."""
        return Prepacking(self._container if self.is_shared else None, enabled=self.enabled)

    def packed(self, request: Request, pack: Callable[..., Sequence[np.ndarray]], digest: Digest) -> Arrays:
        """Buffers of the sizes that were asked for: `pack` makes them out of the arrays of the sources, if it must."""
        how, stored = "shared", None

        def keys() -> Iterator[Hashable]:
            nonlocal stored
            yield from self._quick_keys(request, digest)
            stored = self._stored(request, digest)
            if stored is None and self.is_shared:
                yield self._content_key(request, digest)

        def make() -> Arrays:
            nonlocal how
            how = "packed" if stored is None else "loaded"
            return self._pack(request, pack) if stored is None else stored

        self._digest_function = digest
        contents = []  # what is computed stays until all of this have looked at it
        for source in request.sources:
            self._sources[id(source)] = source
            contents.append(source.peek())
        arrays = self._container.obtain(keys(), make)
        setattr(self.counts, how, getattr(self.counts, how) + 1)
        if self._recording and request.is_storable:
            self._packed_of.setdefault(request.sources[0], {})[request.stored_key(self._sample)] = (arrays, digest)
        return arrays

    def _pack(self, request: Request, pack: Callable[..., Sequence[np.ndarray]]) -> Arrays:
        weights = [source.peek() for source in request.sources]
        arrays = tuple(np.ascontiguousarray(array) for array in pack(*weights))
        sizes = [array.nbytes for array in arrays]
        if sizes != list(request.sizes):
            raise ValueError(f"{request.name} was packed into {sizes} bytes instead of {list(request.sizes)}")
        for source, array in zip(request.sources, weights):
            mapping.give_back(array)  # weights need not lie in memory twice
            source.forget()
        return arrays

    def shared(self, array: np.ndarray, digest: Digest) -> np.ndarray:
        """An array that was made of something else than tensors: an equal one of another session, if they share a container."""
        if not self.is_shared or array.nbytes < WORTH_SHARING:
            return array
        key = (array.dtype.descr, array.shape, digest(array, _SECRET))
        return self._container.obtain([str(key)], lambda: (array,))[0]

    # --- how weights are known

    def _quick_keys(self, request: Request, digest: Digest) -> Iterator[Hashable]:
        """Keys for which weights need not be read."""
        if not self.is_shared:
            yield (request.what, *(id(self._first_alike(source, digest)) for source in request.sources))
            return
        places = [_place(source) for source in request.sources]
        if None not in places:
            yield (request.what, *places)

    def _content_key(self, request: Request, digest: Digest) -> Hashable:
        contents = ((source.dtype, source.shape, self._digest(source, digest)) for source in request.sources)
        return (request.what, *contents)

    def _first_alike(self, source: Tensor, digest: Digest) -> Tensor:
        """The first of the session's tensors with the same content: contents are compared only where samples are equal."""
        others = self._alike.setdefault((source.dtype, source.shape, self._sample(source)), [])
        for other in others:
            if other is source or self._digest(other, digest) == self._digest(source, digest):
                return other
        others.append(source)
        return source

    def _sample(self, tensor: Tensor) -> bytes:
        taken = self._samples.get(tensor)
        if taken is None:
            taken = self._samples[tensor] = sample(tensor.peek())
        return taken

    def _digest(self, tensor: Tensor, digest: Digest) -> str:
        taken = self._digests.get(tensor)
        if taken is None:
            taken = self._digests[tensor] = digest(tensor.peek(), _SECRET)
        return taken

    # --- weights that files have

    def _stored(self, request: Request, digest: Digest) -> Arrays | None:
        """The weights as the model's file has them, None if it does not, or if there is something wrong with them."""
        source = request.sources[0]
        if source.beside is None or source.external is None or not request.is_storable:
            return None
        key = request.stored_key(self._sample)
        location = next((packed for packed in source.external.prepacked if packed.key == key), None)
        if location is None:
            for packed in source.external.prepacked:
                self._reasons.setdefault(packed, _why(packed.key, request))
            return None
        check = self._check(source, location, digest)
        if [length for _, length, _ in location.buffers] != list(request.sizes):
            self._reasons[location] = "of the wrong size"
        elif not check.is_whole():
            self._reasons[location] = "damaged"
        else:
            self._reasons[location] = ""
            return tuple(map(_aligned, check.buffers))
        return None

    def _check(self, source: Tensor, location: PackedLocation, digest: Digest) -> _Check:
        check = self._checks.get(location)
        if check is None:
            check = self._checks.setdefault(location, _Check(source, location, digest))
        return check

    def check_ahead(self, tensors: Iterable[Tensor], features: str, digest: Digest) -> None:
        """Have a thread look whether stored weights are whole, while the session is busy with other things."""
        if not self.enabled or (self.is_shared and len(self._container)):  # what is shared was looked at by the first session
            return
        start, end = f"{PREFIX}-{KEY_VERSION}:", f":{features}:"
        wanted = [
            self._check(tensor, location, digest)
            for tensor in tensors
            if tensor.beside is not None and tensor.external is not None
            for location in tensor.external.prepacked
            if location.key.startswith(start) and end in location.key
        ]
        if sum(check.nbytes for check in wanted) >= WORTH_A_THREAD:
            threading.Thread(target=_check_all, args=(wanted,), name="sardonyx-check", daemon=True).start()

    # --- when all is packed

    def packed_weights_of(self, tensor: Tensor) -> list[tuple[str, list[tuple[np.ndarray, str]]]]:
        """The packed weights of a tensor, for a file: of each the key, and the buffers with their checksums."""
        packed = self._packed_of.get(tensor, {}).items()
        return [(key, [(array, digest(array, b"")) for array in arrays]) for key, (arrays, digest) in packed]

    def sources(self) -> list[Tensor]:
        """The tensors that were packed."""
        return list(self._sources.values())

    def identify(self, array: np.ndarray) -> str:
        """A short name for an array's content; only if something was packed."""
        assert self._digest_function is not None
        return self._digest_function(array, _SECRET)

    def finish(self) -> None:
        """Say what happened to stored weights, and let go of all that only packing needed."""
        counts = Counter(filter(None, self._reasons.values()))
        foreign = counts.pop(_FOREIGN, 0)
        if counts:
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            logger.warning("Packed weights that are stored with the model are not used, they are packed anew: %s.", reasons)
        if foreign:
            logger.info("%d packed weights that are stored with the model are %s.", foreign, _FOREIGN)
        for check in self._checks.values():
            check.stop()
        self._packed_of, self._sources, self._alike, self._checks, self._reasons = {}, {}, {}, {}, {}
        self._digests, self._samples = {}, {}
        if not self.is_shared:
            self._container.clear()


_FOREIGN = "another runtime's"


def _why(key: str, request: Request) -> str:
    """Why stored weights are not what is wanted, for people."""
    version, name, features, *_ = [*key.split(":"), "", ""]
    if not version.startswith(f"{PREFIX}-"):
        return _FOREIGN
    if version != f"{PREFIX}-{KEY_VERSION}" or (name != request.name and name.rpartition("-")[0] == request.format.name):
        return "of another version"
    if features != request.features:
        return f"for CPUs with {features}, not {request.features}"
    return "of other weights or sizes" if name == request.name else "in an order that nobody asks for"


def _place(source: Tensor) -> Hashable | None:
    """Where in which file the data of a tensor lies; None if it lies elsewhere."""
    array = source.peek()
    place = mapping.place_of(array)
    return None if place is None else (place, source.dtype, source.shape, array.strides)


def _aligned(data: np.ndarray) -> np.ndarray:
    """Bytes at the beginning of a cache line: where they are, if they begin at one."""
    if data.ctypes.data % ALIGNMENT == 0:
        mapping.keep(data)
        return data
    copy = aligned_empty(data.shape, data.dtype)
    copy[...] = data
    return copy


_whole: set[Hashable] = set()
"""Parts of files, as they are now, that this process has looked at and found whole."""
MAX_WHOLE = 1 << 16


class _Check:
    """Whether stored bytes are what was written: found out once, by whoever asks first."""

    def __init__(self, source: Tensor, location: PackedLocation, digest: Digest):
        self._source = source
        self._location = location
        self._digest = digest
        self._lock = Lock()
        self._result: bool | None = None
        self.nbytes = sum(length for _, length, _ in location.buffers)

    @cached_property
    def buffers(self) -> list[np.ndarray]:
        """The bytes, read by whoever looks at them first."""
        assert self._source.beside is not None
        return [np.frombuffer(self._source.beside(offset, length), np.uint8) for offset, length, _ in self._location.buffers]

    def is_whole(self) -> bool:
        with self._lock:
            if self._result is None:
                sums = [checksum for _, _, checksum in self._location.buffers]
                self._result = all(map(self._has_sum, self.buffers, sums))
            return self._result

    def _has_sum(self, data: np.ndarray, checksum: str) -> bool:
        key = mapping.place_of(data), data.nbytes, checksum
        if key in _whole:
            return True
        is_whole = self._digest(data, b"") == checksum
        if is_whole and key[0] is not None and len(_whole) < MAX_WHOLE:
            _whole.add(key)
        return is_whole

    def stop(self) -> None:
        """Let nobody look any more."""
        with self._lock:
            self._result = bool(self._result)


def _check_all(checks: Sequence[_Check]) -> None:
    with contextlib.suppress(Fail):  # who needs the bytes will hear of it
        for check in checks:
            check.is_whole()
