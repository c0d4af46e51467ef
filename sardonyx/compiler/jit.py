"""From IR text to callable addresses. The only module that touches LLVM; compiled objects go through the cache on disk."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sardonyx.compiler.cache import ObjectCache, default_folder
from sardonyx.compiler.target import REQUIRED, X86_LEVELS, Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm

PLACEHOLDER = "kernel"
"""The name that a function has in its text before its own, which the text determines, is known."""
LAYOUT_VERSION = 1


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
def host() -> Target:
    """This machine's CPU; SARDONYX_CPU (sse2, avx2, avx512) asks for less than it has."""
    llvm = _llvm()
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    if triple.startswith(("aarch64", "arm64")):
        return Target("neon", llvm.get_host_cpu_name(), features.flatten(), 16, 32)
    if not triple.startswith(("x86_64", "amd64")):
        return Target("generic", llvm.get_host_cpu_name(), features.flatten(), 16, 16, False, False, False)
    has = [level for level in X86_LEVELS if all(features.get(one) for one in REQUIRED.get(level, ()))]
    wanted = os.environ.get("SARDONYX_CPU", has[-1])
    if wanted not in has:
        raise NoCompiler(f"SARDONYX_CPU={wanted} is not among what this CPU has: {', '.join(has)}")
    if wanted != has[-1]:
        return X86_LEVELS[wanted]
    return replace(X86_LEVELS[wanted], cpu=llvm.get_host_cpu_name(), features=features.flatten())


def host_features() -> frozenset[str]:
    """LLVM's names of what this CPU has."""
    return frozenset(name for name, has in _llvm().get_host_cpu_features().items() if has)


def description() -> str:
    """LLVM's version and what code is generated for, for people; raises `NoCompiler` where there is none."""
    version = ".".join(map(str, _llvm().llvm_version_info))
    return f"LLVM {version} for {host().cpu} ({host().name})"


@dataclass(frozen=True)
class Kernel:
    """A function's text with `PLACEHOLDER` as its name, and what it is called in reports."""

    title: str
    text: str
    about: str = ""
    """What shapes the code, for people."""

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    @property
    def symbol(self) -> str:
        return f"s_{self.digest}"

    @property
    def named_text(self) -> str:
        return self.text.replace(f"@{PLACEHOLDER}(", f"@{self.symbol}(", 1)


class Jit:
    """Compiled functions of one target, shared by the whole process. A text is compiled once, whoever asks."""

    def __init__(self, target: Target, cache: ObjectCache):
        self.target = target
        self.cache = cache
        self.compilations = 0
        """How many texts went through LLVM, not counting those found in the cache."""
        self._addresses: dict[str, int] = {}
        self._lock = threading.Lock()
        self._version = f"{LAYOUT_VERSION}/{target.cpu}/{target.features}/{'.'.join(map(str, _llvm().llvm_version_info))}"

    def addresses(self, kernels: Sequence[Kernel]) -> list[int]:
        """Where the functions of these texts lie in memory."""
        with self._lock:
            missing = {kernel.symbol: kernel for kernel in kernels if kernel.symbol not in self._addresses}
            if missing:
                self._load(list(missing.values()))
            return [self._addresses[kernel.symbol] for kernel in kernels]

    def _load(self, kernels: list[Kernel]) -> None:
        self._link({kernel.symbol: found for kernel, found in zip(kernels, self.objects(kernels))})

    def _link(self, objects: Mapping[str, bytes]) -> None:
        llvm, engine = _llvm(), self._engine
        for found in objects.values():
            engine.add_object_file(llvm.ObjectFileRef.from_data(found))
        engine.finalize_object()
        for symbol in objects:
            self._addresses[symbol] = engine.get_function_address(symbol)

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The object code of these texts, compiled if it is not in the cache."""
        found = [self.cache.get(self._key(kernel)) for kernel in kernels]
        fresh = iter(_in_parallel(self._compile, [kernel for kernel, one in zip(kernels, found) if one is None]))
        return [next(fresh) if one is None else one for one in found]

    def link(self, objects: Mapping[str, bytes]) -> list[int]:
        """Where the functions of object code lie that was compiled elsewhere; each object has the one of its name."""
        with self._lock:
            self._link({symbol: found for symbol, found in objects.items() if symbol not in self._addresses})
            return [self._addresses[symbol] for symbol in objects]

    def _key(self, kernel: Kernel) -> str:
        return hashlib.blake2b(f"{self._version}\n{kernel.text}".encode(), digest_size=20).hexdigest()

    def _compile(self, kernel: Kernel) -> bytes:
        machine = self._machine()
        module = self.optimized(kernel, machine)
        payload: bytes = machine.emit_object(module)
        self.compilations += 1
        self.cache.put(self._key(kernel), payload)
        return payload

    def optimized(self, kernel: Kernel, machine: llvm.TargetMachine | None = None) -> llvm.ModuleRef:
        llvm = _llvm()
        machine = machine or self._machine()
        module = llvm.parse_assembly(kernel.named_text, llvm.create_context())
        module.triple = machine.triple
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return module

    def assembly(self, kernel: Kernel) -> str:
        """The machine code of a function, for people."""
        machine = self._machine()
        return machine.emit_assembly(self.optimized(kernel, machine))

    def _machine(self) -> Any:
        llvm = _llvm()
        target = llvm.Target.from_triple(llvm.get_process_triple())
        return target.create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=3, reloc="pic", codemodel="small"
        )

    @functools.cached_property
    def _engine(self) -> Any:
        llvm = _llvm()
        return llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine())


def _in_parallel(function: Any, items: Sequence[Any]) -> Iterable[Any]:
    """Compile on all CPUs: LLVM runs without the interpreter's lock."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), os.cpu_count() or 1)) as executor:
        return list(executor.map(function, items))


@functools.cache
def jit(target: Target | None = None) -> Jit:
    """The process's compiler for a target, the host's own by default."""
    return Jit(target or host(), ObjectCache(default_folder()))
