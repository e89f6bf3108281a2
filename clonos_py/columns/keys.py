"""The stable 64-bit hash of rows. It decides the key group of a row and so the task that holds its state (D17).

This is version 1, and its only definition. It must never depend on the version of a library, a process or a machine,
because a checkpoint stores state by the key groups that it gave. Equal values have equal hashes regardless of the width
of their type, their encoding, slice or batch: integers signed or not (also timestamps, dates, booleans, and decimals of
one scale), floats (-0.0 as 0.0, all NaN alike), text and bytes by their bytes, lists and structs by their elements;
null is a key of its own. Different values may collide: where equality matters, compare the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.kernels.library import library, pointer
from clonos_py.columns.views import Column, Ints, Words, fixed, has_fixed_values, offsets, plain, raw, valid
from clonos_py.model.errors import GraphError

HASH_VERSION = 1

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_COMBINE = np.uint64(0xD6E8FEB86659FD93)
_NULL = np.uint64(0x6E756C6C6E756C6C)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 8_192
_BYTES = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_BYTES_ELSEWHERE = (pa.types.is_fixed_size_binary, pa.types.is_string_view, pa.types.is_binary_view)


def hash_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> Words:
    """One hash per row over ``columns``, whose order matters. No columns: every row hashes alike.

    Raises GraphError for types that have no hash (maps, unions).
    """
    if not columns:
        return np.zeros(batch.num_rows, np.uint64)
    return _combine([batch.column(name) for name in columns])


def key_groups(batch: pa.RecordBatch, columns: Sequence[str], n: int) -> npt.NDArray[np.int32]:
    """The key group of each row, 0 to n - 1."""
    return groups_of(hash_rows(batch, columns), n)


def groups_of(hashes: Words, n: int) -> npt.NDArray[np.int32]:
    """The key group of each hash, from its upper half."""
    groups = hashes >> np.uint64(32)
    groups *= np.uint64(n)
    groups >>= np.uint64(32)
    return groups.astype(np.int32)


def hash_array(array: Column) -> Words:
    """One hash per value."""
    if isinstance(array, pa.DictionaryArray):
        return _hash_dictionary(array)
    array = plain(array)
    hashes = _hash_values(array)
    mask = valid(array)
    if mask is not None:
        hashes[~mask] = _NULL
    return hashes


def mix(hashes: Words) -> Words:
    """Spreads every bit over all bits, in place: the finalizer of splitmix64."""
    native = library()
    if native is None or not hashes.flags.c_contiguous:
        return _mix_blocks(hashes)
    native.of(len(hashes)).clonos_mix(pointer(hashes, np.uint64, 0), len(hashes))
    return hashes


def _mix_blocks(hashes: Words) -> Words:
    """As ``mix``, in blocks that stay in the cache."""
    scratch = np.empty(min(len(hashes), _BLOCK), np.uint64)
    for low in range(0, len(hashes), _BLOCK):
        block = hashes[low : low + _BLOCK]
        shifted = scratch[: len(block)]
        block += _GOLDEN
        for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, None)):
            np.right_shift(block, np.uint64(shift), out=shifted)
            block ^= shifted
            if factor is not None:
                block *= factor
    return hashes


def unmix(hashes: Words) -> Words:
    """The inverse of ``mix``: the words for which it returns these hashes."""
    words = hashes.copy()
    for shift, factor in ((31, _MIX_2), (27, _MIX_1), (30, None)):
        shifted = words >> np.uint64(shift)
        while shifted.any():
            words ^= shifted
            shifted >>= np.uint64(shift)
        if factor is not None:
            words *= np.uint64(pow(int(factor), -1, 1 << 64))
    words -= _GOLDEN
    return words


def _combine(arrays: Sequence[Column]) -> Words:
    combined = hash_array(arrays[0])
    native = library()
    for array in arrays[1:]:
        hashes = hash_array(array)
        if native is not None:
            both = pointer(combined, np.uint64, 0), pointer(hashes, np.uint64, len(combined))
            native.of(len(combined)).clonos_combine(*both, len(combined))
            continue
        combined *= _COMBINE
        combined += hashes
        mix(combined)
    return combined


def _hash_values(array: Column) -> Words:
    kind = array.type
    if pa.types.is_floating(kind):
        return mix(_float_bits(array))
    if pa.types.is_decimal(kind):
        return _hash_wide(array)
    if has_fixed_values(kind):
        return mix(_to_words(fixed(array)))
    if pa.types.is_boolean(kind):
        return mix(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    return _hash_nested(array)


def _hash_nested(array: Any) -> Words:
    kind = array.type
    if any(is_text(kind) for is_text in _BYTES):
        return _hash_bytes(array)
    if any(is_text(kind) for is_text in _BYTES_ELSEWHERE):
        return _hash_bytes(array.cast(pa.large_binary()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        bounds = offsets(array)
        elements = array.values.slice(bounds[0], bounds[-1] - bounds[0])
        return _fold_runs(hash_array(elements), bounds - bounds[0])
    if pa.types.is_struct(kind):
        return _combine(array.flatten())
    raise GraphError(
        f"a column of type {kind} cannot be a key: use numbers, text, bytes, times, or lists or structs of them"
    )


def _to_words(values: npt.NDArray[np.int64]) -> Words:
    """Sign-extended to 64 bits; a copy, which the caller may change."""
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def _float_bits(array: Column) -> Words:
    values = fixed(array).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _hash_wide(array: Column) -> Words:
    """Hashes decimals by their unscaled value: as an integer if it fits into 64 bits, else word by word."""
    width = max(array.type.bit_width, 128) // 64
    if array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    words = raw(array, np.uint64, width).reshape(-1, width)
    hashes = mix(words[:, 0].copy())
    for position in range(1, width):
        extension = (words[:, position - 1].view(np.int64) >> np.int64(63)).view(np.uint64)
        needed = np.flatnonzero((words[:, position:] != extension[:, None]).any(axis=1))
        if len(needed):
            hashes[needed] = mix(hashes[needed] * _COMBINE + words[needed, position])
    return hashes


def _hash_dictionary(array: Any) -> Words:
    hashes = np.append(hash_array(array.dictionary), _NULL)
    indices = fixed(array.indices).astype(np.int64)
    mask = valid(array.indices)
    if mask is not None:
        indices[~mask] = len(hashes) - 1
    return hashes[indices]


def _hash_bytes(array: Column) -> Words:
    """Hashes text and bytes as 8-byte little-endian words, padded with zeros, and by their length."""
    bounds = offsets(array)
    if (native := library()) is not None:
        data = np.frombuffer(memoryview(array.buffers()[2] or b""), np.uint8)
        hashes = np.empty(len(array), np.uint64)
        bytes_of = pointer(bounds, np.int64, 0), len(array), pointer(data, np.uint8, 0), len(data)
        hashed = native.of(len(array)).clonos_hash_bytes(*bytes_of, pointer(hashes, np.uint64, 0))
        if hashed < len(array):
            raise ValueError(f"value {hashed} of a column of type {array.type} does not lie in the column's bytes")
        return hashes
    lengths = np.diff(bounds)
    words_to = np.zeros(len(bounds), np.int64)
    np.cumsum((lengths + 7) >> 3, out=words_to[1:])
    words = _read_words(array.buffers()[2], bounds, lengths, words_to)
    hashes = _fold_runs(words, words_to)
    hashes ^= lengths.view(np.uint64)
    return mix(hashes)


def _read_words(data: pa.Buffer | None, bounds: Ints, lengths: Ints, words_to: Ints) -> Words:
    """All words of all strings in a row. String i has words ``words_to[i]`` up to ``words_to[i + 1]``."""
    size = int(bounds[-1] - bounds[0])
    if data is None or size == 0:
        return np.zeros(int(words_to[-1]), np.uint64)
    padded = np.zeros(((size + 7) >> 3) + 1, np.uint64)
    padded.view(np.uint8)[:size] = np.frombuffer(memoryview(data), np.uint8, size, int(bounds[0]))
    at = np.repeat(bounds[:-1] - bounds[0] - (words_to[:-1] << 3), np.diff(words_to))
    at += np.arange(len(at), dtype=np.int64) << 3
    words = _read_unaligned(padded, at)
    filled = np.flatnonzero(lengths & 7)
    words[words_to[filled + 1] - 1] &= _ALL >> (np.uint64(64) - ((lengths[filled] & 7) << 3).view(np.uint64))
    return words


def _read_unaligned(padded: Words, at: Ints) -> Words:
    """The 8 bytes at each byte position, put together from the two aligned words that hold them."""
    shift = ((at & 7) << 3).view(np.uint64)
    at = at >> 3
    low = padded.take(at)
    low >>= shift
    at += 1
    high = padded.take(at)
    high <<= np.uint64(1)
    high <<= np.uint64(63) - shift
    low |= high
    return low


def _fold_runs(words: Words, bounds: Ints) -> Words:
    """One hash per run of words: the sum of its words, each mixed with its position in the run."""
    counts = np.diff(bounds)
    if len(words) == 0:
        return np.zeros(len(counts), np.uint64)
    position = np.arange(len(words), dtype=np.int64)
    position -= np.repeat(bounds[:-1], counts)
    words = words ^ (position.view(np.uint64) * _COMBINE)
    mix(words)
    total = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words, out=total[1:])
    return total[bounds[1:]] - total[bounds[:-1]] + counts.view(np.uint64)
