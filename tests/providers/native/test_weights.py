"""Memory for packed weights: arrays of their own, aligned, in pieces that follow the size of the model."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.providers.native.program.weights import ALIGNMENT, FIRST_PIECE_BYTES, LARGEST_PIECE_BYTES, WeightMemory

SIZES = st.one_of(st.integers(0, 3000), st.integers(0, 2 * FIRST_PIECE_BYTES), st.just(LARGEST_PIECE_BYTES + 1))


def piece_of(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@given(st.lists(SIZES, max_size=40))
def test_arrays_are_apart_and_aligned_and_pieces_are_not_much_larger(sizes):
    memory = WeightMemory()
    arrays = [memory.empty([size], np.uint8) for size in sizes]
    places = sorted((array.ctypes.data, array.ctypes.data + size) for array, size in zip(arrays, sizes, strict=True) if size)
    assert all(start % ALIGNMENT == 0 for start, _ in places)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    pieces = {id(piece): piece.nbytes for piece in map(piece_of, arrays)}
    rounded = sum(size + ALIGNMENT for size in sizes)
    assert sum(pieces.values()) <= 4 * rounded + 2 * FIRST_PIECE_BYTES


def test_a_small_model_asks_for_one_small_piece():
    memory = WeightMemory()
    arrays = [memory.empty([8, 3, 3, 3], np.float32) for _ in range(100)]
    assert len({id(piece_of(array)) for array in arrays}) == 1
    assert piece_of(arrays[0]).nbytes <= FIRST_PIECE_BYTES + ALIGNMENT
