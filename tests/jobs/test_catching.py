"""``catch()`` catches whatever fails for a row: in the function, in its result, and in the engine before and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Context, Job, Process, Record, Stream, col
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import UserCodeError

BAD = 2
_numbers = itertools.count()


class Number(Record):
    a: int


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


Strange: Any = type("Strange", (Exception,), {"__str__": lambda self: 5})


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")

    def __repr__(self) -> str:
        raise ValueError("no representation")


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


async def later() -> None:
    """Its coroutine is a mistake as a result: nothing awaits it."""


FAILURES: dict[str, Callable[[], Any]] = {
    "plain": raising(ValueError("no")),
    "half of a surrogate pair": raising(ValueError("no user 'a\ud83d'")),
    "its __str__ raises": raising(Odd()),
    "its __str__ gives no text": raising(Strange()),
    "a service's error with a surrogate": raising(UserCodeError("\udcff")),
    "exit": raising(SystemExit("\ud800")),
    "a result without a truth value": NoTruth,
    "an object in the text": raising(ValueError(object(), later, [object()])),
    "an object as a key": raising(KeyError(object())),
    "an object": type("Odd", (), {"__bool__": lambda self: 5}),
    "a coroutine": later,
}


def ran(failure: Callable[[], Any], build: Callable[[Stream[Number], Callable[[Any], Any]], Any]) -> tuple[Any, Any]:
    def failing(row: Any) -> Any:
        return failure() if row.a == BAD else row

    job, good, bad = Job("catching"), MemorySink(f"good-{next(_numbers)}"), MemorySink(f"bad-{next(_numbers)}")
    rows, letters = build(job.source(MemorySource([Number(1), Number(BAD), Number(3)])), failing)
    rows.sink(good).named("good")
    letters.sink(bad).named("bad")
    job.run(runtime="local")
    return good.table(), bad.table()


def mapped(stream: Any, failing: Callable[[Any], Any]) -> Any:
    return stream.map(failing, returns=Number).catch()


def flat_mapped(stream: Any, failing: Callable[[Any], Any]) -> Any:
    def several(row: Number) -> Any:
        found = failing(row)
        return [found] if isinstance(found, Number) else found

    return stream.flat_map(several, returns=Number).catch()


def filtered(stream: Any, failing: Callable[[Any], Any]) -> Any:
    def chosen(row: Number) -> Any:
        found = failing(row)
        return True if isinstance(found, Number) else found

    return stream.filter(chosen).catch()


def mapped_async(stream: Any, failing: Callable[[Any], Any]) -> Any:
    async def later(row: Number) -> Any:
        return failing(row)

    return stream.map(later, returns=Number).catch()


def filtered_async(stream: Any, failing: Callable[[Any], Any]) -> Any:
    async def later(row: Number) -> Any:
        found = failing(row)
        return True if isinstance(found, Number) else found

    return stream.filter(later).catch()


class Failing(Process[Number, Number]):
    def __init__(self, failing: Callable[[Any], Any]) -> None:
        self.failing = failing

    def on_row(self, row: Number, ctx: Context) -> Any:
        return self.failing(row)


def processed(stream: Any, failing: Callable[[Any], Any]) -> Any:
    return stream.key_by("a").process(Failing(failing)).catch()


VERBS = (mapped, flat_mapped, filtered, mapped_async, filtered_async, processed)


@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_failure_is_a_dead_letter(verb: Any) -> None:
    for name, failure in FAILURES.items():
        good, bad = ran(failure, verb)
        assert sorted(good["a"].to_pylist()) == [1, 3], name
        assert bad["record"].to_pylist() == ['{"a":2}'], name
        assert bad["error"][0].as_py(), name
        assert (
            not (verb is filtered and name == "a coroutine") or "it gave a coroutine: write" in bad["error"][0].as_py()
        )
        assert " at 0x" not in bad["error"][0].as_py(), f"{name}: in a replay the address is another"


class Timed(Record):
    t: Any


def same(row: Any) -> Any:
    return row


async def same_later(row: Any) -> Any:
    return row


OUTSIDE: dict[str, tuple[pa.DataType, Any, int]] = {
    "a datetime": (pa.timestamp("us", "UTC"), datetime, 253_402_300_800_000_000),
    "a local datetime": (pa.timestamp("ms"), datetime, -62_135_596_800_001),
    "a date": (pa.date32(), date, 2_932_897),
    "a duration": (pa.duration("s"), timedelta, 10**14),
    "a nested datetime": (pa.list_(pa.timestamp("us", "UTC")), list[datetime | None], 253_402_300_800_000_000),
}


class Same(Process[Any, Any]):
    def on_row(self, row: Any, ctx: Context) -> Any:
        return row


@pytest.mark.parametrize("kind", OUTSIDE)
def test_rows_with_values_that_python_does_not_have_are_dead_letters(kind: str) -> None:
    type_, annotation, far = OUTSIDE[kind]
    nested = pa.types.is_list(type_)
    numbers = pa.array([0, far, 1, far], pa.int32() if type_ == pa.date32() else pa.int64())
    column: Any = numbers.cast(type_.value_type if isinstance(type_, pa.ListType) else type_)
    if nested:
        column = pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), column)
    table = pa.table({"a": [1, 2, 3, 4], "t": column})
    row = type("Row", (Record,), {"__annotations__": {"a": int | None, "t": annotation | None}})

    class Typed(Process[row, row]):  # type: ignore[valid-type]
        def on_row(self, given: Any, ctx: Context) -> Any:
            return given

    builds: tuple[Callable[[Any], Any], ...] = (
        lambda s: s.map(same, returns=row).catch(),
        lambda s: s.map(same_later, returns=row).catch(),
        lambda s: s.filter(lambda given: True).catch(),
        lambda s: s.key_by("a").process(Typed).catch(),
        lambda s: s.select("t", a="a").key_by("t").process(Typed).catch() if not nested else None,
    )
    for build in builds:
        job, good, bad = Job("far"), MemorySink(f"good-{next(_numbers)}"), MemorySink(f"bad-{next(_numbers)}")
        built = build(job.source(MemorySource(table)))
        if built is None:
            continue
        built[0].sink(good).named("good")
        built[1].sink(bad).named("bad")
        job.run(runtime="local")
        found: Any = good.table()
        letters: Any = bad.table()
        assert sorted(found["a"].to_pylist()) == [1, 3]
        assert [letter.count('"a":') for letter in letters["record"].to_pylist()] == [1, 1]


def test_without_catch_the_error_names_the_row() -> None:
    table = pa.table({"a": [1, 2], "t": pa.array([0, 253_402_300_800_000_000], pa.timestamp("us"))})
    job = Job("far")
    stream: Any = job.source(MemorySource(table))
    stream.map(same, returns=pa.schema([pa.field("a", pa.int64())])).sink(MemorySink("far"))
    with pytest.raises(UserCodeError, match=r'failed on record \{"a":2.*are no datetime.*\.catch\(\) would skip it'):
        job.run(runtime="local")


def test_an_error_without_text_ends_a_job_with_one_line() -> None:
    job = Job("odd")
    stream: Any = job.source(MemorySource([Number(1)]))
    stream.select(col("a")).map(lambda row: raising(Odd())(), returns=Number).sink(MemorySink("odd"))
    with pytest.raises(UserCodeError, match=r"Odd: \(its str raised ValueError\)"):
        job.run(runtime="local")
