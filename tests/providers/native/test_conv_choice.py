"""Which algorithm computes a convolution: the quickest by its estimate, of those that are accurate enough."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.compiler.products import integers
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import F32
from sardonyx.providers.native.kernels.conv import operators
from sardonyx.providers.native.kernels.conv.choice import Candidate, quickest
from sardonyx.providers.native.kernels.conv.direct import tile_for
from sardonyx.providers.native.kernels.quantize.convolutions import integer_tile_for
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.startup.records import replace
from tests.providers.native.agreement import native_plan, programs

CONV = """g (float[1,{channels},28,28] x) => (float[1,{filters},28,28] y)
    <float[{filters},{inner},{size},{size}] w = {{{weights}}}>
    {{ y = Conv<pads = [{pad}, {pad}, {pad}, {pad}], group = {groups}>(x, w) }}"""


def estimates(channels: int, filters: int, size: int, groups: int = 1, **options: str) -> list[str]:
    """The names of the algorithms of a convolution, the one that is taken first."""
    inner = channels // groups
    weights = np.random.default_rng(0).standard_normal(filters * inner * size * size)
    text = CONV.format(
        channels=channels,
        filters=filters,
        inner=inner,
        size=size,
        pad=size // 2,
        groups=groups,
        weights=", ".join(f"{weight:.6f}" for weight in weights),
    )
    (program,) = programs(native_plan(text, options=options))
    assert program.program is not None
    return [name for step in program.program.steps for name, _ in step.estimates]


def test_each_algorithm_is_taken_where_it_is_quickest() -> None:
    assert estimates(32, 32, 1) == ["direct"]
    assert estimates(32, 32, 3)[0].startswith("Winograd")
    assert estimates(32, 32, 3, groups=32)[0] == "depthwise"
    assert estimates(256, 256, 1, accuracy="fast") == ["Strassen", "direct"]


def test_exact_sums_have_no_transforms_to_choose_from() -> None:
    assert estimates(32, 32, 3, accuracy="exact") == ["direct"]


def test_the_direct_sum_is_always_among_the_candidates() -> None:
    for channels, filters, size, groups in [(3, 8, 3, 1), (16, 16, 3, 1), (8, 8, 5, 8), (32, 64, 1, 2)]:
        assert "direct" in estimates(channels, filters, size, groups)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.booleans()), min_size=1))
def test_the_quickest_that_is_accurate_enough_wins(kinds: list[tuple[float, bool]]) -> None:
    asked: list[float] = []

    def candidate(cycles: float, is_accurate: bool) -> Candidate:
        return Candidate(str(cycles), cycles, lambda sink: None, lambda: asked.append(cycles) or is_accurate)

    made = [candidate(*kind) for kind in [*kinds, (1e10, True)]]
    choice = quickest(None, [lambda convolution: made[:2], lambda convolution: made[2:]])  # type: ignore[arg-type]
    assert choice.candidate.cycles == min(cycles for cycles, is_accurate in [*kinds, (1e10, True)] if is_accurate)
    assert all(cycles <= choice.candidate.cycles for cycles in asked)  # what is slower is not looked at
    assert [one.cycles for one in choice.candidates] == sorted(one.cycles for one in made)


def test_there_is_one_list() -> None:
    homes = {algorithm.__module__.rpartition(".")[2] for algorithm in operators.ALGORITHMS}
    assert homes == {"operators", "strassen", "depthwise", "winograd"}
    assert set(operators.PRODUCTS) < set(operators.ALGORITHMS)


FRAMES = """g (float[1,1,12800] x) => (float[1,256,77] y) <float[256,1,512] w = {{{weights}}}>
    {{ y = Conv<strides = [160]>(x, w) }}"""


def test_windows_of_a_signal_that_overlap_pass_by_a_panel_of_filters_together() -> None:
    weights = np.random.default_rng(0).standard_normal(256 * 512)
    (program,) = programs(native_plan(FRAMES.format(weights=", ".join(f"{weight:.3f}" for weight in weights))))
    assert program.program is not None
    (step,) = [step for step in program.program.steps if step.kernel.title == "conv"]
    assert isinstance(step.kernel, DeclaredKernel)
    names = [slot.name for slot in step.kernel.declaration.slots()]
    assert step.arguments[names.index("block")] > 1  # type: ignore[operator]


@pytest.mark.parametrize(("cpu", "level"), [("znver5", "avx512vnni"), ("sapphirerapids", "avx512"), ("x86-64-v3", "avx2")])
def test_a_pixel_is_read_for_one_vector_alone_where_there_is_no_other(cpu: str, level: str) -> None:
    target = replace(X86_LEVELS[level], cpu=cpu)
    lanes = target.lanes(F32)
    assert tile_for(target, F32, lanes, 2, 1).vectors == 1
    for vectors in range(2, 40):
        assert tile_for(target, F32, vectors * lanes, 2, 1).vectors > 1


@pytest.mark.parametrize(
    ("level", "filters", "vectors"),
    [
        ("avx512vnni", 16, 1),
        ("avx512vnni", 48, 3),
        ("avx512vnni", 80, 2),
        ("avx512vnni", 144, 3),
        ("avx512", 144, 3),
        ("avx2", 24, 1),  # three vectors of sums leave too few registers there
        ("avx2", 56, 2),
    ],
)
def test_tiles_of_whole_numbers_waste_little_and_read_pixels_for_several_vectors(
    level: str, filters: int, vectors: int
) -> None:
    target = X86_LEVELS[level]
    assert integer_tile_for(target, integers(target), filters, 2).vectors == vectors
