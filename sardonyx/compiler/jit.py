"""From IR text to callable addresses. The only module that touches LLVM; compiled objects go through the cache on disk.

LLVM is loaded when something must be compiled: objects of the cache are brought into memory without it where `linking` can do so.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.compiler import cache, caches, linking, pack
from sardonyx.compiler.cache import ObjectCache
from sardonyx.compiler.features import told_by_system
from sardonyx.compiler.linking import Code
from sardonyx.compiler.pack import Pack
from sardonyx.compiler.pool import available_threads
from sardonyx.compiler.sources import content_digest, fingerprint
from sardonyx.compiler.target import REQUIRED, X86_LEVELS, Target, wanted_level
from sardonyx.errors import InvalidArgument
from sardonyx.settings import CPU_LEVEL
from sardonyx.startup.hashing import blake2b
from sardonyx.startup.locks import LockThatForksWaitFor
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass, replace

if TYPE_CHECKING:
    import llvmlite.binding as llvm

PLACEHOLDER = "kernel"
"""The name that a function has in its text before its own, which the text determines, is known."""
ADDRESS = " at 0x"
"""What stands in a `repr` that is good for one process alone."""
LAYOUT_VERSION = 2
SLOW = "object in a hurry"
"""What code that LLVM has not optimized is called in the cache."""
RECENT_BYTES = 8 << 20
"""How much code stays in memory that no program uses, for the next session of the same model."""

logger = logging.getLogger("sardonyx.compiler")


class NoCompiler(Exception):
    """LLVM is not installed, or does not work on this machine."""


@functools.cache
def _llvm() -> Any:
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, OSError, RuntimeError) as error:
        raise NoCompiler(f"llvmlite does not work here ({error})") from error
    return llvm


@functools.cache
def _unlocked(name: str) -> Any:
    """A function of LLVM without the lock by which llvmlite lets one thread at a time into any of them.

    Compilations have nothing in common, each has its own context, so they may go on side by side. Only what takes long is worth it.
    """
    from llvmlite.binding import ffi

    locked = getattr(ffi.lib, name)
    try:
        function = getattr(ctypes.CDLL(ffi.lib._name), name)
        function.argtypes, function.restype = locked.argtypes, locked.restype
    except (AttributeError, OSError):  # another llvmlite, made in another way
        return locked
    return function


def _emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """What `machine.emit_object` does, without the lock."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as problem:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "new_gvn",
    "simplify_cfg",
    "post_order_function_attributes",
)
"""What kernels gain from, as llvmlite names it. They are written in vectors and unrolled, so the rest of LLVM's usual passes takes three
times as long as these and makes no run quicker."""


@contextlib.contextmanager
def _passes() -> Iterator[llvm.ModulePassManager]:
    """The passes for kernels, freed afterwards: llvmlite's own class inherits a way to free them behind one that does nothing."""
    from llvmlite.binding import ffi

    passes = _llvm().create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    try:
        yield passes
    finally:
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
        passes.detach()


# --- the machine


@dataclass(frozen=True)
class Machine:
    """What LLVM says of this machine, and which LLVM."""

    triple: str
    cpu: str
    features: str
    """What the CPU has and what it lacks, "+avx2,-sse4a…"."""
    version: str

    @cached_property
    def has(self) -> frozenset[str]:
        """LLVM's names of what this CPU has."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))


@functools.cache
def this_machine() -> Machine:
    """This machine. What LLVM said of it is kept on disk: loading it takes longer than making a small model's session."""
    known = _machine_known()
    if known is not None:
        return known
    machine, key = _ask_machine(), _machine_key()
    if key is not None:
        cache.shared().put(key, json.dumps(vars(machine)).encode())
    return machine


@functools.cache
def _machine_known() -> Machine | None:
    """What an earlier process was told of this machine."""
    key = _machine_key()
    kept = None if key is None else cache.shared().get(key)
    return None if kept is None else Machine(**json.loads(kept))


