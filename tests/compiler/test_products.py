"""Products of groups of small integers: exact on every level, whatever instructions compute them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from sardonyx.compiler.builder import Function
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, jit
from sardonyx.compiler.products import Product, integers, real
from sardonyx.compiler.target import X86_LEVELS, Target
from sardonyx.compiler.types import F32, I8, I16, I32, I64, PTR, U8
from sardonyx.startup.records import replace
from tests.compiler.functions import each_level

WORDS = [Product(I16, I8, I32, 2), Product(I16, I16, I32, 2)]
BYTES = Product(U8, I8, I32, 4)
DTYPES = {I8: np.int8, I16: np.int16, U8: np.uint8}


def _sums(target: Target, product: Product, lanes: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """For each k: a group of a row by the groups of `lanes` columns, added up."""
    f = Function([("rows", PTR), ("columns", PTR), ("sums", PTR), ("count", I64)], target=target)
    total = f.variable(f.const(I32.vector(lanes), 0x7FFFFF00))
    with f.loop(0, f["count"]) as k:
        group = f.splat(f.load(f["rows"], k, product.row_group), lanes)
        total.set(
            product.add(f, group, product.widened(f, f.load(f["columns"], k * lanes, product.column_group, lanes)), total.get())
        )
    f.store(total.get(), f["sums"], 0, I32)
    sums = np.zeros(lanes, np.int32)
    address = jit(target).addresses([Kernel("test", f.text(PLACEHOLDER))])[0]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    prototype(address)(rows.ctypes.data, columns.ctypes.data, sums.ctypes.data, len(rows))
    return sums


def _check(target: Target, product: Product, lanes: int) -> None:
    rng = np.random.default_rng(7)
    ends = [np.iinfo(DTYPES[type]) for type in (product.row, product.column)]
    bound = 255 if product.row is I16 else None  # what 8 bits less a zero point can be
    low, high = (-bound, bound) if bound else (ends[0].min, ends[0].max)
    wide = (-255, 255) if product.column is I16 else (ends[1].min, ends[1].max)
    rows = rng.integers(low, high, (50, product.depth), endpoint=True).astype(DTYPES[product.row])
    columns = rng.integers(*wide, (50, lanes, product.depth), endpoint=True).astype(DTYPES[product.column])
    rows[:20], columns[:20] = high, wide[0]  # where sums of 16 bits would saturate
    exact = np.einsum("kd,kld->l", rows.astype(np.int64), columns.astype(np.int64)) + 0x7FFFFF00
    np.testing.assert_array_equal(_sums(target, product, lanes, rows, columns), exact.astype(np.int32))


@each_level
@pytest.mark.parametrize("product", [*WORDS, BYTES], ids=["words by bytes", "words", "bytes"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_products_are_exact_and_sums_wrap(level: str, product: Product, lanes: int) -> None:
    _check(X86_LEVELS[level], product, lanes)


def test_cpus_that_are_not_x86_get_code_without_its_instructions() -> None:
    for product in (*WORDS, BYTES):
        _check(Target("generic", jit().target.cpu, jit().target.features, 16, 16, False, False, False), product, 4)


def _assembly(level: str, product: Product, lanes: int) -> str:
    target = X86_LEVELS[level]
    f = Function([("x", PTR), ("y", PTR)], target=target)
    group = f.splat(f.load(f["x"], 0, product.row_group), lanes)
    columns = product.widened(f, f.load(f["y"], 0, product.column_group, lanes))
    f.store(product.add(f, group, columns, f.load(f["y"], 64, I32, lanes)), f["y"], 64, I32)
    return jit(target).assembly(Kernel("test", f.text(PLACEHOLDER)))


def test_vnni_is_one_instruction_and_absent_from_the_level_below() -> None:
    assert _assembly("avx512vnni", BYTES, 16).count("vpdpbusd") == 1
    assert "vpdpbusd" not in _assembly("avx512", BYTES, 16)
    assert _assembly("avx512", WORDS[0], 16).count("vpmaddwd") == 1
    assert _assembly("avx2", WORDS[0], 8).count("vpmaddwd") == 1
    assert _assembly("sse2", WORDS[0], 4).count("pmaddwd") == 1


def test_each_level_has_its_product() -> None:
    assert integers(X86_LEVELS["avx512vnni"]) == BYTES
    assert integers(X86_LEVELS["avx512"]) == integers(X86_LEVELS["sse2"]) == WORDS[0]
    assert integers(X86_LEVELS["avx512vnni"], I16) == WORDS[1]  # what does not fit into 8 bits
    assert integers(replace(X86_LEVELS["avx2"], vnni=True)) == BYTES
    assert real(F32).depth == 1
