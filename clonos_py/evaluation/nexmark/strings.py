"""Generates text columns without loops: windows into a pool of random text, and rows from small dictionaries.

A window needs no copy. Consecutive rows are consecutive pieces of the pool, so a column is a slice of the pool's bytes
and an array of offsets. The start of the window is random for each block.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.evaluation.nexmark.words import Int64s, Uint32s, below, splitmix64, words

Strings: TypeAlias = pa.StringArray

_LETTER_BYTES, _PROSE_BYTES = 1 << 23, 1 << 20
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

NAMES: Strings = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
STATES: Strings = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
CITIES: Strings = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)


def letters(key: int, lengths: npt.NDArray[np.int32]) -> Strings:
    """Texts of these lengths, of lower-case letters."""
    return _window(_letter_pool(), key, lengths)


def filling(key: int, lengths: npt.NDArray[np.int32]) -> Strings:
    """Texts of these lengths for ``extra``. The official generator draws six characters from one signed number: half of
    these groups count up from ``a`` to ``z``, half down from ``a`` to ``H``."""
    return _window(_filling_pool(), key, lengths)


def prose(key: int, lengths: npt.NDArray[np.int32]) -> Strings:
    """Texts of these lengths, of lower-case letters with occasional blanks."""
    return _window(_prose_pool(), key, lengths)


def pick(dictionary: Strings, random: Uint32s) -> Strings:
    """A uniformly drawn text of the dictionary for each random word."""
    return dictionary.take(below(random, len(dictionary)))


def email_addresses(random: Uint32s) -> Strings:
    """Random ones of 16,384 addresses ``name@domain.com``, with names of up to 6 letters and domains of up to 4, some
    with a blank inside."""
    return pick(_email_addresses(), random)


def credit_cards(random: tuple[Uint32s, Uint32s, Uint32s, Uint32s]) -> Strings:
    """Credit card numbers: four groups of four digits."""
    rows = len(random[0])
    text = np.full((rows, 19), ord(" "), dtype=np.uint8)
    for group, word in enumerate(random):
        text[:, group * 5 : group * 5 + 4] = _four_digits()[below(word, 10_000)]
    offsets = np.arange(0, 19 * (rows + 1), 19, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, _buffer(offsets), _buffer(text))


def channels_and_urls(random: Uint32s) -> tuple[Strings, Strings]:
    """The channel and URL of bids: one of four hot channels with probability 1/2, otherwise one of 10,000 channels,
    most of whose URLs name the channel."""
    rows = below(random, _CHANNELS)
    hot = (random & np.uint32(1)) != 0
    indices = np.where(hot, rows & 3, rows + len(_HOT_CHANNELS))
    return _channel_names().take(indices), _channel_urls().take(indices)


def lengths_between(random: Uint32s, low: int, high: int) -> npt.NDArray[np.int32]:
    """Lengths in [low, high)."""
    out = np.right_shift(random, np.uint32(16))
    np.multiply(out, np.uint32(high - low), out=out)
    np.right_shift(out, np.uint32(16), out=out)
    np.add(out, np.uint32(low), out=out)
    return out.view(np.int32)


def lengths_about(random: Uint32s, mean: int) -> npt.NDArray[np.int32]:
    """Lengths with this mean, each within a fifth of it; 0 for a negative mean."""
    spread = (max(mean, 0) + 2) // 5
    return lengths_between(random, max(mean, 0) - spread, max(mean, 0) + spread)


def fill_up(random: Uint32s, missing: Int64s) -> npt.NDArray[np.int32]:
    """As ``lengths_about``, with a separate mean for each row."""
    missing = np.maximum(missing, 0)
    spread = (missing + 2) // 5
    return (missing - spread + below(random, 2 * spread)).astype(np.int32)


def text_lengths(*columns: Strings) -> Int64s:
    """The total length of each row's ASCII texts."""
    total = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        total += np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1))  # type: ignore[call-overload]
    return total


