"""``clonos replay --to-test``: writes a test with what a row of the record needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from clonos_py.cli.case_text import CaseText, RecordedCase
from clonos_py.cli.masking import Mask
from clonos_py.cli.result_files import write_new
from clonos_py.model.asked import ANSWERS, DRAWS, KINDS, TIMERS, TIMES
from clonos_py.model.errors import ClonosError, SettingError, type_and_text
from clonos_py.model.record import Record, attributes_of, schema_of
from clonos_py.model.record_codec import decode
from clonos_py.plan.logical import AssignEventTimes, CallPerBatch, CallPerRow, CallPerWindow, ReadSource, RunProcess
from clonos_py.runtime.replay.predicates import RowPredicate
from clonos_py.runtime.replay.provenance import RowFound
from clonos_py.runtime.replay.questions import NeededRows, NeedsTracer
from clonos_py.runtime.replay.run import interval_texts
from clonos_py.testing.given_answers import GivenAnswers
from clonos_py.testing.jobs import run_once

if TYPE_CHECKING:
    from clonos_py.dsl.job import Job
    from clonos_py.dsl.loading import JobFile
    from clonos_py.runtime.replay.run import ReplayReport
    from clonos_py.runtime.replay.watcher import OperatorWatcher


_ROWS_MAX = 10_000


def new_test(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Checks before the replay that the test can be written and that pytest will find it."""
    if path is None:
        return None
    if not (path.name.startswith("test_") and path.suffix == ".py" and path.stem.isidentifier()):
        raise click.BadParameter(f"{path} is no name that pytest finds: call it such as test_night.py")
    if path.exists():
        raise click.BadParameter(f"{path} exists: choose another name, or remove it")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"{path} must be a file in a folder that exists")
    return path


class _NotGiven(Exception):
    """The rows do not give the row of the record. The text says why."""


class _TooManyRows(_NotGiven):
    """Functions ask more than was noted when the sink got the row: for rows that came with it, or after it."""


def _first_line(error: BaseException) -> str:
    return next(iter(type_and_text(error).splitlines()))


def written_test(
    jobs: JobFile,
    job: Job,
    values: Mapping[str, Any],
    row: RowPredicate,
    sink: str | None,
    masked: Sequence[str],
    path: Path,
    place: str,
    replayed: Callable[[OperatorWatcher], ReplayReport],
    begun: Sequence[ReplayReport],
) -> int:
    """Replays until the sink gets the row, and writes the test. Returns an exit code. ``begun`` has the report of the
    replay once it has begun."""
    _check_masked(masked, _sources(job))
    tracer = NeedsTracer(job, row, sink)
    try:
        replayed(tracer)
    except RowFound:
        needed = tracer.needs()
    else:
        click.echo(f"{row} holds for no row that a sink got in this interval", err=True)
        return 1
    name = tracer.sink.removeprefix("sink-")
    part = job.leading_to([tracer.sink])
    sources = _sources(part)
    rows, unread = _inputs(needed, sources)
    if (count := sum(map(len, rows.values()))) > _ROWS_MAX:
        click.echo(
            f"no test was written: {count:,} rows led to the row, and a test has {_ROWS_MAX:,} at most", err=True
        )
        return 1
    try:
        case, mask = _case(part, name, needed, rows), None
        if masked:
            mask = Mask(masked, (row for given in case.inputs.values() for row in given))
            case = _masked(part, case, mask)
        text = CaseText(jobs, values, case, path, len(job.sinks) > 1).text(
            _docstring(job, name, row, masked, unread, place, begun[0])
        )
        if mask is not None and (value := mask.leaks(text)) is not None:
            raise _NotGiven(f"the masked value {value!r} would still be in it; mask the column that has it, too")
        _check_passes(text, path)
    except _NotGiven as problem:
        click.echo(f"no test was written: {problem}", err=True)
        return 1
    write_new(path, text)
    counts = ", ".join(f"{len(of):,} row{'s' if len(of) != 1 else ''} of {name}" for name, of in case.inputs.items())
    click.echo(f"wrote {path}: {counts}")
    return 0


def _sources(job: Job) -> dict[str, type[Record]]:
    """The sources of the job, with the class of their rows."""
    found = {}
    for node in job.graph().nodes:
        if isinstance(node.work, ReadSource):
            if len(node.schemas) > 1:
                raise SettingError(f"source {node.name} has several outputs, which a test cannot replace")
            found[node.name] = job.record_of(node.name)
    return found


