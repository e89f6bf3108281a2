"""Counter-based random words: word i of a field of a block depends only on (seed, block, field, i).

So any part of the stream can be regenerated, in any order and in pieces of any size. A field of a block has a 64-bit
key (splitmix64 of seed, block and field). Its words are 32 bits wide, so that vector units can compute 16 at a time.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Uint32s: TypeAlias = npt.NDArray[np.uint32]
Int64s: TypeAlias = npt.NDArray[np.int64]

_MASK_64 = 2**64 - 1


def splitmix64(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a pseudo-random bijection of 64 bits."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK_64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return x ^ (x >> 31)


def words(key: int, count: int) -> Uint32s:
    """The first ``count`` words for a 64-bit key."""
    out = np.bitwise_xor(_lanes(count), np.uint32(key & 0xFFFFFFFF))
    shifted = np.right_shift(out, np.uint32(16))
    np.bitwise_xor(out, shifted, out=out)
    np.multiply(out, np.uint32(0x7FEB352D), out=out)
    np.right_shift(out, np.uint32(15), out=shifted)
    np.bitwise_xor(out, shifted, out=out)
    np.add(out, np.uint32(key >> 32), out=out)
    np.multiply(out, np.uint32(0x846CA68B), out=out)
    np.right_shift(out, np.uint32(16), out=shifted)
    np.bitwise_xor(out, shifted, out=out)
    return out


def below(random: Uint32s, bound: int | Int64s) -> Int64s:
    """Integers in [0, bound), from the high bits of random words. ``bound``: at most 2**31, common or per word."""
    out = random.astype(np.int64)
    np.multiply(out, bound, out=out)
    np.right_shift(out, 32, out=out)
    return out


@functools.lru_cache(maxsize=16)
def _lanes(count: int) -> Uint32s:
    lanes = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1)
    lanes ^= lanes >> np.uint32(15)
    lanes.setflags(write=False)
    return lanes
