"""Products with weights of few bits against float64: every width, block, kind of zero point, order, type and feature set."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.compiler.jit import host, jit
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.compiler.types import F32, I32
from sardonyx.providers.native.kernels.linalg.tile_kernel import Tile
from sardonyx.providers.native.kernels.weight_only.integer_kernel import integer_kernel
from sardonyx.providers.native.kernels.weight_only.kernel import Codes, coded_kernel
from sardonyx.providers.native.program.chain import Chain, Given, Store
from sardonyx.runtime.execution.executor import execute
from sardonyx.startup.records import replace
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level

TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDING = {"float32": 2e-7, "float16": 5e-4, "bfloat16": 4e-3}
"""Of a result, relative to it."""


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes along the last axis as bytes, the lowest bits first."""
    flags = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(flags.reshape(*codes.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little")


class Coded:
    """A MatMulNBits node with random weights, and what they are."""

    def __init__(
        self, name: str, K: int, N: int, block: int, bits: int, zero="", bias=False, groups="", type="float32", **more
    ):
        rng = np.random.default_rng(K * 31 + N * 7 + block + bits)
        blocks, dtype = -(-K // block), DTYPES[type]
        codes = rng.integers(0, 1 << bits, (N, blocks * block))
        scales = (rng.uniform(-1, 1, (N, blocks)) / (1 << bits)).astype(dtype)
        arrays = {"B": packed(codes.reshape(N, blocks, block), bits), "scales": scales}
        zeros = np.full((N, blocks), 1 << (bits - 1))
        if zero == "packed":
            zeros = rng.integers(0, 1 << bits, (N, blocks))
            arrays["zero_points"] = packed(zeros, bits)
        elif zero:
            zeros = rng.uniform(0, 1 << bits, (N, blocks)) if zero == "real" else rng.integers(0, 1 << bits, (N, blocks))
            arrays["zero_points"] = zeros = zeros.astype(dtype)
        group = np.arange(K) // block
        if groups:
            group = rng.permutation(group) if groups == "permuted" else rng.integers(0, blocks, K)
            arrays["g_idx"] = group.astype(np.int32)
        self.bias = rng.standard_normal(N).astype(dtype) if bias else None
        if self.bias is not None:
            arrays["bias"] = self.bias
        numbers = [np.asarray(one, np.float64)[:, group] for one in (zeros, scales)]
        self.weights = (codes[:, :K] - numbers[0]) * numbers[1]
        names = ["zero_points", "g_idx", "bias"]
        inputs = ["A", f"{name}B", f"{name}scales", *(name + one if one in arrays else "" for one in names)]
        attributes = {"K": K, "N": N, "bits": bits, "block_size": block, **more}
        self.node = helper.make_node("MatMulNBits", inputs, [name], name, domain="com.microsoft", **attributes)
        self.initializers = [numpy_helper.from_array(array, name + one) for one, array in arrays.items()]
        self.type, self.K, self.group = type, K, group

    def exact(self, A: np.ndarray) -> np.ndarray:
        result = np.asarray(A, np.float64) @ self.weights.T
        return result if self.bias is None else result + np.asarray(self.bias, np.float64)

    def size(self, A: np.ndarray) -> np.ndarray:
        """The sum of the magnitudes of what is added up."""
        return np.abs(np.asarray(A, np.float64)) @ np.abs(self.weights).T


def model(*nodes: Coded, shape: tuple = ("rows", None)):
    """All nodes read the same A."""
    type, K = TYPES[nodes[0].type], nodes[0].K
    A = helper.make_tensor_value_info("A", type, [size or K for size in shape])
    outputs = [helper.make_tensor_value_info(node.node.name, type, None) for node in nodes]
    weights = [tensor for node in nodes for tensor in node.initializers]
    graph = helper.make_graph([node.node for node in nodes], "g", [A], outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(nodes: list[Coded], A: np.ndarray, found: list[np.ndarray], error: float = 1e-6) -> None:
    for node, result in zip(nodes, found, strict=True):
        wanted = node.exact(A)
        bound = error * node.size(A) + ROUNDING[node.type] * np.abs(wanted)
        assert result.dtype == DTYPES[node.type] and result.shape == wanted.shape
        assert (np.abs(np.asarray(result, np.float64) - wanted) <= bound).all(), node.node.name


def assert_exact(nodes: list[Coded], *shapes: tuple[int, ...], threads: int = 1, error: float = 1e-6) -> None:
    plan = native_plan(model(*nodes, shape=(*(f"d{axis}" for axis in range(len(shapes[0]))), None)), threads=threads)
    assert len(programs(plan)) == len(plan.steps), "left to NumPy"
    for shape in shapes:
        A = np.random.default_rng(len(shape)).standard_normal((*shape, nodes[0].K)).astype(DTYPES[nodes[0].type])
        check(nodes, A, execute(plan, {"A": A}), error)


@pytest.mark.parametrize("level", levels())
def test_products_are_as_exact_as_float32(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and cut blocks and words, one vector of columns and many, zero points of all kinds, one row and several."""
    use_level(monkeypatch, level)
    for K in (96, 75):
        nodes = [
            Coded("plain", K, 40, 32, 4),
            Coded("few columns", K, 3, 16, 4, bias=True),
            Coded("zero points", K, 40, 16, 4, "packed"),
            Coded("real zero points", K, 40, 16, 4, "real"),
            Coded("whole zero points", K, 40, 16, 4, "whole"),
            Coded("permuted", K, 40, 16, 4, "packed", groups="permuted"),
            Coded("uneven groups", K, 40, 16, 4, groups="random"),
            Coded("two bits", K, 40, 16, 2),
            Coded("eight bits", K, 40, 128, 8, "packed"),
        ]
        assert_exact(nodes, (1,), (7,), (63,), (0,))


def test_widths_that_no_word_holds_evenly() -> None:
    nodes = [
        Coded(f"{bits} bits {zero}", 70, 20, 16, bits, zero) for bits, zero in ((3, ""), (3, "packed"), (5, "real"), (7, ""))
    ]
    assert_exact(nodes, (5,))


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_in_float32(type: str) -> None:
    nodes = [Coded("plain", 80, 24, 16, 4, bias=True, type=type), Coded("real", 80, 24, 16, 4, "real", type=type)]
    assert_exact(nodes, (1,), (6,))


def test_long_sums_and_batches_on_two_threads() -> None:
    nodes = [Coded("long blocks", 4100, 300, 2048, 4), Coded("short blocks", 4100, 300, 32, 4, "packed")]
    assert_exact(nodes, (2, 50), (1, 1), threads=2)


def rounded(A: np.ndarray, block: int, group: np.ndarray) -> np.ndarray:
    """Whole multiples, up to 127, of a scale for so many elements that belong to one group; in float64."""
    exact = np.zeros(np.shape(A), np.float64)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        for places in np.split(members, range(block, len(members), block)):
            part = np.asarray(A[..., places], np.float64)
            scale = np.abs(part).max(axis=-1, keepdims=True, initial=0) / 127
            exact[..., places] = np.rint(part / np.where(scale, scale, 1)) * scale
    return exact


class Rounded(Coded):
    """With activations of 8 bits."""

    def __init__(self, name: str, K: int, N: int, block: int, bits: int, zero: str = "", **more):
        super().__init__(name, K, N, block, bits, zero, accuracy_level=4, **more)
        self.block = min(block, 128)

    def exact(self, A: np.ndarray) -> np.ndarray:
        return super().exact(rounded(A, self.block, self.group))


@pytest.mark.parametrize("level", levels())
def test_rounded_activations_are_multiplied_exactly(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At accuracy level 4: what is left is the rounding of scales and sums to float32."""
    use_level(monkeypatch, level)
    for K in (160, 75):
        nodes = [
            Rounded("plain", K, 40, 32, 4),
            Rounded("few columns", K, 3, 16, 4, bias=True),
            Rounded("long blocks", K, 40, 128, 4, "packed"),
            Rounded("real zero points", K, 40, 64, 4, "real"),
            Rounded("two bits", K, 40, 16, 2),
            Rounded("two bits, long blocks", K, 40, 256, 2, "packed"),
            Rounded("eight bits", K, 40, 128, 8, "packed"),
            Rounded("permuted", K, 40, 16, 4, "packed", groups="permuted"),
            Rounded("uneven groups", K, 40, 32, 4, groups="random"),
        ]
        assert_exact(nodes, (1,), (7,), (0,))


def test_largest_products_do_not_overflow_sums_of_16_bits() -> None:
    for bits, block in ((2, 128), (4, 128), (8, 128)):
        node = Rounded("Y", 256, 20, block, bits)
        full = numpy_helper.to_array(node.initializers[0]) | 255
        node.initializers[0] = numpy_helper.from_array(full, node.initializers[0].name)
        scales = np.asarray(numpy_helper.to_array(node.initializers[1]), np.float64)
        node.weights = np.repeat(scales * ((1 << bits) - 1 - (1 << (bits - 1))), block, axis=1)
        for sign in (1, -1):
            A = np.full((5, 256), sign * 3.0, np.float32)
            check([node], A, execute(native_plan(model(node)), {"A": A}))


def test_rounded_activations_keep_zeros_and_what_is_not_finite() -> None:
    """A block of zeros adds nothing; an infinity or NaN spoils its own row, in both providers."""
    node = Rounded("Y", 64, 20, 32, 4)
    A = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
    A[0, :32], A[1, 3], A[2, 40] = 0, np.inf, np.nan
    A[3] *= np.float32(1e-42)
    assert_agrees(model(node), {"A": A})
    (found,) = execute(native_plan(model(node)), {"A": A})
    assert np.isnan(found[1:3]).all()
    check([node], A[:1], [found[:1]])


def test_other_levels_are_float32_and_level_4_agrees_with_numpy() -> None:
    A = np.random.default_rng(6).standard_normal((3, 96)).astype(np.float32)
    nodes = [Coded(f"level {level}", 96, 24, 32, 4, accuracy_level=level) for level in (0, 1, 2, 3)]
    check(nodes, A, execute(native_plan(model(*nodes)), {"A": A}))
    rounding = [Rounded("plain", 96, 24, 32, 4, "packed"), Rounded("long", 96, 24, 256, 8)]
    rounding.append(Rounded("uneven groups", 96, 24, 16, 4, groups="random"))
    assert_agrees(model(*rounding), {"A": A}, tolerance=2e-6)


def test_one_axis_and_what_follows() -> None:
    """The product of a vector; an activation and a residual are part of the kernel."""
    node = Coded("Y", 64, 33, 32, 4, bias=True)
    source = model(node, shape=(None,))
    source.graph.node.extend([helper.make_node("Tanh", ["Y"], ["t"]), helper.make_node("Mul", ["t", "Y"], ["z"])])
    source.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    plan = native_plan(source)
    A = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    product, gated = execute(plan, {"A": A})
    assert [len(program.program.steps) for program in programs(plan)] == [1]
    check([node], A, [product])
    np.testing.assert_allclose(gated, np.tanh(product) * product, rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_stays_where_it_is() -> None:
    """An infinity times a weight is one, with the weight's sign; rows do not see each other."""
    node = Coded("Y", 40, 20, 16, 4, "packed")
    A = np.random.default_rng(2).standard_normal((5, 40)).astype(np.float32)
    A[1, 3], A[2, 39], A[3, 7] = np.inf, -np.inf, np.nan
    (found,) = execute(native_plan(model(node)), {"A": A})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found[1:4], (A.astype(np.float64) @ node.weights.T)[1:4])
    check([node], A[[0, 4]], [found[[0, 4]]])


def test_rows_with_gaps_are_read() -> None:
    node = Coded("Y", 32, 20, 16, 4)
    source = model(node, shape=(None, "rows"))
    source.graph.node[0].input[0] = "turned"
    source.graph.node.insert(0, helper.make_node("Transpose", ["A"], ["turned"], perm=[1, 0]))
    A = np.random.default_rng(3).standard_normal((32, 6)).astype(np.float32)
    check([node], A.T, execute(native_plan(source), {"A": A}))


def test_weights_are_packed_once_and_never_dequantized_as_a_whole() -> None:
    node = Coded("Y", 512, 512, 32, 4)
    container = sardonyx.PrepackedWeightsContainer()
    source = model(node).SerializeToString()
    sessions = [sardonyx.InferenceSession(source, prepacked_weights_container=container) for _ in range(2)]
    assert [session.prepacking_counts().packed for session in sessions] == [1, 0]
    assert container.nbytes == 512 * 512 // 2 + 512 * 16 * 4
    A = np.random.default_rng(4).standard_normal((3, 512)).astype(np.float32)
    check([node], A, sessions[1].run(None, {"A": A}))


INSTRUCTIONS = {"sse2": "pmaddwd", "avx2": "vpmaddubsw", "avx512": "vpmaddubsw", "avx512vnni": "vpdpbusd"}


@pytest.mark.skipif(host().name not in X86_LEVELS, reason="the instructions are of x86")
@pytest.mark.parametrize("level", X86_LEVELS)
def test_every_level_has_code_with_its_own_instruction(level: str) -> None:
    """That of levels which this CPU does not have cannot run here."""
    target = X86_LEVELS[level]
    lanes = target.lanes(F32)
    chain = Chain(2, (Given(F32),), (Store(0, F32, ("n", "1")),))
    tile = Tile(I32, F32, 2, 2, lanes, "k", True)
    text = jit(target).assembly(integer_kernel(target, tile, 0, chain, Codes(4, "middle", 8), 4))
    assert re.search(rf"\b{INSTRUCTIONS[level]}\b", text)
    text = jit(target).assembly(coded_kernel(target, replace(tile, left=F32), 0, chain, Codes(4, "middle", 8), 4))
    assert ("zmm" in text) == target.has_avx512


def test_packed_weights_are_saved_with_the_model(tmp_path: Path) -> None:
    node = Coded("Y", 256, 64, 32, 4, "packed")
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "packed.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "packed.bin")
    options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
    sardonyx.InferenceSession(model(node).SerializeToString(), options)
    session = sardonyx.InferenceSession(tmp_path / "packed.onnx")
    counts = session.prepacking_counts()
    assert (counts.packed, counts.loaded) == (0, 1)
    A = np.random.default_rng(7).standard_normal((2, 256)).astype(np.float32)
    check([node], A, session.run(None, {"A": A}))


def test_threads_may_share_a_session() -> None:
    node = Rounded("Y", 256, 300, 32, 4)
    session = sardonyx.InferenceSession(model(node).SerializeToString())
    rows = [np.random.default_rng(seed).standard_normal((1 + seed % 5, 256)).astype(np.float32) for seed in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for A, found in zip(rows, pool.map(lambda A: session.run(None, {"A": A}), rows)):
            check([node], A, found)