def _window(pool: pa.Buffer, key: int, lengths: npt.NDArray[np.int32]) -> Strings:
    offsets = np.empty(len(lengths) + 1, dtype=np.int32)
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    size = int(offsets[-1])
    if size >= pool.size:
        pool = _buffer(np.tile(np.frombuffer(pool, np.uint8), size // pool.size + 1))  # type: ignore[call-overload]
    return pa.StringArray.from_buffers(len(lengths), _buffer(offsets), pool.slice(key % (pool.size - size), size))


@functools.cache
def _letter_pool() -> pa.Buffer:
    random = words(splitmix64(1), _LETTER_BYTES // 4).view(np.uint8).astype(np.uint16)
    return _buffer(((random * np.uint16(26) >> np.uint16(8)) + np.uint16(ord("a"))).astype(np.uint8))


@functools.cache
def _filling_pool() -> pa.Buffer:
    text = np.frombuffer(_letter_pool().to_pybytes(), dtype=np.uint8).copy()
    sixes = words(splitmix64(8), len(text) // 6 + 1)
    down = np.repeat((sixes & np.uint32(1)).astype(np.bool_), 6)[: len(text)]
    np.subtract(2 * ord("a"), text, out=text, where=down)
    return _buffer(text)


@functools.cache
def _prose_pool() -> pa.Buffer:
    text = np.frombuffer(_letter_pool().slice(0, _PROSE_BYTES).to_pybytes(), dtype=np.uint8).copy()
    text[below(words(splitmix64(2), _PROSE_BYTES), 13) == 0] = ord(" ")
    return _buffer(text)


@functools.cache
def _four_digits() -> npt.NDArray[np.uint8]:
    text = "".join(f"{number:04d}" for number in range(10_000))
    return np.frombuffer(text.encode(), dtype=np.uint8).reshape(-1, 4)


@functools.cache
def _email_addresses() -> Strings:
    names, domains = _short_texts(6, 1 << 14, 3, 7, " "), _short_texts(7, 1 << 14, 3, 5, " ")
    return pa.array([f"{name}@{domain}.com" for name, domain in zip(names, domains, strict=True)])


@functools.cache
def _channel_names() -> Strings:
    return pa.array([*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))])


@functools.cache
def _channel_urls() -> Strings:
    total = len(_HOT_CHANNELS) + _CHANNELS
    paths = zip(*(_short_texts(key, total, 3, 5, "_") for key in (3, 4, 5)), strict=True)
    numbers = range(-len(_HOT_CHANNELS), _CHANNELS)
    return pa.array([_channel_url("/".join(path), number) for path, number in zip(paths, numbers, strict=True)])


def _channel_url(path: str, number: int) -> str:
    """The URL of a channel. Nine of ten channels are named in their URL; hot ones (numbers below 0) are not."""
    named = number >= 0 and splitmix64(number + 1000) % 10
    return f"https://www.nexmark.com/{path}/item.htm?query=1{f'&channel_id={_channel_id(number)}' if named else ''}"


def _channel_id(number: int) -> int:
    """The value of Java's ``Math.abs(Integer.reverse(number))``, which is negative for 1."""
    reverse = int(f"{number:032b}"[::-1], 2)
    return reverse if reverse < 1 << 31 else -(1 << 31) if reverse == 1 << 31 else (1 << 32) - reverse


def _short_texts(key: int, count: int, low: int, high: int, special: str) -> list[str]:
    """Texts of letters, of which one in 13 is replaced by ``special``. Blanks at the ends are stripped."""
    lengths = lengths_between(words(splitmix64(key + 100), count), low, high)
    total = int(lengths.sum())
    marks = below(words(splitmix64(key + 200), total), 13) == 0
    plain = np.frombuffer(letters(splitmix64(key), lengths).buffers()[2], np.uint8)  # type: ignore[call-overload]
    text = np.where(marks, np.uint8(ord(special)), plain).tobytes().decode()
    ends = np.cumsum(lengths).tolist()
    return [text[end - length : end].strip() for end, length in zip(ends, lengths.tolist(), strict=True)]


def _buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(values)  # type: ignore[arg-type]
