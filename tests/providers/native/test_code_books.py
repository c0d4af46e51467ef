"""Products with weights of 4 bits whose codes are looked up in a book or stand in a blob, against float64; and ops composed of such."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.compiler.code_books import looked_up
from sardonyx.compiler.types import F32, I32
from sardonyx.providers.cpu.contrib.quantized_matmul import CODE_BOOKS
from sardonyx.runtime.execution.executor import execute
from tests.compiler.functions import each_level, levels, run
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level


def model(op: str, constants: dict[str, np.ndarray], columns: int, **attributes: int):
    A = helper.make_tensor_value_info("A", TensorProto.FLOAT, ["rows", columns])
    Y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    node = helper.make_node(op, ["A", *constants], ["Y"], domain="com.microsoft", **attributes)
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", [A], [Y], weights), opset_imports=opsets, ir_version=10)


@each_level
def test_looking_up_takes_four_bits(level: str) -> None:
    indices = np.random.default_rng(3).integers(-(2**31), 2**31, 1000).astype(np.int32)
    book = CODE_BOOKS[1]
    found = run(lambda x: looked_up(book.tolist(), x), level, [(indices, I32)], (np.dtype(np.float32), F32))
    np.testing.assert_array_equal(found, book[indices & 15])


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("quant_type", [0, 1])
def test_books_are_as_exact_as_float32(level: str, quant_type: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that end with rows, that go over them, and rows that no block fits."""
    use_level(monkeypatch, level)
    rng = np.random.default_rng(quant_type)
    for K, N, block in ((64, 40, 32), (96, 5, 64), (48, 33, 128), (64, 7, 512), (33, 6, 16)):
        codes = rng.integers(0, 16, N * K + N * K % 2).astype(np.uint8)
        largest = rng.uniform(0.5, 2, -(-N * K // block)).astype(np.float32)
        constants = {"B": (codes[0::2] << 4) | codes[1::2], "absmax": largest}
        flat = CODE_BOOKS[quant_type].astype(np.float64)[codes[: N * K]] * np.repeat(largest.astype(np.float64), block)[: N * K]
        weights = flat.reshape(N, K)
        for transposed in (1, 0):
            attributes = {"K": K, "N": N, "block_size": block, "quant_type": quant_type, "transB": transposed}
            plan = native_plan(model("MatMulBnb4", constants, K if transposed else N, **attributes))
            assert len(programs(plan)) == len(plan.steps), "left to NumPy"
            matrix = weights.T if transposed else weights
            for rows in (1, 3, 60, 0):
                A = rng.standard_normal((rows, len(matrix))).astype(np.float32)
                (found,) = execute(plan, {"A": A})
                assert (np.abs(found - A @ matrix) <= 1e-6 * (np.abs(A) @ np.abs(matrix)) + 1e-7).all()


def test_blobs_are_taken_apart_before_runs() -> None:
    rng = np.random.default_rng(5)
    for kind, size, head in ((0, 32, 4), (1, 32, 5), (2, 64, 4)):
        K, N = 75, 20
        blocks = rng.integers(0, 256, (N * -(-K // size), head + size // 2)).astype(np.uint8)
        blocks[:, :4] = rng.uniform(0.5, 2, (len(blocks), 1)).astype(np.float32).view(np.uint8)
        constants = {"B": blocks.reshape(-1), "B_shape": np.array([K, N])}
        A = rng.standard_normal((5, K)).astype(np.float32)
        assert_agrees(model("MatMulFpQ4", constants, K, blk_quant_type=kind), {"A": A}, steps=1)


@pytest.mark.parametrize(
    ("left", "right"), [("int16", "int16"), ("uint16", "uint16"), ("uint16", "int16"), ("int16", "uint16")]
)
def test_products_of_16_bits_wrap(left: str, right: str) -> None:
    source = f"g ({left}[M, K] A, {right}[K, N] B) => ({'uint32' if left == right == 'uint16' else 'int32'}[M, N] Y)"
    rng = np.random.default_rng(7)
    sets = []
    for M, K, N in ((3, 5, 7), (1, 33, 18), (20, 300, 40), (0, 3, 2), (2, 0, 3)):
        pair = [(shape, dtype, np.iinfo(dtype)) for shape, dtype in (((M, K), left), ((K, N), right))]
        A, B = (rng.choice([ends.min, ends.max, 3], shape).astype(dtype) for shape, dtype, ends in pair)
        sets.append({"A": A, "B": B})
    assert_agrees(source + " { Y = com.microsoft.MatMulInteger16(A, B) }", sets, tolerance=0.0)


def embedding(mask: str = "") -> str:
    names = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")
    tables = "uint8[30, 24] w, uint8[9, 24] p, uint8[2, 24] s, uint8[24] g, uint8[24] b"
    scales = ", ".join(f"float s{number}, uint8 z{number}" for number in range(len(names)))
    operands = ", ".join(f"{kind}{number}" for kind in "sz" for number in range(len(names)))
    call = f"com.microsoft.QEmbedLayerNormalization<epsilon = 0.001>(ids, kinds, w, p, s, g, b, {mask}, {operands})"
    return (
        f"g (int32[B, L] ids, int32[B, L] kinds, int32[B, L] m, {tables}, {scales}) => (float[B, L, 24] y, int32[B] n) "
        f"{{ y, n = {call} }}"
    )


@pytest.mark.parametrize("mask", ["", "m"])
def test_rows_of_8_bit_tables_are_normalized(mask: str) -> None:
    rng = np.random.default_rng(11)

    def feeds(batch: int, length: int):
        tables = {name: rng.integers(0, 256, shape).astype(np.uint8) for name, shape in SHAPES.items()}
        parameters = {f"s{number}": np.float32(0.01 * (number + 1)) for number in range(5)}
        parameters |= {f"z{number}": np.array(100 + number, np.uint8) for number in range(5)}
        ids = {"ids": rng.integers(0, 30, (batch, length)), "kinds": rng.integers(0, 2, (batch, length))}
        return {name: array.astype(np.int32) for name, array in {**ids, "m": rng.integers(0, 2, (batch, length))}.items()} | (
            tables | parameters
        )

    assert_agrees(embedding(mask), [feeds(2, 5), feeds(1, 9), feeds(3, 1)])


SHAPES = {"w": (30, 24), "p": (9, 24), "s": (2, 24), "g": (24,), "b": (24,)}