def _check_masked(masked: Sequence[str], sources: Mapping[str, type[Record]]) -> None:
    for column in masked:
        if not any(column in record.__struct_fields__ for record in sources.values()):
            has = "; ".join(f"{name} has {', '.join(record.__struct_fields__)}" for name, record in sources.items())
            raise SettingError(f"no source has a column {column!r} to mask: {has}")


# ---- the rows that the test gives


def _inputs(
    needed: NeededRows, sources: Mapping[str, type[Record]]
) -> tuple[dict[str, list[Record]], dict[str, list[str]]]:
    """By source: its rows, and the columns that the job does not read."""
    inputs: dict[str, list[Record]] = {}
    unread: dict[str, list[str]] = {}
    for name, record in sources.items():
        inputs[name] = []
        for piece in needed.inputs.get(name, ()):
            whole, missing = _whole(piece, schema_of(record))
            inputs[name] += [row for rows in decode(whole, record) for row in rows]
            if missing:
                attributes = attributes_of(record)
                unread[name] = [attributes.get(column, column) for column in missing]
    return inputs, unread


def _whole(rows: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[str]]:
    """The rows with all columns of a schema. Those that were not read have no values, and are named."""
    missing = [field for field in schema if field.name not in rows.schema.names]
    for field in missing:
        value = None if field.nullable else _nothing(field.type)
        rows = rows.append_column(field, pa.array([value] * rows.num_rows, field.type))
    return rows, [field.name for field in missing]


