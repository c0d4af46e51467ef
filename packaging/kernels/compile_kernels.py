"""Compiles the packs of the distribution sardonyx-kernels and builds its wheel into dist/. `make kernels` calls this.

Sessions of the networks of `benchmarks`, and of all models in the folder `SARDONYX_CORPUS` if that is set, are made and run in a process
for each level of CPUs that this machine has. What they ask the compiler for is compiled for any CPU of the level, and kept. Kernels whose
text depends on the size of the second-level cache are compiled for the usual sizes, and lowerings choose once as for this CPU and once as
for one that nothing is known of.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # where the packs are that are about to be written, they would be found and used

import sardonyx  # noqa: E402
from benchmarks.__main__ import NETWORKS  # noqa: E402
from sardonyx import settings  # noqa: E402
from sardonyx.compiler import cache, caches, jit, pack  # noqa: E402
from sardonyx.compiler.sources import content_digest  # noqa: E402
from sardonyx.compiler.target import X86_LEVELS, Target  # noqa: E402
from sardonyx.providers.native.aot import cpu  # noqa: E402
from sardonyx.providers.native.program.kernel import DeclaredKernel  # noqa: E402
from sardonyx.startup.records import replace  # noqa: E402

FOLDER = Path(__file__).parent / pack.PACKAGE
DISTRIBUTIONS = ROOT / "dist"
PLATFORM = "manylinux_2_17_x86_64"
LARGEST_WHEEL = 30 << 20
SECOND_LEVEL_CACHES = (512 << 10, 1 << 20, 2 << 20)
BASES = {"avx512vnni": "avx512"}
"""Levels whose packs leave out what is in the pack of another one, as good."""


class Recorder(jit.Jit):
    """A compiler for any CPU of a level, which remembers what it was asked for."""

    def __init__(self, target: Target, packs: Sequence[pack.Pack], texts: dict[str, str], objects: dict[str, bytes]):
        super().__init__(target, cache.shared(), X86_LEVELS[target.name])
        self._packs = list(packs)
        self.texts = texts
        self.recorded = objects

    def objects(self, kernels: Sequence[jit.Kernel]) -> list[bytes]:
        others = [other for kernel in kernels for other in self._for_other_caches(kernel)]
        found = super().objects([*kernels, *others])
        for kernel, object_code in zip([*kernels, *others], found, strict=True):
            self.recorded[kernel.digest] = object_code
            if kernel.key is not None:
                self.texts[kernel.key.packed] = kernel.digest
        return found[: len(kernels)]

    def _for_other_caches(self, kernel: jit.Kernel) -> Iterator[jit.Kernel]:
        if not isinstance(kernel, DeclaredKernel):
            return
        seen = {kernel.digest}
        for size in SECOND_LEVEL_CACHES:
            other = kernel.for_target(replace(self.target, caches=replace(self.target.caches, second=size)))
            if other.key is not None:
                self.texts[other.key.packed] = other.digest
            if other.digest not in seen:
                seen.add(other.digest)
                yield other


def compile_level(level: str, names: Sequence[str], folder: Path) -> None:
    """Write the pack of the level that SARDONYX_CPU asks for."""
    texts: dict[str, str] = {}
    objects: dict[str, bytes] = {}
    base = folder / f"{BASES.get(level, '')}{pack.ENDING}"
    bases = [pack.Pack(str(base), jit.LAYOUT_VERSION)] if base.exists() else []
    here = jit.host()
    for target in dict.fromkeys([here, replace(X86_LEVELS[level], caches=caches.here())]):
        recorder = Recorder(target, bases, texts, objects)
        jit.host, jit.jit = (lambda target=target: target), (lambda _=None, recorder=recorder: recorder)
        for name, source, feeds in _models(names):
            known = len(objects)
            _prepare(source, feeds)
            print(f"{level}: {name}: {len(objects) - known} new kernels", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    for known in bases:
        objects = {digest: object_code for digest, object_code in objects.items() if known.object_of(digest) is None}
    path = folder / f"{level}{pack.ENDING}"
    needs = cpu.needed_by(X86_LEVELS[level])
    pack.write(str(path), level, needs, texts, objects, layout=jit.LAYOUT_VERSION, sources=content_digest() or "")
    print(f"{path.name}: {len(objects)} kernels, {len(texts)} texts, {path.stat().st_size >> 10} KB")


def _models(names: Sequence[str]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for name in NETWORKS:
        if not names or name in names:
            network = NETWORKS[name]()
            yield name, network.model, network.feeds
    corpus = os.environ.get("SARDONYX_CORPUS")
    if corpus:
        from benchmarks.accuracy import feeds_for, open_session

        for path in sorted(Path(corpus).glob("*.onnx")):
            if not names or path.stem in names:
                yield path.stem, str(path), feeds_for(open_session("onnxruntime", path), path)


def _prepare(source: Any, feeds: dict[str, Any]) -> None:
    """Make sessions of a model as programs do, and run one."""
    for threads in (1, 0):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        session = sardonyx.InferenceSession(source, options)
    session.run(None, feeds)


def build_wheel() -> Path:
    """Build the wheel of the packs that are there."""
    tagged = f"--config-setting=--build-option=--plat-name={PLATFORM}"
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(DISTRIBUTIONS), tagged, str(FOLDER.parent)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=FOLDER.parent)
    wheel = max(DISTRIBUTIONS.glob("sardonyx_kernels-*.whl"), key=lambda path: path.stat().st_mtime)
    if wheel.stat().st_size > LARGEST_WHEEL:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size >> 20} MB, more than {LARGEST_WHEEL >> 20}")
    return wheel


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of the models (default: all)")
    parser.add_argument("--levels", default="", help="levels of CPUs, with commas between (default: all that this machine has)")
    parser.add_argument("--packs-only", action="store_true", help="build no wheel")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where packs go, for a wheel into the package")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        compile_level(options.child, options.models, options.folder)
        return
    levels = list(X86_LEVELS)
    levels = options.levels.split(",") if options.levels else levels[: levels.index(jit.host().name) + 1]
    for level in levels:
        variables = {settings.CPU_LEVEL: level, settings.REMEMBER_VARIABLE: "off", settings.HURRY: "0"}
        environment = os.environ | {str(name): value for name, value in variables.items()}
        command = [sys.executable, __file__, *options.models, "--child", level, "--folder", str(options.folder)]
        subprocess.run(command, check=True, env=environment)
    if options.folder == FOLDER and not options.packs_only:
        wheel = build_wheel()
        print(f"{wheel.name} ({wheel.stat().st_size >> 10} KB) is ready in dist/")


if __name__ == "__main__":
    main()
