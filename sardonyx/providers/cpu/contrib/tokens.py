"""MurmurHash3 and NGramRepeatBlock of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("MurmurHash3")
def murmur_hash3(X, seed=0, positive=1):
    """The variant x86_32 of Austin Appleby's hash, over the bytes of each number or the UTF-8 of each text."""
    state = np.uint32(seed & 0xFFFFFFFF)
    if X.dtype == object:
        hashes = np.array([_hash_of_bytes(text.encode(), state) for text in X.reshape(-1).tolist()], np.uint32)
    else:
        words = np.ascontiguousarray(X).reshape(-1).view(np.uint32).reshape(X.size, X.itemsize // 4)
        hashes = _finished(_mixed(words, state), X.itemsize)
    hashes = hashes.reshape(X.shape)
    return hashes if positive else hashes.view(np.int32)


def _hash_of_bytes(data, state):
    whole = len(data) // 4 * 4
    words = np.frombuffer(data, "<u4", len(data) // 4).astype(np.uint32)
    hashes = _mixed(words[None], state)
    if len(data) > whole:
        rest = int.from_bytes(data[whole:], "little")
        hashes = hashes ^ _scrambled(np.array([rest], np.uint32))
    return _finished(hashes, len(data))[0]


def _mixed(words, state):
    """The state after the words of each row."""
    hashes = np.full(len(words), state, np.uint32)
    for column in range(words.shape[1]):
        hashes = _rotated(hashes ^ _scrambled(words[:, column]), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return hashes


def _scrambled(words):
    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(words, bits):
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finished(hashes, length):
    hashes = hashes ^ np.uint32(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes ^ (hashes >> np.uint32(16))


@contrib("NGramRepeatBlock")
def n_gram_repeat_block(input_ids, scores, ngram_size):
    """No token may follow that would repeat a run of `ngram_size` tokens."""
    if ngram_size < 1 or len(input_ids) != len(scores):
        raise KernelError(
            f"ngram_size {ngram_size} must be positive, and {len(input_ids)} rows of tokens need as many rows of scores,"
            f" not {len(scores)}",
            InvalidArgument,
        )
    output = np.array(scores)
    if input_ids.shape[1] < ngram_size:
        return output
    runs = np.lib.stride_tricks.sliding_window_view(input_ids, ngram_size, axis=1)
    last = input_ids[:, input_ids.shape[1] - ngram_size + 1 :]
    rows, places = np.nonzero((runs[:, :, :-1] == last[:, None]).all(axis=2))
    banned = runs[rows, places, -1]
    if banned.size and not 0 <= banned.min() <= banned.max() < scores.shape[1]:
        bad = banned[(banned < 0) | (banned >= scores.shape[1])][0]
        raise KernelError(f"NGramRepeatBlock: token_id {bad} out of range [0, {scores.shape[1]})", InvalidArgument)
    output[rows, banned] = -np.inf
    return output
