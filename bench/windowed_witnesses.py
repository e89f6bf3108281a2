"""The two-witness job with windows: what they have counted must agree with the rows that are visible already.

Every record gets an HTTP answer that the server never gives twice. It then flows into a file, into count windows and
into hopping windows by event time. If a recovery lost or repeated a row of a window, or took another answer, the sums
would disagree with the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from clonos_py import Context, Job, Record, col, count, counted, hopping
from clonos_py.bench.witnesses import KEYS, Number, PacedNumbers
from clonos_py.connectors import FileSink, read_results

TASKS = tuple(f"{name}[{index}]" for name in ("numbers", "enrich", "left", "tens", "hops") for index in (0, 1))
"""All tasks at parallelism 2."""
ROWS = 10
"""Of a count window."""
SIZE_US, SLIDE_US = 400, 100
"""Of hopping windows. A number is as many microseconds of event time."""


class AnsweredNumber(Number):
    answer: int


class Tens(Record):
    key: int
    ids: list[int]
    answers: int


class Hops(Record):
    key: int
    window_start: int
    numbers: int
    answers: int


def windowed(server: str, folder: str, total: int, rate: float, unpaced: str = "") -> Job:
    """The job. ``server``: the address of an ``answer_server``; ``unpaced``: see ``PacedNumbers``."""

    def enrich(number: Number, ctx: Context) -> AnsweredNumber:
        return AnsweredNumber.extend(number, answer=int(ctx.http.get(f"{server}/{number.id}", timeout="5s").text))

    job = Job("witnesses")
    numbers = job.source(PacedNumbers(total, rate, unpaced)).named("numbers").with_event_time("id")
    answered = numbers.rebalance().map(enrich).named("enrich")
    answered.rebalance().sink(FileSink(f"{folder}/left", format="jsonl")).named("left")
    keyed = answered.key_by("key")
    counted_ = keyed.window(counted(ROWS, incomplete=True))
    tens = counted_.aggregate(Tens, ids=col("id").collect(), answers=col("answer").sum()).named("tens")
    tens.sink(FileSink(f"{folder}/tens", format="jsonl")).named("tens-file")
    hopping_ = keyed.window(hopping(f"{SIZE_US}us", f"{SLIDE_US}us"))
    hops = hopping_.aggregate(Hops, numbers=count(), answers=col("answer").sum()).named("hops")
    hops.sink(FileSink(f"{folder}/hops", format="jsonl")).named("hops-file")
    return job


def wrong(folder: str, total: int) -> str | None:
    """What the windows and the rows disagree on. None if no row is missing, duplicate or different."""
    rows, tens, hops = (list(read_results(f"{folder}/{name}")) for name in ("left", "tens", "hops"))
    answers = {row["id"]: row["answer"] for row in rows}
    if sorted(row["id"] for row in rows) != list(range(total)):
        return f"left has {len(rows)} records, {len(answers)} different ones, of {total}"
    return _wrong_tens(tens, answers) or _wrong_hops(hops, answers)


def _wrong_tens(tens: Sequence[dict[str, Any]], answers: dict[int, int]) -> str | None:
    if sorted(n for row in tens for n in row["ids"]) != sorted(answers):
        return "the count windows do not have each number once"
    for row in tens:
        if {n % KEYS for n in row["ids"]} != {row["key"]} or sum(answers[n] for n in row["ids"]) != row["answers"]:
            return f"the count window {row} has other answers than its rows"
    short = Counter(row["key"] for row in tens if len(row["ids"]) != ROWS)
    return f"keys {short} have several short windows" if max(short.values(), default=0) > 1 else None


def _wrong_hops(hops: Sequence[dict[str, Any]], answers: dict[int, int]) -> str | None:
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for number, answer in answers.items():
        last = number // SLIDE_US * SLIDE_US
        for start in range(last, last - SIZE_US, -SLIDE_US):
            numbers, sum_ = expected.get((number % KEYS, start), (0, 0))
            expected[number % KEYS, start] = numbers + 1, sum_ + answer
    found = [(row["key"], row["window_start"], row["numbers"], row["answers"]) for row in hops]
    differing = sorted({(*window, *sums) for window, sums in expected.items()} ^ set(found))
    if differing or len(found) != len(expected):
        return f"hopping windows differ from their rows: {differing[:5]}, {len(found)} of {len(expected)}"
    return None
