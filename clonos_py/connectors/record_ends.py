"""Where the records of JSON and CSV end: one rule for all sources, which depends on the bytes alone.

A source may read a file in pieces of any size. The same bytes have the same records: each piece ends with a complete
record, and where a record ends does not depend on what precedes it.

- JSON: each line is a record. Lines end with LF.
- CSV: a record ends with a LF, CR or CRLF outside quotes. A quote opens a quoted field only as its first character;
  elsewhere in an unquoted field it is text. These are the rules of Arrow's parser and of Python's ``csv``.
- CSV, broken records: a record of several lines in which a quoted field is followed by other text, or whose last quote
  is not closed, lacks a quote. It ends with its first line. So a missing quote damages one line, and not all that
  follow up to the next quote.

There is no work for each record in Python, except for broken ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

MARK = b"\xef\xbb\xbf"
"""A byte order mark. At the start of a file it is no part of the first record."""

_NEWLINE, _RETURN, _SPACE, _TAB, _QUOTE, _COMMA, _OPEN, _CLOSE = b'\n\r \t",{}'
_NONE: Positions = np.zeros(0, np.int64)
_SPACES_MAX = 32
_WINDOW_BYTES = 1 << 12


def byte_table(characters: bytes) -> npt.NDArray[np.bool_]:
    """Which bytes are among the characters."""
    found = np.zeros(256, np.bool_)
    found[list(characters)] = True
    return found


_BLANK = byte_table(b" \t\r")
_BETWEEN = byte_table(b",\r\n")
"""What may precede and follow a quoted field."""


class Records(NamedTuple):
    """Consecutive records: their end positions, the numbers of those that have to be parsed alone, since they would
    change how others are parsed, and the numbers of those that are blank and give no row. ``alone`` and ``blank`` are
    ascending and have no number in common."""

    ends: Positions
    alone: Positions = _NONE
    blank: Positions = _NONE

    def between(self, first: int, last: int, start: int) -> Records:
        """The records [first, last), with positions relative to ``start``."""
        if first == 0 and last == len(self.ends) and start == 0:
            return self
        alone, blank = (_numbers(of, first, last) - first for of in (self.alone, self.blank))
        return Records(self.ends[first:last] - start, alone, blank)

    def row_count(self, first: int, last: int) -> int:
        """The number of records [first, last) that give a row."""
        return last - first - len(_numbers(self.blank, first, last))


def _numbers(of: Positions, first: int, last: int) -> Positions:
    return of[np.searchsorted(of, first) : np.searchsorted(of, last)] if len(of) else of


def without_line_end(record: bytes) -> bytes:
    """The content of a record."""
    return record.removesuffix(b"\n").removesuffix(b"\r")


def line_records(content: bytes, whole: bool) -> Records:
    """Each line is a record; an empty line, too."""
    return Records(_with_last(_ends_of(content, _NEWLINE), content, whole))


def json_records(content: bytes, whole: bool) -> Records:
    """Each line is a record. Lines that do not begin and end as an object does are parsed alone: several of them
    together could be one object. Of all other lines Arrow's parser makes as many rows as there are objects on them."""
    ends = _with_last(_ends_of(content, _NEWLINE), content, whole)
    if not len(ends):
        return Records(ends)
    data = np.frombuffer(content, np.uint8)
    first = _starts(ends)
    last = ends - 1 - (data.take(ends - 1) == _NEWLINE)
    if ((data.take(first) == _OPEN) & (data.take(last) == _CLOSE)).all() and b"\0" not in content:
        return Records(ends)
    _skip_spaces(data, first, last, 1)
    _skip_spaces(data, last, first, -1)
    empty = last < first
    blank = empty | (_BLANK[data[last]] & (last == first))
    odd = ~blank & ((data[first] != _OPEN) | (data[last] != _CLOSE))
    if b"\0" in content:  # the parser takes it for the end of its input
        odd[np.searchsorted(ends, np.flatnonzero(data[: ends[-1]] == 0), side="right")] = True
        blank &= ~odd
    return Records(ends, np.flatnonzero(odd), np.flatnonzero(blank))


def _skip_spaces(data: npt.NDArray[np.uint8], at: Positions, stop: Positions, step: int) -> None:
    """Moves the positions ``at`` over blanks, at most to ``stop``. After very many blanks it gives up."""
    moving = np.flatnonzero(_BLANK[data[at]] & (at * step < stop * step))
    for _ in range(_SPACES_MAX):
        if not len(moving):
            return
        at[moving] += step
        moving = moving[_BLANK[data[at[moving]]] & (at[moving] * step < stop[moving] * step)]


