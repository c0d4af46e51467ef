"""MurmurHash3 and NGramRepeatBlock of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

contrib = cpu.in_domain("com.microsoft")


FEW = 16
"""So many texts are hashed one by one."""


@contrib("MurmurHash3", plain=True)
def murmur_hash3(X, seed=0, positive=1):
    """The variant x86_32 of Austin Appleby's hash, over the bytes of each number or the UTF-8 of each text."""
    state = np.uint32(seed & 0xFFFFFFFF)
    if X.dtype == object:
        texts = list(map(str.encode, X.reshape(-1).tolist()))
        hashes = (
            np.array([_hash_of(text, int(state)) for text in texts], np.uint32)
            if len(texts) <= FEW
            else _hashes_of(texts, state)
        )
    else:
        words = np.ascontiguousarray(X).reshape(-1).view(np.uint32).reshape(X.size, X.itemsize // 4)
        hashes = _finished(_mixed(words, state), X.itemsize)
    hashes = hashes.reshape(X.shape)
    return hashes if positive else hashes.view(np.int32)


def _hash_of(data, state):
    """The hash of one text, in Python's integers."""
    whole = len(data) & -4
    for start in range(0, whole, 4):
        state ^= _scrambled_word(int.from_bytes(data[start : start + 4], "little"))
        state = (state << 13 | state >> 19) * 5 + 0xE6546B64 & MASK
    state ^= _scrambled_word(int.from_bytes(data[whole:], "little")) ^ len(data) & MASK
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


MASK = 0xFFFFFFFF


def _scrambled_word(word):
    word = word * 0xCC9E2D51 & MASK
    return (word << 15 | word >> 17) * 0x1B873593 & MASK


def _hashes_of(texts, state):
    """The hashes of many texts, word by word: the longest come first, so that those which have another word are the first ones."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")
    lengths, starts = lengths[order], starts[order]
    bytes = np.frombuffer(b"".join(texts) + b"\0\0\0\0", np.uint8).astype(np.uint32)
    words = bytes[:-3] | bytes[1:-2] << np.uint32(8) | bytes[2:-1] << np.uint32(16) | bytes[3:] << np.uint32(24)
    mixed = np.full(len(texts), state, np.uint32)
    for word in watched(range(int(lengths[0]) // 4)):
        count = np.searchsorted(-lengths, -4 * word - 4, side="right")
        mixed[:count] = _added(mixed[:count], words[starts[:count] + 4 * word])
    tails = words[starts + (lengths & -4)] & (np.uint32(1) << (lengths & 3).astype(np.uint32) * np.uint32(8)) - np.uint32(1)
    hashes = np.empty(len(texts), np.uint32)
    hashes[order] = _finished(mixed ^ _scrambled(tails), lengths.astype(np.uint32))
    return hashes


def _mixed(words, state):
    """The state after the words of each row."""
    hashes = np.full(len(words), state, np.uint32)
    for column in range(words.shape[1]):
        hashes = _added(hashes, words[:, column])
    return hashes


def _added(hashes, words):
    return _rotated(hashes ^ _scrambled(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _scrambled(words):
    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(words, bits):
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finished(hashes, length):
    hashes = hashes ^ np.asarray(length, np.uint32)
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