@functools.cache
def is_asked_later() -> bool:
    """Whether LLVM is not asked about this machine before something must be compiled: a pack may have all that is needed."""
    is_told = _machine_known() is not None or told_by_system() is None
    return not is_told and linking.can_map() and pack.find_folder() is not None


def _ask_machine() -> Machine:
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    return Machine(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), version)


def _machine_key() -> str | None:
    """What LLVM's answers depend on; None where only LLVM can tell one CPU from another."""
    if not linking.can_map():
        return None
    try:
        import llvmlite
    except ImportError as error:
        raise NoCompiler(f"llvmlite does not work here ({error})") from error
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = itertools.takewhile(bytes.strip, file)  # one CPU speaks for all
            about = [line for line in first if not line.startswith((b"cpu MHz", b"bogomips"))]
    except OSError:
        return None
    return cache.key_of(f"machine/{LAYOUT_VERSION}/{llvmlite.__version__}/{about}")


@functools.cache
def host() -> Target:
    """This machine's CPU; SARDONYX_CPU asks for less than it has. Where LLVM is asked later, any CPU of its level."""
    target = X86_LEVELS[_levels(told_by_system() or frozenset())[0]] if is_asked_later() else _host()
    return replace(target, caches=caches.here())


def _levels(features: frozenset[str]) -> tuple[str, str]:
    """The level of x86 CPUs to generate code for, and the highest that a CPU with these features has."""
    levels = [level for level in X86_LEVELS if features.issuperset(REQUIRED.get(level, ()))]
    wanted = wanted_level() or levels[-1]
    if wanted not in levels:
        raise InvalidArgument(f"{CPU_LEVEL} must be a level that this CPU has ({', '.join(levels)}), not {wanted!r}")
    return wanted, levels[-1]


def _host() -> Target:
    here = this_machine()
    if here.triple.startswith(("aarch64", "arm64")):
        return Target("neon", here.cpu, here.features, 16, 32)
    if not here.triple.startswith(("x86_64", "amd64")):
        return Target("generic", here.cpu, here.features, 16, 16, False, False, False)
    level, highest = _levels(here.has)
    if level != highest:
        return X86_LEVELS[level]
    return replace(X86_LEVELS[level], cpu=here.cpu, features=here.features)


def description() -> str:
    """LLVM's version and what code is generated for, for people; raises `NoCompiler` where there is none."""
    return f"LLVM {this_machine().version} for {_host().cpu} ({host().name})"


# --- kernels


@functools.cache
def packs() -> list[Pack]:
    """The installed packs whose code this machine can run, the best first."""
    folder = pack.find_folder() if linking.can_map() else None
    if folder is None or host().name not in X86_LEVELS:
        return []
    levels = list(X86_LEVELS)
    up_to_ours = reversed(levels[: levels.index(host().name) + 1])
    features = told_by_system() if is_asked_later() else this_machine().has
    return pack.usable(folder, up_to_ours, LAYOUT_VERSION, features or frozenset(), logger.info)


@dataclass(frozen=True)
class TextKey:
    """Names for what a function writes for some arguments."""

    cached: str
    """In the cache of this machine."""
    packed: str
    """In packs, whose sources are compared as a whole."""

    def find(self) -> str | None:
        """The digest of the text, if it is known without being written."""
        kept = cache.shared().get(self.cached)
        if kept is not None:
            return kept.decode()
        return next(filter(None, (pack.digest_of(self.packed) for pack in packs() if pack.sources == content_digest())), None)

    def keep(self, digest: str) -> None:
        """Let later processes know the digest."""
        cache.shared().put(self.cached, digest.encode())