def csv_records(content: bytes, whole: bool) -> Records:
    """The records of CSV. Those that lack a quote are parsed alone."""
    if b'"' not in content:
        return _with_blanks(content, _with_last(csv_line_ends(content, whole), content, whole), _NONE)
    found: list[Positions] = []
    alone: list[int] = []
    at, count, window_bytes = 0, 0, len(content)
    while at < len(content):
        piece = content[at : at + window_bytes] if at or window_bytes < len(content) else content
        reaches_end = at + len(piece) == len(content)
        ends, broken_line_end = _sound_records(piece, whole and reaches_end)
        found.append(ends + at if at else ends)
        count += len(ends)
        if broken_line_end is not None:
            found.append(np.array([at + broken_line_end]))
            alone.append(count)
            at, count, window_bytes = at + broken_line_end, count + 1, _WINDOW_BYTES
        elif reaches_end:
            break
        else:
            at, window_bytes = at + (int(ends[-1]) if len(ends) else 0), 4 * window_bytes
    return _with_blanks(content, found[0] if len(found) == 1 else np.concatenate(found), np.array(alone, np.int64))


def csv_lines(content: bytes, whole: bool) -> Records:
    """CSV in which each line is a record. Lines that lack a quote are parsed alone."""
    ends = _with_last(csv_line_ends(content, whole), content, whole)
    if b'"' not in content:
        return _with_blanks(content, ends, _NONE)
    data = np.frombuffer(content, np.uint8)
    runs = _odd_runs(data, _runs(data), ends)
    last_run = np.append(-1, runs.starts)[np.searchsorted(runs.starts, ends)]
    return _with_blanks(content, ends, np.flatnonzero(_inside(runs, ends) & (last_run >= _starts(ends))))


def csv_line_ends(content: bytes, whole: bool) -> Positions:
    """The ends of lines, which end with LF, CR or CRLF. A CR at the end may be half of a CRLF, unless these are the
    ``whole`` bytes."""
    ends = _ends_of(content, _NEWLINE)
    if b"\r" not in content:
        return ends
    data = np.frombuffer(content, np.uint8)
    before = data.take(ends[int(content.startswith(b"\n")) :] - len(b"\r\n"))
    if np.count_nonzero(data == _RETURN) == np.count_nonzero(before == _RETURN):
        return ends
    returns = _ends_of(content, _RETURN)
    if returns[-1] == len(data):
        last, returns = returns[-1:], returns[:-1]
        ends = np.append(ends, last) if whole else ends
    return np.sort(np.concatenate([ends, returns[data[returns] != _NEWLINE]]))


def csv_line_count(content: bytes, before: bytes = b"") -> int:
    """The number of line ends of CSV in a piece of it that follows ``before``."""
    halves = content.startswith(b"\n") and before.endswith(b"\r")
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n") - halves


def _sound_records(content: bytes, whole: bool) -> tuple[Positions, int | None]:
    """The ends of the records up to the first broken one, and the end of that one's first line, if there is one."""
    lines = _with_last(csv_line_ends(content, whole), content, whole)
    data = np.frombuffer(content, np.uint8)
    inside = _inside_clean_quotes(data, lines)
    if inside is not None:
        ends = lines[~inside]
        return ends, _after(lines, ends) if whole and len(inside) and inside[-1] else None
    all_runs = _runs(data)
    runs = _odd_runs(data, all_runs)
    inside = _inside(runs, lines)
    ends = lines[~inside]
    inner = np.searchsorted(ends, lines[inside] - 1, side="right")
    dirty = np.searchsorted(ends, _followed_by_text(data, all_runs, runs), side="right")
    broken = np.intersect1d(inner, dirty)
    broken = broken[broken < len(ends)]
    if len(broken):
        ends = ends[: broken[0]]
        return ends, _after(lines, ends)
    return ends, _after(lines, ends) if whole and len(inside) and inside[-1] else None


def _after(lines: Positions, ends: Positions) -> int:
    """The first line end after the last of ``ends``."""
    return int(lines[np.searchsorted(lines, ends[-1], side="right") if len(ends) else 0])


def _inside_clean_quotes(data: npt.NDArray[np.uint8], ends: Positions) -> npt.NDArray[np.bool_] | None:
    """Whether the text before each of ``ends`` is inside quotes, if all quotes enclose whole fields or are doubled
    inside them; otherwise None. In that case the first quote opens a field, the second closes it, and so on, where a
    doubled quote closes the field and opens it again. It is computed for 64 bytes at a time: most files have such
    quotes only, and to find the positions of all quotes takes longer."""
    mask = data == _QUOTE
    quotes = _words(mask)
    inside = _odd_so_far(quotes)
    beside = quotes.copy()
    for character in (_COMMA, _NEWLINE, _RETURN):
        beside |= _words(np.equal(data, character, out=mask))
    precedes, follows = beside << _ONE, beside >> _ONE
    precedes[1:] |= beside[:-1] >> _LAST
    precedes[0] |= _ONE
    follows[:-1] |= beside[1:] << _LAST
    follows[-1] |= _ONE << np.uint64((len(data) - 1) % _BITS)
    if (quotes & inside & ~precedes).any() or (quotes & ~inside & ~follows).any():
        return None
    last = ends.view(np.uint64) - _ONE
    found = inside.take((last >> _WORD).view(np.int64))
    found >>= last & _LAST
    found &= _ONE
    return found.astype(np.bool_)