def _nothing(kind: Any) -> Any:
    """A value of an Arrow type that holds nothing."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_struct(kind):
        return {field.name: _nothing(field.type) for field in kind}
    return False if pa.types.is_boolean(kind) else pa.scalar(0).cast(kind).as_py() if _counts(kind) else 0


def _counts(kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind))


# ---- what the job gives for them


def _case(job: Job, sink: str, needed: NeededRows, inputs: Mapping[str, Sequence[Record]]) -> RecordedCase:
    """What the job gives for these rows, with as few answers as it asks for. Raises _NotGiven."""
    times, draws, answers, fired = (
        {name: list(found) for name, given in needed.answers.items() if (found := given[kind])}
        for kind in range(len(KINDS))
    )
    timers = {name: fired.get(name, []) for name in _timed(job)}
    case = RecordedCase(sink, inputs, times, draws, answers, timers, (), 0)
    problem: _NotGiven | None = None
    for tried in _tried(job, case):
        try:
            return _found(job, tried, needed)
        except _TooManyRows as error:
            problem = problem or error
            if (shorter := _shorter(job, tried, needed)) is not None:
                return shorter
        except _NotGiven as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _timed(job: Job) -> Iterator[str]:
    """The process functions with processing-time timers."""
    for node in job.graph().nodes:
        if isinstance(node.work, RunProcess):
            timers = node.work.declared.declared_timers.values()
            yield from [node.name] if any(timer.processing_time for timer in timers) else []


def _found(job: Job, case: RecordedCase, needed: NeededRows) -> RecordedCase:
    """What the job gives for a case, among which is the row. Raises _NotGiven."""
    ran, wanted = _run(job, case), _fields(needed.row)
    for number, row in enumerate(ran.expected):
        if _fields(row).items() <= wanted.items() or wanted.items() <= _fields(row).items():
            return replace(ran, number=number)
    why = "rows of other keys mattered, or their order"
    if not needed.whole:
        why = "rows from before the interval matter, too: begin it earlier"
    raise _NotGiven(f"the rows that led to it do not give {needed.row} again; {why}")


def _shorter(job: Job, case: RecordedCase, needed: NeededRows) -> RecordedCase | None:
    """The case with the last rows of its source left out, by bisection; None if it has several sources, or if no number
    of rows gives the row."""
    given = [name for name, rows in case.inputs.items() if rows]
    if len(given) != 1:
        return None
    (name,) = given
    few, many = 0, len(case.inputs[name])
    while many - few > 1:
        middle = (few + many) // 2
        try:
            return _found(job, replace(case, inputs={**case.inputs, name: case.inputs[name][:middle]}), needed)
        except _TooManyRows:
            many = middle
        except _NotGiven:
            few = middle
    return None


def _tried(job: Job, case: RecordedCase) -> Iterator[RecordedCase]:
    """The case in its simplest forms first: without headers of answers, and with rows in the order in which they came;
    else in that of event time, since rows of another partition are not late where they would be in one."""
    bare = {name: [_bare(answer) for answer in given] for name, given in case.answers.items()}
    columns = {c for node in job.graph().nodes for c in _time_columns(node.work) if c is not None}
    ordered = {name: _by_time(rows, columns) for name, rows in case.inputs.items()}
    for inputs in (case.inputs, ordered) if ordered != case.inputs else (case.inputs,):
        for answers in (bare, case.answers) if bare != case.answers else (bare,):
            yield replace(case, inputs=inputs, answers=answers)


def _time_columns(work: Any) -> Sequence[str | None]:
    if isinstance(work, AssignEventTimes):
        return [work.column]
    return work.event_time.columns if isinstance(work, ReadSource) else ()


def _by_time(rows: Sequence[Record], columns: set[str]) -> Sequence[Record]:
    """The rows in the order of their event time, if they have one."""
    attributes = {attributes_of(type(row)).get(column, "") for row in rows[:1] for column in columns} - {""}
    if len(attributes) != 1:
        return rows
    (name,) = attributes
    return sorted(rows, key=lambda row: getattr(row, name))


def _bare(answer: Any) -> Any:
    return {**answer, "headers": {}} if isinstance(answer, dict) and "headers" in answer else answer


def _fields(row: Record) -> dict[str, str]:
    return {name: repr(getattr(row, name)) for name in row.__struct_fields__}


def _run(job: Job, case: RecordedCase) -> RecordedCase:
    """The case with what the job gives. Nothing is asked live. Raises _NotGiven."""
    names = [
        node.name
        for node in job.graph().nodes
        if isinstance(node.work, CallPerRow | CallPerBatch | CallPerWindow | RunProcess)
    ]
    asked: dict[str, Mapping[str, Sequence[Any]]] = {TIMES: case.times, DRAWS: case.draws, ANSWERS: case.answers}
    times, draws, answers = ({name: of.get(name, ()) for name in names} for of in asked.values())
    given = GivenAnswers(times, draws, answers, case.timers)
    try:
        found = run_once(job, case.inputs, 0, 0, 1, {}, None, given)
    except (ClonosError, AssertionError) as error:
        kind = _TooManyRows if any(answers.ran_out for answers in given.operators.values()) else _NotGiven
        raise kind(f"the rows that led to it do not give it again: {_first_line(error)}") from error
    rows = next(rows for name, rows in found.rows.items() if name.removeprefix("sink-") == case.sink)
    times, draws, answers = (
        {name: values[:count] for name, values in of.items() if (count := given.operators[name].used[kind])}
        for kind, of in asked.items()
    )
    timers = {name: values[: given.operators[name].used[TIMERS]] for name, values in case.timers.items()}
    return RecordedCase(case.sink, case.inputs, times, draws, answers, timers, rows, case.number)


def _masked(job: Job, case: RecordedCase, mask: Mask) -> RecordedCase:
    """The case with made-up values, for which the job may compute others. Raises _NotGiven if it gives more rows or
    fewer."""
    made = _run(
        job,
        replace(
            case,
            inputs={name: [mask.row(row) for row in rows] for name, rows in case.inputs.items()},
            answers={name: [mask.answer(value) for value in values] for name, values in case.answers.items()},
        ),
    )
    if len(made.expected) != len(case.expected):
        raise _NotGiven(
            "with the masked values the job gives other rows; mask all columns that are compared with them, or none"
        )
    if not mask.fits(case.expected[case.number], made.expected[case.number]):
        click.echo("note: the job computes values from the masked ones, so they differ from the record", err=True)
    return made


def _check_passes(text: str, path: Path) -> None:
    """Runs the test. Raises _NotGiven if it fails."""
    before = list(sys.path)
    names: dict[str, Any] = {"__file__": str(path.absolute()), "__name__": path.stem}
    try:
        exec(compile(text, str(path), "exec"), names)
        next(value for name, value in names.items() if name.startswith("test_"))()
    except Exception as error:
        raise _NotGiven(f"it would fail ({_first_line(error)})") from error
    finally:
        sys.path[:] = before


def _docstring(
    job: Job,
    sink: str,
    row: RowPredicate,
    masked: Sequence[str],
    unread: Mapping[str, Sequence[str]],
    place: str,
    report: ReplayReport,
) -> list[str]:
    first, last = interval_texts(report)
    which = f", the first for which this holds: {row}" if not masked and _plain(str(row)) else ""
    return list(_wrapped(f"A row of {sink} that job {job.name} gave{which}.", "",
        f"Recorded in {place} between {first} and {last}.",
        *[f"Values of {', '.join(masked)} are made up." for _ in masked[:1]],
        *[f"The job does not read these columns of {n}: {', '.join(c)}." for n, c in unread.items()]))  # fmt: skip


def _plain(text: str) -> bool:
    return text.isprintable() and '"' not in text and "\\" not in text


def _wrapped(*lines: str) -> Iterator[str]:
    from textwrap import wrap

    for line in lines:
        yield from wrap(line, 85) or [""]