class Kernel:
    """A function's text with `PLACEHOLDER` as its name, and what it is called in reports."""

    def __init__(self, title: str, text: str | Callable[[], str], about: Callable[[], str] = str, key: TextKey | None = None):
        """`text` may be a function that writes it. `key` tells, now and later, what that would write: see `key_of`."""
        self.title = title
        self.key = key
        self._text = text
        self._about = about

    @cached_property
    def text(self) -> str:
        return self._text if isinstance(self._text, str) else self._text()

    @cached_property
    def about(self) -> str:
        """What shapes the code, for people."""
        return self._about()

    @cached_property
    def digest(self) -> str:
        """What tells the text from others. If the cache or a pack knows it, nothing is written."""
        known = None if self.key is None else self.key.find()
        if known is not None:
            return known
        digest = blake2b(self.text.encode(), digest_size=pack.DIGEST_BYTES).hexdigest()
        if self.key is not None:
            self.key.keep(digest)
        return digest

    @cached_property
    def symbol(self) -> str:
        return f"s_{self.digest}"

    def forget_text(self) -> None:
        """Let go of a text that was written: it can be written again."""
        self.__dict__.pop("text", None)

    @property
    def named_text(self) -> str:
        return self.text.replace(f"@{PLACEHOLDER}(", f"@{self.symbol}(", 1)


def key_of(write: Callable[..., Any], *arguments: Any) -> TextKey | None:
    """A name for what a function writes for some arguments, in all processes with the same sources; None if nobody can know that."""
    about, sources = repr(arguments), fingerprint()
    if sources is None or ADDRESS in about or not write.__module__.startswith("sardonyx."):
        return None
    packed = cache.key_of(f"{write.__module__}.{write.__qualname__}/{sys.platform}/{about}")
    return TextKey(cache.key_of(f"text/{sources}/{packed}"), packed)


# --- compiling


@dataclass(frozen=True)
class Functions:
    """Compiled functions: their addresses, and the code that must stay for as long as one of them may be called."""

    addresses: list[int]
    code: frozenset[Code]