_BITS = 64
_ONE, _WORD, _LAST, _ALL = np.uint64(1), np.uint64(6), np.uint64(_BITS - 1), np.uint64((1 << _BITS) - 1)


def _words(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """A mask as bits, the first one lowest."""
    packed = np.packbits(mask, bitorder="little")
    words = np.zeros(-(-len(mask) // _BITS), np.dtype("<u8"))
    words.view(np.uint8)[: len(packed)] = packed
    return words


def _odd_so_far(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """For each bit, whether an odd number of bits are set up to and including it."""
    odd = bits.copy()
    for distance in (1, 2, 4, 8, 16, 32):
        odd ^= odd << np.uint64(distance)
    odd[1:] ^= np.bitwise_xor.accumulate(odd >> _LAST)[:-1] * _ALL
    return odd


class _Runs(NamedTuple):
    """Runs of adjacent quotes."""

    starts: Positions
    lengths: Positions


class _OddRuns(NamedTuple):
    """Runs of an odd number of adjacent quotes: only these open or close a field. ``inside``: whether the text after
    them is inside quotes."""

    starts: Positions
    inside: npt.NDArray[np.bool_]


def _runs(data: npt.NDArray[np.uint8]) -> _Runs:
    quotes = np.flatnonzero(data == _QUOTE)
    first = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
    return _Runs(quotes[first], np.diff(first, append=len(quotes)))


def _odd_runs(data: npt.NDArray[np.uint8], runs: _Runs, line_ends: Positions | None = None) -> _OddRuns:
    """``line_ends``: lines that each begin outside quotes; without them only the first does.

    Inside quotes a run closes the field. Outside it opens one at the start of a field, and otherwise it is text. So
    after a run elsewhere one is outside in any case, and each run at the start of a field changes the side."""
    starts = runs.starts[runs.lengths % 2 == 1]
    opens = _BETWEEN[data[starts - 1]] | (starts == 0)
    changes = np.cumsum(opens)
    since = np.where(opens, 0, changes)
    if line_ends is not None and len(starts):
        lines = np.searchsorted(line_ends, starts, side="right")
        since = np.where(opens & (np.diff(lines, prepend=-1) > 0), changes - 1, since)
    inside = (changes - np.maximum.accumulate(since)) % 2 == 1 if len(starts) else np.zeros(0, np.bool_)
    return _OddRuns(starts, inside)


def _inside(runs: _OddRuns, positions: Positions) -> npt.NDArray[np.bool_]:
    """Whether the text before each position is inside quotes."""
    before = np.searchsorted(runs.starts, positions)
    return np.append(False, runs.inside)[before]


def _followed_by_text(data: npt.NDArray[np.uint8], runs: _Runs, odd: _OddRuns) -> Positions:
    """The positions of quotes that close a field and are followed by text of that field."""
    starts, lengths = runs
    inside = _inside(odd, starts)
    closes = np.where(lengths % 2 == 1, inside, ~inside & (_BETWEEN[data[starts - 1]] | (starts == 0)))
    stops: Positions = (starts + lengths)[closes]
    stops = stops[stops < len(data)]
    last: Positions = stops[~_BETWEEN[data[stops]]] - 1
    return last


def _with_blanks(content: bytes, ends: Positions, alone: Positions) -> Records:
    """Adds the numbers of empty lines."""
    starts = _starts(ends)
    short = np.flatnonzero(ends - starts <= len(b"\r\n"))
    if len(short):
        first = np.frombuffer(content, np.uint8)[starts[short]]
        short = short[(first == _NEWLINE) | (first == _RETURN)]
    return Records(ends, alone, short)


def _ends_of(content: bytes, character: int) -> Positions:
    return np.flatnonzero(np.frombuffer(content, np.uint8) == character) + 1


def _with_last(ends: Positions, content: bytes, whole: bool) -> Positions:
    """Adds the end of a last record without a line end, if no bytes follow."""
    if whole and content and (not len(ends) or ends[-1] < len(content)):
        return np.append(ends, len(content))
    return ends


def _starts(ends: Positions) -> Positions:
    """The starts of the records with these ends."""
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1]
    return starts