class Jit:
    """Compiled functions of one target, shared by the whole process. A text is compiled once, whoever asks."""

    def __init__(self, target: Target, cache: ObjectCache, compiled_for: Target | None = None):
        """`compiled_for` is what LLVM generates code for, where that is less than the target: any CPU of its level, say."""
        self.target = target
        self.cache = cache
        self._given = compiled_for
        self.compilations = 0
        """How many texts went through LLVM, not counting those found in the cache or a pack."""
        self._code: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
        """What is in memory, by the names of the functions in it."""
        self._slow: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
        """What was compiled in a hurry, while somebody uses it and until there is better code."""
        self._recent: dict[Code, None] = {}
        """What was asked for last stays, even if nobody uses it at this moment."""
        self._recent_bytes = 0
        self._pinned: set[Code] = set()
        self._lock = LockThatForksWaitFor()
        self._improving = LockThatForksWaitFor()

    @cached_property
    def compiled_for(self) -> Target:
        """What LLVM generates code for."""
        if self._given is None and is_asked_later() and self.target == host():
            return replace(_host(), caches=self.target.caches)
        return self._given or self.target

    @cached_property
    def _version(self) -> str:
        target = self.compiled_for
        return f"{LAYOUT_VERSION}/{target.cpu}/{target.features}/{this_machine().version}"

    def load(self, kernels: Sequence[Kernel]) -> Functions:
        """The functions of these texts, in memory for as long as somebody holds what is returned."""
        with self._lock:
            code = {kernel.symbol: self._code.get(kernel.symbol) for kernel in kernels}
            missing = [
                kernel for kernel in {kernel.symbol: kernel for kernel in kernels}.values() if code[kernel.symbol] is None
            ]
            if missing:
                code |= self._link({kernel.symbol: object_code for kernel, object_code in zip(missing, self.objects(missing))})
            return self._functions([kernel.symbol for kernel in kernels], code)

    def load_in_a_hurry(self, kernels: Sequence[Kernel]) -> tuple[Functions, list[Kernel]]:
        """As `load`, and which of the kernels nobody has compiled well yet: of these it is code that is soon there, and slow.

        `improved` compiles them well. Slow code is kept apart from the best: nobody else gets it.
        """
        with self._lock:
            distinct = {kernel.symbol: kernel for kernel in kernels}
            code = {symbol: self._code.get(symbol) for symbol in distinct}
            known = {symbol: self._known(kernel) for symbol, kernel in distinct.items() if code[symbol] is None}
            code |= self._link({symbol: object_code for symbol, object_code in known.items() if object_code is not None})
            new = [distinct[symbol] for symbol, object_code in known.items() if object_code is None]
            slow = {kernel.symbol: self._slow.get(kernel.symbol) for kernel in new}
            unknown = [kernel for kernel in new if slow[kernel.symbol] is None]
            if unknown:
                objects = {kernel.symbol: object_code for kernel, object_code in zip(unknown, self._slow_objects(unknown))}
                linked = dict.fromkeys(objects, self._linked(objects))
                self._slow.update(linked)
                slow |= linked
            code |= slow
            return self._functions([kernel.symbol for kernel in kernels], code), new

    def improved(self, kernels: Sequence[Kernel], goes_on: Callable[[], bool]) -> Functions | None:
        """As `load`, for those who can do without for a while: other threads need not wait, and forks for one kernel at most.

        None if `goes_on` said no between two kernels. What was compiled until then is in the cache.
        """
        objects: dict[str, bytes] = {}
        for symbol, kernel in {kernel.symbol: kernel for kernel in kernels}.items():
            if not goes_on():
                return None
            with self._improving:
                (objects[symbol],) = self.objects([kernel])
        return self.link(objects, [kernel.symbol for kernel in kernels])

    def addresses(self, kernels: Sequence[Kernel]) -> list[int]:
        """Where the functions of these texts lie in memory, from now on for ever."""
        functions = self.load(kernels)
        self._pinned |= functions.code
        return functions.addresses

    def link(self, objects: Mapping[str, bytes], symbols: Sequence[str] | None = None) -> Functions:
        """The functions of object code that was compiled before; each object has the one of its name. `symbols` is their order."""
        with self._lock:
            code = {symbol: self._code.get(symbol) for symbol in objects}
            code |= self._link({symbol: object_code for symbol, object_code in objects.items() if code[symbol] is None})
            return self._functions(list(objects) if symbols is None else symbols, code)

    def _functions(self, symbols: Sequence[str], code: Mapping[str, Code | None]) -> Functions:
        used = [linked for symbol in symbols if (linked := code[symbol]) is not None]
        for linked in dict.fromkeys(used):
            self._touch(linked)
        return Functions([linked.functions[symbol] for symbol, linked in zip(symbols, used, strict=True)], frozenset(used))

    def _touch(self, code: Code) -> None:
        """Note that code was asked for; what was asked for long ago need not wait any longer."""
        if code in self._recent:
            del self._recent[code]
        else:
            self._recent_bytes += code.nbytes
        self._recent[code] = None
        while self._recent_bytes > RECENT_BYTES:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._recent_bytes -= oldest.nbytes

    def _link(self, objects: Mapping[str, bytes]) -> dict[str, Code]:
        """Bring object code into memory; returns where it is, by the names of the objects."""
        if not objects:
            return {}
        code = self._linked(objects)
        linked = dict.fromkeys(objects, code)
        self._code.update(linked)
        for symbol in linked:
            self._slow.pop(symbol, None)
        return linked

    def _linked(self, objects: Mapping[str, bytes]) -> Code:
        if linking.can_map():
            with contextlib.suppress(linking.CannotLink):
                return linking.load(linking.link(objects))
        llvm, engine = _llvm(), self._engine
        for object_code in objects.values():
            engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        engine.finalize_object()
        code = Code({symbol: engine.get_function_address(symbol) for symbol in objects})
        self._pinned.add(code)  # LLVM does not give it back
        return code

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The object code of these texts, compiled if it is neither in the cache nor in a pack."""
        known = [self._known(kernel) for kernel in kernels]
        missing = [kernel for kernel, object_code in zip(kernels, known) if object_code is None]
        fresh = iter(_compiled(self._compile, missing))
        self.compilations += len(missing)
        return [next(fresh) if object_code is None else object_code for object_code in known]

    def _known(self, kernel: Kernel) -> bytes | None:
        """The object code of a text that was compiled before, here or for a pack."""
        if "_version" in self.__dict__ or not is_asked_later():  # else no process has compiled anything here
            cached = self.cache.get(self._key(kernel))
            if cached is not None:
                return cached
        return next(filter(None, (pack.object_of(kernel.digest) for pack in self._packs)), None)

    @cached_property
    def _packs(self) -> list[Pack]:
        """Packs with code of no higher level than this target's."""
        if self.target.name not in X86_LEVELS:
            return []
        levels = list(X86_LEVELS)
        return [pack for pack in packs() if levels.index(pack.level) <= levels.index(self.target.name)]

    def _key(self, kernel: Kernel, kind: str = "object") -> str:
        return cache.key_of(f"{kind}/{self._version}/{kernel.digest}")

    def _slow_objects(self, kernels: Sequence[Kernel]) -> Iterable[bytes]:
        """Code that was compiled in a hurry, perhaps by a process that ended before it could do better."""
        known = [self.cache.get(self._key(kernel, SLOW)) for kernel in kernels]
        fresh = iter(_compiled(self._compile_in_a_hurry, [kernel for kernel, found in zip(kernels, known) if found is None]))
        return [next(fresh) if found is None else found for found in known]

    def _compile(self, kernel: Kernel) -> bytes:
        machine = self._machine()
        payload = _emit_object(machine, self.optimized(kernel, machine))
        self.cache.put(self._key(kernel), payload)
        self.cache.drop(self._key(kernel, SLOW))
        kernel.forget_text()  # it may take more memory than the code, and nobody asks again
        return payload

    def _compile_in_a_hurry(self, kernel: Kernel) -> bytes:
        """Code that LLVM has not optimized. It takes a tenth of the time, and runs some three times as long."""
        machine = self._machine(optimizing=0)
        module = _llvm().parse_assembly(kernel.named_text, _llvm().create_context())
        module.triple = machine.triple
        payload = _emit_object(machine, module)
        self.cache.put(self._key(kernel, SLOW), payload)
        return payload

    def optimized(self, kernel: Kernel, machine: llvm.TargetMachine | None = None) -> llvm.ModuleRef:
        llvm = _llvm()
        machine = machine or self._machine()
        module = llvm.parse_assembly(kernel.named_text, llvm.create_context())
        module.triple = machine.triple
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
        with _passes() as passes:
            _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        return module

    def assembly(self, kernel: Kernel) -> str:
        """The machine code of a function, for people."""
        machine = self._machine()
        return machine.emit_assembly(self.optimized(kernel, machine))

    def _machine(self, optimizing: int = 3) -> Any:
        llvm = _llvm()
        target = llvm.Target.from_triple(llvm.get_process_triple())
        return target.create_target_machine(
            cpu=self.compiled_for.cpu, features=self.compiled_for.features, opt=optimizing, reloc="pic", codemodel="small"
        )

    @cached_property
    def _engine(self) -> Any:
        llvm = _llvm()
        return llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine())


def _compiled(compile: Callable[[Kernel], bytes], kernels: Sequence[Kernel]) -> Iterable[bytes]:
    """Compile on all CPUs that there are for us: LLVM runs without the interpreter's lock."""
    if len(kernels) < 2:
        return [compile(kernel) for kernel in kernels]
    from concurrent.futures import ThreadPoolExecutor

    _llvm()  # loaded once, before threads ask for it at the same time
    with ThreadPoolExecutor(min(len(kernels), available_threads())) as executor:
        longest_first = sorted(range(len(kernels)), key=lambda number: -len(kernels[number].text))
        under_way = {number: executor.submit(compile, kernels[number]) for number in longest_first}
        return [under_way[number].result() for number in range(len(kernels))]


@functools.cache
def jit(target: Target | None = None) -> Jit:
    """The process's compiler for a target, the host's own by default."""
    return Jit(target or host(), cache.shared())
